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

**Every file has the store's lease.** Dynamo's processes touch their files every third of it, and
the living remove what the dead have left. So a card that is passed on has that lease, or its own if
that is shorter, and a record that is not renewed is missing (records.py).
"""

import os
from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from discoveryd.core.batch import Found, Invalid, Sighting
from discoveryd.core.card import Card, Key, Liveness
from discoveryd.core.text import display_path
from discoveryd.daemon.disk.folder import Folder
from discoveryd.daemon.disk.following import RESCAN_SECONDS, STEP_MS, Follower, Sink, Touched
from discoveryd.daemon.disk.hearing import Arm, native
from discoveryd.daemon.disk.reading import Look, absolute, judge, sighting
from discoveryd.daemon.disk.records import Records
from discoveryd.daemon.disk.store_names import is_key_name, key_of, record_name
from discoveryd.daemon.life.leases import RunningTime

RECORD_GRACE_SECONDS = 1.0
"""For how long a missing instance record withdraws nobody."""

LEASE_SECONDS = 10.0
"""How often a file of a store must be touched: what Dynamo itself holds its files to."""


class DynamoStore(Follower):
    """Follows the store whose root is `path`; see `Follower` for how to use it.

    The names given to `look` are those of files in `v1/mdc`. `running` is the time in which leases
    are counted; whoever gives it lets it go on.
    """

    def __init__(  # noqa: PLR0913  # limits are arguments
        self,
        path: str | os.PathLike[str],
        sink: Sink,
        *,
        arm: Arm | None = native,
        step_ms: int = STEP_MS,
        rescan_seconds: float = RESCAN_SECONDS,
        record_grace_seconds: float = RECORD_GRACE_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        running: RunningTime | None = None,
        touched: Touched | None = None,
    ) -> None:
        root = absolute(path)
        mdc = Folder(root + b"/v1/mdc", is_key_name)
        instances = Folder(root + b"/v1/instances", is_key_name)
        records = Records(
            instances,
            running or RunningTime(),
            grace_seconds=record_grace_seconds,
            lease_seconds=lease_seconds,
        )
        layout = _Store(mdc, instances, records, lease_seconds)
        super().__init__(
            root,
            sink,
            layout,
            arm=arm,
            step_ms=step_ms,
            rescan_seconds=rescan_seconds,
            touched=touched,
        )


class _Store:
    """Two folders, the files of the first read in the light of the second.

    `_cards` holds what was said last of each card file; `_places` the card files of each instance,
    by the key of its base. `_expected` are files that were known before this daemon began.
    """

    name: Literal["dynamo"] = "dynamo"

    def __init__(
        self, mdc: Folder, instances: Folder, records: Records, lease_seconds: float
    ) -> None:
        self.folders = (mdc, instances)
        self._mdc = mdc
        self._records = records
        self._lease = Liveness(lease_seconds=lease_seconds)
        self._cards: dict[bytes, Sighting] = {}
        self._places: dict[Key, set[bytes]] = {}
        self._expected: set[bytes] = set()

    @property
    def files(self) -> int:
        return len(self._cards)

    def expect(self, names: Collection[bytes]) -> None:
        self._expected.update(names)
        self._mdc.expect(names)

    def widen(self, names: Sequence[set[bytes]]) -> None:
        cards, records = names
        records.update(record_name(name) for name in cards)

    def patience(self) -> float:
        return self._records.patience()

    def sightings(self, looks: Sequence[dict[bytes, Look]]) -> list[Sighting]:
        cards, records = looks
        changed = self._records.update(records)
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
        expected = name in self._expected
        self._expected.discard(name)
        if content is None:
            if isinstance(key, Key):
                self._leave(key.base, name)
            if self._cards.pop(name, None) is None and not expected:
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
        address = self._records.address(key.base)
        found = judge(seen, "", key=key, url=address or None)
        if isinstance(found, Invalid) and isinstance(seen.content, bytes):
            self._mdc.doubt(name)
        if not isinstance(found, Card):
            return found
        return msgspec.structs.replace(
            found, anchored=address is not None, liveness=self._leased(found.liveness)
        )

    def _leased(self, given: Liveness | None) -> Liveness:
        """Return what must hold for a card of the store, given what it says itself."""
        lease = self._lease.lease_seconds
        if given is None or lease is None:
            return self._lease
        own = lease if given.lease_seconds is None else given.lease_seconds
        return msgspec.structs.replace(given, lease_seconds=min(own, lease))

    def _again(self, name: bytes) -> Sighting | None:
        """Read a card again in the light of another record; None where that changes nothing."""
        said = self._cards[name]
        if not isinstance(said.found, Card):
            return None
        found = self._judge(Look(said.found.content), name, said.found.key)
        if found == said.found:
            return None
        # Touches have made the stamp newer than the content.
        stamp = self._mdc.stamp(name)
        mtime_ns = said.mtime_ns if stamp is None else stamp.mtime_ns
        self._cards[name] = again = msgspec.structs.replace(said, found=found, mtime_ns=mtime_ns)
        return again

    def _leave(self, place: Key, name: bytes) -> None:
        names = self._places.get(place)
        if names is not None:
            names.discard(name)
            if not names:
                del self._places[place]
