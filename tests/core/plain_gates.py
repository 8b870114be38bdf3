"""What the plain registry remembers, and what it can tell from that: gates, verdicts, answers.

Nothing here changes anything. Everything is looked up afresh each time, by loops over everything.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from discoveryd.core.batch import Barred, Found, Invalid
from discoveryd.core.card import Card, Group, Key
from discoveryd.core.rules import compatible
from discoveryd.core.verdict import Serves, Standing

Claim = tuple[str, str, int | None]
"""What a name is claimed for: "model" and primary, or "adapter" and the primary of the base
beneath; and by whom, where that counts."""

Cohort = tuple[Group, str, int | None]
"""A group, a fingerprint, and whose, where that counts."""


class Ranks:
    """Growing numbers, of which a copy goes on where the original is."""

    def __init__(self) -> None:
        self.last = 0

    def __iter__(self) -> "Ranks":
        return self

    def __next__(self) -> int:
        self.last += 1
        return self.last


@dataclass
class File:
    found: Found
    claim: Card | None  # the card by which it claims a key; a torn file's last valid one
    owner: int | None
    mtime_ns: int


@dataclass(eq=False)
class Entry:
    key: Key
    file: str
    owner: int | None
    want: Card
    arrival: int
    registration: int | None = None
    served: Card | None = None
    firm: bool = False
    admission: int | None = None  # kept through the batch in which it stops being served

    @property
    def courtesy(self) -> bool:
        return self.served is not None and not self.firm


@dataclass
class PlainGates:
    operator_aliases: Mapping[str, str] | None = None
    ranks: Iterator[int] | None = None
    files: dict[str, File] = field(default_factory=dict)
    claims: dict[Key, list[str]] = field(default_factory=dict)
    entries: dict[Key, Entry] = field(default_factory=dict)
    cohorts: dict[Cohort, int] = field(default_factory=dict)
    by_owner: bool = False

    def __post_init__(self) -> None:
        self.operators = dict(self.operator_aliases or {})
        self.rank = self.ranks or Ranks()

    # Who is who, looked up afresh each time

    def _serving(self) -> list[Entry]:
        serving = [entry for entry in self.entries.values() if entry.served]
        return sorted(serving, key=lambda entry: entry.admission or 0)

    def _firm(self) -> list[Entry]:
        return [entry for entry in self._serving() if entry.firm]

    def _waiting(self) -> list[Entry]:
        waiting = [entry for entry in self.entries.values() if not entry.firm]
        return sorted(waiting, key=lambda entry: entry.arrival)

    def _registered(self) -> list[Entry]:
        return [e for e in self.entries.values() if e.registration is not None]

    def _cohort(self, entry: Entry) -> Cohort:
        owner = entry.owner if self.by_owner else None
        return entry.want.group, entry.want.fingerprint, owner

    def _claims(self, card: Card) -> dict[str, Claim]:
        """Tell what the card's names are claimed for, if it serves."""
        owner = self.entries[card.key].owner if self.by_owner else None
        if not card.adapter:
            return dict.fromkeys(card.names, ("model", card.display_name, owner))
        base = self.entries[card.key.base].served
        assert base is not None
        return {card.display_name: ("adapter", base.display_name, owner)}

    def _clash(self, card: Card, other: Card) -> bool:
        mine, theirs = self._claims(card), self._claims(other)
        return any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys())

    def _coexist(self, card: Card, other: Card) -> bool:
        if card.key.place == other.key.place and not compatible(card, other):
            return False
        if not card.adapter and not other.adapter and card.group == other.group:
            one_owner = self.entries[card.key].owner == self.entries[other.key].owner
            return card.fingerprint == other.fingerprint and (one_owner or not self.by_owner)
        return not self._clash(card, other)

    # The gates

    def _suits(self, entry: Entry) -> bool:
        return all(
            compatible(entry.want, other.want)
            for other in self._registered()
            if other is not entry and other.key.place == entry.key.place
        )

    def _based(self, card: Card) -> bool:
        if card.half_adapter or not card.anchored:
            return False
        if not card.adapter:
            return True
        base = self.entries.get(card.key.base)
        return base is not None and base.served is not None and compatible(card, base.served)

    def _incumbent(self, group: Group) -> str | None:
        for entry in self._firm():
            if not entry.want.adapter and entry.want.group == group:
                return entry.want.fingerprint
        return None

    def _free(self, card: Card) -> bool:
        return not any(name in self.operators for name in card.names) and not any(
            self._clash(card, entry.served)
            for entry in self._firm()
            if entry.served and entry.key != card.key
        )

    # Questions

    def standing(self, file: str) -> Standing:
        known = self.files[file]
        if isinstance(known.found, Invalid):
            return Standing.INVALID
        if isinstance(known.found, Barred):
            return known.found.standing
        assert known.claim is not None
        if self.claims[known.claim.key][0] != file:
            return Standing.DUPLICATE
        entry = self.entries[known.claim.key]
        if entry.firm:
            return Standing.SERVING
        if entry.registration is None:
            return Standing.REFUSED
        if not self._based(entry.want):
            return Standing.ORPHAN
        incumbent = None if entry.want.adapter else self._incumbent(entry.want.group)
        if incumbent not in (None, entry.want.fingerprint):
            return Standing.STANDBY
        return Standing.BLOCKED

    def serves(self, file: str) -> Serves:
        known = self.files[file]
        if known.claim is None or self.claims[known.claim.key][0] != file:
            return Serves.NOTHING
        entry = self.entries[known.claim.key]
        if entry.served is None:
            return Serves.NOTHING
        torn = isinstance(known.found, Invalid)
        return Serves.CURRENT if entry.firm and not torn else Serves.PREVIOUS

    def verdicts(self) -> dict[str, tuple[Standing, Serves]]:
        return {file: (self.standing(file), self.serves(file)) for file in self.files}

    def served(self) -> dict[Key, tuple[Card, str, bool]]:
        """Return card, file and firmness of whoever serves, in admission order."""
        return {e.key: (e.served, e.file, e.firm) for e in self._serving() if e.served}

    def _answering(self, name: str) -> list[Card]:
        served = [entry.served for entry in self._serving() if entry.served]
        target = self.operators.get(name)
        if target is not None:
            return [card for card in served if card.display_name == target]
        return [card for card in served if name in card.names]

    def answer(self, name: str) -> list[Key]:
        return [card.key for card in self._answering(name) if card.accepting]

    def ready(self, name: str) -> bool:
        cards = self._answering(name)
        return any(
            _complete([card for card in cards if card.key.namespace == namespace])
            for namespace in {card.key.namespace for card in cards}
        )

    def names(self) -> dict[str, tuple[str, str, int, bool]]:
        """Return kind, model, accepting workers and readiness of every served name."""
        known: dict[str, tuple[str, str]] = {}
        for entry in self._serving():
            assert entry.served is not None
            for name, (kind, primary, _) in self._claims(entry.served).items():
                if kind == "adapter":
                    known[name] = ("adapter", name)
                else:
                    known[name] = ("primary" if name == primary else "alias", primary)
        for name, target in self.operators.items():
            if known.get(target, ("", ""))[0] in ("primary", "adapter"):
                known[name] = ("operator", target)
        return {
            name: (kind, model, len(self.answer(name)), self.ready(name))
            for name, (kind, model) in known.items()
        }

    def broken(self) -> list[str]:
        """Tell which of the theory's promises do not hold: none, one hopes."""
        served = self._serving()
        return [
            f"{one.key} and {other.key} do not coexist"
            for one in served
            for other in served
            if one is not other
            and one.served
            and other.served
            and not self._coexist(one.served, other.served)
        ]


def _complete(cards: list[Card]) -> bool:
    """Tell whether those of one namespace that accept can do the whole job.

    Each needs all types of one of its alternatives among them; one that declares no type can do
    it alone.
    """
    accepting = [card for card in cards if card.accepting]
    live = {card.worker_type for card in accepting}
    if any(card.legacy for card in accepting):
        return True
    return bool(live) and all(
        not card.needs or any(live.issuperset(alternative) for alternative in card.needs)
        for card in accepting
    )
