"""The arbiter: moves entries through the gates.

The theory stands at the top of registry.py; the books that the gates read are books.py. Here are
the moves, `admit`, `withdraw`, `revise`, `replace`, and `judge`, which takes one waiting entry as
far as it can go. Files, batches and verdicts are registry.py's business.
"""

from collections.abc import Callable, Container, Iterable, Mapping

from discoveryd.core import rules
from discoveryd.core.batch import Served
from discoveryd.core.books import Books
from discoveryd.core.card import Card, Key
from discoveryd.core.catalogue import Claim, CohortKey, GroupBook
from discoveryd.core.entry import Entry
from discoveryd.core.verdict import Standing


class Arbiter(Books):
    """All entries of the host, and what may be done with them."""

    # Coming and going

    def welcome(self, entry: Entry) -> bool:
        """Take in a newly held key and let it serve, if it is a stranger; return whether it is.

        A stranger is a base with whose endpoint and names nobody has anything to do. So it passes
        every gate, and all its ranks are that of its arrival; what `arrive` and `judge` would come
        to is the same. Nobody may be woken at the time.
        """
        card, place = entry.want, entry.key.place
        if not (
            card.anchored
            and not (card.adapter or card.half_adapter)
            and self.is_empty(place)
            and self.names.are_free(names := card.names)
        ):
            return False
        self.entries[entry.key] = self.lone[place] = entry
        entry.registration = entry.admission = rank = entry.arrival
        entry.served = Served(card, entry.file, rank, firm=True)
        entry.standing = Standing.SERVING
        self.touched[entry.key] = None
        self.names.claim(entry.key, names, firm=True)
        return True

    def arrive(self, entry: Entry) -> None:
        """Take in a newly held key. It waits."""
        self.entries[entry.key] = entry
        if entry.key.suffix is not None:
            self.adapters.add(entry.key.base, entry.key)
        self.wake(entry)

    def depart(self, entry: Entry) -> None:
        """Let go of a key that nobody holds any more."""
        self.withdraw(entry)
        self.unregister(entry)
        self.watch(entry, None)
        del self.entries[entry.key]
        if entry.key.suffix is not None:
            self.adapters.discard(entry.key.base, entry.key)
        self.touched[entry.key] = None

    # Serving

    def admit(self, entry: Entry) -> None:
        """Let a card that passed every gate serve; courtesies that cannot coexist are withdrawn."""
        card = entry.want
        before = None if entry.served is None else entry.served.card
        self.release(entry)
        self._evict(entry)
        self.enter(entry, card, firm=True)
        self._wait(entry, Standing.SERVING, None)
        if not card.adapter:
            self._take_office(entry, card)
            self._rebase(entry, before)

    def reinstate(self, entry: Entry, served: Served) -> None:
        """Put back what an entry served when its state was taken out."""
        entry.served, entry.admission = served, served.admission
        self.enter(entry, served.card, firm=served.firm)
        if served.firm:
            self._wait(entry, Standing.SERVING, None)
            if not served.card.adapter:
                self._take_office(entry, served.card)

    def fits(self, entry: Entry) -> bool:
        """Whether what the entry wants passes every gate as things are now, moving nothing."""
        card = entry.want
        if entry.registration is None or not self.grounded(card):
            return False
        if not (card.adapter or self.is_lone(entry)):
            book = self.groups[card.group]
            if book.incumbent not in (None, card.fingerprint):
                return False
        return self.taken_from(entry) is None

    def demote(self, entry: Entry) -> None:
        """Turn what a firm entry serves into a courtesy, since its file has moved on."""
        served = entry.served
        if served is not None and served.firm:
            self.release(entry)
            self.enter(entry, served.card, firm=False)

    def withdraw(self, entry: Entry) -> None:
        """Stop serving whatever the entry serves."""
        if entry.served is None:
            return
        base = entry.served.card
        self.release(entry)
        entry.served = None
        self.touched[entry.key] = None
        if not base.adapter:
            self._rebase(entry, base)

    def replace(self, entry: Entry, card: Card, file: str) -> None:
        """Take over a version that no gate can tell from the one the entry wants now."""
        served = entry.served
        if entry.registration is not None and not self.is_lone(entry):
            self.registered[entry.key.place].replace(card)
        returned = card.anchored and not entry.want.anchored
        entry.want, entry.file = card, file
        self.touched[entry.key] = None
        if served is not None and served.firm:
            entry.served = Served(card, file, served.admission, firm=True)
        if not card.anchored:
            self.withdraw(entry)
            self.wake(entry)
        elif returned:
            base = entry.registration is not None and not card.adapter
            if base and not self.is_lone(entry):
                self.groups[card.group].stuck = False
            self.wake(entry)

    def revise(self, entry: Entry, card: Card, file: str) -> None:
        """Let an entry want another version, which the gates have yet to judge.

        What it serves goes on as a courtesy, unless the worker is not there any more.
        """
        self.demote(entry)
        self.unregister(entry)
        self.watch(entry, None)
        entry.want, entry.file = card, file
        self.touched[entry.key] = None
        if not card.anchored:
            self.withdraw(entry)
        self.wake(entry)

    def set_operator_aliases(self, table: Mapping[str, str]) -> None:
        """Replace the operator's table: its names are taken from whoever serves under them."""
        before = self.names.operator
        self.names.operator = dict(table)
        for name in table.keys() - before.keys():
            for key in (*self.names.firm.members(name), *self.names.courtesy.members(name)):
                self.withdraw(self.entries[key])
                self.wake(self.entries[key])
        for name in before.keys() - table.keys():
            self.wake_waiting(name)

    # The gates

    def judge(self, entry: Entry) -> None:
        """Move a waiting entry as far as it goes; its standing is the first gate it fails."""
        card = entry.want
        if entry.registration is None:
            conflict = self.find_conflict(card)
            if conflict is not None:
                self._wait(entry, Standing.REFUSED, conflict)
                return
            self.register(entry, self.ranks())
        if not self.grounded(card):
            self._wait(entry, Standing.ORPHAN, None)
            return
        if card.adapter:
            taken = self.taken_from(entry)
            if taken is None:
                self.admit(entry)
            else:
                self._wait(entry, Standing.BLOCKED, taken)
            return
        if self.is_lone(entry):
            self._admit_or_block(entry)
            return
        book = self.groups[card.group]
        if book.incumbent is None:
            self._settle(entry, book)
        elif book.incumbent != card.fingerprint:
            self._wait(entry, Standing.STANDBY, None)
        else:
            self._admit_or_block(entry)

    def grounded(self, card: Card) -> bool:
        """Whether a card passes the base gate."""
        if card.half_adapter or not card.anchored:
            return False
        if not card.adapter:
            return True
        base = self.base_of(card.key)
        return base is not None and rules.compatible(card, base)

    def _settle(self, entry: Entry, book: GroupBook) -> None:
        """Give a vacant group an incumbent, if one of its cohorts can serve."""
        if book.stuck:
            self._admit_or_block(entry)
            return
        heir = self.successor(book)
        if heir is None:
            book.stuck = True
            for key in list(book.members()):
                if self.entries[key].want.anchored:
                    self._admit_or_block(self.entries[key])
            return
        members = [self.entries[key] for key in book.cohorts[heir].members]
        for member in sorted(members, key=lambda member: member.arrival):
            if member.want.anchored:
                self._admit_or_block(member)
        if entry.want.fingerprint != book.incumbent:
            self._wait(entry, Standing.STANDBY, None)
        elif self.cohort_of(entry) != heir:
            self._admit_or_block(entry)

    def successor(self, book: GroupBook) -> CohortKey | None:
        """Return the cohort that follows in a vacant group: see the theory on groups."""
        return first_heir(
            book.cohorts, self.rolling(book), lambda key: self.can_serve(book.cohorts[key].members)
        )

    def rolling(self, book: GroupBook) -> set[CohortKey]:
        """Return the cohorts with a member that still serves another version in this group."""
        return {
            self.cohort_of(entry)
            for key in book.courtesies
            if (entry := self.entries[key]).registration is not None
            and not entry.want.adapter
            and entry.courtesy_group == entry.want.group
        }

    def can_serve(self, members: Iterable[Key]) -> bool:
        """Whether a cohort has a member that is there and whose names are free."""
        for key in members:
            entry = self.entries[key]
            if entry.want.anchored:
                return self.taken_from(entry) is None
        return False

    def _admit_or_block(self, entry: Entry) -> None:
        if entry.firm:
            return
        taken = self.taken_from(entry)
        if taken is None:
            self.admit(entry)
        else:
            self._wait(entry, Standing.BLOCKED, taken)

    # What a move sets off

    def _wait(self, entry: Entry, standing: Standing, watching: Key | str | None) -> None:
        entry.standing = standing
        self.touched[entry.key] = None
        self.watch(entry, watching)

    def _take_office(self, entry: Entry, card: Card) -> None:
        if self.is_lone(entry):
            return
        book = self.groups[card.group]
        if book.incumbent is None:
            book.incumbent = card.fingerprint
            for key in book.members():
                if self.entries[key].standing == Standing.BLOCKED:
                    self.wake(self.entries[key])

    def _evict(self, entry: Entry) -> None:
        """Withdraw every courtesy that cannot coexist with the card the entry wants."""
        for key in self.displaced(entry.want, entry.owner):
            self.withdraw(self.entries[key])

    def displaced(self, card: Card, owner: int | None) -> list[Key]:
        """Return the other keys whose courtesy `card`, of this owner's, would end by serving."""
        keys = dict.fromkeys(self.rivals(card, self.claim_of(card, owner)))
        book = None if card.adapter else self.groups.get(card.group)
        for key in () if book is None else book.courtesies:
            courtesy = self.entries[key].courtesy
            if courtesy is not None and courtesy.fingerprint == card.fingerprint:
                break  # what is served in a group has one fingerprint
            keys[key] = None
        cards = self.courtesies.get(card.key.place)
        found: list[Card] = []
        while cards is not None and (rival := cards.find_conflict(card)) is not None:
            keys[rival] = None
            courtesy = self.entries[rival].courtesy
            if courtesy is not None:
                found.append(courtesy)
                cards.remove(courtesy)
        if cards is not None:
            for courtesy in found:
                cards.add(courtesy)
        keys.pop(card.key, None)
        return list(keys)

    def _rebase(self, base: Entry, before: Card | None) -> None:
        """Judge the adapters of an instance again, after what its base serves has changed."""
        after = None if base.served is None else base.served.card
        adapters = [self.entries[key] for key in self.adapters.members(base.key)]
        same_primary = (
            before is not None and after is not None and before.display_name == after.display_name
        )
        for entry in sorted(adapters, key=lambda adapter: adapter.admission or 0):
            if entry.served is not None:
                self._carry_over(entry, before, after, same_primary=same_primary)
            if not entry.firm and entry.registration is not None:
                self.wake(entry)

    def _carry_over(
        self, entry: Entry, before: Card | None, after: Card | None, *, same_primary: bool
    ) -> None:
        """Move one serving adapter from one base version to the next, or stop it."""
        served = entry.served
        if served is None or before is None:
            return
        fits = after is not None and rules.compatible(served.card, after)
        if fits and same_primary:
            return
        if not fits or not served.firm or after is None:
            self.withdraw(entry)
            return
        # Its own claim must be gone before the new one is looked at; taking it back twice is once.
        self.release(entry)
        claim = Claim(True, after.display_name, entry.owner if self.by_owner else None)
        if self.taken(served.card, claim) is not None:
            self.withdraw(entry)
            return
        for key in self.rivals(served.card, claim):
            self.withdraw(self.entries[key])
        entry.beneath = after.display_name
        self.names.claim(entry.key, served.card.names, firm=True)


def first_heir(
    by_age: Iterable[CohortKey],
    rolling: Container[CohortKey],
    can_serve: Callable[[CohortKey], bool],
) -> CohortKey | None:
    """Return the cohort that follows in a vacant group: rolling edits first, then by age."""
    cohorts = list(by_age)
    for turn in (True, False):
        for cohort in cohorts:
            if (cohort in rolling) is turn and can_serve(cohort):
                return cohort
    return None
