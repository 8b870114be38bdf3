"""The registry's records: one for each file it knows, one for each key that a file holds.

They hold state and derive nothing but what one record alone can tell.
"""

from discoveryd.core.batch import Barred, Invalid, Served
from discoveryd.core.card import Card, Group, Key
from discoveryd.core.verdict import Serves, Standing


class FileRecord:
    """One card file. `card` is its last valid content; `fault` is set if the present is invalid."""

    __slots__ = (
        "barred",
        "card",
        "fault",
        "file",
        "moved_from",
        "mtime_ns",
        "observed",
        "owner",
        "shown",
        "since",
        "standing",
    )

    def __init__(self, file: str) -> None:
        self.file = file
        self.owner: int | None = None
        self.mtime_ns = 0
        self.observed: int | None = None
        self.card: Card | None = None
        self.fault: Invalid | None = None
        self.barred: Barred | None = None
        self.moved_from: Key | None = None
        self.since = 0.0
        self.shown: object = None
        self.standing: Standing | None = None

    @property
    def claim(self) -> Key | None:
        """The key this file claims, if any."""
        return None if self.card is None or self.barred is not None else self.card.key


class Entry:
    """One held key. See the theory at the top of registry.py for what the members mean.

    `watching` is the one thing a waiting entry waits for: the key of the card that refused it, or
    a name that is claimed otherwise.
    """

    __slots__ = (
        "admission",
        "arrival",
        "file",
        "key",
        "owner",
        "registration",
        "served",
        "standing",
        "want",
        "watching",
    )

    def __init__(self, key: Key, want: Card, file: str, owner: int | None, arrival: int) -> None:
        self.key = key
        self.want = want
        self.file = file
        self.owner = owner
        self.arrival = arrival
        self.registration: int | None = None
        self.admission: int | None = None
        self.served: Served | None = None
        self.standing = Standing.REFUSED
        self.watching: Key | str | None = None

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
