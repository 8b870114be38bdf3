"""The instance records of a Dynamo store: which workers are there, and at what address.

A record is in effect from when it is seen until it has been missing for a grace time: gone, saying
nothing usable, or not renewed within the store's lease, which is all the same. So a record that is
only replaced (unlink, then link) keeps its effect. How leases are counted is leases.py's theory;
what follows for the cards of an instance is store.py's business.
"""

import time
from collections.abc import Mapping

import msgspec

from discoveryd.core.batch import Invalid
from discoveryd.core.card import Key
from discoveryd.daemon.disk.folder import Folder, Touch
from discoveryd.daemon.disk.reading import Look
from discoveryd.daemon.disk.store_names import key_of
from discoveryd.daemon.life.leases import TICK_SECONDS, Leases, RunningTime, Seen
from discoveryd.daemon.life.lives import mtime_of


class _Record(msgspec.Struct, tag_field="type", tag="Endpoint"):
    """An instance record, as far as it is read."""

    transport: dict[str, msgspec.Raw]


_RECORDS = msgspec.json.Decoder(_Record)
_ADDRESSES = msgspec.json.Decoder(str)


class Records:
    """The records in `folder`, by the base key of the instance. Used by one thread at a time.

    A record that is missing for less than `grace_seconds` keeps its effect; one that was not
    renewed for `lease_seconds` of `running` time is missing.
    """

    def __init__(
        self, folder: Folder, running: RunningTime, *, grace_seconds: float, lease_seconds: float
    ) -> None:
        self._folder = folder
        self._running = running
        self._grace_seconds = grace_seconds
        self._lease_seconds = lease_seconds
        self._leases: Leases[bytes] = Leases()
        self._usable: dict[Key, str] = {}
        self._in_effect: dict[Key, str] = {}
        self._missing: dict[Key, float] = {}

    def address(self, place: Key) -> str | None:
        """Return the address of an instance; None where it is not there."""
        return self._in_effect.get(place)

    def update(self, looks: Mapping[bytes, Look]) -> set[Key]:
        """Take in what a round found; return the instances that are another thing now."""
        names = self._read(looks)
        names |= self._renew(self._folder.take_touches())
        names |= self._look_at_due()
        now = time.monotonic()
        changed = {
            place for name in names if (place := _place_of(name)) and self._weigh(name, place, now)
        }
        for place in [
            p for p, since in self._missing.items() if now - since >= self._grace_seconds
        ]:
            del self._missing[place], self._in_effect[place]
            changed.add(place)
        return changed

    def patience(self) -> float:
        """Return in how many seconds `update` is due even if nothing happens."""
        waits = self._leases.next_due() - self._running.seconds
        if self._missing:
            missing = min(self._missing.values()) + self._grace_seconds - time.monotonic()
            return min(missing, max(waits, TICK_SECONDS))
        return max(waits, TICK_SECONDS)

    def _read(self, looks: Mapping[bytes, Look]) -> set[bytes]:
        for name, seen in looks.items():
            place = _place_of(name)
            if place is None:
                continue
            address = _address(seen.content)
            if address is None:
                if seen.content is not None:
                    self._folder.doubt(name)
                self._usable.pop(place, None)
                self._leases.drop(name)
                continue
            mtime_ns = 0 if seen.stamp is None else seen.stamp.mtime_ns
            self._usable[place] = address
            self._leases.grant(name, self._lease_seconds, mtime_ns, self._running.seconds)
        return set(looks)

    def _renew(self, touches: Mapping[bytes, Touch]) -> set[bytes]:
        now = self._running.seconds
        return {n for n, touch in touches.items() if self._leases.renew(n, touch.mtime_ns, now)}

    def _look_at_due(self) -> set[bytes]:
        now = self._running.seconds
        due = self._leases.due(now)
        found: list[Seen] = [mtime_of(self._folder.path + b"/" + name) for name in due]
        late = self._running.late
        for name, seen in zip(due, found, strict=True):
            self._leases.settle(name, None if late else seen, now)
        return set(due)

    def _weigh(self, name: bytes, place: Key, now: float) -> bool:
        """See whether a record counts; return whether that changes anything at once."""
        address = self._usable.get(place) if self._leases.runs(name) else None
        if address is None:
            if place in self._in_effect:
                self._missing.setdefault(place, now)
            return False
        self._missing.pop(place, None)
        changed = self._in_effect.get(place) != address
        self._in_effect[place] = address
        return changed


def _place_of(name: bytes) -> Key | None:
    place = key_of(name)
    return place if isinstance(place, Key) and place.suffix is None else None


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
