"""The registry: which cards may serve together. The only state that judging needs.

Theory
======

**Files and keys.** A file whose content is valid, permitted and alive *claims* its card's key. The
claims on one key are kept in order (within a batch: by mtime, then file name); the first is the
*holder*, the others are `duplicate`. A file whose content turned invalid keeps its claim with its
last valid card (it is *torn*); a file that is gone, barred, or changed its key gives it up. Where
the holder changes, the key's ranks stay if the new holder's file has the same owner (the key has
*moved*); else the key departs and arrives anew.

**Entry.** One per held key. `want` is the card its holder presents. `registered`: `want` passed
compatibility. `served`: the version in the answers. It is *firm* where it is `want`, else it is
there by *courtesy*. Ranks come from one counter: arrival when the key is first held, registration
while registered, admission while served; what serves before and after a batch keeps its admission.

**Firm and courtesy.** Only registered cards count for the compatibility gate, only firm served
ones for incumbency and for claims on names. A courtesy blocks nobody: it is withdrawn at the
moment a card becomes firm that cannot coexist with it (by the pairwise rules, by its claims on
names, or by another fingerprint in its group). So all served versions always coexist.

**Names.** A base claims its primary p and its aliases as (model, p); an adapter claims its name as
(adapter, p), where p is the primary of the base version served beneath it. A name may be claimed
by many cards, but by equal claims only. Names in the operator's table are claimed by nobody.

**Owners** are the files' uids. They count only where the host's users are strangers to each other
(`by_owner`). Then a claim carries its owner too, so that a name, and with it a group, is that of
whoever came first for as long as that one serves it. A cohort is one owner's: who comes next in a
group is settled between owners as between fingerprints. And a file that gets another owner is
another file: its key departs and arrives anew, without the courtesy that is owed to the former.

**Gates of an entry, in order** (the first that fails gives the standing):
1. compatibility with every other registered card on the endpoint -> `refused`. A card that passed
   stays registered until it leaves or is edited;
2. base: not a half adapter, anchored, and for adapters: the entry at `key.base` serves a version
   that the pairwise rules accept -> `orphan`;
3. cohort (bases): the group has no incumbent, or its incumbent is this fingerprint -> `standby`;
4. names: none is in the operator's table, none is firmly claimed otherwise -> `blocked`.

**Groups.** The *incumbent* is the fingerprint of the group's firm serving members; there is at most
one. A *cohort* is the registered members of a group with one fingerprint; its age is when its first
member registered, and it is forgotten if it has no registered member at the end of a batch. A group
without an incumbent is *vacant*. When a registered member of a vacant group is judged, the group is
settled: the successor is the oldest cohort whose names are free among the cohorts that hold an
entry which still serves another version by courtesy in this same group; if there is none, the
oldest whose names are free. All its members that pass become firm at once, in arrival order.
Members of the others are `standby`. If no cohort can serve, every member is `blocked`.

**A batch** is applied in three phases:
1. *Departures*: entries whose key is no longer held leave. New operator aliases withdraw whoever
   serves under such a name. Entries that lost their anchor stop serving.
2. *Edits of entries that serve*. First every edited entry, serving or not, loses its registration,
   and what it serves turns into a courtesy. Then those that serve are judged in admission order. A
   version that differs in nothing that a gate or fingerprint reads is taken over unjudged. If a
   moved key's new content does not get to serve, the old version is withdrawn: its file is gone.
3. *Everything that waits*, old and new: the entry with the lowest arrival rank that can move is
   moved, until none can. To move is to become registered, to serve, or to let a group be settled.

When the served version of a base changes, its adapters that serve are judged again at once, in
admission order, at the base and names gates; those that fail stop serving, without courtesy.

**Why it is cheap.** Each waiting entry watches one thing: the blocker that refused it, its base,
its group's vacancy, or one claimed name. It is judged again only when that thing goes away.
Endpoints judge by counts (endpoint.py), so no step loops over the cards of an endpoint. And who
comes to an empty endpoint with names that nobody has is let in without being judged: most are such.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import count
from typing import NamedTuple

from discoveryd.core import forecast
from discoveryd.core.arbiter import Arbiter
from discoveryd.core.batch import Batch, Change, Served, Sighting
from discoveryd.core.card import Key
from discoveryd.core.entry import Entry, FileRecord
from discoveryd.core.verdict import Verdict
from discoveryd.core.verdicts import Verdicts, claimed_card


class _Edit(NamedTuple):
    """An edit of an entry that serves: whether its key moved to another file, and its old rank."""

    entry: Entry
    moved: bool
    registration: int | None


class Registry(Verdicts):
    """Judges cards, batch by batch. Not thread-safe: it has one writer.

    `ranks` gives growing numbers and never one twice; the registry draws every rank from it.
    `operator_aliases` maps a name to the primary or adapter it stands for. `by_owner` lets owners
    count: see the theory.
    """

    def __init__(
        self,
        ranks: Callable[[], int] | None = None,
        operator_aliases: Mapping[str, str] | None = None,
        *,
        by_owner: bool = False,
    ) -> None:
        ranks = ranks or count(1).__next__
        super().__init__(Arbiter(ranks, operator_aliases or {}, by_owner=by_owner))
        self.served: dict[Key, Served] = {}

    # Batches

    def apply(self, batch: Batch) -> Change:
        """Apply a batch whole and return what changed."""
        steps = self.applying(batch)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                change: Change = end.value
                return change

    def applying(self, batch: Batch) -> Generator[None, None, Change]:
        """Apply a batch in small steps, for a caller that has other things to do in between.

        Until the generator has returned its change, nothing here is fit to be read.
        """
        arbiter = self.arbiter
        seen: dict[str, None] = {}
        keys: dict[Key, None] = {}
        for sighting in sorted(batch.sightings, key=lambda each: (each.mtime_ns, each.file)):
            seen[sighting.file] = None
            self.files.note(sighting, keys)
            yield
        arrivals, edits = yield from self._identify(keys)
        aliases = batch.operator_aliases
        if aliases is not None and dict(aliases) != arbiter.names.operator:
            arbiter.set_operator_aliases(aliases)
        else:
            aliases = None
        edits = [edit for edit in edits if edit.entry.served is not None]
        yield
        for entry, moved, registration in sorted(edits, key=lambda edit: edit.entry.admission or 0):
            arbiter.judge(entry)
            if entry.firm:
                entry.registration = registration or entry.registration
            elif moved:
                arbiter.withdraw(entry)
            yield
        yield from self._judge_woken()
        for record in sorted(arrivals, key=lambda record: (record.mtime_ns, record.file)):
            card = claimed_card(record)
            entry = Entry(card.key, card, record.file, record.owner, arbiter.ranks())
            if not arbiter.welcome(entry):
                arbiter.arrive(entry)
                yield from self._judge_woken()
            yield
        yield from arbiter.end_batch()
        return (yield from self._publish(seen, aliases, batch.now))

    def _judge_woken(self) -> Generator[None]:
        """Phase 3 for all who are there; whoever comes after them is behind them in the order."""
        while (woken := self.arbiter.next_woken()) is not None:
            self.arbiter.judge(woken)
            yield

    def _identify(
        self, keys: Iterable[Key]
    ) -> Generator[None, None, tuple[list[FileRecord], list[_Edit]]]:
        """Phase 1, and the opening of phase 2: see who holds each key now.

        Returns the holders of keys that arrive, and the edits of entries that serve.
        """
        arrivals: list[FileRecord] = []
        revisions: list[tuple[Entry, FileRecord]] = []
        for key in keys:
            yield
            holder = self.files.holder(key)
            entry = self.arbiter.entries.get(key)
            if entry is not None and (
                holder is None
                or (
                    holder.owner != entry.owner
                    and (self.arbiter.by_owner or holder.file != entry.file)
                )
            ):
                self.arbiter.depart(entry)
                entry = None
            if holder is None:
                continue
            if entry is None:
                arrivals.append(holder)
            else:
                revisions.append((entry, holder))
        edits: list[_Edit] = []
        for entry, holder in revisions:
            yield
            card, moved = claimed_card(holder), holder.file != entry.file
            entry.owner = holder.owner
            if not card.judged_like(entry.want):
                edit = _Edit(entry, moved, entry.registration)
                self.arbiter.revise(entry, card, holder.file)
                if entry.served is not None:
                    edits.append(edit)
                continue
            if moved and not entry.firm:
                self.arbiter.withdraw(entry)
            if card != entry.want or moved:
                self.arbiter.replace(entry, card, holder.file)
        return arrivals, edits

    def _publish(
        self,
        seen: Mapping[str, None],
        aliases: Mapping[str, str] | None,
        now: float,
    ) -> Generator[None, None, Change]:
        """Compare what is with what was said last, and say the difference."""
        files = dict(seen)
        altered, keys = self.files.altered()
        for key in self.arbiter.touched:
            keys[key] = None
            entry = self.arbiter.entries.get(key)
            if entry is not None:
                files[entry.file] = None
        yield
        changed = yield from self._served_anew()
        forgotten = yield from self.forget()
        judged: list[str] = []
        for file in files:
            if self.show(file, now):
                judged.append(file)
            yield
        altered.update(dict.fromkeys(judged))
        return Change(
            served=changed,
            judged=tuple(judged),
            forgotten=forgotten,
            operator_aliases=aliases,
            keys=tuple(keys),
            files=tuple(altered),
        )

    def _served_anew(self) -> Generator[None, None, dict[Key, Served | None]]:
        """Bring `served` up to date, and return what reads otherwise than before."""
        touched, self.arbiter.touched = self.arbiter.touched, {}
        changed: dict[Key, Served | None] = {}
        fresh: list[tuple[Key, Served]] = []
        for key in touched:
            yield
            entry = self.arbiter.entries.get(key)
            before = self.served.get(key)
            after = None if entry is None else entry.served
            if after is None:
                if entry is not None:
                    entry.admission = None
                if before is not None:
                    del self.served[key]
                    changed[key] = None
            elif before is not None and before.admission == after.admission:
                self.served[key] = after
                if not after.looks_like(before):
                    changed[key] = after
            else:
                self.served.pop(key, None)
                fresh.append((key, after))
        for key, after in sorted(fresh, key=lambda pair: pair[1].admission):
            self.served[key] = after
            changed[key] = after
        return changed

    def resume(self) -> None:
        """Begin where another registry was taken out: all is known, and nothing of it is news."""
        arbiter = self.arbiter
        while (entry := arbiter.next_woken()) is not None:
            arbiter.judge(entry)
        for _ in arbiter.end_batch():
            pass
        arbiter.touched = {}
        served = [entry.served for entry in arbiter.entries.values() if entry.served is not None]
        for version in sorted(served, key=lambda version: version.admission):
            self.served[version.card.key] = version
        for record in self.files:
            self.show(record.file, record.since)

    def check(self, sighting: Sighting, now: float = 0.0) -> tuple[Verdict, tuple[str, ...]]:
        """Say what the sighting would get if it were the next thing seen, alone; change nothing.

        Also returns the files whose earlier version, served by courtesy, would have to yield. Cards
        that a change would set free, and what they would then do to this one, are not played
        through: the verdict is the one at the moment the card is judged.
        """
        return forecast.check(self.arbiter, self.files, sighting, now)
