"""What UAPI.20 demands of the two ends of a connection, row by row."""

from typing import Any

import msgspec
import pytest

from discoveryd.varlink import (
    NEED_DATA,
    PAUSED,
    Call,
    ClientConnection,
    ExpectedMore,
    LocalProtocolError,
    Method,
    RemoteProtocolError,
    Reply,
    ServerConnection,
    Service,
)

MALFORMED_FOR_BOTH = {
    "invalid JSON": b'{"method":"a.B"',
    "nothing": b"",
    "trailing text": b"{}{}",
    "single quotes": b"{'method':'a.B'}",
    "a trailing comma": b'{"method":"a.B",}',
    "NaN": b'{"parameters":{"x":NaN}}',
    "Infinity": b'{"parameters":{"x":-Infinity}}',
    "a leading zero": b'{"parameters":{"x":01}}',
    "a raw control character": b'{"parameters":{"x":"\n"}}',
    "a byte order mark": b'\xef\xbb\xbf{"parameters":{}}',
    "a lone surrogate": b'{"parameters":{"x":"\\ud800"}}',
    "not UTF-8 in a string": b'{"method":"a.\xff"}',
    "not UTF-8 in the parameters": b'{"parameters":{"x":"\xff"}}',
    "overlong UTF-8": b'{"parameters":{"x":"\xc0\xaf"}}',
    "not UTF-8 in a vendor member": b'{"org.example":{"x":"\xff"}}',
    "UTF-16": '{"method":"a.B"}'.encode("utf-16-le").replace(b"\0", b"\x01"),
    "an array": b"[]",
    "a string": b'"a.B"',
    "a number": b"1",
    "null": b"null",
    "parameters that are an array": b'{"parameters":[]}',
    "parameters that are a string": b'{"parameters":"{}"}',
    "parameters that are false": b'{"parameters":false}',
    "an unknown member": b'{"colour":1}',
    "an unknown member that is null": b'{"colour":null}',
    "an X-style member": b'{"X-Vendor":{}}',
    "an empty member name": b'{"":1}',
    "bottomless nesting": b'{"parameters":{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
}

MALFORMED_CALLS = {
    "no method": b"{}",
    "a method that is null": b'{"method":null}',
    "a method that is a number": b'{"method":1}',
    "a method that is an array": b'{"method":["a.B"]}',
    "more that is 1": b'{"method":"a.B","more":1}',
    "oneway that is a string": b'{"method":"a.B","oneway":"true"}',
    "upgrade that is an object": b'{"method":"a.B","upgrade":{}}',
    "more and oneway": b'{"method":"a.B","more":true,"oneway":true}',
    "more and upgrade": b'{"method":"a.B","more":true,"upgrade":true}',
    "oneway and upgrade": b'{"method":"a.B","oneway":true,"upgrade":true}',
    "a member of replies": b'{"method":"a.B","continues":true}',
    "a member of replies that is null": b'{"method":"a.B","error":null}',
}

MALFORMED_REPLIES = {
    "continues that is 1": b'{"continues":1}',
    "an error that is a number": b'{"error":1}',
    "an error that continues": b'{"error":"a.B","continues":true}',
    "a member of calls": b'{"method":"a.B"}',
    "a member of calls that is null": b'{"more":null}',
}


def with_method(frame: bytes) -> bytes:
    """Keep a frame's fault, but let it not be the missing method."""
    if frame.startswith(b"{") and b'"method"' not in frame and frame != b"{}{}":
        return b'{"method":"a.B",' + frame[1:]
    return frame


CALLS = {name: with_method(frame) for name, frame in MALFORMED_FOR_BOTH.items()} | MALFORMED_CALLS
REPLIES = {
    name: frame
    for name, frame in (MALFORMED_FOR_BOTH | MALFORMED_REPLIES).items()
    if name != "a trailing comma"
} | {"a trailing comma": b'{"continues":false,}'}


@pytest.mark.parametrize("frame", CALLS.values(), ids=CALLS)
def test_a_server_closes_on_a_malformed_call(frame: bytes) -> None:
    server = ServerConnection()
    server.receive_data(frame + b"\0")
    with pytest.raises(RemoteProtocolError):
        server.next_event()


@pytest.mark.parametrize("frame", REPLIES.values(), ids=REPLIES)
def test_a_client_closes_on_a_malformed_reply(frame: bytes) -> None:
    client = ClientConnection()
    client.send_call("a.B", more=True)
    client.receive_data(frame + b"\0")
    with pytest.raises(RemoteProtocolError):
        client.next_event()


def handed_out(frame: bytes) -> tuple[ServerConnection, Call]:
    server = ServerConnection()
    server.receive_data(frame + b"\0")
    call = server.next_event()
    assert isinstance(call, Call)
    return server, call


def test_messages_end_with_one_nul_on_the_wire() -> None:
    server, _ = handed_out(b'{"method":"a.B"}')
    sent = server.reply({"x": "\0"})
    assert sent.count(b"\0") == 1
    assert sent.endswith(b"\0")


def test_nothing_is_emitted_outside_strings_but_tokens() -> None:
    assert ClientConnection().send_call("a.B", {"x": [1, 2]}, more=True).split() == [
        b'{"method":"a.B","more":true,"parameters":{"x":[1,2]}}\0'
    ]


@pytest.mark.parametrize("parameters", [b"", b',"parameters":null', b',"parameters":{}'])
def test_absent_null_and_empty_parameters_are_equivalent_to_a_server(parameters: bytes) -> None:
    class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        x: int | None = None

    service = Service(
        vendor="v",
        product="p",
        version="1",
        url="u",
        interfaces={"a.b": "interface a.b"},
        methods={"a.b.C": Method(Nothing, lambda *_: None)},
    )
    _, call = handed_out(b'{"method":"a.b.C"' + parameters + b"}")
    assert service.prepare(call).parameters == Nothing()


@pytest.mark.parametrize("frame", [b"{}", b'{"parameters":null}', b'{"parameters":{}}'])
def test_absent_null_and_empty_parameters_are_equivalent_to_a_client(frame: bytes) -> None:
    client = ClientConnection()
    client.send_call("a.B")
    client.receive_data(frame + b"\0")
    reply = client.next_event()
    assert isinstance(reply, Reply)
    assert bytes(reply.parameters) == b"{}"


@pytest.mark.parametrize("answer", [None, {"x": 1}])
def test_a_oneway_call_gets_no_reply(answer: Any) -> None:
    server, _ = handed_out(b'{"method":"a.B","oneway":true}')
    assert server.reply(answer) == b""
    assert server.next_event() is NEED_DATA


def test_a_oneway_call_gets_no_error() -> None:
    server, _ = handed_out(b'{"method":"a.B","oneway":true}')
    assert server.error("a.Bad", {"x": 1}) == b""
    assert server.next_event() is NEED_DATA


def test_a_server_cannot_continue_a_call_without_more() -> None:
    server, _ = handed_out(b'{"method":"a.B"}')
    with pytest.raises(LocalProtocolError):
        server.reply({"x": 1}, continues=True)
    assert server.reply({"x": 1}) == b'{"parameters":{"x":1}}\0'


def test_a_client_rejects_a_continued_reply_to_a_call_without_more() -> None:
    client = ClientConnection()
    client.send_call("a.B")
    client.receive_data(b'{"continues":true}\0')
    with pytest.raises(RemoteProtocolError):
        client.next_event()


def test_no_further_call_is_processed_while_replies_continue() -> None:
    server, _ = handed_out(b'{"method":"a.B","more":true}\0{"method":"a.C"}')
    server.reply({"x": 1}, continues=True)
    assert server.next_event() is PAUSED
    server.reply({"x": 2})
    assert isinstance(server.next_event(), Call)


def test_an_error_settles_a_call_whose_replies_continued() -> None:
    server, _ = handed_out(b'{"method":"a.B","more":true}\0{"method":"a.C"}')
    server.reply(continues=True)
    assert server.error("a.Bad") == b'{"error":"a.Bad"}\0'
    assert isinstance(server.next_event(), Call)


def test_a_call_with_more_may_get_a_single_reply() -> None:
    server, _ = handed_out(b'{"method":"a.B","more":true}')
    assert server.reply({"x": 1}) == b'{"parameters":{"x":1}}\0'


def test_a_method_that_needs_more_gets_expected_more() -> None:
    class Nothing(msgspec.Struct, forbid_unknown_fields=True):
        pass

    service = Service(
        vendor="v",
        product="p",
        version="1",
        url="u",
        interfaces={"a.b": "interface a.b"},
        methods={"a.b.C": Method(Nothing, lambda *_: None, more="required")},
    )
    with pytest.raises(ExpectedMore):
        service.prepare(handed_out(b'{"method":"a.b.C"}')[1])
    assert service.prepare(handed_out(b'{"method":"a.b.C","more":true}')[1]).method.more


def test_after_a_refused_upgrade_the_connection_goes_on() -> None:
    server, call = handed_out(b'{"method":"a.B","upgrade":true}\0{"method":"a.C"}')
    assert call.upgrade
    server.error("org.varlink.service.InvalidParameter", {"parameter": "upgrade"})
    assert isinstance(server.next_event(), Call)


def test_replies_come_in_the_order_of_the_calls() -> None:
    client, server = ClientConnection(), ServerConnection()
    methods = [f"a.M{n}" for n in range(20)]
    server.receive_data(b"".join(client.send_call(method) for method in methods))
    while isinstance(call := server.next_event(), Call):
        client.receive_data(server.reply({"method": call.method}))
    got: list[Any] = []
    while isinstance(reply := client.next_event(), Reply):
        got.append(msgspec.json.decode(reply.parameters)["method"])
    assert got == methods
