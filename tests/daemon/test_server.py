"""The server against a toy service: order, slowness on either side, violations, and the end."""

import asyncio
import logging
import os
import socket
from itertools import pairwise

import pytest

from discoveryd.daemon.socket import conversation as conversation_module
from discoveryd.daemon.socket.conversation import TURN
from tests.daemon.stage import BIG, DEADLINE, Asking, Stage, call, until

# Answers


async def test_pipelined_calls_are_answered_in_order(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    words = [f"word {number}" for number in range(3 * TURN)]
    client.send(*(call("Echo", word) for word in words))
    assert await client.words(len(words)) == words


async def test_a_call_waits_for_the_slow_one_before_it(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Echo", "a"), call("Slow", "b"), call("Echo", "c"), call("Slow", "d"))
    assert await client.words(1) == ["a"]
    assert stage.toy.answered == ["a"]
    stage.toy.gate.set()
    assert await client.words(3) == ["b", "c", "d"]
    assert stage.toy.answered == ["a", "b", "c", "d"]


async def test_a_slow_answer_holds_up_nobody_else(stage: Stage) -> None:
    stage.begin()
    slow, quick = await stage.client(), await stage.client()
    slow.send(call("Slow", "slow"))
    quick.send(call("Echo", "quick"))
    assert await quick.words(1) == ["quick"]
    stage.toy.gate.set()
    assert await slow.words(1) == ["slow"]


async def test_calls_may_come_byte_by_byte(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    for byte in call("Echo", "a") + call("Echo", "b"):
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert await client.words(2) == ["a", "b"]


@pytest.mark.parametrize("method", ["Pieces", "PiecesLater"])
async def test_an_iterator_answers_in_pieces_of_which_all_but_the_last_continue(
    stage: Stage, method: str
) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call(method, "abc", more=True), call("Echo", "next"))
    replies = [await client.receive() for _ in range(4)]
    assert [reply.get("continues", False) for reply in replies] == [True, True, False, False]
    assert [reply["parameters"]["word"][0] for reply in replies] == ["a", "b", "c", "n"]


async def test_a_stream_goes_on_until_the_peer_leaves(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.watcher()
    assert (server.connections, server.watchers) == (1, 1)
    for revision in (1, 2, 3):
        stage.toy.publish()
        reply = await client.receive()
        assert reply["continues"]
        assert reply["parameters"]["revision"] == revision
    await client.close()
    await until(lambda: (server.connections, server.watchers) == (0, 0))
    await until(lambda: stage.toy.cancelled == 1)


async def test_a_stream_goes_on_for_a_peer_that_has_ended_only_its_own_side(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.watcher()
    client.writer.write_eof()
    for revision in (1, 2, 3):
        stage.toy.publish()
        assert (await client.receive())["parameters"]["revision"] == revision
    assert server.watchers == 1


async def test_a_tied_stream_ends_with_the_peers_side_closed_by_half(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.watcher(method="Hold")
    stage.toy.publish()
    assert (await client.receive())["parameters"]["revision"] == 1
    client.writer.write_eof()
    assert await client.rest() == b""
    await until(lambda: stage.toy.cancelled == 1)
    await until(lambda: server.connections == 0)


async def test_a_tied_stream_ends_with_a_peer_that_leaves(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.watcher(method="Hold")
    client.writer.transport.abort()
    await until(lambda: stage.toy.cancelled == 1)
    await until(lambda: server.connections == 0)


async def test_a_tied_stream_whose_peer_has_ended_already_replies_once(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Slow", "before"), call("Hold", "x", more=True))
    client.writer.write_eof()
    await until(lambda: any(talk._peer_ended for talk in stage.server._conversations))
    stage.toy.gate.set()
    assert await client.words(1) == ["before"]
    assert (await client.receive())["continues"]
    assert await client.rest() == b""
    await until(lambda: stage.toy.cancelled == 1)


async def test_a_stream_that_ends_by_itself_ends_the_connection(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Ended", "last", more=True))
    assert (await client.receive())["continues"]
    assert await client.rest() == b""


@pytest.mark.parametrize("method", ["Refuse", "RefuseLater"])
async def test_a_named_error_answers_the_call_and_the_connection_goes_on(
    stage: Stage, method: str
) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call(method, "why"), call("Echo", "next"))
    assert await client.receive() == {"error": "org.example.toy.No", "parameters": {"word": "why"}}
    assert await client.words(1) == ["next"]


async def test_a_named_error_ends_a_stream_and_the_connection_goes_on(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.client()
    client.send(call("RefuseMidway", "why", more=True), call("Echo", "next"))
    assert (await client.receive())["continues"]
    assert (await client.receive())["error"] == "org.example.toy.No"
    assert await client.words(1) == ["next"]
    assert server.watchers == 0


@pytest.mark.parametrize("method", ["Echo", "Slow", "Refuse", "RefuseLater"])
async def test_a_oneway_call_gets_no_reply(stage: Stage, method: str) -> None:
    stage.begin()
    stage.toy.gate.set()
    client = await stage.client()
    client.send(call(method, "a", oneway=True), call("Echo", "b"))
    assert await client.words(1) == ["b"]


async def test_an_answer_knows_its_peer_and_whether_more_was_asked_for(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Who", more=True), call("Who"))
    expected = {"uid": os.getuid(), "gid": os.getgid(), "pid": os.getpid()}
    for more in (True, False):
        assert (await client.receive())["parameters"] == {"peer": expected, "more": more}


async def test_the_service_describes_itself(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(b'{"method":"org.varlink.service.GetInfo"}\0')
    assert "org.example.toy" in (await client.receive())["parameters"]["interfaces"]


# Peers that go wrong


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n\0", b"\0", b'{"method":1}\0'])
async def test_a_violation_closes_after_the_calls_before_it_are_answered(
    stage: Stage, garbage: bytes
) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Slow", "a"), call("Echo", "b"), garbage, call("Echo", "c"))
    await asyncio.sleep(0)
    stage.toy.gate.set()
    assert await client.words(2) == ["a", "b"]
    assert await client.rest() == b""
    assert stage.toy.answered == ["a", "b"]


async def test_a_call_over_the_limit_closes_the_connection(stage: Stage) -> None:
    stage.begin(frame_limit=1024)
    client = await stage.client()
    client.send(call("Echo", "a"), call("Echo", "b" * 2048))
    assert await client.words(1) == ["a"]
    assert await client.rest() == b""


async def test_a_peer_that_stops_sending_is_still_answered(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.client()
    client.send(call("Slow", "a"), call("Echo", "b"), b'{"method":"half a ca')
    client.writer.write_eof()
    await until(lambda: server.connections == 1)
    stage.toy.gate.set()
    assert await client.words(2) == ["a", "b"]
    assert await client.rest() == b""
    await until(lambda: server.connections == 0)


async def test_a_peer_that_leaves_cancels_what_it_asked_for(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.client()
    client.send(call("Echo", "a"), call("Slow", "b"))
    assert await client.words(1) == ["a"]
    client.writer.transport.abort()
    await until(lambda: server.connections == 0)
    await until(lambda: stage.toy.cancelled == 1)


async def test_peers_that_leave_amid_replies_leave_nothing_behind(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    server = stage.begin()
    before = len(asyncio.all_tasks())
    asked = [
        call("Pieces", "abcdefgh", more=True),
        call("Watch", "x", more=True),
        call("Slow", "y"),
        call("Echo", "z" * BIG) * 20,
        call("Echo", "half")[:-5],
    ]
    for number in range(100):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(stage.path)
            peer.setblocking(False)
            peer.send(asked[number % len(asked)])
            if number % 2:
                await asyncio.sleep(0)
    last = await stage.client()
    last.send(call("Echo", "all before it were accepted"))
    await last.receive()
    await last.close()
    await until(lambda: server.connections == 0)
    await until(lambda: len(asyncio.all_tasks()) == before)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


@pytest.mark.parametrize("method", ["Bug", "BugLater"])
async def test_a_bug_is_logged_once_and_costs_only_its_own_connection(
    stage: Stage, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    stage.begin()
    unlucky, other = await stage.client(), await stage.client()
    unlucky.send(call("Echo", "before"), call(method, "boom"), call("Echo", "after"))
    assert await unlucky.words(1) == ["before"]
    assert await unlucky.rest() == b""
    other.send(call("Echo", "other"))
    assert await other.words(1) == ["other"]
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.exc_info
    assert f"org.example.toy.{method}" in record.getMessage()


# Slowness and limits


async def test_a_watcher_that_reads_nothing_is_sent_one_difference_for_many_changes(
    stage: Stage,
) -> None:
    stage.begin()
    slow, other = await stage.watcher("x"), await stage.client()
    slow.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that hangs
    for _ in range(2000):
        stage.toy.publish()
        await asyncio.sleep(0)
    # What the kernel and the transport hold, not one item for each change.
    assert stage.toy.items < 50
    other.send(call("Echo", "other"))
    assert await other.words(1) == ["other"]
    slow.reader._transport.resume_reading()  # type: ignore[attr-defined]  # see above
    while (await slow.receive())["parameters"]["revision"] < stage.toy.revision:
        pass
    assert stage.toy.items < 60


async def test_pieces_leave_turns_to_the_others(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Pieces", "abc", more=True))
    seen = [0]
    while seen[-1] < 3:
        await asyncio.sleep(0)
        seen.append(stage.toy.items)
    # The first is held until it is known not to be the last.
    assert max(after - before for before, after in pairwise(seen)) <= 2
    assert len(await client.words(3)) == 3


async def test_pieces_are_made_no_faster_than_they_are_read(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that hangs
    client.send(call("Pieces", "x" * 200, more=True))
    await until(lambda: stage.toy.items > 1)
    for _ in range(200):
        await asyncio.sleep(0)
    assert stage.toy.items < 50
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]  # see above
    assert len(await client.words(200)) == 200


async def test_a_peer_that_reads_no_replies_is_not_answered_further(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that hangs
    client.send(call("Echo", "x" * BIG) * 100)
    await until(lambda: len(stage.toy.answered) > 1)
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(stage.toy.answered) < 50
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]  # see above
    assert len(await client.words(100)) == 100


async def test_a_peer_that_sends_faster_than_it_is_answered_is_not_read(stage: Stage) -> None:
    stage.begin()
    frames = [call("Slow", "first"), *(call("Echo", f"{n} {'x' * 1000}") for n in range(5000))]
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(stage.path)
        peer.setblocking(False)
        unsent = memoryview(b"".join(frames))
        total, refusals = len(unsent), 0
        while refusals < 50:
            try:
                unsent = unsent[peer.send(unsent) :]
                refusals = 0
            except BlockingIOError:
                refusals += 1
                await asyncio.sleep(0.002)
        assert total - len(unsent) < 2 * 1024 * 1024
        stage.toy.gate.set()
        reader, writer = await asyncio.open_unix_connection(sock=peer.dup(), limit=1024 * 1024)
        client = Asking(reader, writer)
        stage.clients.append(client)
        client.send(bytes(unsent))
        words = await client.words(len(frames))
    assert [word.split()[0] for word in words] == ["first", *map(str, range(5000))]


async def test_a_peer_that_asks_a_lot_leaves_turns_to_the_others(stage: Stage) -> None:
    server = stage.begin()
    greedy, modest = await stage.client(), await stage.client()
    await until(lambda: server.connections == 2)
    greedy.send(call("Echo", "greedy") * 1000)
    modest.send(call("Echo", "modest"))
    assert await modest.words(1) == ["modest"]
    assert stage.toy.answered.index("modest") < 1000
    assert len(await greedy.words(1000)) == 1000


async def test_costly_calls_of_one_peer_leave_turns_to_the_others(stage: Stage) -> None:
    server = stage.begin()
    greedy, modest = await stage.client(), await stage.client()
    await until(lambda: server.connections == 2)
    greedy.send(call("Costly", "greedy") * 40)
    modest.send(call("Echo", "modest"))
    assert await modest.words(1) == ["modest"]
    assert stage.toy.answered.index("modest") < 10
    assert len(await greedy.words(40)) == 40


async def test_a_peer_that_takes_no_output_loses_its_connection(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    server = stage.begin(stall_seconds=0.2)
    idle, stalled = await stage.client(), await stage.client()
    stalled.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that hangs
    stalled.send(call("Echo", "x" * BIG) * 20)
    await until(lambda: "has read nothing" in caplog.text)
    await until(lambda: server.connections == 1)
    idle.send(call("Echo", "still here"))
    assert await idle.words(1) == ["still here"]


async def test_a_peer_that_takes_no_output_cannot_keep_a_closing_connection_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_module, "_FLUSH_BYTES", 64 * BIG)
    server = stage.begin(stall_seconds=0.2)
    stalled = await stage.client()
    stalled.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that hangs
    stalled.send(call("Inflate", "x") * 20, b"garbage\0")
    await until(lambda: any(talk.begun for talk in server._conversations))
    [talk] = server._conversations
    await until(talk._transport.is_closing)
    await until(lambda: server.connections == 0)


async def test_a_peer_that_leaves_while_it_is_not_read_is_noticed(stage: Stage) -> None:
    server = stage.begin(stall_seconds=0.2)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(stage.path)
        peer.setblocking(False)
        peer.send(call("Slow", "never") + call("Echo", "x" * 1000) * 100)
        await until(lambda: any(not talk.reading.on for talk in server._conversations))
    await until(lambda: server.connections == 0)
    await until(lambda: stage.toy.cancelled == 1)


async def test_a_peer_that_leaves_after_it_stopped_sending_is_noticed(stage: Stage) -> None:
    server = stage.begin(stall_seconds=0.2)
    client = await stage.watcher()
    client.writer.write_eof()
    stage.toy.publish()
    assert (await client.receive())["parameters"]["revision"] == 1
    await client.close()
    await until(lambda: server.connections == 0)


async def test_a_peer_that_reads_in_small_bites_keeps_its_connection(stage: Stage) -> None:
    server = stage.begin(stall_seconds=1.5)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(stage.path)
        peer.send(call("Echo", "x" * BIG))
        peer.send(call("Echo", "x" * BIG))
        for _ in range(9):
            peer.send(call("Echo", "x" * BIG))
            await asyncio.sleep(0.2)
            peer.recv(BIG // 2)
        assert server.connections == 1


# The end


async def test_closing_answers_every_call_that_was_read_and_then_half_closes(stage: Stage) -> None:
    server = stage.begin()
    client, idle = await stage.client(), await stage.client()
    client.send(call("Slow", "a"), call("Echo", "b") * (2 * TURN), b'{"method":"half')
    await until(lambda: server.connections == 2 and bool(server._conversations))
    await until(lambda: any(talk.task is not None for talk in server._conversations))
    closing = asyncio.create_task(server.close(DEADLINE))
    await asyncio.sleep(0)
    stage.toy.gate.set()
    assert await client.words(1 + 2 * TURN) == ["a", *["b"] * (2 * TURN)]
    for each in (client, idle):
        assert await each.rest() == b""
        assert not closing.done()
        await each.close()
    async with asyncio.timeout(DEADLINE):
        await closing
    assert server.connections == 0


async def test_who_came_just_before_closing_is_still_answered(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.client()
    await until(lambda: server.connections == 1)
    closing = asyncio.create_task(server.close(DEADLINE))
    await asyncio.sleep(0)
    client.send(call("Echo", "a"))
    assert await client.words(1) == ["a"]
    assert await client.rest() == b""
    await client.close()
    async with asyncio.timeout(DEADLINE):
        await closing


async def test_closing_ends_streams(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.watcher()
    closing = asyncio.create_task(server.close(DEADLINE))
    assert await client.rest() == b""
    await client.close()
    async with asyncio.timeout(DEADLINE):
        await closing
    assert stage.toy.cancelled == 1


async def test_closing_waits_for_nobody_longer_than_the_grace(stage: Stage) -> None:
    server = stage.begin()
    before = len(asyncio.all_tasks())
    slow, _idle, unread = await stage.client(), await stage.client(), await stage.client()
    slow.send(call("Slow", "never"))
    unread.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that hangs
    unread.send(call("Echo", "x" * BIG) * 50)
    await until(lambda: server.connections == 3)
    await until(lambda: any(talk.task is not None for talk in server._conversations))
    async with asyncio.timeout(DEADLINE):
        await server.close(0.1)
    assert server.connections == 0
    assert stage.toy.cancelled == 1
    assert len(asyncio.all_tasks()) == before
    assert await slow.rest() == b""


async def test_a_peer_that_ended_its_side_first_is_gone_once_answered(stage: Stage) -> None:
    server = stage.begin()
    client, watcher = await stage.client(), await stage.watcher()
    client.send(call("Slow", "a"))
    client.writer.write_eof()
    watcher.writer.write_eof()
    await until(lambda: any(talk.task and not talk.streaming for talk in server._conversations))
    closing = asyncio.create_task(server.close(DEADLINE))
    assert await watcher.rest() == b""
    stage.toy.gate.set()
    assert await client.words(1) == ["a"]
    async with asyncio.timeout(DEADLINE):
        await closing


async def test_nobody_is_accepted_while_closing(stage: Stage) -> None:
    server = stage.begin()
    client = await stage.client()
    await until(lambda: server.connections == 1)
    closing = asyncio.create_task(server.close(DEADLINE))
    await asyncio.sleep(0)
    late = await stage.client()
    await client.close()
    async with asyncio.timeout(DEADLINE):
        await closing
    assert server.connections == 0
    await late.close()
