"""A Dynamo file store: the cards in `v1/mdc`, joined with the addresses in `v1/instances`.

How files are followed is dropdir.py's theory; here is what they mean in a store.

**The file name is the key**: namespace/component/endpoint/instance[/suffix], percent-encoded; what
the content says of its own place decides nothing. Names that begin with `.tmp_` are Dynamo's
temporary files.

**A worker is there if its instance record is**: a card whose endpoint and instance have no record
is passed on unanchored, and serves when the record comes. An adapter lies on its base's instance.
The record also tells the address. A record that says nothing usable is as none. So a changed record
is a changed card: the cards of its instance are passed on again in the same batch.

A record that is missing for less than `RECORD_GRACE_SECONDS` was only being replaced (unlink, then
link), and keeps its effect meanwhile. A card that comes is looked at together with its record, so
that workers who write the record first are never seen without it.
"""

import os
import re
import time
from collections.abc import Sequence
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec

from discoveryd.core.batch import Found, Invalid, Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.text import display_path, has_control
from discoveryd.core.verdict import Reason
from discoveryd.daemon.folder import Folder
from discoveryd.daemon.following import RESCAN_SECONDS, STEP_MS, Follower, Sink
from discoveryd.daemon.reading import Look, absolute, judge, sighting
from discoveryd.daemon.watching import Arm, native

RECORD_GRACE_SECONDS = 1.0
"""For how long a missing instance record withdraws nobody."""

_BASE_SEGMENTS = 4
_SLASH = re.compile(rb"%2f|/", re.IGNORECASE)


class _Record(msgspec.Struct, tag_field="type", tag="Endpoint"):
    """An instance record, as far as it is read."""

    transport: dict[str, msgspec.Raw]


_RECORDS = msgspec.json.Decoder(_Record)
_ADDRESSES = msgspec.json.Decoder(str)


class DynamoStore(Follower):
    """Follows the store whose root is `path`; see `Follower` for how to use it.

    The names given to `look` are those of files in `v1/mdc`.
    """

    def __init__(  # noqa: PLR0913  # limits are arguments
        self,
        path: str | os.PathLike[str],
        sink: Sink,
        *,
        arm: Arm = native,
        step_ms: int = STEP_MS,
        rescan_seconds: float = RESCAN_SECONDS,
        record_grace_seconds: float = RECORD_GRACE_SECONDS,
    ) -> None:
        root = absolute(path)
        layout = _Store(root, record_grace_seconds)
        super().__init__(
            root, sink, layout, arm=arm, step_ms=step_ms, rescan_seconds=rescan_seconds
        )


class _Store:
    """Two folders, the files of the first read in the light of the second.

    `_cards` holds what was said last of each card file; `_places` the card files of each instance,
    by the key of its base; `_addresses` the records that are in effect, `_missing` since when some
    of them are not there any more.
    """

    name: Literal["dynamo"] = "dynamo"

    def __init__(self, root: bytes, grace_seconds: float) -> None:
        self._mdc = Folder(root + b"/v1/mdc", is_key_name)
        self._instances = Folder(root + b"/v1/instances", is_key_name)
        self.folders = (self._mdc, self._instances)
        self._grace_seconds = grace_seconds
        self._cards: dict[bytes, Sighting] = {}
        self._places: dict[Key, set[bytes]] = {}
        self._addresses: dict[Key, str] = {}
        self._missing: dict[Key, float] = {}

    @property
    def files(self) -> int:
        return len(self._cards)

    def widen(self, names: Sequence[set[bytes]]) -> None:
        cards, records = names
        records.update(record_name(name) for name in cards)

    def patience(self) -> float:
        if not self._missing:
            return float("inf")
        return min(self._missing.values()) + self._grace_seconds - time.monotonic()

    def sightings(self, looks: Sequence[dict[bytes, Look]]) -> list[Sighting]:
        cards, records = looks
        now = time.monotonic()
        changed = {
            place for name, seen in records.items() if (place := self._note(name, seen, now))
        }
        changed |= self._expire(now)
        sightings = [
            seen
            for name, look in cards.items()
            if not self._mdc.stopped and (seen := self._card(name, look)) is not None
        ]
        sightings += [
            again
            for place in changed
            for name in self._places.get(place, ())
            if name not in cards and (again := self._again(name)) is not None
        ]
        return sightings

    def _card(self, name: bytes, seen: Look) -> Sighting | None:
        content = seen.content
        if isinstance(content, Invalid) and content.reasons[0].rule == "not_a_file":
            content = None
        key = key_of(name)
        if content is None:
            if isinstance(key, Key):
                self._leave(key.base, name)
            if self._cards.pop(name, None) is None:
                return None
            found: Found = None
        elif isinstance(key, Key):
            self._places.setdefault(key.base, set()).add(name)
            found = self._judge(seen, name, key)
        else:
            found = Invalid((key,))
        said = sighting(f"{self._mdc.display}/{display_path(name)}", seen, found)
        if found is not None:
            self._cards[name] = said
        return said

    def _judge(self, seen: Look, name: bytes, key: Key) -> Found:
        address = self._addresses.get(key.base)
        found = judge(seen, "", key=key, url=address or None)
        if isinstance(found, Invalid) and isinstance(seen.content, bytes):
            self._mdc.doubt(name)
        if isinstance(found, Card) and address is None:
            return msgspec.structs.replace(found, anchored=False)
        return found

    def _again(self, name: bytes) -> Sighting | None:
        """Read a card again in the light of another record; None where that changes nothing."""
        said = self._cards[name]
        if not isinstance(said.found, Card):
            return None
        found = self._judge(Look(said.found.content), name, said.found.key)
        if found == said.found:
            return None
        self._cards[name] = again = msgspec.structs.replace(said, found=found)
        return again

    def _note(self, name: bytes, seen: Look, now: float) -> Key | None:
        """Take a record in; return the base key whose cards are affected by it at once."""
        place = key_of(name)
        if not isinstance(place, Key) or place.suffix is not None:
            return None
        address = _address(seen.content)
        if address is None:
            if seen.content is not None:
                self._instances.doubt(name)
            if place in self._addresses:
                self._missing.setdefault(place, now)
            return None
        self._missing.pop(place, None)
        if self._addresses.get(place) == address:
            return None
        self._addresses[place] = address
        return place

    def _expire(self, now: float) -> set[Key]:
        expired = {
            place for place, since in self._missing.items() if now - since >= self._grace_seconds
        }
        for place in expired:
            del self._missing[place], self._addresses[place]
        return expired

    def _leave(self, place: Key, name: bytes) -> None:
        names = self._places.get(place)
        if names is not None:
            names.discard(name)
            if not names:
                del self._places[place]


def is_key_name(name: bytes) -> bool:
    """Whether a file of this name, in a store, stands for a key."""
    return not name.startswith(b".tmp_") and b"/" not in name and b"\0" not in name


def record_name(name: bytes) -> bytes:
    """Return the name of the instance record that a card file of this name belongs to."""
    slashes = list(_SLASH.finditer(name))
    if len(slashes) < _BASE_SEGMENTS:
        return name
    return name[: slashes[_BASE_SEGMENTS - 1].start()]


def key_of(name: bytes) -> Key | Reason:
    """Decode a file name of a store; the reason says why it is no key."""
    try:
        segments = unquote_to_bytes(name).decode().split("/")
    except UnicodeDecodeError:
        return _no_key(name, "it is not UTF-8 once decoded")
    if len(segments) not in (_BASE_SEGMENTS, _BASE_SEGMENTS + 1):
        return _no_key(name, f"it has {len(segments)} segments")
    if not all(segments):
        return _no_key(name, "a segment of it is empty")
    if any(has_control(segment) for segment in segments):
        return _no_key(name, "it has control characters")
    return Key(*segments)


def _no_key(name: bytes, why: str) -> Reason:
    return Reason(
        rule="file_name",
        message=f"the file name {display_path(name)} is no key, since {why}. In a Dynamo store a "
        "card's file name is namespace/component/endpoint/instance or the same and /suffix, "
        "percent-encoded. Move other files elsewhere.",
        found=display_path(name),
    )


def _address(content: bytes | Invalid | None) -> str | None:
    """Return the address in an instance record, with Dynamo's transport as its scheme."""
    if not isinstance(content, bytes):
        return None
    try:
        ((kind, raw),) = _RECORDS.decode(content).transport.items()
        address = _ADDRESSES.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    address = address.partition("://")[2] or address
    if not (kind.isascii() and kind.replace("_", "").isalnum() and address.isprintable()):
        return None
    if not address or " " in address:
        return None
    return f"dynamo+{kind.replace('_', '-')}://{address}"
