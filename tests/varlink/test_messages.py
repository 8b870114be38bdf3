"""Messages: what an envelope may hold, and how parameters travel."""

import json
import math
from typing import Any

import msgspec
import pytest

from discoveryd.varlink.errors import (
    CallError,
    ExpectedMore,
    InvalidParameter,
    RemoteProtocolError,
)
from discoveryd.varlink.messages import (
    encode_call,
    encode_error,
    encode_reply,
    parse_call,
    parse_reply,
)


class Point(msgspec.Struct):
    x: int
    y: int | None = None


def decoded(frame: bytes) -> Any:
    assert frame.endswith(b"\0")
    assert frame.count(b"\0") == 1
    return json.loads(frame[:-1])


def test_a_call_is_read_with_its_parameters_untouched() -> None:
    call = parse_call(b'{"method":"a.b.C","parameters": {"x": 1 } ,"more":true}')
    assert call.method == "a.b.C"
    assert bytes(call.parameters) == b'{"x": 1 }'
    assert (call.more, call.oneway, call.upgrade) == (True, False, False)


@pytest.mark.parametrize(
    "frame",
    [
        b'{"method":"a.B"}',
        b'{"method":"a.B","parameters":null}',
        b'{"method":"a.B","parameters":{}}',
        b'{"method":"a.B","parameters": null }',
        b'{"method":"a.B","parameters":null,"more":null,"org.example":{}}',
    ],
)
def test_absent_null_and_empty_parameters_are_the_same(frame: bytes) -> None:
    assert bytes(parse_call(frame).parameters) == b"{}"
    reply = frame.replace(b'"method":"a.B"', b'"error":null').replace(b"more", b"continues")
    assert bytes(parse_reply(reply).parameters) == b"{}"


@pytest.mark.parametrize("flag", ["more", "oneway", "upgrade"])
def test_a_null_flag_is_an_absent_flag(flag: str) -> None:
    call = parse_call(f'{{"method":"a.B","{flag}":null,"parameters":{{"x":1}}}}'.encode())
    assert getattr(call, flag) is False
    assert bytes(call.parameters) == b'{"x":1}'


@pytest.mark.parametrize(
    "member",
    ['"org.example":{"a":1}', '"org.example":null', '"a.b":[1,2]', '"org.example":{"more":true}'],
)
def test_vendor_members_are_ignored(member: str) -> None:
    call = parse_call(f'{{{member},"method":"a.B","oneway":true}}'.encode())
    assert call.oneway
    assert not call.more
    assert parse_reply(f'{{"continues":true,{member}}}'.encode()).continues


def test_whitespace_around_tokens_is_accepted() -> None:
    assert parse_call(b' \r\n{\t"method" : "a.B" }\n').method == "a.B"


@pytest.mark.parametrize(
    ("frame", "more"),
    [
        (b'{"method":"a.B","more":false,"more":true}', True),
        (b'{"method":"a.B","more":true,"more":null}', False),
        (b'{"method":"a.B","more":"?","more":true}', True),
        (b'{"method":7,"method":"a.B","more":true}', True),
    ],
)
def test_of_duplicate_members_the_last_counts(frame: bytes, more: bool) -> None:
    assert parse_call(frame).more is more


def test_a_violation_quotes_little_of_what_the_peer_sent() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown member 'xxx") as caught:
        parse_call(b'{"method":"a.B","' + b"x" * 100_000 + b'":1}')
    assert len(str(caught.value)) < 200


def test_a_reply_is_read() -> None:
    reply = parse_reply(b'{"parameters":{"x":1},"continues":true}')
    assert bytes(reply.parameters) == b'{"x":1}'
    assert reply.continues
    assert reply.failure() is None


def test_an_error_reply_becomes_an_exception_with_name_and_parameters() -> None:
    failure = parse_reply(b'{"error":"a.b.Bad","parameters":{"n":[1]}}').failure()
    assert type(failure) is CallError
    assert failure.name == "a.b.Bad"
    assert failure.parameters == {"n": [1]}


def test_an_error_of_the_service_interface_has_its_own_class() -> None:
    name = b'"error":"org.varlink.service.'
    invalid = parse_reply(b"{" + name + b'InvalidParameter","parameters":{"parameter":"x"}}')
    assert isinstance(invalid.failure(), InvalidParameter)
    assert isinstance(parse_reply(b"{" + name + b'ExpectedMore"}').failure(), ExpectedMore)


def test_a_peer_cannot_break_the_class_of_an_error_by_its_parameters() -> None:
    frame = b'{"error":"org.varlink.service.InvalidParameter","parameters":{"y":0}}'
    failure = parse_reply(frame).failure()
    assert isinstance(failure, InvalidParameter)
    assert failure.parameters == {"y": 0}


def test_error_parameters_that_python_cannot_hold_are_the_peers_fault() -> None:
    reply = parse_reply(b'{"error":"a.B","parameters":{"n":' + b"1" * 5000 + b"}}")
    with pytest.raises(RemoteProtocolError, match=r"a\.B"):
        reply.failure()


@pytest.mark.parametrize("parameters", [None, {}, b"{}", b""])
def test_empty_parameters_are_not_sent(parameters: Any) -> None:
    assert encode_call("a.B", parameters) == b'{"method":"a.B"}\0'
    assert encode_reply(parameters) == b"{}\0"
    assert encode_reply(parameters, continues=True) == b'{"continues":true}\0'
    assert encode_error("a.B", parameters) == b'{"error":"a.B"}\0'


@pytest.mark.parametrize("parameters", [Point(1), {"x": 1, "y": None}, b'{"x":1,"y":null}'])
def test_parameters_may_be_a_struct_a_mapping_or_json(parameters: Any) -> None:
    inner = {"x": 1, "y": None}
    assert decoded(encode_reply(parameters)) == {"parameters": inner}
    assert decoded(encode_reply(parameters, continues=True)) == {
        "parameters": inner,
        "continues": True,
    }
    assert decoded(encode_error("a.B", parameters)) == {"error": "a.B", "parameters": inner}
    assert decoded(encode_call("a.B", parameters)) == {"method": "a.B", "parameters": inner}


def test_flags_are_only_sent_when_set() -> None:
    assert decoded(encode_call("a.B", more=True)) == {"method": "a.B", "more": True}
    assert decoded(encode_call("a.B", oneway=True)) == {"method": "a.B", "oneway": True}


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**53 + 1, 2**63, 2**64 - 1])
def test_integers_of_64_bits_survive_both_ways(number: int) -> None:
    call = parse_call(encode_call("a.B", {"x": number})[:-1])
    assert msgspec.json.decode(call.parameters) == {"x": number}
    reply = parse_reply(encode_error("a.B", {"x": number})[:-1])
    failure = reply.failure()
    assert failure is not None
    assert failure.parameters == {"x": number}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for_is_never_emitted(number: float) -> None:
    assert decoded(encode_reply({"x": number})) == {"parameters": {"x": None}}


def test_a_nul_in_a_string_is_escaped_and_never_ends_the_frame() -> None:
    assert decoded(encode_call("a.B", {"x": "\0"}))["parameters"] == {"x": "\0"}


@pytest.mark.parametrize("text", ["ä", "\N{GRINNING FACE}", "\u202e"])
def test_text_beyond_ascii_survives(text: str) -> None:
    call = parse_call(encode_call("a.B", {text: text})[:-1])
    assert msgspec.json.decode(call.parameters) == {text: text}
