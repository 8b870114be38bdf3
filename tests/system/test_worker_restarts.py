"""Workers whose daemon goes and comes: they serve on, and nobody has to do anything."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from discoveryd.client.errors import NoDaemon
from discoveryd.client.workers.blocking_worker import Worker
from discoveryd.client.workers.worker import AsyncWorker
from tests.system.conftest import Start
from tests.system.dropping import Host
from tests.system.working import BACKENDS, LLAMA, card, files, run


@pytest.fixture
def own(start: Start) -> Iterator[Host]:
    """Give a daemon of the test's own, which it may end."""
    daemon = start().wait_ready()
    with daemon.client() as client:
        yield Host(daemon, client)


# Daemons that go and come


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_serves_on_after_the_daemon_has_started_again(
    own: Host, start: Start, backend: str, number: signal.Signals
) -> None:
    async def main() -> None:
        async with AsyncWorker(LLAMA, socket=str(own.daemon.socket)) as worker:
            before = own.client.list().cursor
            own.daemon.send(number)
            own.daemon.wait_ended()
            await worker.changed()
            assert not worker.connected
            assert worker.verdict.standing == "serving"
            with pytest.raises(TimeoutError), anyio.fail_after(0.2):
                await worker.serving()
            await worker.accept(False)
            await worker.accept(True)
            start().wait_ready()
            began = anyio.current_time()
            await worker.serving()
            assert worker.connected
            assert anyio.current_time() - began < 5, "the time that holders have"
            with own.daemon.client() as client, contextlib.closing(client.watch(before)) as watched:
                reply = next(watched)
                assert (reply.reset, reply.removed, reply.gone) == (False, (), ())
                assert client.resolve("llama").workers

    run(backend, main)
    assert files(own) == []


def test_a_card_that_went_while_the_daemon_was_away_is_published_again(
    own: Host, start: Start
) -> None:
    with Worker(LLAMA, socket=str(own.daemon.socket)) as worker:
        own.daemon.stop()
        Path(worker.path).unlink()
        own.cards.rmdir()
        own.cards.mkdir()
        start().wait_ready()
        worker.serving()
        assert files(own) == ["llama@127.0.0.1_8001.json"]
    assert files(own) == []


def test_a_card_follows_the_daemon_to_another_directory(own: Host, start: Start) -> None:
    elsewhere = own.daemon.root / "elsewhere"
    elsewhere.mkdir()
    with Worker(LLAMA, socket=str(own.daemon.socket)) as worker:
        own.daemon.stop()
        start(["--cards", str(elsewhere), "--socket", str(own.daemon.socket)]).wait_ready()
        worker.serving()
        assert worker.path == str(elsewhere / "llama@127.0.0.1_8001.json")
        assert files(own) == []
    assert list(elsewhere.iterdir()) == []


def test_an_update_waits_for_a_daemon_that_is_away(own: Host, start: Start) -> None:
    with Worker(LLAMA, socket=str(own.daemon.socket), patience=0.5) as worker:
        own.daemon.stop()
        with pytest.raises(NoDaemon):
            worker.update(card(aliases=["chat"]))
        start().wait_ready()
        worker.serving()
        assert worker.verdict.names == ("llama", "chat")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_waits_for_the_first_daemon(root: Path, start: Start, backend: str) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:

            async def begin() -> None:
                await anyio.sleep(0.2)
                start()

            tasks.start_soon(begin)
            async with AsyncWorker(LLAMA, socket=str(root / "s"), patience=30) as worker:
                assert worker.verdict.standing == "serving"

    run(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_daemon_it_says_so_when_its_patience_is_over(root: Path, backend: str) -> None:
    async def main() -> None:
        worker = AsyncWorker(LLAMA, socket=str(root / "s"), directory=str(root), patience=0.2)
        with pytest.raises(NoDaemon):
            await worker.__aenter__()

    run(backend, main)
    assert list(root.iterdir()) == []
