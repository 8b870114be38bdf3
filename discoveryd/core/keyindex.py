"""An index from one thing to the non-empty set of keys that have it, frugal and constant-time.

Most names, sources and blockers belong to a single card, so a lone member is stored bare. A set of
several is a list with positions, because sampling a `set` or `dict` that has shrunk a lot scans the
holes its former members left, and every refusal needs a sample.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)
Member = TypeVar("Member", bound=Hashable)
Value = TypeVar("Value")


class _Several(Generic[Member]):
    """Two or more members, in no promised order."""

    __slots__ = ("at", "members")

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.at = {member: place for place, member in enumerate(members)}

    def add(self, member: Member) -> None:
        if member not in self.at:
            self.at[member] = len(self.members)
            self.members.append(member)

    def discard(self, member: Member) -> None:
        place = self.at.pop(member, None)
        if place is None:
            return
        last = self.members.pop()
        if last != member:
            self.members[place] = last
            self.at[last] = place


class KeyIndex(Generic[Name, Member]):
    """Maps a name to the set of its members; a name without members is not there."""

    __slots__ = ("_lone", "_several")

    def __init__(self) -> None:
        self._lone: dict[Name, Member] = {}
        self._several: dict[Name, _Several[Member]] = {}

    def __len__(self) -> int:
        """Return how many names have members."""
        return len(self._lone) + len(self._several)

    def __contains__(self, name: Name) -> bool:
        return name in self._lone or name in self._several

    def add(self, name: Name, member: Member) -> None:
        """Put `member` into the set of `name`; putting it twice is putting it once."""
        several = self._several.get(name)
        if several is not None:
            several.add(member)
            return
        lone = self._lone.setdefault(name, member)
        if lone != member:
            del self._lone[name]
            self._several[name] = _Several([lone, member])

    def discard(self, name: Name, member: Member) -> None:
        """Take `member` out of the set of `name`, if it is there."""
        several = self._several.get(name)
        if several is not None:
            several.discard(member)
            if len(several.members) == 1:
                del self._several[name]
                self._lone[name] = several.members[0]
        elif self._lone.get(name) == member:
            del self._lone[name]

    def count(self, name: Name) -> int:
        """How many members `name` has."""
        several = self._several.get(name)
        return int(name in self._lone) if several is None else len(several.members)

    def sample(self, name: Name) -> Member | None:
        """Any one member of `name`, or None where it has none."""
        several = self._several.get(name)
        return self._lone.get(name) if several is None else several.members[0]

    def sample_besides(self, *names: Name) -> Member | None:
        """Any one member of any other name than these, or None where there is none."""
        several = _item_besides(self._several, names)
        if several is not None:
            return several[1].members[0]
        lone = _item_besides(self._lone, names)
        return None if lone is None else lone[1]

    def members(self, name: Name, most: int | None = None) -> tuple[Member, ...]:
        """The members of `name`, all or at most so many of them, a copy."""
        several = self._several.get(name)
        if several is not None:
            return tuple(several.members[:most])
        lone = self._lone.get(name)
        return () if lone is None else (lone,)


def _item_besides(of: dict[Name, Value], names: tuple[Name, ...]) -> tuple[Name, Value] | None:
    """Return any one item of another name.

    An iterator would pass, each time anew, the holes of all that has gone; `popitem` passes a hole
    but once.
    """
    passed: list[tuple[Name, Value]] = []
    found = None
    while of and found is None:
        item = of.popitem()
        passed.append(item)
        if item[0] not in names:
            found = item
    of.update(reversed(passed))
    return found
