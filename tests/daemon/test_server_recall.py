"""Calls that are known are answered as the others are, only without asking the method again."""

import asyncio
from typing import Any

import pytest

from discoveryd.daemon.socket.conversation import TURN
from tests.daemon.stage import BIG, Asking, Stage, call, until


def told(reply: dict[str, Any]) -> str:
    word: str = reply["parameters"]["word"]
    return word


@pytest.mark.parametrize("method", ["Known", "RefuseKnown"])
async def test_the_method_is_asked_once_and_everybody_gets_its_answer(
    stage: Stage, method: str
) -> None:
    stage.begin()
    seen: list[dict[str, Any]] = []
    for _ in range(2):
        client = await stage.client()
        for _ in range(3):
            client.send(call(method, "a"))
            seen.append(await client.receive())
    assert stage.toy.answered == ["a"]
    assert all(reply == seen[0] for reply in seen)
    assert told(seen[0]) == "a"


async def test_after_a_revision_it_is_asked_again_for_what_changed_only(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    frames = [call("Known", "a"), call("Known", "b"), call("RefuseKnown", "c")]
    for frame in frames:
        client.send(frame)
        await client.receive()
    stage.toy.service.recall.revise(["a"], b',"revised":true}}\0')
    stage.toy.answered.clear()
    replies: list[dict[str, Any]] = []
    for frame in frames:
        client.send(frame)
        replies.append(await client.receive())
    assert stage.toy.answered == ["a", "c"]
    assert [told(reply) for reply in replies] == ["a", "b", "c"]
    assert [reply["parameters"].get("revised") for reply in replies] == [True, True, None]


async def test_known_and_unknown_calls_of_every_kind_are_answered_in_their_order(
    stage: Stage,
) -> None:
    stage.begin()
    client = await stage.client()
    stage.toy.gate.set()
    kinds = ("Known", "Echo", "Slow", "Known", "RefuseKnown", "Known")
    for _ in range(3):
        words = [f"{kind} {number}" for number in range(TURN) for kind in kinds]
        client.send(*(call(word.split()[0], word) for word in words))
        assert [told(await client.receive()) for _ in words] == words


async def test_a_known_call_waits_for_the_slow_one_before_it(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Known", "a"))
    await client.words(1)
    client.send(call("Slow", "slow"))
    await until(lambda: all(talk.answering for talk in stage.server._conversations))
    client.send(call("Known", "a"))
    await client.writer.drain()
    await asyncio.sleep(0.01)
    stage.toy.gate.set()
    assert await client.words(2) == ["slow", "a"]


async def test_known_calls_may_come_in_any_pieces(stage: Stage) -> None:
    stage.begin()
    client = await stage.client()
    client.send(call("Known", "a"))
    assert await client.words(1) == ["a"]
    sent = call("Known", "a") * 3
    for cut in range(1, len(sent), 7):
        client.send(sent[:cut])
        await client.writer.drain()
        await asyncio.sleep(0.001)
        client.send(sent[cut:])
        assert await client.words(3) == ["a"] * 3


async def test_a_oneway_call_of_a_known_kind_gets_no_reply_and_teaches_nothing(
    stage: Stage,
) -> None:
    stage.begin()
    client = await stage.client()
    for _ in range(2):
        client.send(call("Known", "a", oneway=True), call("RefuseKnown", "a", oneway=True))
        client.send(call("Echo", "b"))
        assert await client.words(1) == ["b"]
    assert stage.toy.answered == ["a", "a", "b"] * 2


async def test_who_does_not_read_is_not_answered_on_though_its_calls_are_known(
    stage: Stage,
) -> None:
    stage.begin()
    client = await stage.client()
    word = "x" * (BIG // 2)
    stage.toy.service.recall.keep("large", b'{"parameters":{"word":"' + word.encode() + b'"')
    frame = call("Known", "large")
    stage.toy.service.recall.learn(frame[:-1], "large")
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's has it
    for _ in range(400):
        client.send(frame)
    await until(lambda: any(talk.begun and talk.waiting for talk in stage.server._conversations))
    await asyncio.sleep(0.05)
    (talk,) = stage.server._conversations
    assert talk.waiting < 4 * BIG
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # asyncio's has it
    assert await client.words(400) == [word] * 400


async def test_a_known_call_that_was_read_is_answered_at_the_end(stage: Stage) -> None:
    server = stage.begin()
    client: Asking = await stage.client()
    client.send(call("Known", "a"))
    assert await client.words(1) == ["a"]
    client.send(call("Known", "a"))
    client.writer.write_eof()
    assert await client.words(1) == ["a"]
    assert await client.rest() == b""
    await until(lambda: server.connections == 0)
