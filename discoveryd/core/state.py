"""The registry's whole state as plain values, to be taken out and put back.

The ledger stands on this: what comes out is what must be remembered, and putting it back judges
nothing anew. Everything that can be worked out from it (counts, books, watches) is left out.

It comes out whole (`take_out`), or in the pieces that a change names (`file_state` for each of its
files, `entry_state` for each of its keys): put in the place of the earlier ones, they make the
whole again.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from discoveryd.core.batch import Barred, Invalid, Served
from discoveryd.core.card import Card, Key
from discoveryd.core.entry import Entry, FileRecord
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Reason, Standing


class FileState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One file: its last valid card, and what is wrong with its present content.

    `barred` is why the card may not count; `observed` the start time of its process.
    """

    file: str
    owner: int | None = None
    mtime_ns: int = 0
    card: Card | None = None
    fault: Invalid | None = None
    barred: tuple[Standing, tuple[Reason, ...]] | None = None
    moved_from: Key | None = None
    observed: int | None = None
    since: float = 0.0


class EntryState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One held key: the files that claim it in order, its ranks, and what it serves.

    What it wants is the card of the first file. With `firm` it serves that, else `courtesy`, if
    anything. `cohort_age` is that of the cohort in which a base is registered.
    """

    key: Key
    claims: tuple[str, ...]
    arrival: int
    registration: int | None = None
    admission: int | None = None
    cohort_age: int | None = None
    firm: bool = False
    courtesy: Served | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, between two batches. Entries stand in the order of arrival, files in any."""

    files: tuple[FileState, ...]
    entries: tuple[EntryState, ...]
    operator_aliases: dict[str, str]


class Ranks:
    """Growing numbers, never one twice. `last` is the latest that was drawn."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def __call__(self) -> int:
        """Draw a number."""
        self.last += 1
        return self.last


class Restored(NamedTuple):
    """A registry in an earlier one's state. `same` is False if some card has not kept its place."""

    registry: Registry
    same: bool


def take_out(registry: Registry) -> State:
    """Return the state of a registry that is between two batches."""
    entries = sorted(registry.arbiter.entries.values(), key=lambda each: each.arrival)
    return State(
        files=tuple(map(_file_state, registry.files)),
        entries=tuple(_entry_state(registry, entry) for entry in entries),
        operator_aliases=dict(registry.arbiter.names.operator),
    )


def file_state(registry: Registry, file: str) -> FileState | None:
    """Return the state of one file; None where it is gone. As for `take_out`."""
    record = registry.files.get(file)
    return None if record is None else _file_state(record)


def entry_state(registry: Registry, key: Key) -> EntryState | None:
    """Return the state of one key; None where nobody holds it. As for `take_out`."""
    entry = registry.arbiter.entries.get(key)
    return None if entry is None else _entry_state(registry, entry)


def put_back(state: State, ranks: Callable[[], int], *, by_owner: bool = False) -> Restored:
    """Return a registry in that state. `ranks` must go on after the highest rank in it.

    `by_owner` is as for Registry, and may be another than it was.

    A card that has not the place it had, because the rules were others then, is judged anew. Raises
    ValueError for a state that no registry was ever in.
    """
    drawn = False

    def draw() -> int:
        nonlocal drawn
        drawn = True
        return ranks()

    registry = Registry(draw, state.operator_aliases, by_owner=by_owner)
    records = [_record(file) for file in state.files]
    registry.files.restore(records, {entry.key: entry.claims for entry in state.entries})
    arbiter = registry.arbiter
    crowds = Counter(known.key.place for known in state.entries)
    same = True
    for known in sorted(state.entries, key=lambda entry: entry.cohort_age or 0):
        entry = _entry(registry, known)
        arbiter.arrive(entry)
        alone = crowds[known.key.place] == 1 and known.cohort_age == known.registration
        if known.cohort_age is not None and not alone:
            arbiter.expect(entry, known.cohort_age)
    for known in state.entries:
        entry = arbiter.entries[known.key]
        if known.registration is None:
            continue
        if arbiter.find_conflict(entry.want) is None:
            arbiter.register(entry, known.registration)
        else:
            same = False
    for known in sorted(state.entries, key=_serving_order):
        entry = arbiter.entries[known.key]
        served = _served(entry, known)
        if served is None:
            continue
        claim = arbiter.claim_of(served.card, entry.owner)
        free = not (arbiter.taken(served.card, claim) or arbiter.rivals(served.card, claim))
        if free and (not served.firm or arbiter.fits(entry)):
            arbiter.reinstate(entry, served)
        else:
            same = False
    registry.resume()
    arbiter.ranks = ranks
    return Restored(registry, same and not drawn)


def _serving_order(entry: EntryState) -> tuple[bool, int]:
    """Bases before adapters, since an adapter's claims are made for the base beneath."""
    return entry.key.suffix is not None, entry.admission or 0


def _file_state(record: FileRecord) -> FileState:
    barred = record.barred
    return FileState(
        file=record.file,
        owner=record.owner,
        mtime_ns=record.mtime_ns,
        card=record.card,
        fault=record.fault,
        barred=None if barred is None else (barred.standing, barred.reasons),
        moved_from=record.moved_from,
        observed=record.observed,
        since=record.since,
    )


def _entry_state(registry: Registry, entry: Entry) -> EntryState:
    served = entry.served
    return EntryState(
        key=entry.key,
        claims=registry.files.claims(entry.key),
        arrival=entry.arrival,
        registration=entry.registration,
        admission=entry.admission,
        cohort_age=registry.arbiter.cohort_age(entry),
        firm=entry.firm,
        courtesy=None if served is None or served.firm else served,
    )


def _record(state: FileState) -> FileRecord:
    record = FileRecord(state.file)
    record.owner, record.mtime_ns = state.owner, state.mtime_ns
    record.card, record.fault = state.card, state.fault
    if state.barred is not None:
        if state.card is None:
            raise ValueError(f"{state.file} is barred, but has no card")
        record.barred = Barred(state.card, *state.barred)
    record.moved_from, record.since = state.moved_from, state.since
    record.observed = state.observed
    return record


def _entry(registry: Registry, state: EntryState) -> Entry:
    holders = [registry.files.get(file) for file in state.claims]
    if not holders or not all(holder and holder.claim == state.key for holder in holders):
        raise ValueError(f"{state.key} is claimed by {', '.join(state.claims) or 'nobody'}")
    holder = holders[0]
    if holder is None or holder.card is None:
        raise ValueError(f"{state.key} is held by {state.claims[0]}, which has no card")
    return Entry(state.key, holder.card, holder.file, holder.owner, state.arrival)


def _served(entry: Entry, state: EntryState) -> Served | None:
    if not state.firm:
        return state.courtesy
    if state.admission is None:
        raise ValueError(f"{state.key} serves without an admission rank")
    return Served(entry.want, entry.file, state.admission, firm=True)
