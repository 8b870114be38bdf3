"""Whatever a peer sends, nothing but `RemoteProtocolError` and `CallError` comes of it."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from discoveryd.varlink import (
    Call,
    CallError,
    ClientConnection,
    Method,
    RemoteProtocolError,
    Reply,
    ServerConnection,
    Service,
)


class Find(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    limit: int | None = None


SERVICE = Service(
    vendor="v",
    product="p",
    version="1",
    url="u",
    interfaces={"a.b": "interface a.b"},
    methods={"a.b.Find": Method(Find, lambda parameters: parameters)},
)

TOKENS = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b",", b":", b"\0", b'"', b"\\", b" ", b"null", b"true", b"-1e9"),
        *(b'"method"', b'"parameters"', b'"more"', b'"oneway"', b'"upgrade"', b'"continues"'),
        *(b'"error"', b'"a.b.Find"', b'"org.x"', b'{"name":"x"}', b"\xff", b"\\ud800", b"\xc3\xa4"),
        *(b'{"method":"a.b.Find","parameters":{"name":"x"}}\0', b'{"parameters":{}}\0'),
    ]
)
STREAMS = st.lists(
    st.one_of(st.binary(min_size=1, max_size=30), st.lists(TOKENS, min_size=1).map(b"".join)),
    max_size=12,
)

TEXT = st.text(alphabet='a."\\\0\xe4', max_size=4)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MEMBERS = st.sampled_from(
    ["method", "parameters", "more", "oneway", "upgrade", "continues", "error", "org.x", "x"]
)
ENVELOPES = st.dictionaries(MEMBERS, JSON | st.sampled_from(["a.b.Find", "a.b.C", True]))


def serve(server: ServerConnection) -> None:
    while isinstance(call := server.next_event(), Call):
        assert call.more + call.oneway + call.upgrade <= 1
        assert isinstance(msgspec.json.decode(call.parameters), dict)
        try:
            prepared = SERVICE.prepare(call)
        except CallError as error:
            server.error(error.name, error.parameters)
        else:
            assert isinstance(prepared.parameters, Find)
            server.reply(prepared.parameters)


@settings(deadline=None)
@given(pieces=STREAMS)
def test_a_server_survives_any_bytes(pieces: list[bytes]) -> None:
    server = ServerConnection(frame_limit=200)
    try:
        for piece in pieces:
            server.receive_data(piece)
            serve(server)
        server.receive_data(b"")
        serve(server)
    except RemoteProtocolError:
        assert not server.want_data
    assert server.waiting == 0


@settings(deadline=None)
@given(pieces=STREAMS)
def test_a_client_survives_any_bytes(pieces: list[bytes]) -> None:
    client = ClientConnection(frame_limit=200)
    for more in (True, False, True):
        client.send_call("a.b.Find", more=more)
    try:
        for piece in [*pieces, b""]:
            client.receive_data(piece)
            while isinstance(reply := client.next_event(), Reply):
                assert reply.failure() is None or not reply.continues
    except RemoteProtocolError:
        pass
    assert client.outstanding <= 3


@settings(deadline=None)
@given(envelope=ENVELOPES)
def test_a_call_is_accepted_exactly_if_every_rule_of_the_envelope_holds(
    envelope: dict[str, object],
) -> None:
    flags = [envelope.get(flag) for flag in ("more", "oneway", "upgrade")]
    lawful = (
        isinstance(envelope.get("method"), str)
        and isinstance(envelope.get("parameters"), dict | None)
        and all(isinstance(flag, bool | None) for flag in flags)
        and flags.count(True) <= 1
        and not envelope.keys() & {"continues", "error", "x"}
    )
    server = ServerConnection()
    server.receive_data(msgspec.json.encode(envelope) + b"\0")
    try:
        call = server.next_event()
    except RemoteProtocolError:
        assert not lawful
    else:
        assert lawful
        assert isinstance(call, Call)
        assert msgspec.json.decode(call.parameters) == (envelope.get("parameters") or {})
