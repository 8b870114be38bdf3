"""The client's side: replies matched to calls, and what an end of the connection left open."""

import pytest

from discoveryd.varlink import (
    CLOSED,
    NEED_DATA,
    ClientConnection,
    LocalProtocolError,
    RemoteProtocolError,
    Reply,
)


def test_a_reply_is_handed_out_once_it_is_whole() -> None:
    client = ClientConnection()
    client.send_call("a.B")
    frame = b'{"parameters":{"x":1}}\0'
    for index in range(len(frame)):
        assert client.next_event() is NEED_DATA
        client.receive_data(frame[index : index + 1])
    reply = client.next_event()
    assert isinstance(reply, Reply)
    assert bytes(reply.parameters) == b'{"x":1}'


def test_outstanding_counts_calls_until_their_final_reply() -> None:
    client = ClientConnection()
    client.send_call("a.B")
    client.send_call("a.C", oneway=True)
    client.send_call("a.D", more=True)
    assert client.outstanding == 2
    client.receive_data(b'{}\0{"continues":true}\0{"error":"a.Bad"}\0')
    counted: list[tuple[int, bool]] = []
    while isinstance(client.next_event(), Reply):
        counted.append((client.outstanding, client.midway))
    assert counted == [(1, False), (1, True), (0, False)]


@pytest.mark.parametrize("calls", [[], ["oneway"], ["answered"]])
def test_a_reply_that_nobody_asked_for_is_a_violation(calls: list[str]) -> None:
    client = ClientConnection()
    for call in calls:
        client.send_call("a.B", oneway=call == "oneway")
        if call == "answered":
            client.receive_data(b"{}\0")
            client.next_event()
    client.receive_data(b"{}\0")
    with pytest.raises(RemoteProtocolError, match="no call"):
        client.next_event()


def test_continued_replies_are_only_for_the_call_that_asked_for_more() -> None:
    client = ClientConnection()
    client.send_call("a.B", more=True)
    client.send_call("a.C")
    client.receive_data(b'{"continues":true}\0{}\0{"continues":true}\0')
    assert isinstance(client.next_event(), Reply)
    assert isinstance(client.next_event(), Reply)
    with pytest.raises(RemoteProtocolError, match="more"):
        client.next_event()


def test_a_clean_end_between_replies_shows_what_was_never_answered() -> None:
    client = ClientConnection()
    client.send_call("a.B")
    client.send_call("a.C")
    client.receive_data(b"{}\0")
    client.receive_data(b"")
    assert isinstance(client.next_event(), Reply)
    assert client.next_event() is CLOSED
    assert client.outstanding == 1
    assert not client.midway


def test_an_end_amid_continued_replies_shows_that_some_had_come() -> None:
    client = ClientConnection()
    client.send_call("a.B", more=True)
    client.receive_data(b'{"continues":true}\0')
    client.receive_data(b"")
    assert isinstance(client.next_event(), Reply)
    assert client.next_event() is CLOSED
    assert client.outstanding == 1
    assert client.midway


def test_an_end_inside_a_reply_is_a_violation() -> None:
    client = ClientConnection()
    client.send_call("a.B")
    client.receive_data(b'{"parameters"')
    client.receive_data(b"")
    with pytest.raises(RemoteProtocolError, match="inside a reply"):
        client.next_event()


def test_a_reply_over_the_limit_is_a_violation_after_those_before_it() -> None:
    client = ClientConnection(frame_limit=10)
    client.send_call("a.B")
    client.send_call("a.C")
    client.receive_data(b"{}\0" + b" " * 11)
    assert isinstance(client.next_event(), Reply)
    with pytest.raises(RemoteProtocolError, match="limit"):
        client.next_event()


def test_oneway_and_more_at_once_are_the_callers_fault() -> None:
    client = ClientConnection()
    with pytest.raises(LocalProtocolError):
        client.send_call("a.B", more=True, oneway=True)
    assert client.outstanding == 0


def test_a_call_after_the_end_is_the_callers_fault() -> None:
    client = ClientConnection()
    client.receive_data(b"")
    with pytest.raises(LocalProtocolError):
        client.send_call("a.B")


def test_a_call_after_a_violation_is_the_callers_fault() -> None:
    client = ClientConnection()
    client.receive_data(b"{}\0")
    with pytest.raises(RemoteProtocolError):
        client.next_event()
    with pytest.raises(LocalProtocolError):
        client.send_call("a.B")


def test_a_call_that_cannot_be_encoded_is_not_outstanding() -> None:
    client = ClientConnection()
    with pytest.raises(TypeError):
        client.send_call("a.B", {"x": object()})
    assert client.outstanding == 0
