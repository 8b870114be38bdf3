"""The registry's theory done the slow, obvious way, to hold the real one against.

Written from the theory (top of registry.py), the design and the pairwise rules, not from the
code: loops over everything, asks every pair, remembers nothing that it can look up. What is
remembered is only what the theory calls history: the claims on each key in order, three ranks an
entry, which version is served and whether firmly, and when each cohort was first seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from discoveryd.core.batch import Barred, Batch, Found, Invalid, Sighting
from discoveryd.core.card import Card, Group, Key
from discoveryd.core.rules import compatible
from discoveryd.core.verdict import Serves, Standing

Claim = tuple[str, str]
"""What a name is claimed for: ("model", primary) or ("adapter", primary of the base beneath)."""


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
class PlainRegistry:
    operator_aliases: Mapping[str, str] | None = None
    ranks: Iterator[int] | None = None
    files: dict[str, File] = field(default_factory=dict)
    claims: dict[Key, list[str]] = field(default_factory=dict)
    entries: dict[Key, Entry] = field(default_factory=dict)
    cohorts: dict[tuple[Group, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operators = dict(self.operator_aliases or {})
        self.rank = self.ranks or count(1)

    # A batch

    def apply(self, batch: Batch) -> None:
        for sighting in sorted(batch.sightings, key=lambda s: (s.mtime_ns, s.file)):
            self._look(sighting)
        moved = self._depart()
        edited = self._take_contents()
        for key in moved - edited:
            if self.entries[key].courtesy:
                self._withdraw(self.entries[key])
        self._withdraw_unfit(batch.operator_aliases)
        self._edits(edited, moved)
        while any(self._judge(entry) for entry in self._waiting()):
            pass
        self._forget()

    def _look(self, sighting: Sighting) -> None:
        old = self.files.get(sighting.file)
        before = old.claim if old else None
        match sighting.found:
            case Card():
                now: Card | None = sighting.found
            case Invalid():
                now = before
            case _:
                now = None
        if before and (now is None or now.key != before.key):
            self.claims[before.key].remove(sighting.file)
        if now and (before is None or now.key != before.key):
            self.claims.setdefault(now.key, []).append(sighting.file)
        if sighting.found is None:
            self.files.pop(sighting.file, None)
        else:
            self.files[sighting.file] = File(sighting.found, now, sighting.owner, sighting.mtime_ns)

    def _depart(self) -> set[Key]:
        """Let entries leave, move and arrive as their keys' holders did."""
        moved = set()
        for key, entry in list(self.entries.items()):
            holder = next(iter(self.claims.get(key, ())), None)
            if holder is None or (holder != entry.file and self.files[holder].owner != entry.owner):
                self._withdraw(entry)
                del self.entries[key]
            elif holder != entry.file:
                moved.add(key)
                entry.file = holder
        new = [files[0] for key, files in self.claims.items() if files and key not in self.entries]
        for name in sorted(new, key=lambda name: (self.files[name].mtime_ns, name)):
            file = self.files[name]
            assert file.claim is not None
            key = file.claim.key
            self.entries[key] = Entry(key, name, file.owner, file.claim, next(self.rank))
        return moved

    def _take_contents(self) -> set[Key]:
        """Let every entry want what its holder says now; tell which want something else."""
        edited = set()
        for key, entry in self.entries.items():
            file = self.files[entry.file]
            entry.owner = file.owner
            assert file.claim is not None
            if not file.claim.judged_like(entry.want):
                edited.add(key)
            elif entry.firm:
                entry.served = file.claim
            entry.want = file.claim
        return edited

    def _withdraw_unfit(self, operator_aliases: Mapping[str, str] | None) -> None:
        """Withdraw who serves under the operator's names, and who is not there any more."""
        if operator_aliases is not None:
            self.operators = dict(operator_aliases)
        for entry in self._serving():
            names = entry.served.names if entry.served else ()
            if not entry.want.anchored or any(name in self.operators for name in names):
                self._withdraw(entry)

    def _edits(self, edited: set[Key], moved: set[Key]) -> None:
        for key in edited:
            self.entries[key].registration = None
            self.entries[key].firm = False
        turns = [entry for entry in self._serving() if entry.key in edited]
        for entry in turns:
            self._judge(entry)
            if entry.key in moved and not entry.firm:
                self._withdraw(entry)

    def _forget(self) -> None:
        """Forget, at the end, the ranks of who does not serve and the ages of empty cohorts."""
        for entry in self._waiting():
            if entry.served is None:
                entry.admission = None
        alive = {(e.want.group, e.want.fingerprint) for e in self._registered()}
        self.cohorts = {cohort: age for cohort, age in self.cohorts.items() if cohort in alive}

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

    def _claims(self, card: Card) -> dict[str, Claim]:
        """Tell what the card's names are claimed for, if it serves."""
        if not card.adapter:
            return dict.fromkeys(card.names, ("model", card.display_name))
        base = self.entries[card.key.base].served
        assert base is not None
        return {card.display_name: ("adapter", base.display_name)}

    def _clash(self, card: Card, other: Card) -> bool:
        mine, theirs = self._claims(card), self._claims(other)
        return any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys())

    def _coexist(self, card: Card, other: Card) -> bool:
        if card.key.place == other.key.place and not compatible(card, other):
            return False
        if not card.adapter and not other.adapter and card.group == other.group:
            return card.fingerprint == other.fingerprint
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

    def _judge(self, entry: Entry) -> bool:
        """Let a waiting entry go as far as it gets; tell whether anything changed."""
        changed = False
        card = entry.want
        if entry.registration is None:
            if not self._suits(entry):
                return False
            entry.registration = next(self.rank)
            if not card.adapter:
                self.cohorts.setdefault((card.group, card.fingerprint), entry.registration)
            changed = True
        if not self._based(card):
            return changed
        if not card.adapter:
            incumbent = self._incumbent(card.group)
            if incumbent is None:
                return self._settle(card.group) or changed
            if incumbent != card.fingerprint:
                return changed
        if not self._free(card):
            return changed
        self._serve([entry])
        return True

    def _settle(self, group: Group) -> bool:
        """Let a vacant group have its successor; tell whether there is one."""
        able = [
            entry
            for entry in self._registered()
            if not entry.want.adapter
            and entry.want.group == group
            and self._based(entry.want)
            and self._free(entry.want)
        ]
        rolling = {
            entry.want.fingerprint
            for entry in able
            if entry.courtesy and entry.served and entry.served.group == group
        }
        fingerprints = rolling or {entry.want.fingerprint for entry in able}
        if not fingerprints:
            return False
        successor = min(fingerprints, key=lambda fingerprint: self.cohorts[group, fingerprint])
        members = [entry for entry in able if entry.want.fingerprint == successor]
        self._serve(sorted(members, key=lambda entry: entry.arrival))
        return True

    # Serving

    def _serve(self, entries: list[Entry]) -> None:
        """Let entries become firm, all at once: none displaces what another of them served."""
        renamed = set()
        for entry in entries:
            if entry.admission is None:
                entry.admission = next(self.rank)
            if entry.served and entry.served.display_name != entry.want.display_name:
                renamed.add(entry.key)
            entry.served = entry.want
            entry.firm = True
        for entry in entries:
            self._displace(entry)
        bases = {entry.key for entry in entries if not entry.want.adapter}
        self._rejudge_adapters(bases, renamed)

    def _displace(self, entry: Entry) -> None:
        """Withdraw the courtesies that cannot coexist with this firm entry."""
        for other in self._serving():
            # Asked again for each: a withdrawn base takes its adapters along.
            if other.courtesy and other.served and not self._coexist(entry.want, other.served):
                self._withdraw(other)

    def _withdraw(self, entry: Entry) -> None:
        entry.served = None
        entry.firm = False
        if entry.key.suffix is None:
            self._rejudge_adapters({entry.key}, {entry.key})

    def _rejudge_adapters(self, bases: set[Key], renamed: set[Key]) -> None:
        """Let the adapters follow what is served beneath them; a new primary ends courtesies."""
        for entry in self._serving():
            if entry.served is None or not entry.served.adapter or entry.key.base not in bases:
                continue
            if (
                not self._based(entry.served)
                or not self._free(entry.served)
                or (entry.courtesy and entry.key.base in renamed)
            ):
                self._withdraw(entry)
            elif entry.firm:
                self._displace(entry)

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
        if not entry.want.adapter and self._incumbent(entry.want.group):
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
            for name, (kind, primary) in self._claims(entry.served).items():
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

    Every worker type that is registered must have a worker that accepts, and so must all types of
    one alternative that each of those needs; one that declares no type can do it alone.
    """
    accepting = [card for card in cards if card.accepting]
    live = {card.worker_type for card in accepting}
    if any(card.legacy for card in accepting):
        return True
    return live == {card.worker_type for card in cards} and all(
        not card.needs or any(live.issuperset(alternative) for alternative in card.needs)
        for card in accepting
    )
