"""Messages: what one frame says, and what is said in one frame.

A call or reply is an *envelope* (method, flags, error) around *parameters*. Here the envelope is
read and checked; the parameters stay the peer's JSON (`msgspec.Raw`, already found to be valid
JSON and UTF-8) until somebody who knows their type decodes them, so that every byte is decoded
once.

**Two looks.** The common envelope is decoded in one step into a strict Struct. Only if that fails
is it taken apart member by member: vendor members (their names contain a dot) are ignored
whatever they hold, `null` is the same as absent, and the rest is decoded strictly again.

**What breaks the protocol** (`RemoteProtocolError`): text that is not UTF-8 or not JSON (a lone
surrogate written as an escape included, since it stands for no character), nesting too deep for the
decoder, no object, an unknown member without a dot, a flag that is no boolean, more than one flag
set, `method` missing or no string, `parameters` that are neither object nor null, `continues` in
an error reply.

**Duplicate members**: the last counts, as most JSON readers have it; the others must be JSON.

**Numbers**: integers from -2**63 to 2**64-1 survive both ways. NaN and the infinities do not
exist in JSON; msgspec writes them as null, and so do we.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from discoveryd.varlink.errors import CallError, RemoteProtocolError, call_error

Parameters = bytes | msgspec.Struct | Mapping[str, object] | None
"""What parameters may be given as. `bytes` are a JSON object, encoded already and not looked at:
whoever made them vouches that they are one, in UTF-8 and without a raw NUL. None means none."""

REPLY_HEAD = b'{"parameters":'
REPLY_TAIL = b"}\0"
"""What a whole reply has around its parameters, which are not empty."""

_NONE = msgspec.Raw(b"{}")
_BRACE = ord("{")
_SHOWN = 60


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One call as received. `parameters` is a JSON object, `{}` where the peer gave none.

    At most one of the flags is set.
    """

    method: str
    parameters: msgspec.Raw = _NONE
    more: bool = False
    oneway: bool = False
    upgrade: bool = False


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One reply as received. `parameters` is a JSON object, `{}` where the peer gave none.

    `continues`: more replies to the same call follow. `error`: the call failed with that error.
    """

    parameters: msgspec.Raw = _NONE
    continues: bool = False
    error: str | None = None

    def failure(self) -> CallError | None:
        """Return the error this reply carries, or None if the call succeeded.

        Raises `RemoteProtocolError` if its parameters hold what Python cannot.
        """
        if self.error is None:
            return None
        try:
            return call_error(self.error, _members_of_error.decode(self.parameters))
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"unreadable parameters of {self.error}: {error}") from error


_Envelope = TypeVar("_Envelope", Call, Reply)

_call = msgspec.json.Decoder(Call)
_reply = msgspec.json.Decoder(Reply)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_members_of_error = msgspec.json.Decoder(dict[str, object])
_encode = msgspec.json.Encoder().encode


def parse_call(frame: bytes) -> Call:
    """Read a call from one frame (without NUL). Raises `RemoteProtocolError`."""
    call = _open(frame, Call, _call)
    if call.more + call.oneway + call.upgrade > 1:
        raise RemoteProtocolError("a call sets more than one of more, oneway and upgrade")
    return call


def parse_reply(frame: bytes) -> Reply:
    """Read a reply from one frame (without NUL). Raises `RemoteProtocolError`."""
    reply = _open(frame, Reply, _reply)
    if reply.continues and reply.error is not None:
        raise RemoteProtocolError(f"the error reply {reply.error[:_SHOWN]!r} claims to continue")
    return reply


def encode_call(
    method: str, parameters: Parameters = None, *, more: bool = False, oneway: bool = False
) -> bytes:
    """Return the frame of a call, NUL included. At most one flag may be set."""
    flag = b',"more":true' if more else b',"oneway":true' if oneway else b""
    body = _body(parameters)
    if len(body) > len(b"{}"):
        return b"".join((b'{"method":', _encode(method), flag, b',"parameters":', body, b"}\0"))
    return b"".join((b'{"method":', _encode(method), flag, b"}\0"))


def encode_reply(parameters: Parameters = None, *, continues: bool = False) -> bytes:
    """Return the frame of a reply that is no error, NUL included."""
    body = parameters if type(parameters) is bytes else _body(parameters)
    if len(body) > len(b"{}"):
        head = b'{"continues":true,"parameters":' if continues else b'{"parameters":'
        return b"".join((head, body, b"}\0"))
    return b'{"continues":true}\0' if continues else b"{}\0"


def encode_error(name: str, parameters: Parameters = None) -> bytes:
    """Return the frame of an error reply, NUL included. `name` is fully qualified."""
    body = _body(parameters)
    if len(body) > len(b"{}"):
        return b"".join((b'{"error":', _encode(name), b',"parameters":', body, b"}\0"))
    return b"".join((b'{"error":', _encode(name), b"}\0"))


def _body(parameters: Parameters) -> bytes:
    """Return the parameters as a JSON object."""
    if parameters is None:
        return b"{}"
    if isinstance(parameters, bytes):
        return parameters
    return _encode(parameters if isinstance(parameters, msgspec.Struct) else dict(parameters))


def _open(
    frame: bytes, kind: type[_Envelope], decoder: msgspec.json.Decoder[_Envelope]
) -> _Envelope:
    """Read an envelope at first look, else at the second."""
    try:
        # msgspec checks the encoding of the strings it makes, but not of those it skips.
        if not frame.isascii():
            frame.decode()
        envelope = decoder.decode(frame)
        if envelope.parameters is _NONE or memoryview(envelope.parameters)[0] == _BRACE:
            return envelope
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a message is not valid JSON: {error}") from error
    return _open_closely(frame, kind, decoder)


def _open_closely(
    frame: bytes, kind: type[_Envelope], decoder: msgspec.json.Decoder[_Envelope]
) -> _Envelope:
    """Read an envelope member by member: vendor members left out, null as absent."""
    try:
        known: dict[str, msgspec.Raw] = {}
        for name, value in _members.decode(frame).items():
            if "." in name:
                continue
            if name not in kind.__struct_fields__:
                raise RemoteProtocolError(f"a message has the unknown member {name[:_SHOWN]!r}")
            if bytes(value) != b"null":
                known[name] = value
        envelope = decoder.decode(_encode(known))
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"a message is malformed: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a message is not valid JSON: {error}") from error
    if envelope.parameters is not _NONE and memoryview(envelope.parameters)[0] != _BRACE:
        raise RemoteProtocolError("the parameters of a message are no object")
    return envelope
