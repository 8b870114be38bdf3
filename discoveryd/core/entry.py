"""The registry's records: one for each file it knows, one for each key that a file holds.

They hold state and derive nothing but what one record alone can tell. There are as many of them as
cards, so they are lean: no record refers to another, so the collector need not know any, and what
most of them say alike is one value.
"""

from typing import NamedTuple

import msgspec

from discoveryd.core.batch import Barred, Invalid, Served
from discoveryd.core.card import Card, Group, Key
from discoveryd.core.verdict import Reason, Serves, Standing


class Shown(NamedTuple):
    """What is said of a file, apart from what its card says by itself."""

    standing: Standing
    serves: Serves
    owner: int | None
    fault: Invalid | None = None
    barred: tuple[Reason, ...] | None = None
    moved_from: Key | None = None


class FileRecord(msgspec.Struct, eq=False, gc=False):
    """One card file. `card` is its last valid content; `fault` is set if the present is invalid.

    `shown` is what was said of it last, apart from what only the card says; None where nothing, or
    where the card says otherwise since.
    """

    file: str
    owner: int | None = None
    mtime_ns: int = 0
    observed: int | None = None
    card: Card | None = None
    fault: Invalid | None = None
    barred: Barred | None = None
    moved_from: Key | None = None
    since: float = 0.0
    shown: Shown | None = None
    standing: Standing | None = None

    @property
    def claim(self) -> Key | None:
        """The key this file claims, if any."""
        return None if self.card is None or self.barred is not None else self.card.key


class Entry(msgspec.Struct, eq=False, gc=False):
    """One held key. See the theory at the top of registry.py for what the members mean.

    `beneath` is the primary that a serving adapter claims its name for. `watching` is the one thing
    a waiting entry waits for: the key of the card that refused it, or a name that is claimed
    otherwise.
    """

    key: Key
    want: Card
    file: str
    owner: int | None
    arrival: int
    registration: int | None = None
    admission: int | None = None
    served: Served | None = None
    beneath: str = ""
    standing: Standing = Standing.REFUSED
    watching: Key | str | None = None

    @property
    def firm(self) -> bool:
        """Whether the entry serves what its file holds."""
        return self.served is not None and self.served.firm

    @property
    def courtesy(self) -> Card | None:
        """The version served by courtesy, if one is."""
        return None if self.served is None or self.served.firm else self.served.card

    @property
    def courtesy_group(self) -> Group | None:
        """The group in which a base still serves an earlier version."""
        card = self.courtesy
        return None if card is None or card.adapter else card.group

    def serves(self, *, torn: bool) -> Serves:
        """Which version of the holder's content is in the answers."""
        if self.served is None:
            return Serves.NOTHING
        return Serves.CURRENT if self.served.firm and not torn else Serves.PREVIOUS
