"""The framer: the same frames however the bytes arrive, bounded memory, linear cost."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discoveryd.varlink.frames import Framer


def fed(framer: Framer, pieces: list[bytes]) -> list[bytes]:
    return [frame for piece in pieces for frame in framer.feed(piece)]


def single_bytes(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def test_frames_come_without_their_terminator() -> None:
    assert Framer(100).feed(b"one\0two\0") == [b"one", b"two"]


def test_an_unfinished_frame_is_held_and_counted() -> None:
    framer = Framer(100)
    assert framer.feed(b"one\0tw") == [b"one"]
    assert framer.pending == 2
    assert framer.feed(b"o\0") == [b"two"]
    assert framer.pending == 0


def test_two_terminators_in_a_row_enclose_an_empty_frame() -> None:
    assert Framer(100).feed(b"a\0\0b\0") == [b"a", b"", b"b"]


def test_byte_by_byte_gives_the_same_frames() -> None:
    assert fed(Framer(100), single_bytes(b"one\0\0two\0rest")) == [b"one", b"", b"two"]


@settings(deadline=None)
@given(
    frames=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\0", b"")), max_size=20),
    cuts=st.lists(st.integers(min_value=0, max_value=900), max_size=30),
)
def test_any_split_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame + b"\0" for frame in frames)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(places)]
    framer = Framer(40)
    assert fed(framer, pieces) == frames
    assert not framer.overrun


@pytest.mark.parametrize("pieces", [[b"x" * 10 + b"\0"], [b"x" * 4, b"x" * 6 + b"\0"]])
def test_a_frame_of_just_the_limit_passes(pieces: list[bytes]) -> None:
    framer = Framer(10)
    assert fed(framer, pieces) == [b"x" * 10]
    assert not framer.overrun


@pytest.mark.parametrize(
    "pieces",
    [
        [b"x" * 11 + b"\0"],
        [b"x" * 11],
        [b"x" * 6, b"x" * 5],
        [b"x" * 6, b"x" * 5 + b"\0"],
        [b"x"] * 11,
    ],
    ids=["whole", "unfinished", "in two", "in two, finished", "byte by byte"],
)
def test_a_frame_over_the_limit_stops_the_framer(pieces: list[bytes]) -> None:
    framer = Framer(10)
    assert fed(framer, pieces) == []
    assert framer.overrun
    assert framer.pending == 0
    assert framer.feed(b"good\0") == []


@pytest.mark.parametrize("tail", [b"x" * 11, b"x" * 11 + b"\0", b"x" * 11 + b"\0more\0"])
def test_frames_before_the_overlong_one_are_kept(tail: bytes) -> None:
    framer = Framer(10)
    assert framer.feed(b"one\0two\0" + tail) == [b"one", b"two"]
    assert framer.overrun


def test_many_frames_may_together_exceed_the_limit() -> None:
    framer = Framer(10)
    assert framer.feed(b"xxxxx\0" * 50) == [b"xxxxx"] * 50
    assert not framer.overrun


def seconds_for_byte_by_byte(size: int) -> float:
    pieces = [b"x"] * size
    framer = Framer(2 * size)
    began = time.thread_time()
    for piece in pieces:
        framer.feed(piece)
    assert len(framer.feed(b"\0")[0]) == size
    return time.thread_time() - began


def test_cost_is_linear_in_the_size_of_a_frame_that_comes_byte_by_byte() -> None:
    small, large = 16 * 1024, 16 * 16 * 1024
    # Quadratic cost would show as a factor of 256; the best of three runs keeps noise out,
    # and of the processor only what is used here counts.
    ratio = min(seconds_for_byte_by_byte(large) for _ in range(3)) / min(
        seconds_for_byte_by_byte(small) for _ in range(3)
    )
    assert ratio < 16 * 3
