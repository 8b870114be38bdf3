"""The server's side: one call at a time, read-ahead, the peer's end, misuse."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discoveryd.varlink import (
    CLOSED,
    NEED_DATA,
    PAUSED,
    Call,
    LocalProtocolError,
    RemoteProtocolError,
    ServerConnection,
)
from discoveryd.varlink.connection import FRAME_BYTES


def call_frame(name: str, flag: str = "") -> bytes:
    return f'{{"method":"a.{name}"{flag and f""","{flag}":true"""}}}\0'.encode()


def answered(server: ServerConnection) -> Iterator[str]:
    """Settle all calls that are there, giving their methods."""
    while isinstance(call := server.next_event(), Call):
        server.reply()
        yield call.method


def test_a_call_is_handed_out_once_it_is_whole() -> None:
    server = ServerConnection()
    frame = call_frame("A")
    for index in range(len(frame)):
        assert server.next_event() is NEED_DATA
        server.receive_data(frame[index : index + 1])
    assert isinstance(server.next_event(), Call)


@settings(deadline=None)
@given(cuts=st.lists(st.integers(min_value=1, max_value=120), max_size=20))
def test_pipelined_calls_come_in_order_however_they_are_split(cuts: list[int]) -> None:
    stream = b"".join(call_frame(name, "oneway" if name == "C" else "") for name in "ABCDE")
    places = [0, *sorted(cut for cut in set(cuts) if cut < len(stream)), len(stream)]
    server = ServerConnection()
    methods: list[str] = []
    for start, end in pairwise(places):
        server.receive_data(stream[start:end])
        methods += answered(server)
    assert methods == ["a.A", "a.B", "a.C", "a.D", "a.E"]


def test_the_next_call_waits_until_the_present_one_is_settled() -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A") + call_frame("B"))
    server.next_event()
    assert server.busy
    assert server.waiting == 1
    assert server.next_event() is PAUSED
    server.error("a.Bad")
    assert not server.busy
    second = server.next_event()
    assert isinstance(second, Call)
    assert second.method == "a.B"


def test_a_oneway_call_keeps_its_place_among_the_others() -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A") + call_frame("B", "oneway") + call_frame("C"))
    sent = b""
    while isinstance(call := server.next_event(), Call):
        sent += server.reply({"m": call.method})
    assert sent == b'{"parameters":{"m":"a.A"}}\0{"parameters":{"m":"a.C"}}\0'


def test_a_stream_ends_with_a_reply_that_does_not_continue() -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A", "more"))
    server.next_event()
    assert server.reply({"n": 1}, continues=True) == b'{"continues":true,"parameters":{"n":1}}\0'
    assert server.busy
    assert server.reply({"n": 2}) == b'{"parameters":{"n":2}}\0'
    assert not server.busy


def test_reading_pauses_when_enough_calls_wait_and_goes_on_when_they_are_taken() -> None:
    server = ServerConnection(read_ahead_calls=3)
    server.receive_data(call_frame("A") * 3)
    server.next_event()
    assert server.want_data
    server.receive_data(call_frame("B"))
    assert not server.want_data
    server.reply()
    server.next_event()
    assert server.want_data


def test_reading_pauses_when_enough_bytes_wait_unfinished_ones_included() -> None:
    server = ServerConnection(read_ahead_bytes=100)
    server.receive_data(call_frame("A"))
    server.next_event()
    server.receive_data(call_frame("B"))
    assert server.want_data
    server.receive_data(b'{"method":"' + b"x" * 100)
    assert not server.want_data


def test_a_call_larger_than_the_read_ahead_can_still_arrive() -> None:
    server = ServerConnection(read_ahead_bytes=10)
    server.receive_data(call_frame("A" * 50)[:-1])
    assert server.want_data
    server.receive_data(b"\0")
    assert list(answered(server)) == ["a." + "A" * 50]


def test_what_was_read_is_no_longer_counted_once_it_is_settled() -> None:
    server = ServerConnection(read_ahead_bytes=200, read_ahead_calls=10)
    for _ in range(100):
        server.receive_data(call_frame("A") * 5)
        assert len(list(answered(server))) == 5
        assert server.want_data
    server.receive_data(call_frame("A") * 2)
    server.next_event()
    assert server.want_data


def test_after_the_peers_end_whole_calls_are_still_handed_out() -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A") + call_frame("B") + b'{"method":')
    server.receive_data(b"")
    assert not server.want_data
    assert list(answered(server)) == ["a.A", "a.B"]
    assert server.next_event() is CLOSED
    assert server.next_event() is CLOSED


def test_the_peers_end_does_not_settle_the_present_call() -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A"))
    server.next_event()
    server.receive_data(b"")
    assert server.next_event() is PAUSED
    assert server.reply() == b"{}\0"
    assert server.next_event() is CLOSED


def test_what_is_held_is_everything_that_is_not_settled() -> None:
    server = ServerConnection()
    assert server.held == 0
    server.receive_data(call_frame("A") + call_frame("B") + b'{"method"')
    of_each = len(call_frame("A")) - 1 + FRAME_BYTES
    assert server.held == 2 * of_each + 9
    server.next_event()
    assert server.held == 2 * of_each + 9
    server.reply()
    assert server.held == of_each + 9
    server.next_event()
    server.error("a.Bad")
    assert server.held == 9


@pytest.mark.parametrize("beginning", [b"G", b"[", b"\xef\xbb\xbf", b"7", b'"'])
def test_what_does_not_begin_as_an_object_is_a_violation_before_its_end(beginning: bytes) -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A") + beginning)
    assert isinstance(server.next_event(), Call)
    assert server.next_event() is PAUSED
    server.reply()
    with pytest.raises(RemoteProtocolError, match="does not begin as a JSON object"):
        server.next_event()


@pytest.mark.parametrize("beginning", [b"{", b" ", b"\r\n", b"\t{"])
def test_what_may_still_become_an_object_is_waited_for(beginning: bytes) -> None:
    server = ServerConnection()
    server.receive_data(beginning)
    assert server.next_event() is NEED_DATA


VIOLATIONS = {"not JSON": b"GET / HTTP/1.1\0", "too large": b"x" * 2000}


@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_surfaces_after_the_calls_before_it_are_settled(violation: bytes) -> None:
    server = ServerConnection(frame_limit=1000)
    server.receive_data(call_frame("A") + call_frame("B") + violation + call_frame("C"))
    for method in ("a.A", "a.B"):
        call = server.next_event()
        assert isinstance(call, Call)
        assert call.method == method
        assert server.next_event() is PAUSED
        assert server.reply() == b"{}\0"
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            server.next_event()
    assert not server.want_data


def test_after_a_violation_nothing_more_is_kept() -> None:
    server = ServerConnection()
    server.receive_data(b"garbage\0")
    with pytest.raises(RemoteProtocolError):
        server.next_event()
    server.receive_data(call_frame("A"))
    assert server.waiting == 0
    with pytest.raises(RemoteProtocolError):
        server.next_event()


def test_a_frame_over_the_limit_names_the_limit_as_the_fault() -> None:
    server = ServerConnection(frame_limit=100)
    server.receive_data(b"x" * 101)
    assert not server.want_data
    with pytest.raises(RemoteProtocolError, match="limit"):
        server.next_event()


def test_answering_without_a_call_is_the_callers_fault() -> None:
    server = ServerConnection()
    with pytest.raises(LocalProtocolError):
        server.reply()
    with pytest.raises(LocalProtocolError):
        server.error("a.Bad")


def test_answering_twice_is_the_callers_fault() -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A"))
    server.next_event()
    server.reply()
    with pytest.raises(LocalProtocolError):
        server.reply()


def test_an_answer_that_cannot_be_encoded_leaves_the_call_to_be_answered() -> None:
    server = ServerConnection()
    server.receive_data(call_frame("A"))
    server.next_event()
    with pytest.raises(TypeError):
        server.reply({"x": object()})
    assert server.error("a.Bad") == b'{"error":"a.Bad"}\0'


def test_data_after_the_end_is_the_callers_fault() -> None:
    server = ServerConnection()
    server.receive_data(b"")
    server.receive_data(b"")
    with pytest.raises(LocalProtocolError):
        server.receive_data(b"x")
