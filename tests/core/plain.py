"""The registry's theory done the slow, obvious way, to hold the real one against.

Written from the theory (top of registry.py), the design and the pairwise rules, not from the
code: loops over everything, asks every pair, remembers nothing that it can look up. What is
remembered is only what the theory calls history: the claims on each key in order, three ranks an
entry, which version is served and whether firmly, and when each cohort was first seen.
"""

from collections.abc import Mapping

from discoveryd.core.batch import Batch, Invalid, Sighting
from discoveryd.core.card import Card, Group, Key
from tests.core.plain_gates import Entry, File, PlainGates


class PlainRegistry(PlainGates):
    """The plain registry. Its gates and answers are in plain_gates.py, its moves here."""

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
            if holder is None or (
                self.files[holder].owner != entry.owner and (self.by_owner or holder != entry.file)
            ):
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
        alive = {self._cohort(entry) for entry in self._registered()}
        self.cohorts = {cohort: age for cohort, age in self.cohorts.items() if cohort in alive}

    # Moves

    def _judge(self, entry: Entry) -> bool:
        """Let a waiting entry go as far as it gets; tell whether anything changed."""
        changed = False
        card = entry.want
        if entry.registration is None:
            if not self._suits(entry):
                return False
            entry.registration = next(self.rank)
            if not card.adapter:
                self.cohorts.setdefault(self._cohort(entry), entry.registration)
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
            self._cohort(entry)
            for entry in able
            if entry.courtesy and entry.served and entry.served.group == group
        }
        cohorts = rolling or {self._cohort(entry) for entry in able}
        if not cohorts:
            return False
        successor = min(cohorts, key=self.cohorts.__getitem__)
        members = [entry for entry in able if self._cohort(entry) == successor]
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
