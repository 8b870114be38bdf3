"""Limits of the server: who exceeds them is the one who suffers, and the others are answered."""

import asyncio
import json
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from discoveryd.core.parsing.document import MAX_BYTES
from discoveryd.daemon.socket.server import FRAME_LIMIT, Server
from tests.daemon.stage import BIG, Asking, Stage, call, until

KIB = 1024


async def fed(sender: socket.socket, data: bytes, server: Server) -> None:
    """Send as much of this as the server reads."""
    unsent = memoryview(data)
    refusals = 0
    while unsent and refusals < 5:
        try:
            unsent = unsent[sender.send(unsent) :]
            refusals = 0
        except BlockingIOError:
            refusals += 1
            before = server.intake.total
            for _ in range(5):
                await asyncio.sleep(0)
            if server.intake.total != before:
                refusals = 0


def connect(stage: Stage, stack: ExitStack) -> socket.socket:
    sender = stack.enter_context(socket.socket(socket.AF_UNIX))
    sender.connect(stage.path)
    sender.setblocking(False)
    return sender


# Input


def test_the_largest_card_fits_with_its_envelope_and_the_longest_path() -> None:
    envelope = {"method": "io.discoveryd.Models.Check", "parameters": {"file": "\x01" * 4096}}
    assert MAX_BYTES + len(json.dumps(envelope)) + 100 < FRAME_LIMIT


async def test_a_call_over_the_frame_limit_ends_its_connection_after_the_answers_before_it(
    stage: Stage,
) -> None:
    stage.begin(frame_limit=KIB)
    client = await stage.client()
    client.send(call("Echo", "a"), call("Echo", "x" * 2 * KIB))
    assert await client.words(1) == ["a"]
    assert await client.rest() == b""


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01", b"\xff", b"hello\n"]
)
async def test_who_speaks_another_protocol_is_not_kept_waiting(
    stage: Stage, garbage: bytes
) -> None:
    """B95: nothing of it ends in a NUL, so that its end would never come."""
    stage.begin()
    client = await stage.client()
    client.send(call("Echo", "a"), garbage)
    assert await client.words(1) == ["a"]
    assert await client.rest() == b""


async def test_unfinished_calls_of_many_are_bounded_and_small_calls_get_through(
    stage: Stage,
) -> None:
    server = stage.begin(input_limit=512 * KIB, connection_limit=64)
    with ExitStack() as stack:
        flood = [connect(stage, stack) for _ in range(40)]
        for sender in flood:
            await fed(sender, call("Echo", "x" * 256 * KIB)[:-1], server)
        # The slack, a call, and a share and a small read of each beyond the limit, at the most.
        beyond = 64 * KIB + 256 * KIB + 40 * (8 + 4) * KIB + BIG
        assert 512 * KIB < server.intake.total < 512 * KIB + beyond < 40 * 100 * KIB
        client = await stage.client()
        for word in ("a", "b", "c"):
            client.send(call("Echo", word))
            assert await client.words(1) == [word]
    await until(lambda: server.intake.total == 0)


async def test_whoever_was_held_back_is_answered_once_there_is_room(stage: Stage) -> None:
    server = stage.begin(input_limit=256 * KIB, connection_limit=64)
    words = [str(number) + "x" * 100 * KIB for number in range(8)]
    clients = [await stage.client() for _ in words]
    for client, word in zip(clients, words, strict=True):
        client.send(call("Slow", word))
    await until(lambda: server.intake.tight)
    stage.toy.gate.set()
    for client, word in zip(clients, words, strict=True):
        assert await client.words(1) == [word]
    assert server.intake.total == 0


async def test_who_keeps_others_out_with_half_a_call_has_to_go_in_the_end(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    server = stage.begin(input_limit=256 * KIB, connection_limit=64, stall_seconds=0.3)
    with ExitStack() as stack:
        for _ in range(10):
            await fed(connect(stage, stack), call("Echo", "x" * 200 * KIB)[:-1], server)
        await until(lambda: server.intake.tight)
        client = await stage.client()
        client.send(call("Echo", "y" * 150 * KIB))
        assert len((await client.words(1))[0]) == 150 * KIB
        await until(lambda: not server.intake.tight)
    assert "keeps too much unfinished" in caplog.text


async def test_calls_behind_a_stream_are_bounded_too(stage: Stage) -> None:
    server = stage.begin(input_limit=256 * KIB, connection_limit=64, stall_seconds=0.3)
    with ExitStack() as stack:
        for _ in range(20):
            sender = connect(stage, stack)
            await fed(sender, call("Watch", "x", more=True) + call("Echo", "y") * 2000, server)
        client = await stage.client()
        client.send(call("Echo", "z"))
        assert await client.words(1) == ["z"]
        await until(lambda: not server.intake.tight)


async def test_the_smallest_frames_count_for_more_than_their_bytes(stage: Stage) -> None:
    server = stage.begin()
    with ExitStack() as stack:
        sender = connect(stage, stack)
        await fed(sender, call("Slow", "a"), server)
        await until(lambda: server.intake.total > 0)
        await fed(sender, b"{}\0" * 10_000, server)
        await until(lambda: server.intake.total > 60 * 5_000)


# Output


async def test_output_that_nobody_reads_is_bounded_over_all(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """B93: those who read nothing go before their time, the others stay."""
    server = stage.begin(output_limit=8 * 1024 * KIB, stall_seconds=10.0)
    with ExitStack() as stack:
        idle = await stage.client()
        for _ in range(20):
            connect(stage, stack).send(
                call("Pieces", "x" * 20, more=True) + call("Inflate", "x" * 20)
            )
        for _ in range(20):
            connect(stage, stack).send(call("Inflate", "x" * 20))
        begun = asyncio.get_running_loop().time()
        await until(lambda: "has read nothing" in caplog.text)
        assert asyncio.get_running_loop().time() - begun < 9.9
        await until(lambda: sum(c.waiting for c in server._conversations) <= 8 * 1024 * KIB)
        idle.send(call("Echo", "still here"))
        assert await idle.words(1) == ["still here"]


# Connections


async def test_connections_over_the_limit_are_closed_at_once(stage: Stage) -> None:
    server = stage.begin(connection_limit=2)
    first, second = await stage.client(), await stage.client()
    await until(lambda: server.connections == 2)
    third = await stage.client()
    assert await third.rest() == b""
    await first.close()
    await until(lambda: server.connections == 1)
    fourth = await stage.client()
    for client in (second, fourth):
        client.send(call("Echo", "in"))
        assert await client.words(1) == ["in"]


async def test_a_flood_of_connections_is_logged_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    server = stage.begin(connection_limit=1)
    first = await stage.client()
    await until(lambda: server.connections == 1)
    for _ in range(20):
        assert await (await stage.client()).rest() == b""
    assert caplog.text.count("closed at once") == 1
    first.send(call("Echo", "in"))
    assert await first.words(1) == ["in"]


async def test_streams_leave_room_for_questions(stage: Stage) -> None:
    server = stage.begin(connection_limit=3)
    for _ in range(3):
        await stage.watcher()
    asking = [await stage.client() for _ in range(3)]
    for client in asking:
        client.send(call("Echo", "in"))
        assert await client.words(1) == ["in"]
    assert (server.connections, server.watchers) == (6, 3)
    assert await (await stage.client()).rest() == b""


async def test_streams_beyond_their_room_are_counted_with_the_questions(stage: Stage) -> None:
    stage.begin(connection_limit=2)
    for _ in range(4):
        await stage.watcher()
    assert await (await stage.client()).rest() == b""
    await stage.clients[0].close()
    await until(lambda: stage.server.connections == 3)
    # The place that came free is a stream's: those who ask have none yet.
    assert await (await stage.client()).rest() == b""
    await stage.clients[3].close()
    await until(lambda: stage.server.connections == 2)
    client = await stage.client()
    client.send(call("Echo", "in"))
    assert await client.words(1) == ["in"]


async def test_one_user_may_have_only_so_many_where_that_is_said(stage: Stage) -> None:
    server = stage.begin(user_connection_limit=1)
    first = await stage.client()
    await until(lambda: server.connections == 1)
    assert await (await stage.client()).rest() == b""
    first.send(call("Echo", "in"))
    assert await first.words(1) == ["in"]


async def test_what_the_process_may_open_is_not_used_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (6, 6))
    server = stage.begin()
    taken: list[Asking] = [await stage.client() for _ in range(3)]
    await until(lambda: server.connections == 3)
    assert await (await stage.client()).rest() == b""
    assert "that open files allow" in caplog.text
    for client in taken:
        client.send(call("Echo", "in"))
        assert await client.words(1) == ["in"]


async def test_no_descriptors_left_delays_connections_and_loses_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B94: said once, however often it is tried."""

    class Exhausted(socket.socket):
        refusals = 3

        def accept(self) -> tuple[socket.socket, Any]:
            if self.refusals:
                self.refusals -= 1
                raise OSError(24, "Too many open files")
            return super().accept()

    monkeypatch.setattr("discoveryd.daemon.socket.server._ACCEPT_PAUSE", 0.01)
    stage.listening = Exhausted(socket.AF_UNIX, fileno=stage.listening.detach())
    stage.listening.setblocking(False)
    stage.begin()
    client = await stage.client()
    client.send(call("Echo", "at last"))
    assert await client.words(1) == ["at last"]
    assert caplog.text.count("Too many open files") == 1
