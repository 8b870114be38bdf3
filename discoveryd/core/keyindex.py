"""An index from one thing to the non-empty set of keys that have it, frugal and constant-time.

Most names, sources and blockers belong to a single card, so a lone member is stored bare. A set of
several is a list with positions, because sampling a `set` or `dict` that has shrunk a lot scans the
holes its former members left, and every refusal needs a sample.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)
Member = TypeVar("Member", bound=Hashable)


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

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[Name, Member | _Several[Member]] = {}

    def __len__(self) -> int:
        """Return how many names have members."""
        return len(self._sets)

    def __contains__(self, name: Name) -> bool:
        return name in self._sets

    def __iter__(self) -> Iterator[Name]:
        return iter(self._sets)

    def add(self, name: Name, member: Member) -> None:
        """Put `member` into the set of `name`; putting it twice is putting it once."""
        held = self._sets.setdefault(name, member)
        if isinstance(held, _Several):
            held.add(member)
        elif held != member:
            self._sets[name] = _Several([held, member])

    def discard(self, name: Name, member: Member) -> None:
        """Take `member` out of the set of `name`, if it is there."""
        held = self._sets.get(name)
        if isinstance(held, _Several):
            held.discard(member)
            if len(held.members) == 1:
                self._sets[name] = held.members[0]
        elif held == member:
            del self._sets[name]

    def count(self, name: Name) -> int:
        """How many members `name` has."""
        held = self._sets.get(name)
        if held is None:
            return 0
        return len(held.members) if isinstance(held, _Several) else 1

    def sample(self, name: Name) -> Member | None:
        """Any one member of `name`, or None where it has none."""
        held = self._sets.get(name)
        return held.members[0] if isinstance(held, _Several) else held

    def members(self, name: Name) -> tuple[Member, ...]:
        """All members of `name`, a copy."""
        held = self._sets.get(name)
        if held is None:
            return ()
        return tuple(held.members) if isinstance(held, _Several) else (held,)

    def pop(self, name: Name) -> tuple[Member, ...]:
        """Take all members of `name` out and return them."""
        members = self.members(name)
        self._sets.pop(name, None)
        return members
