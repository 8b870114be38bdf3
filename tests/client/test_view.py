"""What the live view promises, against a daemon of canned answers, on asyncio and trio.

That it says what the daemon says is test_mirror.py's.
"""

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from discoveryd.client import (
    BadReply,
    CallRefused,
    Cursor,
    Models,
    NoDaemon,
    NoSuchModel,
    Timeout,
    aio,
    view,
)
from tests.client import fakes
from tests.client.backends import on_both, until
from tests.client.fakes import FakeDaemon, Stream, answer_once, frame, stay_silent

SINCE = {"since": fakes.CURSOR}


def at(revision: int, epoch: str = "e1") -> dict[str, Any]:
    return {"epoch": epoch, "revision": revision}


def everything(*instances: str, **members: Any) -> dict[str, Any]:
    """The whole state: these workers of llama."""
    workers = [fakes.worker(instance) for instance in instances]
    names = [fakes.name(workers=len(workers)), fakes.name("chat", kind="alias")]
    return fakes.watched(reset=True, changed=workers, names=names, **members)


def told(daemon: FakeDaemon, *instances: str) -> Stream:
    """Return the next watch, which has told of these workers."""
    stream = daemon.stream()
    stream.put(**everything(*instances))
    return stream


def instances(models: Models, name: str = "llama") -> list[str]:
    return [worker.instance for worker in models.resolve(name).workers]


@on_both
async def test_entering_waits_for_the_whole_state(daemon: FakeDaemon) -> None:
    stream = daemon.stream()
    first, last = everything("1"), fakes.watched(changed=[fakes.worker("2")])
    stream.put(**{**first, "partial": True})
    entered: list[list[str]] = []

    async def enter() -> None:
        async with Models.follow(daemon.path) as models:
            entered.append(instances(models))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
        await until(lambda: bool(daemon.calls), "the watch")
        await anyio.wait_all_tasks_blocked()
        assert not entered
        stream.put(**last)
    assert entered == [["1", "2"]]
    assert daemon.asked() == [("Watch", {})]


@on_both
async def test_lookups_ask_nobody(daemon: FakeDaemon) -> None:
    told(daemon, "1", "2")
    async with Models.follow(daemon.path) as models:
        assert instances(models, "chat") == ["1", "2"]
        found = models.resolve("chat")
        assert (found.kind, found.model, found.ready) == ("alias", "llama", True)
        assert found.cursor == models.cursor == Cursor("e1", 7)
        assert {line.name for line in models.names()} == {"llama", "chat"}
        assert [worker.instance for worker in models.workers()] == ["1", "2"]
        assert [worker.instance for worker in models.workers("chat")] == ["1", "2"]
        assert models.workers("none") == ()
    assert len(daemon.calls) == 1


@on_both
async def test_a_name_that_nobody_serves_is_no_such_model(daemon: FakeDaemon) -> None:
    told(daemon, "1")
    async with Models.follow(daemon.path) as models:
        with pytest.raises(NoSuchModel, match="nobody serves Llama") as caught:
            models.resolve("Llama")
    missing = caught.value
    assert (missing.model, missing.similar, missing.waiting) == ("Llama", (), ())


@on_both
async def test_what_was_looked_up_stays_as_it_was(daemon: FakeDaemon) -> None:
    stream = told(daemon, "1", "2")
    async with Models.follow(daemon.path) as models:
        before = models.resolve("llama")
        stream.put(**fakes.watched(cursor=at(8), removed=[fakes.worker("1")["key"]]))
        await models.changed()
        assert instances(models) == ["2"]
        assert [worker.instance for worker in before.workers] == ["1", "2"]


# changed


@on_both
async def test_changed_returns_at_the_next_revision(daemon: FakeDaemon) -> None:
    stream = told(daemon, "1")
    async with Models.follow(daemon.path) as models, anyio.create_task_group() as tasks:
        seen: list[Cursor] = []

        async def wait() -> None:
            seen.append(await models.changed())

        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        stream.put(**fakes.watched())
        stream.put(**fakes.watched(cursor=at(8), names=[fakes.name(ready=False)]))
        await until(lambda: len(seen) == 2, "both are woken")
        assert seen == [Cursor("e1", 8)] * 2
        assert not models.resolve("llama").ready


@on_both
async def test_a_change_before_the_wait_is_not_missed(daemon: FakeDaemon) -> None:
    stream = told(daemon, "1")
    async with Models.follow(daemon.path) as models:
        seen = models.cursor
        stream.put(**fakes.watched(cursor=at(8), gone=["chat"]))
        await until(lambda: models.cursor != seen, "the change")
        assert await models.changed(seen) == Cursor("e1", 8)


@on_both
async def test_a_view_that_was_left_answers_but_does_not_wait(daemon: FakeDaemon) -> None:
    stream = told(daemon, "1")
    async with Models.follow(daemon.path) as models:
        pass
    assert stream.over.wait(10)
    assert not models.connected
    assert instances(models) == ["1"]
    with pytest.raises(RuntimeError, match="has been left"):
        await models.changed()
    with pytest.raises(RuntimeError, match="follow once more"):
        await models.__aenter__()


@on_both
async def test_who_waits_when_the_view_is_left_is_told(daemon: FakeDaemon) -> None:
    told(daemon, "1")

    async def wait(models: Models) -> None:
        with pytest.raises(RuntimeError, match="has been left"):
            await models.changed()

    async with anyio.create_task_group() as tasks, Models.follow(daemon.path) as models:
        tasks.start_soon(wait, models)
        await anyio.wait_all_tasks_blocked()


# A daemon that goes, and one that comes


@on_both
async def test_a_view_without_its_daemon_goes_on_answering_and_says_so(daemon: FakeDaemon) -> None:
    stream = told(daemon, "1")
    daemon.scripts.append(stay_silent)
    async with Models.follow(daemon.path) as models:
        assert models.connected
        assert models.stale_seconds == 0.0
        stream.end()
        await until(lambda: not models.connected, "the connection is lost")
        stale = models.stale_seconds
        assert stale > 0
        await until(lambda: models.stale_seconds > stale, "staleness grows")
        assert instances(models) == ["1"]


@on_both
async def test_it_goes_on_from_its_cursor(daemon: FakeDaemon) -> None:
    first = told(daemon, "1")
    second = daemon.stream()
    async with Models.follow(daemon.path) as models:
        first.end()
        await until(lambda: len(daemon.calls) == 2, "the second watch")
        assert not models.connected
        second.put(**fakes.watched(cursor=at(9), changed=[fakes.worker("2")]))
        assert await models.changed(Cursor("e1", 7)) == Cursor("e1", 9)
        assert models.connected
        assert models.stale_seconds == 0.0
        assert instances(models) == ["1", "2"]
    assert daemon.asked() == [("Watch", {}), ("Watch", SINCE)]


@on_both
async def test_a_daemon_that_does_not_know_the_cursor_tells_everything(daemon: FakeDaemon) -> None:
    first, second = told(daemon, "1", "2"), daemon.stream()
    async with Models.follow(daemon.path) as models:
        first.end()
        second.put(**everything("3", cursor=at(1, "e2")))
        await until(lambda: models.cursor == Cursor("e2", 1), "the new epoch")
        assert instances(models) == ["3"]
        assert len(models.workers()) == 1


@on_both
async def test_a_reply_that_broke_off_has_not_happened(daemon: FakeDaemon) -> None:
    first, second = told(daemon, "1"), daemon.stream()
    piece = fakes.watched(cursor=at(8), partial=True, changed=[fakes.worker("2")])
    async with Models.follow(daemon.path) as models:
        first.put(**piece)
        first.end()
        await until(lambda: len(daemon.calls) == 2, "the second watch")
        assert instances(models) == ["1"]
        second.put(**fakes.watched(cursor=at(9), changed=[fakes.worker("3")]))
        await models.changed()
        assert instances(models) == ["1", "3"]
    assert daemon.asked()[1] == ("Watch", SINCE)


@on_both
async def test_a_daemon_that_falls_silent_is_a_lost_connection(daemon: FakeDaemon) -> None:
    silent, second = told(daemon, "1"), daemon.stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aio, "SILENCE_SECONDS", 0.2)
        patch.setattr(view, "SILENCE_SECONDS", 0.2)
        async with Models.follow(daemon.path) as models:
            second.put(**fakes.watched(cursor=at(8), changed=[fakes.worker("2")]))
            await models.changed()
            assert instances(models) == ["1", "2"]
            assert silent.over.wait(10)


@on_both
async def test_who_has_not_heard_for_longer_than_a_heartbeat_is_stale_though_connected(
    daemon: FakeDaemon,
) -> None:
    stream = told(daemon, "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "FRESH_SECONDS", 0.3)
        async with Models.follow(daemon.path) as models:
            await until(lambda: models.stale_seconds > 0.0, "silence")
            assert models.connected
            stream.put(**fakes.watched())
            await until(lambda: models.stale_seconds == 0.0, "a heartbeat")


@on_both
async def test_it_tries_less_and_less_often_until_it_is_told_something(daemon: FakeDaemon) -> None:
    pauses: list[float] = []
    sleep = anyio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    first = told(daemon, "1")
    lost = [daemon.stream() for _ in range(8)]
    back = daemon.stream()
    last = daemon.stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("random.uniform", lambda *_: 1.0)
        async with Models.follow(daemon.path) as models:
            patch.setattr(anyio, "sleep", note)
            for stream in (first, *lost):
                stream.end()
            back.put(**fakes.watched(cursor=at(8), gone=["chat"]))
            await models.changed()
            back.end()
            last.put(**fakes.watched(cursor=at(9)))
            await models.changed()
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 0.05]


@on_both
async def test_what_a_daemon_refuses_later_does_not_end_the_view(daemon: FakeDaemon) -> None:
    first = told(daemon, "1")
    refused = frame(fakes.failure("org.varlink.service.MethodNotFound", method="x"))
    daemon.scripts += [answer_once(refused), answer_once(b"nonsense\0")]
    last = daemon.stream()
    last.put(**fakes.watched(cursor=at(8)))
    async with Models.follow(daemon.path) as models:
        first.end()
        assert await models.changed(Cursor("e1", 7)) == Cursor("e1", 8)


# Entering, and leaving


@on_both
async def test_a_daemon_that_is_only_starting_is_waited_for(directory: Path) -> None:
    path = str(directory / "later")
    daemons: list[FakeDaemon] = []

    async def come() -> None:
        await anyio.wait_all_tasks_blocked()
        daemons.append(FakeDaemon(path))
        daemons[0].answer("Watch", everything("1"), fakes.watched())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come)
        async with Models.follow(path) as models:
            assert instances(models) == ["1"]
    daemons[0].close()


@on_both
async def test_without_a_daemon_in_time_there_is_no_daemon(directory: Path) -> None:
    with pytest.raises(NoDaemon):
        async with Models.follow(str(directory / "none"), timeout=0.2):
            raise AssertionError("entered")


@on_both
async def test_a_daemon_that_tells_nothing_in_time_is_a_timeout(daemon: FakeDaemon) -> None:
    silent = daemon.stream()
    with pytest.raises(Timeout):
        async with Models.follow(daemon.path, timeout=0.2):
            raise AssertionError("entered")
    assert silent.over.wait(10)


@on_both
async def test_what_does_not_speak_the_interface_is_not_waited_for(daemon: FakeDaemon) -> None:
    refused = frame(fakes.failure("org.varlink.service.InterfaceNotFound", interface="x"))
    daemon.scripts = [answer_once(b"HTTP/1.1 400\r\n\0"), answer_once(refused)]
    for error in (BadReply, CallRefused):
        with pytest.raises(error):
            async with Models.follow(daemon.path, timeout=None):
                raise AssertionError("entered")
    assert daemon.connections == 2


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        Models.follow(timeout=timeout)


@on_both
async def test_an_exception_of_the_block_leaves_it_as_it_is(daemon: FakeDaemon) -> None:
    stream = told(daemon, "1")
    with pytest.raises(KeyError, match="mine"):
        async with Models.follow(daemon.path):
            raise KeyError("mine")
    assert stream.over.wait(10)


@on_both
async def test_a_block_may_be_cancelled(daemon: FakeDaemon) -> None:
    stream = told(daemon, "1")
    with anyio.CancelScope() as scope:
        async with Models.follow(daemon.path) as models:
            scope.cancel()
            await models.changed()
    assert scope.cancelled_caught
    assert stream.over.wait(10)


@on_both
async def test_entering_may_be_cancelled(daemon: FakeDaemon) -> None:
    silent = daemon.stream()
    with anyio.move_on_after(0.1) as scope:
        async with Models.follow(daemon.path):
            raise AssertionError("entered")
    assert scope.cancelled_caught
    assert silent.over.wait(10)


@on_both
async def test_lookups_are_quick(daemon: FakeDaemon) -> None:
    """A lookup is no more than a few dictionary accesses, however many workers there are."""

    def cost(models: Models) -> float:
        taken: list[float] = []
        for _ in range(5):
            began = time.thread_time()
            for _ in range(2_000):
                models.resolve("llama")
            taken.append(time.thread_time() - began)
        return min(taken)

    costs: list[float] = []
    for count in (1, 5_000):
        told(daemon, *map(str, range(count)))
        async with Models.follow(daemon.path) as models:
            costs.append(cost(models))
    assert costs[1] < 10 * costs[0]
