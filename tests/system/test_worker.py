"""Workers that publish themselves, at a real daemon: entering, waiting, changing, leaving."""

import json
import signal
import subprocess
import threading
from pathlib import Path

import anyio
import pytest

from discoveryd.client.workers.blocking_worker import Worker
from discoveryd.client.workers.worker import AsyncWorker, NotServing
from tests.system.dropping import Host
from tests.system.running import Daemon, until
from tests.system.working import BACKENDS, LLAMA, WORK, card, files, run, serves, worker_process


@pytest.fixture
def socket(host: Host) -> str:
    return str(host.daemon.socket)


# Entering and leaving


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_serves_while_it_is_entered(host: Host, socket: str, backend: str) -> None:
    async def main() -> None:
        async with AsyncWorker(LLAMA, socket=socket) as worker:
            assert worker.connected
            assert worker.verdict.standing == "serving"
            assert worker.path == str(host.cards / "llama@127.0.0.1_8001.json")
            assert worker.verdict.file == worker.path
            assert serves(host)
            await worker.serving()

    run(backend, main)
    assert files(host) == []
    until(lambda: not serves(host), "the worker is gone from the answers")


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_leaves_is_not_told_as_dead(host: Host, socket: str, backend: str) -> None:
    async def main() -> None:
        async with AsyncWorker(LLAMA, socket=socket):
            pass
        with anyio.CancelScope() as scope:
            async with AsyncWorker(LLAMA, socket=socket):
                scope.cancel()
                await anyio.sleep_forever()
        with pytest.raises(ZeroDivisionError):
            async with AsyncWorker(LLAMA, socket=socket):
                raise ZeroDivisionError

    run(backend, main)
    until(lambda: not serves(host), "the worker is gone from the answers")
    past = host.client.history("llama@127.0.0.1_8001.json", limit=6)
    assert [event.standing for event in past.events] == ["gone", "serving"] * 3


def test_a_blocking_worker_does_the_same(host: Host, socket: str) -> None:
    before = threading.active_count()
    with Worker(LLAMA, socket=socket) as worker:
        assert (worker.connected, worker.verdict.standing) == (True, "serving")
        assert Path(worker.path).name == "llama@127.0.0.1_8001.json"
        worker.serving()
        assert worker.wait_changed(0.01) is None
        assert serves(host)
    assert files(host) == []
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="not entered"):
        worker.serving()


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_does_not_get_to_serve_is_told_why_and_leaves_nothing(
    host: Host, socket: str, backend: str
) -> None:
    host.put("first", card())

    async def main() -> None:
        with pytest.raises(NotServing) as caught:
            async with AsyncWorker(card(8002, context_length=4096), socket=socket):
                pass
        assert caught.value.verdict.standing == "standby"
        assert "is standby: " in str(caught.value)
        assert "context_length" in str(caught.value)

    run(backend, main)
    assert files(host) == ["first.json"]
    past = host.client.history("llama@127.0.0.1_8002.json", limit=2)
    assert [event.standing for event in past.events] == ["gone", "standby"]


def test_a_blocking_worker_raises_the_same(host: Host, socket: str) -> None:
    host.put("first", card())
    before = threading.active_count()
    with pytest.raises(NotServing), Worker(card(8002, context_length=1), socket=socket):
        pass
    assert files(host) == ["first.json"]
    assert threading.active_count() == before


def test_an_invalid_card_is_told_all_its_faults(socket: str) -> None:
    with pytest.raises(NotServing, match=r"is invalid: \$\.display_name .*\$\.labels"):
        Worker({"display_name": 7, "labels": 3}, socket=socket).__enter__()


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_of_the_body_pass_through_as_they_are(host: Host, socket: str, backend: str) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with AsyncWorker(LLAMA, socket=socket):
                raise ZeroDivisionError

    run(backend, main)
    with pytest.raises(ZeroDivisionError), Worker(LLAMA, socket=socket):
        raise ZeroDivisionError
    assert files(host) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancelled_worker_leaves_no_card_whenever_it_is_cancelled(
    host: Host, socket: str, backend: str
) -> None:
    async def live(checkpoints: int) -> bool:
        """Be a worker, cancelled after so many turns of the loop; return whether it was entered."""
        entered = False
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                nonlocal entered
                async with AsyncWorker(LLAMA, socket=socket):
                    entered = True
                    await anyio.sleep_forever()

            tasks.start_soon(work)
            for _ in range(checkpoints):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert files(host) == []
        return entered

    async def main() -> None:
        for checkpoints in range(40):
            await live(checkpoints)
        checkpoints = 40
        while not await live(checkpoints):
            checkpoints *= 2

    run(backend, main)
    until(lambda: not serves(host), "the worker is gone from the answers")


def test_an_interrupted_process_leaves_no_card(host: Host) -> None:
    with worker_process(host.daemon) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"serving\n"
        worker.send_signal(signal.SIGINT)
        worker.wait(20)
    assert files(host) == []


def test_an_interrupt_while_it_waits_for_a_daemon_leaves_no_thread_and_no_card(
    root: Path,
) -> None:
    cards = root / "cards"
    cards.mkdir()
    program = WORK.replace("waiting=True", f"directory={str(cards)!r}, patience=None")
    daemon = Daemon(root, ["--help"])
    daemon.wait_ended(20)
    # Not while it imports: there Python may lose an interrupt.
    program = program.replace("with", "print(flush=True)\nwith", 1)
    with worker_process(daemon, program) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.send_signal(signal.SIGINT)
        worker.wait(20)
    assert list(cards.iterdir()) == []


def test_a_killed_process_is_gone_from_the_answers_and_its_next_life_replaces_its_card(
    host: Host,
) -> None:
    with worker_process(host.daemon) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.kill()
        worker.wait()
    until(lambda: not serves(host), "the worker is gone from the answers")
    assert files(host) == ["llama@127.0.0.1_8001.json"]
    with Worker(LLAMA, socket=str(host.daemon.socket)) as worker_again:
        assert worker_again.verdict.standing == "serving"
        assert files(host) == ["llama@127.0.0.1_8001.json"]
    assert files(host) == []


# Waiting, changing, draining


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_stands_by_takes_over_when_the_first_leaves(
    host: Host, socket: str, backend: str
) -> None:
    async def main() -> None:
        first = AsyncWorker(LLAMA, socket=socket)
        second = AsyncWorker(card(8002, context_length=4096), socket=socket, waiting=True)
        async with anyio.create_task_group() as tasks:
            left = anyio.Event()

            async def work(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                async with first:
                    task_status.started()
                    await left.wait()

            await tasks.start(work)
            async with second:
                assert second.verdict.standing == "standby"
                left.set()
                assert (await second.changed()).standing == "serving"
                await second.serving()
                assert host.workers("llama") == [second.verdict.key]

    run(backend, main)


def test_a_blocking_worker_that_stands_by_waits_until_it_serves(host: Host, socket: str) -> None:
    path = host.cards / "first.json"
    host.put("first", LLAMA)
    other = card(8002, context_length=4096)
    with Worker(other, socket=socket, waiting=True) as second:
        assert second.verdict.standing == "standby"
        waiter = threading.Thread(target=second.serving)
        waiter.start()
        path.unlink()
        waiter.join(20)
        assert second.verdict.standing == "serving"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_update_changes_the_same_file_and_says_what_becomes_of_it(
    host: Host, socket: str, backend: str
) -> None:
    async def main() -> None:
        async with AsyncWorker(LLAMA, socket=socket) as worker:
            assert (await worker.update(card(aliases=["chat"]))).names == ("llama", "chat")
            assert files(host) == ["llama@127.0.0.1_8001.json"]
            assert host.workers("chat") == [worker.verdict.key]
            bad = await worker.update({"display_name": 7})
            assert (bad.standing, bad.serves) == ("invalid", "previous")
            with pytest.raises(NotServing, match="is invalid"):
                await worker.serving()
            with pytest.raises(TypeError):
                await worker.update({"display_name": object()})
            assert serves(host)

    run(backend, main)


def test_a_worker_that_drains_keeps_its_names_and_leaves_the_answers(
    host: Host, socket: str
) -> None:
    with Worker(card(labels={"n": "1"}), socket=socket) as worker:
        worker.accept(False)
        assert host.client.resolve("llama").workers == ()
        worker.update(card(labels={"n": "2"}))
        assert host.client.resolve("llama").workers == ()
        worker.accept(True)
        (line,) = host.client.resolve("llama").workers
        assert line.labels == {"n": "2"}
        worker.update(card(accepting=False))
        assert host.client.resolve("llama").workers == ()


def test_a_card_with_a_life_of_its_own_is_followed_and_not_kept_alive(
    host: Host, socket: str
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        mortal = card(liveness={"pid": process.pid})
        with Worker(mortal, socket=socket) as worker:
            assert json.loads(Path(worker.path).read_bytes())["liveness"] == {"pid": process.pid}
            process.kill()
            process.wait()
            verdict = worker.wait_changed(20)
            assert verdict is not None
            assert (verdict.standing, verdict.reasons[0].rule) == ("expired", "process_gone")
    assert files(host) == []


# Misuse


@pytest.mark.parametrize("patience", [0, -1, float("nan")])
def test_patience_is_more_than_nothing(patience: float) -> None:
    with pytest.raises(ValueError, match="must be more than 0 seconds"):
        Worker(LLAMA, patience=patience)


def test_a_file_that_is_no_card_files_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must end in \.json"):
        AsyncWorker(LLAMA, file="llama.txt")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_is_entered_once_and_of_no_use_afterwards(socket: str, backend: str) -> None:
    async def main() -> None:
        worker = AsyncWorker(LLAMA, socket=socket)
        for early in (worker.changed, worker.serving):
            with pytest.raises(RuntimeError, match="not entered"):
                await early()
        with pytest.raises(RuntimeError, match="not been entered"):
            _ = worker.path
        with pytest.raises(RuntimeError, match="not been entered"):
            _ = worker.verdict
        async with worker, anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(RuntimeError, match="has been left"):
                    await worker.changed()

            with pytest.raises(RuntimeError, match="entered before"):
                await worker.__aenter__()
            del tasks
        with pytest.raises(RuntimeError, match="has been left"):
            await worker.accept(True)
        with pytest.raises(RuntimeError, match="entered before"):
            await worker.__aenter__()

    run(backend, main)
