"""The arbiter's books: who is registered, who serves, who claims what, and who waits for whom.

Entering and striking out, each with the waking that it owes: whatever is set free here wakes those
who wait for it. Which moves are made, and in what order, is arbiter.py's business.

Waking is complete, because a waiting entry can only fail for one of four things, and each of them
tells when it goes away: the registered card that refused it (`_refused`), its base (the adapters of
an instance are woken by any change of what the base serves), the incumbent of its group (all
registered members are woken when the group falls vacant), or a claim on one of its names
(`Names.waiting`). A gate that fails later than another gives way to it at once: when a group gets
an incumbent, its blocked members are woken to stand by.

Most endpoints have one card, and of a lone card the books would say nothing that its entry does not
say: it is all that is registered, the only member of its group's only cohort, which is as old as
its registration, and the incumbent if it serves. So such an endpoint has no books (`lone`). They
are opened before a second card is entered, or the one is struck out, and closed at the end of a
batch that leaves the like.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping

from discoveryd.core import rules
from discoveryd.core.batch import Served
from discoveryd.core.card import Card, Endpoint, Group, Key
from discoveryd.core.catalogue import Claim, CohortKey, Groups, Names
from discoveryd.core.endpoint import EndpointCards
from discoveryd.core.entry import Entry
from discoveryd.core.keyindex import KeyIndex


class Books:
    """What all entries of the host have and wait for. `ranks` gives growing numbers.

    `by_owner` says that owners count: see the theory on them.
    """

    def __init__(
        self,
        ranks: Callable[[], int],
        operator_aliases: Mapping[str, str],
        *,
        by_owner: bool = False,
    ) -> None:
        self.ranks = ranks
        self.by_owner = by_owner
        self.entries: dict[Key, Entry] = {}
        self.names = Names(operator_aliases)
        self.lone: dict[Endpoint, Entry] = {}
        self.groups = Groups()
        self.registered: dict[Endpoint, EndpointCards] = {}
        self.courtesies: dict[Endpoint, EndpointCards] = {}
        self.adapters: KeyIndex[Key, Key] = KeyIndex()
        self.touched: dict[Key, None] = {}
        self._refused: KeyIndex[Key, Key] = KeyIndex()
        self._stirred: dict[Endpoint, None] = {}
        self._queue: list[tuple[int, Key]] = []
        self._queued: set[tuple[int, Key]] = set()

    def wake(self, entry: Entry) -> None:
        """Queue a waiting entry to be judged in its turn."""
        turn = (entry.arrival, entry.key)
        if turn not in self._queued:
            self._queued.add(turn)
            heapq.heappush(self._queue, turn)

    def next_woken(self) -> Entry | None:
        """Take the waiting entry with the lowest arrival rank off the queue, if any is left."""
        while self._queue:
            turn = arrival, key = heapq.heappop(self._queue)
            self._queued.discard(turn)
            entry = self.entries.get(key)
            if entry is not None and entry.arrival == arrival and not entry.firm:
                return entry
        return None

    def register(self, entry: Entry, rank: int) -> None:
        """Enter a card that passed compatibility, with its registration rank."""
        place = entry.key.place
        entry.registration = rank
        if self.is_empty(place):
            self.lone[place] = entry
            return
        self.open(place)
        self._enroll(entry, rank)

    def _enroll(self, entry: Entry, age: int) -> None:
        place = entry.key.place
        if place not in self.registered:
            self.registered[place] = EndpointCards()
        self.registered[place].add(entry.want)
        if not entry.want.adapter:
            self.groups.join(entry.want, self.cohort_of(entry), age)

    def unregister(self, entry: Entry) -> None:
        """Take a card out of its endpoint and wake whom it refused. It must not be firm."""
        if entry.registration is None:
            return
        self.open(entry.key.place)
        entry.registration = None
        _remove(self.registered, entry.want)
        if not entry.want.adapter:
            self.groups.leave(entry.want, self.cohort_of(entry))
        for key in self._refused.members(entry.key):
            self.wake(self.entries[key])

    def expect(self, entry: Entry, age: int) -> None:
        """Put back the cohort of an entry that is about to be registered again."""
        self.groups[entry.want.group].expect(self.cohort_of(entry), age)
        self._stirred[entry.key.place] = None

    def cohort_age(self, entry: Entry) -> int | None:
        """Return when the first of the entry's cohort was registered; None where it is in none."""
        if entry.registration is None or entry.want.adapter:
            return None
        if self.is_lone(entry):
            return entry.registration
        return self.groups[entry.want.group].cohorts[self.cohort_of(entry)].age

    # Endpoints with and without books

    def is_empty(self, place: Endpoint) -> bool:
        """Whether nothing is known of an endpoint, and nothing was in this batch."""
        return not (
            place in self.lone
            or place in self.registered
            or place in self.courtesies
            or place in self._stirred
        )

    def is_lone(self, entry: Entry) -> bool:
        """Whether the entry is registered on an endpoint without books."""
        return self.lone.get(entry.key.place) is entry

    def open(self, place: Endpoint) -> None:
        """Give an endpoint its books, until `end_batch`."""
        self._stirred[place] = None
        entry = self.lone.pop(place, None)
        if entry is None or entry.registration is None:
            return
        self._enroll(entry, entry.registration)
        if entry.firm and not entry.want.adapter:
            book = self.groups[entry.want.group]
            book.firm[entry.key] = None
            book.incumbent = entry.want.fingerprint

    def end_batch(self) -> Iterator[None]:
        """Forget what is empty, and close the books that say no more than the one entry in them.

        In small steps, all of which must be taken.
        """
        yield from self.groups.forget_empty()
        for place in self._stirred:
            yield
            cards = self.registered.get(place)
            if cards is None or len(cards) > 1 or place in self.courtesies:
                continue
            key = cards.any()
            entry = None if key is None else self.entries[key]
            if entry is not None and self.cohort_age(entry) in (None, entry.registration):
                del self.registered[place]
                if not entry.want.adapter:
                    self.groups.close(entry.want.group)
                self.lone[place] = entry
        self._stirred.clear()

    def find_conflict(self, card: Card) -> Key | None:
        """Return the key of a registered card that refuses `card`, whose key is not registered."""
        place = card.key.place
        lone = self.lone.get(place)
        if lone is not None:
            return None if rules.compatible(card, lone.want) else lone.key
        cards = self.registered.get(place)
        return None if cards is None else cards.find_conflict(card)

    # Cohorts and claims

    def cohort_of(self, entry: Entry) -> CohortKey:
        """Return the cohort, in its group, of the version that the entry wants."""
        return self.cohort_key(entry.want, entry.owner)

    def cohort_key(self, card: Card, owner: int | None) -> CohortKey:
        """Return the cohort that a version of this owner's belongs to, in its group."""
        return card.fingerprint, owner if self.by_owner else None

    def claim_of(self, card: Card, owner: int | None) -> Claim:
        """Return how a version of this owner's would claim its names if it were served now."""
        primary = card.display_name
        if card.adapter:
            base = self.base_of(card.key)
            primary = "" if base is None else base.display_name
        return Claim(card.adapter, primary, owner if self.by_owner else None)

    def claim_on(self, name: str) -> Claim | None:
        """Return how the name is claimed, firmly or by courtesy, if it is."""
        key = self.names.firm.sample(name) or self.names.courtesy.sample(name)
        return None if key is None else self._claim_made(self.entries[key])

    def _claim_made(self, entry: Entry) -> Claim | None:
        if entry.served is None:
            return None
        card = entry.served.card
        primary = entry.beneath if card.adapter else card.display_name
        return Claim(card.adapter, primary, entry.owner if self.by_owner else None)

    def taken(self, card: Card, claim: Claim) -> str | None:
        """Return the first of the card's names that is the operator's or firmly claimed otherwise.

        `claim` is what the card would claim them for.
        """
        for name in card.names:
            if name in self.names.operator:
                return name
            key = self.names.firm.sample(name)
            if key is not None and self._claim_made(self.entries[key]) != claim:
                return name
        return None

    def taken_from(self, entry: Entry) -> str | None:
        """Return which name keeps the entry from serving what it wants, if one does."""
        return self.taken(entry.want, self.claim_of(entry.want, entry.owner))

    def rivals(self, card: Card, claim: Claim) -> list[Key]:
        """Return the keys that claim one of the card's names otherwise, by courtesy."""
        rivals: dict[Key, None] = {}
        for name in card.names:
            key = self.names.courtesy.sample(name)
            if key is not None and self._claim_made(self.entries[key]) != claim:
                rivals.update(dict.fromkeys(self.names.courtesy.members(name)))
        return list(rivals)

    def base_of(self, key: Key) -> Card | None:
        """Return the base version served on an adapter's instance, if any."""
        base = self.entries.get(key.base) if key.suffix is not None else None
        return None if base is None or base.served is None else base.served.card

    def watch(self, entry: Entry, watching: Key | str | None) -> None:
        """Note the one card or name that an entry waits for, instead of what it waited for."""
        if isinstance(entry.watching, str):
            self.names.waiting.discard(entry.watching, entry.key)
        elif entry.watching is not None:
            self._refused.discard(entry.watching, entry.key)
        entry.watching = watching
        if isinstance(watching, str):
            self.names.waiting.add(watching, entry.key)
        elif watching is not None:
            self._refused.add(watching, entry.key)

    def enter(self, entry: Entry, card: Card, *, firm: bool) -> None:
        """Enter a version in every book that speaks of what is served."""
        if entry.admission is None:
            entry.admission = self.ranks()
        file = entry.file if firm or entry.served is None else entry.served.file
        entry.served = Served(card, file, entry.admission, firm=firm)
        self.touched[entry.key] = None
        if card.adapter:
            entry.beneath = self.claim_of(card, entry.owner).primary
        self.names.claim(entry.key, card.names, firm=firm)
        if firm:
            if not (card.adapter or self.is_lone(entry)):
                self.groups[card.group].firm[entry.key] = None
            return
        place = entry.key.place
        self.open(place)
        if place not in self.courtesies:
            self.courtesies[place] = EndpointCards()
        self.courtesies[place].add(card)
        if not card.adapter:
            self.groups.note_courtesy(card.group, entry.key)

    def release(self, entry: Entry) -> None:
        """Take what an entry serves out of those books again, and wake who waited for it."""
        served = entry.served
        if served is None:
            return
        card = served.card
        self.open(entry.key.place)
        self.names.release(entry.key, card.names, firm=served.firm)
        if served.firm:
            for name in card.names:
                self.wake_waiting(name)
            if not card.adapter:
                self._leave_office(entry, card.group)
        else:
            _remove(self.courtesies, card)
            if not card.adapter:
                self.groups.drop_courtesy(card.group, entry.key)

    def wake_waiting(self, name: str) -> None:
        """Wake who waits for a name, if nobody claims it firmly any more."""
        if name in self.names.firm or name in self.names.operator:
            return
        for key in self.names.waiting.members(name):
            entry = self.entries[key]
            self.wake(entry)
            if not (entry.want.adapter or self.is_lone(entry)):
                self.groups[entry.want.group].stuck = False

    def _leave_office(self, entry: Entry, group: Group) -> None:
        book = self.groups[group]
        del book.firm[entry.key]
        if not book.firm:
            book.incumbent = None
            book.stuck = False
            for key in book.members():
                self.wake(self.entries[key])


def _remove(books: dict[Endpoint, EndpointCards], card: Card) -> None:
    place = card.key.place
    books[place].remove(card)
    if not len(books[place]):
        del books[place]
