"""What the async client promises, against a daemon of canned answers, on asyncio and trio."""

import socket
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from discoveryd.client import (
    AsyncClient,
    BadReply,
    CallRefused,
    Client,
    ConnectionLost,
    Cursor,
    NoDaemon,
    NoSuchFile,
    NoSuchModel,
    Timeout,
    aio,
)
from discoveryd.client.asking.aio_wire import open_wire
from tests.client import fakes
from tests.client.backends import on_both, until
from tests.client.fakes import (
    FakeDaemon,
    answer_once,
    end_at_once,
    frame,
    in_bytes,
    stay_silent,
)

RESOLVED = frame({"parameters": fakes.resolution()})

Pieces = list[dict[str, Any]]
Ask = Callable[[Any], Any]

CALLS: list[tuple[str, Pieces, Ask]] = [
    ("Resolve", [fakes.resolution()], lambda c: c.resolve("llama")),
    (
        "List",
        [{"names": [fakes.name(n)], "cursor": fakes.CURSOR} for n in "abc"],
        lambda c: c.list(),
    ),
    (
        "ListWorkers",
        [{"workers": [fakes.worker(n)], "cursor": fakes.CURSOR} for n in "12"],
        lambda c: c.workers("a", "n"),
    ),
    (
        "Explain",
        [{"verdicts": [fakes.verdict(n)], "cursor": fakes.CURSOR} for n in "12"],
        lambda c: c.explain("f", "a"),
    ),
    (
        "Check",
        [{"verdict": fakes.verdict(), "would_displace": ["/f"], "cursor": fakes.CURSOR}],
        lambda c: c.check(msgspec.Raw(b'{"display_name":"x"}'), "f"),
    ),
    (
        "Sync",
        [{"verdicts": [fakes.serving()], "standings": {"serving": 1}, "cursor": fakes.CURSOR}],
        lambda c: c.sync("f", "g"),
    ),
    ("History", [{"events": []}], lambda c: c.history("f", limit=3)),
    ("Reload", [{"changed": ["a"], "problems": []}], lambda c: c.reload()),
    ("GetStatus", [fakes.status()], lambda c: c.status()),
]


def answer_by_name(daemon: FakeDaemon) -> None:
    """Answer each Resolve with the name that was asked for."""
    daemon.answers["Resolve"] = lambda asked: [{"parameters": fakes.resolution(name=asked["name"])}]


@pytest.mark.parametrize(("method", "pieces", "ask"), CALLS, ids=[call[0] for call in CALLS])
@on_both
async def test_it_asks_and_answers_as_the_blocking_client_does(
    daemon: FakeDaemon, method: str, pieces: Pieces, ask: Ask
) -> None:
    daemon.answer(method, *pieces)
    with Client(daemon.path) as client:
        expected = ask(client)
    async with AsyncClient(daemon.path) as asynchronous:
        assert await ask(asynchronous) == expected
    assert daemon.calls[0] == daemon.calls[1]


@on_both
async def test_one_connection_serves_many_tasks_each_with_its_own_answer(
    daemon: FakeDaemon,
) -> None:
    answer_by_name(daemon)
    answered: dict[str, str] = {}

    async def ask(name: str) -> None:
        answered[name] = (await client.resolve(name)).name

    async with AsyncClient(daemon.path) as client, anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(ask, f"model-{number}")
    assert answered == {f"model-{number}": f"model-{number}" for number in range(50)}
    assert daemon.connections == 1


@on_both
async def test_a_call_that_is_cancelled_does_not_leave_its_answer_to_the_next(
    daemon: FakeDaemon,
) -> None:
    daemon.scripts = [stay_silent]
    answer_by_name(daemon)
    async with AsyncClient(daemon.path) as client:
        with anyio.move_on_after(0.05) as period:
            await client.resolve("cancelled")
        assert period.cancelled_caught
        assert (await client.resolve("next")).name == "next"
    assert daemon.connections == 2


@on_both
async def test_a_call_that_is_cancelled_before_its_turn_disturbs_nobody(
    daemon: FakeDaemon,
) -> None:
    stream = daemon.stream()
    answered: list[str] = []

    async def ask_first() -> None:
        answered.extend(line.name for line in (await client.list()).names)

    async with AsyncClient(daemon.path) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(ask_first)
        await until(lambda: bool(daemon.calls), "the first call")
        with anyio.move_on_after(0.05):
            await client.resolve("never asked")
        stream.put(names=[fakes.name("a")], cursor=fakes.CURSOR)
        stream.put_last(names=[fakes.name("b")], cursor=fakes.CURSOR)
    assert answered == ["a", "b"]
    assert daemon.asked() == [("List", {})]


@on_both
async def test_calls_that_are_cancelled_at_any_moment_never_mix_up_answers(
    daemon: FakeDaemon,
) -> None:
    answer_by_name(daemon)

    async def ask(number: int) -> None:
        with anyio.move_on_after(number * 0.0005):
            assert (await client.resolve(f"model-{number}")).name == f"model-{number}"

    async with AsyncClient(daemon.path) as client:
        for _ in range(10):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(ask, number)
            assert (await client.resolve("last")).name == "last"


@on_both
async def test_a_client_that_is_closed_ends_the_call_under_way_first(daemon: FakeDaemon) -> None:
    stream = daemon.stream()
    answered: list[str] = []

    async def ask() -> None:
        answered.extend(line.name for line in (await client.list()).names)

    client = AsyncClient(daemon.path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await until(lambda: bool(daemon.calls), "the call")
        client.close()
        stream.put_last(names=[fakes.name("a")], cursor=fakes.CURSOR)
    assert answered == ["a"]
    await until(stream.over.is_set, "the connection is closed")


@on_both
async def test_a_closed_client_opens_another_connection(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", fakes.resolution())
    async with AsyncClient(daemon.path) as client:
        await client.resolve("llama")
        client.close()
        await client.resolve("llama")
    assert daemon.connections == 2


@on_both
async def test_errors_are_those_of_the_blocking_client(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", **fakes.no_such_model("x", similar=["y"]))
    daemon.answer("Explain", **fakes.failure("NoSuchFile", file="f"))
    daemon.answer("Reload", **fakes.failure("org.varlink.service.PermissionDenied"))
    async with AsyncClient(daemon.path) as client:
        with pytest.raises(NoSuchModel) as missing:
            await client.resolve("x")
        assert missing.value.similar == ("y",)
        with pytest.raises(NoSuchFile):
            await client.explain("f")
        with pytest.raises(CallRefused) as refused:
            await client.reload()
        assert refused.value.name == "org.varlink.service.PermissionDenied"
    assert daemon.connections == 1


@pytest.mark.parametrize("reply", [b"not json\0", b"[]\0", b'{"parameters":{"name":1}}\0'])
@on_both
async def test_an_answer_that_is_not_the_interfaces_is_a_bad_reply(
    daemon: FakeDaemon, reply: bytes
) -> None:
    daemon.scripts = [answer_once(reply)]
    async with AsyncClient(daemon.path) as client:
        with pytest.raises(BadReply):
            await client.resolve("x")


@on_both
async def test_a_reply_may_arrive_byte_by_byte(daemon: FakeDaemon) -> None:
    daemon.scripts = [in_bytes(RESOLVED, 1)]
    async with AsyncClient(daemon.path) as client:
        assert (await client.resolve("llama")).ready


@on_both
async def test_calls_and_replies_may_be_larger_than_the_sockets_buffer(daemon: FakeDaemon) -> None:
    daemon.answers["Check"] = lambda asked: [fakes.failure("x.y.Z", filler=asked["card"]["filler"])]
    async with AsyncClient(daemon.path) as client:
        with pytest.raises(CallRefused) as refused:
            await client.check({"filler": "x" * 1_000_000})
    assert len(refused.value.parameters["filler"]) == 1_000_000


@on_both
async def test_a_call_that_got_nothing_is_sent_once_more(daemon: FakeDaemon) -> None:
    daemon.scripts = [end_at_once]
    daemon.answer("Resolve", fakes.resolution())
    async with AsyncClient(daemon.path) as client:
        assert (await client.resolve("llama")).ready
    assert daemon.connections == 2


@on_both
async def test_a_call_is_not_sent_a_third_time(daemon: FakeDaemon) -> None:
    daemon.scripts = [end_at_once, end_at_once, end_at_once]
    async with AsyncClient(daemon.path) as client:
        with pytest.raises(ConnectionLost):
            await client.resolve("llama")
    assert daemon.connections == 2


@on_both
async def test_an_end_inside_an_answer_is_an_error(daemon: FakeDaemon) -> None:
    piece = frame({"parameters": {"names": [], "cursor": fakes.CURSOR}, "continues": True})
    daemon.scripts = [answer_once(RESOLVED[:-5]), answer_once(piece)]
    async with AsyncClient(daemon.path) as client:
        with pytest.raises(ConnectionLost):
            await client.resolve("llama")
        with pytest.raises(ConnectionLost):
            await client.list()
    assert daemon.connections == 2


@on_both
async def test_a_silent_daemon_times_out_and_the_next_call_is_answered(daemon: FakeDaemon) -> None:
    daemon.scripts = [stay_silent]
    daemon.answer("Resolve", fakes.resolution())
    async with AsyncClient(daemon.path, timeout=0.2) as client:
        with pytest.raises(Timeout, match="socket"):
            await client.resolve("llama")
    async with AsyncClient(daemon.path) as client:
        assert (await client.resolve("llama")).ready


@on_both
async def test_sending_again_does_not_begin_the_time_anew(daemon: FakeDaemon) -> None:
    deadline: list[float] = []

    async def note_deadline(socket: str | None) -> Any:
        deadline.append(anyio.current_effective_deadline())
        return await open_wire(socket)

    daemon.scripts = [end_at_once]
    daemon.answer("Resolve", fakes.resolution())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aio, "open_wire", note_deadline)
        async with AsyncClient(daemon.path, timeout=20) as client:
            await client.resolve("llama")
    assert len(deadline) == 2
    assert deadline[0] == deadline[1]


@on_both
async def test_without_timeout_it_waits(daemon: FakeDaemon) -> None:
    daemon.scripts = [in_bytes(RESOLVED, 100)]
    async with AsyncClient(daemon.path, timeout=None) as client:
        assert (await client.resolve("llama")).ready


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        AsyncClient(timeout=timeout)


@on_both
async def test_where_nobody_listens_it_says_so_at_once(directory: Path) -> None:
    async with AsyncClient(str(directory / "none"), timeout=None) as client:
        with pytest.raises(NoDaemon) as caught:
            await client.resolve("llama")
        with pytest.raises(NoDaemon):
            await anext(client.watch())
    assert caught.value.tried[0].problem == "there is no such socket"


@on_both
async def test_a_daemon_with_too_many_waiting_connections_is_waited_for(directory: Path) -> None:
    path = str(directory / "busy")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(path)
            async with AsyncClient(path, timeout=0.1) as client:
                with pytest.raises(Timeout):
                    await client.resolve("llama")
            async with AsyncClient(path) as client, anyio.create_task_group() as tasks:
                tasks.start_soon(client.resolve, "llama")
                await anyio.to_thread.run_sync(answer_two, listener)


def answer_two(listener: socket.socket) -> None:
    """Make room, and answer whoever had to wait for it."""
    listener.accept()[0].close()
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(RESOLVED)


# Streams


def watching(client: AsyncClient) -> Any:
    return client.watch(Cursor("e0", 3), "llama")


def holding(client: AsyncClient) -> Any:
    return client.hold("a.json", "b.json")


VERDICTS = {"verdicts": [fakes.serving()], "cursor": fakes.CURSOR}
STREAMS: list[tuple[Callable[[AsyncClient], Any], dict[str, Any], tuple[str, dict[str, Any]]]] = [
    (
        watching,
        fakes.watched(gone=["x"]),
        ("Watch", {"since": {"epoch": "e0", "revision": 3}, "name": "llama"}),
    ),
    (holding, VERDICTS, ("Hold", {"files": ["a.json", "b.json"]})),
]
of_both_streams = pytest.mark.parametrize(("open_one", "reply", "call"), STREAMS)


@of_both_streams
@on_both
async def test_a_stream_lasts_until_it_is_closed_on_a_connection_of_its_own(
    daemon: FakeDaemon, open_one: Any, reply: dict[str, Any], call: Any
) -> None:
    stream = daemon.stream()
    daemon.answer("Resolve", fakes.resolution())
    async with AsyncClient(daemon.path) as client:
        async with aclosing(open_one(client)) as replies:
            for _ in range(3):
                stream.put(**reply)
                said = await anext(replies)
                assert (await client.resolve("llama")).ready
            assert msgspec.json.decode(msgspec.json.encode(said)) == reply
            assert not stream.over.is_set()
        await until(stream.over.is_set, "the connection is closed")
    assert daemon.asked()[0] == call
    assert daemon.connections == 2


@of_both_streams
@on_both
async def test_a_stream_whose_wait_is_cancelled_is_over(
    daemon: FakeDaemon, open_one: Any, reply: dict[str, Any], call: Any
) -> None:
    stream = daemon.stream()
    stream.put(**reply)
    async with AsyncClient(daemon.path) as client:
        replies = open_one(client)
        await anext(replies)
        with anyio.move_on_after(0.05):
            await anext(replies)
        await until(stream.over.is_set, "the connection is closed")
        with pytest.raises(StopAsyncIteration):
            await anext(replies)
    assert daemon.asked() == [call]


@of_both_streams
@on_both
async def test_a_stream_that_the_daemon_ends_raises_and_is_not_sent_again(
    daemon: FakeDaemon, open_one: Any, reply: dict[str, Any], call: Any
) -> None:
    stream = daemon.stream()
    stream.put(**reply)
    stream.end()
    async with AsyncClient(daemon.path) as client:
        replies = open_one(client)
        await anext(replies)
        with pytest.raises(ConnectionLost):
            await anext(replies)
    assert daemon.asked() == [call]


@of_both_streams
@on_both
async def test_a_stream_that_does_not_begin_times_out(
    daemon: FakeDaemon, open_one: Any, reply: dict[str, Any], call: Any
) -> None:
    stream = daemon.stream()
    async with AsyncClient(daemon.path, timeout=0.1) as client:
        with pytest.raises(Timeout):
            await anext(open_one(client))
    await until(stream.over.is_set, "the connection is closed")
    assert reply
    assert daemon.asked() == [call]


@of_both_streams
@on_both
async def test_a_stream_that_is_refused_raises(
    daemon: FakeDaemon, open_one: Any, reply: dict[str, Any], call: Any
) -> None:
    daemon.answer(call[0], **fakes.failure("org.varlink.service.PermissionDenied"))
    async with AsyncClient(daemon.path) as client:
        with pytest.raises(CallRefused):
            await anext(open_one(client))
    assert reply


@on_both
async def test_a_watch_of_a_daemon_that_falls_silent_times_out_and_a_hold_does_not(
    daemon: FakeDaemon,
) -> None:
    watched, held = daemon.stream(), daemon.stream()
    watched.put(**fakes.watched())
    held.put(**VERDICTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aio, "SILENCE_SECONDS", 0.2)
        async with (
            AsyncClient(daemon.path, timeout=0.1) as client,
            aclosing(client.watch()) as changes,
        ):
            await anext(changes)
            async with aclosing(client.hold("a.json")) as verdicts:
                await anext(verdicts)
                with pytest.raises(Timeout):
                    await anext(changes)
                held.put(**VERDICTS)
                assert (await anext(verdicts)).verdicts[0].good
