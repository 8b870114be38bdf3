"""Names, groups and cohorts of the whole host: who claims what, and who waits for it.

Books only: nothing here decides or moves a card. The invariants are those of registry.py's theory:
the served claims on one name are equal, and a group's firm members share one fingerprint.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from discoveryd.core.card import Card, Group, Key
from discoveryd.core.keyindex import KeyIndex

CohortKey = tuple[str, int | None]
"""What the members of a cohort share: the fingerprint and, where owners count, the owner."""


class Claim(NamedTuple):
    """What a served card says its names mean; claims may share a name only if they are equal.

    `primary` is the card's own, or that of the base beneath it; `owner` is None where owners do not
    count.
    """

    adapter: bool
    primary: str
    owner: int | None


class Names:
    """Who claims a name, firmly and by courtesy, the operator's table, and who waits for a name.

    How a name is claimed is told by any who claims it.
    """

    __slots__ = ("courtesy", "firm", "operator", "waiting")

    def __init__(self, operator: Mapping[str, str]) -> None:
        self.operator = dict(operator)
        self.firm: KeyIndex[str, Key] = KeyIndex()
        self.courtesy: KeyIndex[str, Key] = KeyIndex()
        self.waiting: KeyIndex[str, Key] = KeyIndex()

    def are_free(self, names: Iterable[str]) -> bool:
        """Whether nobody claims any of the names, and none is the operator's."""
        for name in names:
            if name in self.operator or name in self.firm or name in self.courtesy:
                return False
        return True

    def claim(self, key: Key, names: Iterable[str], *, firm: bool) -> None:
        """Enter the claims. Whoever claims one of the names otherwise must have been withdrawn."""
        index = self.firm if firm else self.courtesy
        for name in names:
            index.add(name, key)

    def release(self, key: Key, names: Iterable[str], *, firm: bool) -> None:
        """Take the claims back."""
        index = self.firm if firm else self.courtesy
        for name in names:
            index.discard(name, key)


class Cohort:
    """The registered members of a group that share a cohort key, and when the first came."""

    __slots__ = ("age", "members")

    def __init__(self, age: int) -> None:
        self.age = age
        self.members: dict[Key, None] = {}


class GroupBook:
    """One group: its cohorts by age, its incumbent, and who serves an earlier version in it.

    `stuck` is set when settling found no cohort that can serve, until something changes that.
    """

    __slots__ = ("cohorts", "courtesies", "firm", "incumbent", "stuck")

    def __init__(self) -> None:
        self.cohorts: dict[CohortKey, Cohort] = {}
        self.courtesies: dict[Key, None] = {}
        self.firm: dict[Key, None] = {}
        self.incumbent: str | None = None
        self.stuck = False

    def expect(self, cohort: CohortKey, age: int) -> None:
        """Put a cohort back whose members are about to be registered again."""
        self.cohorts[cohort] = Cohort(age)

    def members(self) -> Iterator[Key]:
        """Every registered member, by cohort."""
        for cohort in self.cohorts.values():
            yield from cohort.members


class Groups:
    """All groups of the host. Cohorts left empty are forgotten at the end of a batch."""

    __slots__ = ("_books", "_emptied")

    def __init__(self) -> None:
        self._books: dict[Group, GroupBook] = {}
        self._emptied: dict[tuple[Group, CohortKey | None], None] = {}

    def __getitem__(self, group: Group) -> GroupBook:
        """Return the group's book, a new one if it had none."""
        book = self._books.get(group)
        if book is None:
            book = self._books[group] = GroupBook()
        return book

    def __iter__(self) -> Iterator[tuple[Group, GroupBook]]:
        return iter(self._books.items())

    def get(self, group: Group) -> GroupBook | None:
        """Return the group's book, if it has one."""
        return self._books.get(group)

    def join(self, card: Card, key: CohortKey, age: int) -> None:
        """Enter a registered base into its cohort; `age` counts if it is the cohort's first."""
        book = self[card.group]
        cohort = book.cohorts.get(key)
        if cohort is None:
            cohort = book.cohorts[key] = Cohort(age)
        cohort.members[card.key] = None

    def leave(self, card: Card, key: CohortKey) -> None:
        """Take a base out of its cohort."""
        cohort = self[card.group].cohorts[key]
        del cohort.members[card.key]
        if not cohort.members:
            self._emptied[card.group, key] = None

    def close(self, group: Group) -> None:
        """Forget the group's book."""
        del self._books[group]

    def note_courtesy(self, group: Group, key: Key) -> None:
        """Enter that `key` serves an earlier version in this group."""
        self[group].courtesies[key] = None

    def drop_courtesy(self, group: Group, key: Key) -> None:
        """Take that back."""
        del self[group].courtesies[key]
        self._emptied[group, None] = None

    def forget_empty(self) -> Iterator[None]:
        """End a batch: cohorts without members, and groups without anything, are forgotten.

        In small steps, all of which must be taken.
        """
        for group, key in self._emptied:
            yield
            book = self._books.get(group)
            if book is None:
                continue
            cohort = None if key is None else book.cohorts.get(key)
            if key is not None and cohort is not None and not cohort.members:
                del book.cohorts[key]
            if not book.cohorts and not book.courtesies:
                del self._books[group]
        self._emptied.clear()
