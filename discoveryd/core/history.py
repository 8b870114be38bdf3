"""What changed since when: a cursor for every reader, without a queue for any.

Not a log of changes but, for every key and name, the revision at which it last changed, in that
order. The difference since a cursor is what lies behind it, read from the end: its cost is its own
length, its content the present, and a key that changed a thousand times is in it once. Only what is
gone for good costs memory; of that the oldest is dropped, and cursors before it are told to reset.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from discoveryd.core.card import Key


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """A point in one unbroken history. Revisions compare only within one epoch."""

    epoch: str
    revision: int


class Difference(msgspec.Struct, frozen=True):
    """What changed after a cursor: keys and names to look up in the present state.

    With `reset`, the reader's state is worth nothing and it needs everything there is.
    """

    reset: bool
    keys: tuple[Key, ...]
    names: tuple[str, ...]


Thing = TypeVar("Thing", bound=Hashable)


class _Touches(Generic[Thing]):
    """Things in the order of their last change."""

    def __init__(self) -> None:
        self.at: dict[Thing, int] = {}
        self.gone: OrderedDict[Thing, None] = OrderedDict()

    def touch(self, things: Mapping[Thing, bool], revision: int) -> None:
        """Note that these have changed, each with whether it is there."""
        for thing in self.at.keys() & things.keys():
            del self.at[thing]
        for thing in self.gone.keys() & things.keys():
            del self.gone[thing]
        self.at.update(dict.fromkeys(things, revision))
        self.gone.update((thing, None) for thing, there in things.items() if not there)

    def since(self, revision: int) -> Iterator[Thing]:
        for thing in reversed(self.at):
            if self.at[thing] <= revision:
                return
            yield thing

    def drop_oldest(self) -> int:
        """Forget the thing that went first, and return when it went."""
        thing, _ = self.gone.popitem(last=False)
        return self.at.pop(thing)


class History:
    """The revisions of one epoch, `limit` departed keys and names deep at most.

    It begins at `revision`, which is as far back as it reaches: of an epoch that goes on, only the
    present is known.
    """

    def __init__(self, epoch: str, *, revision: int = 0, limit: int = 65_536) -> None:
        self.cursor = Cursor(epoch, revision)
        self._floor = revision
        self._limit = limit
        self._keys: _Touches[Key] = _Touches()
        self._names: _Touches[str] = _Touches()

    def advance(self, keys: Mapping[Key, bool], names: Mapping[str, bool]) -> Cursor:
        """Publish a revision: the keys and names changed in it, each with whether it is there."""
        self.cursor = self.following
        self._keys.touch(keys, self.cursor.revision)
        self._names.touch(names, self.cursor.revision)
        while len(self._keys.gone) > self._limit:
            self._floor = max(self._floor, self._keys.drop_oldest())
        while len(self._names.gone) > self._limit:
            self._floor = max(self._floor, self._names.drop_oldest())
        return self.cursor

    @property
    def following(self) -> Cursor:
        """The cursor that the next revision will have."""
        return Cursor(self.cursor.epoch, self.cursor.revision + 1)

    def forget(self) -> None:
        """Reach no further back than the present: readers with an earlier cursor have to reset."""
        self._floor = self.cursor.revision
        self._keys, self._names = _Touches(), _Touches()

    def begin(self, epoch: str) -> None:
        """Go on in another epoch, of which nothing was told yet: every reader has to reset."""
        self.cursor, self._floor = Cursor(epoch, 0), 0
        self._keys, self._names = _Touches(), _Touches()

    def reaches(self, cursor: Cursor | None) -> bool:
        """Whether the difference since the cursor can still be told."""
        return (
            cursor is not None
            and cursor.epoch == self.cursor.epoch
            and self._floor <= cursor.revision <= self.cursor.revision
        )

    def since(self, cursor: Cursor | None) -> Difference:
        """Return what changed after the cursor, or everything if that cannot be told."""
        if cursor is not None and self.reaches(cursor):
            return Difference(
                reset=False,
                keys=tuple(self._keys.since(cursor.revision)),
                names=tuple(self._names.since(cursor.revision)),
            )
        return Difference(reset=True, keys=(), names=())
