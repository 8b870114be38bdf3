"""Every request that arrived whole gets its one reply or error, in order, whatever comes next."""

import asyncio
import contextlib
import json
import socket
import tempfile
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.daemon.stage import DEADLINE, Stage, call, until


class End(Enum):
    """What a peer does once it has sent everything."""

    WAITS = "waits"
    HALF_CLOSES = "half-closes"
    HALF_A_CALL = "half a call, then half-closes"
    GARBAGE = "garbage"
    SAYS_NO_MORE_READING = "reads no more"
    LEAVES = "leaves"


HEARS = (End.WAITS, End.HALF_CLOSES, End.HALF_A_CALL, End.GARBAGE)


class Asked(NamedTuple):
    """A call, and what has to come of it."""

    frame: bytes
    replies: list[dict[str, Any]]


def word(text: str) -> dict[str, Any]:
    return {"parameters": {"word": text}}


def ask(method: str, text: str) -> Asked:
    error = {"error": "org.example.toy.No", "parameters": {"word": text}}
    expected = {
        "Echo": [word(text)],
        "Slow": [word(text)],
        "Refuse": [error],
        "RefuseLater": [error],
        "RefuseMidway": [{"continues": True} | word(text), error],
        "Unknown": [
            {
                "error": "org.varlink.service.MethodNotFound",
                "parameters": {"method": "org.example.toy.Unknown"},
            }
        ],
    }[method]
    return Asked(call(method, text, more=method == "RefuseMidway"), expected)


def ask_oneway(method: str, text: str) -> Asked:
    return Asked(call(method, text, oneway=True), [])


METHODS = ("Echo", "Slow", "Refuse", "RefuseLater", "RefuseMidway", "Unknown")
TEXTS = st.text(st.characters(min_codepoint=97, max_codepoint=122), max_size=8)
CALLS = st.lists(
    st.builds(ask, st.sampled_from(METHODS), TEXTS)
    | st.builds(ask_oneway, st.sampled_from(("Echo", "Slow", "Refuse")), TEXTS),
    max_size=90,
)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def converse(stage: Stage, calls: list[Asked], cuts: list[int], end: End) -> bytes:
    """Send the calls in these pieces, end like that, and return what came back before the end."""
    loop = asyncio.get_running_loop()
    stream = b"".join(asked.frame for asked in calls)
    if end is End.HALF_A_CALL:
        stream += call("Echo", "half")[:-1]
    elif end is End.GARBAGE:
        stream += b"nonsense\0" + call("Echo", "after")
    places = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    received = b""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.setblocking(False)
        peer.connect(stage.path)
        for start, stop in pairwise(places):
            with contextlib.suppress(BrokenPipeError):
                await loop.sock_sendall(peer, stream[start:stop])
            await asyncio.sleep(0)
        if end in {End.HALF_CLOSES, End.HALF_A_CALL}:
            peer.shutdown(socket.SHUT_WR)
        elif end is End.SAYS_NO_MORE_READING:
            peer.shutdown(socket.SHUT_RD)
        stage.toy.gate.set()
        expected = sum(len(asked.replies) for asked in calls)
        while end in HEARS and (end is not End.WAITS or received.count(b"\0") < expected):
            try:
                piece = await loop.sock_recv(peer, 1 << 16)
            except ConnectionResetError:  # closed before all that we sent was read
                break
            if not piece:
                break
            received += piece
    return received


async def stand_by(calls: list[Asked], cuts: list[int], end: End, path: Path) -> None:
    stage = Stage(path)
    server = stage.begin(read_ahead_calls=16)
    async with asyncio.timeout(DEADLINE):
        received = await converse(stage, calls, cuts, end)
        if end in HEARS:
            replies = [json.loads(frame) for frame in received.split(b"\0")[:-1]]
            assert replies == [reply for asked in calls for reply in asked.replies]
            assert received == b"" or received.endswith(b"\0")
        await until(lambda: server.connections == 0)
        await server.close(0.0)
    assert server.intake.total == 0
    stage.listening.close()


@pytest.mark.parametrize("end", End)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(calls=CALLS, cuts=st.lists(st.integers(min_value=0, max_value=4000), max_size=12))
def test_whole_calls_are_answered_in_order_whatever_the_peer_does_next(
    end: End, calls: list[Asked], cuts: list[int]
) -> None:
    """B95, B98."""
    with tempfile.TemporaryDirectory(prefix="dd-") as directory:
        asyncio.run(stand_by(calls, cuts, end, Path(directory) / "s"))


async def test_ten_thousand_that_leave_abruptly_leave_no_trace(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """B98: before, in the middle of and during what they asked for."""
    server = stage.begin()
    first = await stage.client()
    first.send(call("Echo", "all is begun"))
    assert await first.words(1) == ["all is begun"]
    begun, files = len(asyncio.all_tasks()), open_files()
    asked = [call("Echo", "half")[:-5], call("Slow", "x"), call("Echo", "y" * 9000) * 40, b""]
    for number in range(10_000):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.setblocking(False)
            peer.connect(stage.path)
            peer.send(asked[number % 4])
            if number % 16 == 0:
                await asyncio.sleep(0)
    await until(lambda: server.connections == 1)
    await until(lambda: len(asyncio.all_tasks()) == begun)
    assert open_files() <= files  # fewer, where what earlier tests left is collected meanwhile
    assert server.intake.total == 0
    assert caplog.records == []
