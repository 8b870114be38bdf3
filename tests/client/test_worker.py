"""What a worker makes of daemons that refuse, are silent, or answer what nobody expects."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from discoveryd.client.errors import BadReply, CallRefused, Timeout
from discoveryd.client.workers.blocking_worker import Worker
from discoveryd.client.workers.holding import Holding
from discoveryd.client.workers.publication import process_name
from discoveryd.client.workers.publishing import CannotWrite
from discoveryd.client.workers.worker import AsyncWorker, NotServing
from tests.client import fakes
from tests.client.fakes import FakeDaemon

CARD = {"display_name": "llama", "url": "http://127.0.0.1:8001"}
FILE = "llama@127.0.0.1_8001.json"
BACKENDS = ["asyncio", "trio"]
DENIED = "org.varlink.service.PermissionDenied"


@pytest.fixture
def cards(directory: Path, daemon: FakeDaemon) -> Path:
    """Give a drop directory that the fake daemon says it watches."""
    cards = directory / "cards"
    cards.mkdir()
    (usual,) = fakes.status()["directories"]
    daemon.answer("GetStatus", fakes.status(directories=[{**usual, "path": str(cards)}]))
    daemon.answer("Sync", **fakes.failure("NoSuchFile", file=FILE))
    return cards


def held(*verdicts: dict[str, Any], revision: int = 7) -> dict[str, Any]:
    return {"verdicts": list(verdicts), "cursor": {**fakes.CURSOR, "revision": revision}}


def run(backend: str, main: Callable[[], Any]) -> None:
    async def in_time() -> None:
        with anyio.fail_after(40):
            await main()

    anyio.run(in_time, backend=backend)


class Holds:
    """Answers each Hold with the next of `says`, and goes on holding, until `end`.

    All but the first answer to a Hold wait for `go_on`.
    """

    def __init__(self, daemon: FakeDaemon) -> None:
        self.says: list[list[dict[str, Any]]] = []
        self.go_on = threading.Event()
        self.end = threading.Event()
        self.count = 0
        self._daemon = daemon
        self._serve = daemon.serve
        daemon.serve = self.serve  # type: ignore[method-assign]  # a fake of a fake

    def serve(self, connection: fakes.Connection) -> None:
        for call in self._daemon.receive(connection):
            method = call["method"].rpartition(".")[2]
            if method != "Hold":
                (reply,) = self._daemon.answers[method](call.get("parameters", {}))
                connection.sendall(fakes.frame(reply))
                continue
            self.count += 1
            for number, parameters in enumerate(self.says.pop(0)):
                if number:
                    self.go_on.wait(20)
                connection.sendall(fakes.frame({"parameters": parameters, "continues": True}))
            self.end.wait(20)
            self.end.clear()
            return


@pytest.fixture
def holds(daemon: FakeDaemon, cards: Path) -> Iterator[Holds]:
    assert cards.is_dir()
    holds = Holds(daemon)
    yield holds
    holds.end.set()


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_may_not_hold_is_told_and_leaves_nothing(
    daemon: FakeDaemon, cards: Path, backend: str
) -> None:
    daemon.answer("Hold", **fakes.failure(DENIED))

    async def main() -> None:
        with pytest.raises(CallRefused, match="PermissionDenied"):
            await AsyncWorker(CARD, socket=daemon.path).__aenter__()

    run(backend, main)
    assert list(cards.iterdir()) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_daemon_that_says_nothing_is_told_when_patience_is_over(
    daemon: FakeDaemon, cards: Path, backend: str
) -> None:
    daemon.scripts += [fakes.stay_silent] * 20

    async def main() -> None:
        with pytest.raises(Timeout):
            await AsyncWorker(CARD, socket=daemon.path, patience=0.2).__aenter__()

    run(backend, main)
    assert list(cards.iterdir()) == []


def test_what_does_not_speak_the_interface_is_told(daemon: FakeDaemon, cards: Path) -> None:
    daemon.answer("Hold", {"nothing": "known"})
    with pytest.raises(BadReply):
        Worker(CARD, socket=daemon.path).__enter__()
    assert list(cards.iterdir()) == []


def test_a_bare_name_that_means_two_files_is_told(
    daemon: FakeDaemon, cards: Path, directory: Path
) -> None:
    (directory / "mounted").mkdir()
    daemon.answer("Hold", held(fakes.serving("/a/x.json"), fakes.serving("/b/x.json")))
    with pytest.raises(CannotWrite, match=r"knows 2 files x\.json: give this one another name"):
        Worker(
            CARD, socket=daemon.path, file="x.json", directory=str(directory / "mounted")
        ).__enter__()
    assert daemon.asked()[-1] == ("Hold", {"files": ["x.json"]})
    assert list((directory / "mounted").iterdir()) == []
    assert list(cards.iterdir()) == []


def test_a_refusal_has_every_reason_and_the_verdict(holds: Holds, daemon: FakeDaemon) -> None:
    reasons = fakes.verdict()["reasons"]
    more = {**reasons[0], "message": "and another"}
    holds.says = [[held(fakes.verdict("/cards/x.json", reasons=[*reasons, more]))]]
    with pytest.raises(NotServing) as caught:
        Worker(CARD, socket=daemon.path).__enter__()
    assert str(caught.value) == (
        "/cards/x.json is refused: the sources differ: give both the same source_path; and another"
    )
    assert caught.value.verdict.standing == "refused"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_change_is_missed_between_two_waits(
    holds: Holds, daemon: FakeDaemon, backend: str
) -> None:
    said = [
        held(fakes.serving(since=f"2026-01-02T03:04:0{second}+00:00"), revision=7 + second)
        for second in range(2)
    ]
    holds.says = [said, said]

    async def main() -> None:
        async with AsyncWorker(CARD, socket=daemon.path) as worker:
            holds.go_on.set()
            while worker.verdict.since[18] != "1":
                await anyio.sleep(0.001)
            with anyio.fail_after(5):
                assert (await worker.changed()).since[18] == "1"
            with anyio.move_on_after(0.05) as scope:
                await worker.changed()
            assert scope.cancelled_caught
            holds.end.set()
            await worker.changed()
            assert not worker.connected

    run(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_who_wait_are_both_told(holds: Holds, daemon: FakeDaemon, backend: str) -> None:
    holds.says = [[held(fakes.serving())]] * 2

    async def main() -> None:
        async with AsyncWorker(CARD, socket=daemon.path) as worker, anyio.create_task_group() as t:
            t.start_soon(worker.changed)
            t.start_soon(worker.changed)
            await anyio.wait_all_tasks_blocked()
            holds.end.set()

    run(backend, main)


def test_an_older_revision_changes_nothing(holds: Holds, daemon: FakeDaemon) -> None:
    holds.says = [[held(fakes.serving(), revision=9)]]
    daemon.answer("Sync", {**held(fakes.verdict(), revision=8), "standings": {}})
    with Worker(CARD, socket=daemon.path) as worker:
        assert worker.update(CARD).standing == "serving"
        daemon.answer("Sync", {**held(fakes.verdict(), revision=10), "standings": {}})
        assert worker.update(CARD).standing == "refused"


def test_a_hold_that_is_refused_later_is_tried_again(
    holds: Holds, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds.says = [[held(fakes.serving())]] * 2
    refusing = threading.Event()
    serve = holds.serve

    def refuse(connection: fakes.Connection) -> None:
        if not refusing.is_set():
            serve(connection)
            return
        for _ in daemon.receive(connection):
            refusing.clear()
            connection.sendall(fakes.frame(fakes.failure(DENIED)))

    monkeypatch.setattr(daemon, "serve", refuse)
    with Worker(CARD, socket=daemon.path) as worker:
        refusing.set()
        holds.end.set()
        worker.serving()
        while not (holds.count == 2 and worker.connected):
            assert worker.wait_changed(20) is not None
        assert not refusing.is_set()


def test_a_thread_that_breaks_is_told(
    holds: Holds, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds.says = [[held(fakes.serving())]]

    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    worker = Worker(CARD, socket=daemon.path)
    worker.__enter__()
    monkeypatch.setattr(Holding, "_put", bug)
    holds.end.set()
    with pytest.raises(RuntimeError, match="has been left"):
        _wait_for_ever(worker)
    worker._thread.join(20)
    with pytest.raises(BaseExceptionGroup) as caught:
        worker.__exit__(None, None, None)
    assert caught.group_contains(ZeroDivisionError)


def _wait_in(worker: Worker) -> None:
    with worker:
        threading.Timer(0.05, interrupt).start()
        _wait_for_ever(worker)


def _wait_for_ever(worker: Worker) -> None:
    while True:
        worker.wait_changed(20)


def interrupt() -> None:
    """Interrupt the main thread, as Ctrl-C does."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def test_an_interrupt_before_the_thread_has_a_loop_leaves_nothing(
    holds: Holds, daemon: FakeDaemon, cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_loop = anyio.run

    def interrupted(*arguments: Any) -> object:
        interrupt()
        while not worker._given_up:
            time.sleep(0.001)  # between two looks
        return run_loop(*arguments)

    monkeypatch.setattr(anyio, "run", interrupted)
    worker = Worker(CARD, socket=daemon.path)
    with pytest.raises(KeyboardInterrupt):
        worker.__enter__()
    assert not worker._thread.is_alive()
    assert (holds.count, list(cards.iterdir())) == (0, [])


def test_an_interrupt_before_the_first_verdict_leaves_nothing(
    daemon: FakeDaemon, cards: Path
) -> None:
    def answer(_: object) -> list[fakes.Reply]:
        assert (cards / FILE).exists()
        interrupt()
        threading.Event().wait(0.2)
        return [{"parameters": held(fakes.serving())}]

    daemon.answers["Hold"] = answer
    worker = Worker(CARD, socket=daemon.path)
    with pytest.raises(KeyboardInterrupt):
        worker.__enter__()
    assert not worker._thread.is_alive()
    assert list(cards.iterdir()) == []


def test_an_interrupt_while_it_waits_for_news_leaves_nothing(
    holds: Holds, daemon: FakeDaemon, cards: Path
) -> None:
    holds.says = [[held(fakes.serving())]]
    worker = Worker(CARD, socket=daemon.path)
    with pytest.raises(KeyboardInterrupt):
        _wait_in(worker)
    assert not worker._thread.is_alive()
    assert list(cards.iterdir()) == []


def test_a_blocking_worker_is_entered_once(holds: Holds, daemon: FakeDaemon) -> None:
    holds.says = [[held(fakes.serving())]]
    worker = Worker(CARD, socket=daemon.path)
    with pytest.raises(RuntimeError, match="not entered"):
        worker.serving()
    with worker, pytest.raises(RuntimeError, match="entered before"):
        worker.__enter__()
    with pytest.raises(RuntimeError, match="entered before"):
        worker.__enter__()


def test_a_file_that_cannot_be_removed_is_told_but_hides_no_error_of_the_body(
    holds: Holds, daemon: FakeDaemon, cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds.says = [[held(fakes.serving())]] * 2

    def refuse(path: str) -> None:
        raise CannotWrite(f"cannot remove {path}: Read-only file system")

    monkeypatch.setattr("discoveryd.client.workers.publication.withdraw", refuse)
    with pytest.raises(CannotWrite, match="Read-only"), Worker(CARD, socket=daemon.path):
        pass
    (cards / FILE).unlink()
    with pytest.raises(KeyError), Worker(CARD, socket=daemon.path):
        raise KeyError


def test_without_a_url_the_process_stands_in_the_name(holds: Holds, daemon: FakeDaemon) -> None:
    holds.says = [[held(fakes.serving())]]
    with Worker({"display_name": "llama"}, socket=daemon.path) as worker:
        assert Path(worker.path).name == f"llama@{process_name()}.json"
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    own = "" if namespace == 0xEFFFFFFC else f".{namespace}"
    assert process_name() == f"{os.getpid()}{own}"


def test_a_card_that_the_daemon_would_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match="the daemon reads 1048576"):
        AsyncWorker({"display_name": "x" * (1 << 20)})
