"""How the ledger's values become rows and rows values again.

Rows hold msgpack of the values in core/state.py, each sealed with a checksum over the row's name
and content, since SQLite does not notice a flipped bit. Members that are added to a value have
defaults, so that older rows stay readable. Which tables there are is said in tables.py.
"""

import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from discoveryd.core.card import Card, Key
from discoveryd.core.state import EntryState, FileState
from discoveryd.core.verdict import Reason

_SEAL_BYTES = 4


class Undecodable(Exception):
    """A row is not what was written. The message says which, as the end of a sentence."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Where the state stands: the cursor it was published at, and the last rank drawn."""

    epoch: str
    revision: int
    rank: int
    operator_aliases: Mapping[str, str] = {}


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One change of a verdict. `time` is wall-clock time in seconds since the epoch.

    `standing` is None where the file went. `names` are those that its last valid card asks for.
    """

    time: float
    file: str = ""
    key: Key | None = None
    names: tuple[str, ...] = ()
    standing: str | None = None
    reasons: tuple[Reason, ...] = ()


Row = tuple[Any, ...]
"""The values of one row, as SQLite takes them."""

_Value = TypeVar("_Value")

_encode = msgspec.msgpack.Encoder().encode
_metas = msgspec.msgpack.Decoder(Meta)
_files = msgspec.msgpack.Decoder(FileState)
_cards = msgspec.msgpack.Decoder(Card)
_entries = msgspec.msgpack.Decoder(EntryState)
_events = msgspec.msgpack.Decoder(Event)


def meta_row(meta: Meta) -> Row:
    """Return the row of `meta`."""
    return (_seal("meta", _encode(meta)),)


def meta_of(sealed: object) -> Meta:
    """Return what a row of `meta` holds. Raises Undecodable, as all below do."""
    return _decode(_metas, "meta", sealed)


def file_row(state: FileState) -> Row:
    """Return the row of a file."""
    card = None if state.card is None else _seal(state.file, _encode(state.card))
    bare = msgspec.structs.replace(state, file="", card=None)
    return state.file, _seal(state.file, _encode(bare)), card


def file_of(file: str, sealed: object) -> FileState:
    """Return the state of a file, without its card."""
    state = _decode(_files, file, sealed)
    return msgspec.structs.replace(state, file=file)


def with_card(state: FileState, sealed: object, present: Card | None) -> FileState:
    """Return the state with its card, which is `present` itself where it equals that."""
    if sealed is None:
        return state
    card = present
    if card is None or _unseal(state.file, sealed) != _encode(card):
        card = _decode(_cards, state.file, sealed)
        card = present if present == card else card
    return msgspec.structs.replace(state, card=card)


def entry_row(state: EntryState) -> Row:
    """Return the row of a held key."""
    key = str(state.key)
    return key, _seal(key, _encode(state))


def entry_of(key: str, sealed: object) -> EntryState:
    """Return the state of a held key."""
    return _decode(_entries, key, sealed)


def event_row(number: int, event: Event) -> Row:
    """Return the row of an event."""
    bare = msgspec.structs.replace(event, file="")
    return number, event.file, _seal(event.file, _encode(bare))


def event_of(file: str, sealed: object) -> Event:
    """Return what a row of `events` holds."""
    return msgspec.structs.replace(_decode(_events, file, sealed), file=file)


def _seal(name: str, content: bytes) -> bytes:
    return content + _checksum(name, content)


def _unseal(name: str, sealed: object) -> bytes:
    if not isinstance(sealed, bytes) or len(sealed) < _SEAL_BYTES:
        raise Undecodable(f"the row of {name} holds something else")
    content, seal = sealed[:-_SEAL_BYTES], sealed[-_SEAL_BYTES:]
    if _checksum(name, content) != seal:
        raise Undecodable(f"the row of {name} has changed since it was written")
    return content


def _checksum(name: str, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(name.encode()))
    return checksum.to_bytes(_SEAL_BYTES, "big")


def _decode(decoder: "msgspec.msgpack.Decoder[_Value]", name: str, sealed: object) -> _Value:
    try:
        return decoder.decode(_unseal(name, sealed))
    except msgspec.MsgspecError as fault:
        raise Undecodable(f"the row of {name} cannot be read: {fault}") from None
