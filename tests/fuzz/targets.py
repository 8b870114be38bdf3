"""What is fuzzed: each target takes any bytes, and raises where a promise is broken.

The first bytes choose what the outer world chooses (the file's name and key; where a stream is cut
and how its calls are answered), the rest is what came from outside. So an input is one file, and
replays without the fuzzer. `card`: of any content comes a Card or InvalidCard, all of which can be
shown. `connection`: however a stream is cut, the same calls come of it, the same bytes go back, and
a client can read those; or RemoteProtocolError.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from types import MappingProxyType
from typing import Literal

import msgspec

from discoveryd.core.card import Card, InvalidCard, Key
from discoveryd.core.parsing.cards import parse_card
from discoveryd.daemon.methods import parameters
from discoveryd.varlink import (
    NEED_DATA,
    Call,
    CallError,
    ClientConnection,
    Method,
    RemoteProtocolError,
    Reply,
    ServerConnection,
    Service,
)

_KEYS = (None, None, Key("ns", "c", "e", "1"), Key("ns", "c", "e", "1", "s"))
_STEMS = ("x", "a b", "\udcff", "\u03a9")

FRAME_LIMIT = 300
_READ_AHEAD_CALLS = 4
_READ_AHEAD_BYTES = 256

_METHODS: dict[type[msgspec.Struct], Literal["never", "optional", "required"]] = {
    parameters.Resolve: "never",
    parameters.ListWorkers: "optional",
    parameters.Explain: "optional",
    parameters.Check: "never",
    parameters.Sync: "never",
    parameters.Hold: "required",
    parameters.Watch: "required",
    parameters.History: "never",
}
_SERVICE = Service(
    vendor="v",
    product="p",
    version="1",
    url="u",
    interfaces={"io.discoveryd.Models": "interface io.discoveryd.Models"},
    methods={
        f"io.discoveryd.Models.{kind.__name__}": Method(kind, lambda asked: asked, more)
        for kind, more in _METHODS.items()
    },
)


def card(fuzzed: bytes) -> None:
    """Parse: the first byte gives key and stem, the rest is the file's content."""
    choice, content = next(iter(fuzzed), 0), fuzzed[1:]
    key, stem = _KEYS[choice % 4], _STEMS[choice // 4 % 4]
    outcome = _parse(content, stem, key)
    if isinstance(outcome, InvalidCard):
        assert outcome.reasons
        for reason in outcome.reasons:
            _assert_writable(reason.rule, reason.message, reason.field or "", reason.found or "")
        _assert_writable(*outcome.warnings)
        return
    document = json.loads(content)
    assert outcome.display_name == document.get("card_json", document)["display_name"]
    assert key is None or outcome.key == key
    _assert_writable(str(outcome.key), *outcome.names, outcome.fingerprint, *outcome.warnings)
    assert all(outcome.names)
    assert len(set(outcome.names)) == len(outcome.names)
    # Blanks around a card mean nothing.
    spaced = _parse(b"\n " + content + b"\t\r\n", stem, key)
    assert isinstance(spaced, Card)
    assert msgspec.structs.replace(spaced, content=content) == outcome


def _parse(content: bytes, stem: str, key: Key | None) -> Card | InvalidCard:
    try:
        return parse_card(content, stem=stem, key=key)
    except InvalidCard as invalid:
        return invalid


def _assert_writable(*texts: str) -> None:
    for text in texts:
        assert text.encode().decode() == text


def connection(fuzzed: bytes) -> None:
    """Serve: four bytes say where the stream is cut, one how calls are answered, then comes it."""
    cuts, answering, stream = fuzzed[:4], fuzzed[4:5], fuzzed[5:]
    streamed = 1 + next(iter(answering), 0) % 4
    whole = _Served(streamed)
    whole.take(stream)
    whole.end()
    pieces = _Served(streamed)
    for piece in _cut(stream, cuts):
        pieces.take(piece)
        assert pieces.server.waiting <= _READ_AHEAD_CALLS + len(piece)
        assert pieces.server.held <= 65 * (len(piece) + FRAME_LIMIT) + _READ_AHEAD_BYTES
    pieces.end()
    assert pieces.calls == whole.calls
    assert pieces.broken == whole.broken
    assert pieces.sent == whole.sent
    assert not whole.broken or not whole.server.want_data
    _read_back(whole)


def _cut(stream: bytes, cuts: bytes) -> Iterator[bytes]:
    lengths = cycle([1 + length % 64 for length in cuts] or [1])
    at = 0
    while at < len(stream):
        length = next(lengths)
        yield stream[at : at + length]
        at += length


class _Served:
    """A server's side of one stream: what was called, what was sent, whether the peer broke it."""

    def __init__(self, streamed: int) -> None:
        self.server = ServerConnection(
            frame_limit=FRAME_LIMIT,
            read_ahead_calls=_READ_AHEAD_CALLS,
            read_ahead_bytes=_READ_AHEAD_BYTES,
        )
        self.calls: list[Call] = []
        self.sent = b""
        self.broken = False
        self._streamed = streamed

    def take(self, received: bytes) -> None:
        if received and not self.broken:
            self.server.receive_data(received)
            self._serve()

    def end(self) -> None:
        self.server.receive_data(b"")
        self._serve()
        assert self.server.waiting == 0
        assert not self.server.busy
        assert not self.server.want_data

    def _serve(self) -> None:
        try:
            while isinstance(call := self.server.next_event(), Call):
                self.calls.append(call)
                self._answer(call)
        except RemoteProtocolError:
            self.broken = True

    def _answer(self, call: Call) -> None:
        assert call.more + call.oneway + call.upgrade <= 1
        assert isinstance(json.loads(bytes(call.parameters)), dict)
        try:
            prepared = _SERVICE.prepare(call)
        except CallError as error:
            sent = self.server.error(error.name, error.parameters)
        else:
            sent = b""
            if call.more:
                for _ in range(self._streamed):
                    sent += self.server.reply(prepared.parameters, continues=True)
            sent += self.server.reply(prepared.parameters)
        assert bool(sent) is not call.oneway
        assert not self.server.busy
        self.sent += sent


def _read_back(served: _Served) -> None:
    """Let a client that made these calls read what was sent to it."""
    client = ClientConnection()
    answered = [call for call in served.calls if not call.oneway]
    for call in answered:
        client.send_call(call.method, bytes(call.parameters), more=call.more)
    if served.sent:
        client.receive_data(served.sent)
    settled = 0
    while isinstance(reply := client.next_event(), Reply):
        settled += not reply.continues
    assert reply is NEED_DATA
    assert settled == len(answered)
    assert client.outstanding == 0


TARGETS: Mapping[str, Callable[[bytes], None]] = MappingProxyType(
    {"card": card, "connection": connection}
)
