"""The registry's whole state as plain values, to be taken out and put back.

The ledger stands on this: what comes out is what must be remembered, and putting it back judges
nothing anew. Everything that can be worked out from it (counts, books, watches) is left out.
"""

from collections.abc import Callable

import msgspec

from discoveryd.core.batch import Barred, Invalid, Served
from discoveryd.core.card import Card, Group, Key
from discoveryd.core.entry import Entry, FileRecord
from discoveryd.core.registry import Registry


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its last valid card, and what is wrong with its present content."""

    file: str
    owner: int | None
    mtime_ns: int
    card: Card | None
    fault: Invalid | None
    barred: Barred | None
    moved_from: Key | None
    since: float


class EntryState(msgspec.Struct, frozen=True, kw_only=True):
    """One held key: the files that claim it in order, its ranks, what it wants and serves."""

    key: Key
    claims: tuple[str, ...]
    arrival: int
    registration: int | None
    admission: int | None
    served: Served | None


class CohortState(msgspec.Struct, frozen=True):
    """When a cohort's first member was registered."""

    group: Group
    fingerprint: str
    age: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, between two batches."""

    files: tuple[FileState, ...]
    entries: tuple[EntryState, ...]
    cohorts: tuple[CohortState, ...]
    operator_aliases: dict[str, str]


def take_out(registry: Registry) -> State:
    """Return the state of a registry that is between two batches."""
    return State(
        files=tuple(
            FileState(
                file=record.file,
                owner=record.owner,
                mtime_ns=record.mtime_ns,
                card=record.card,
                fault=record.fault,
                barred=record.barred,
                moved_from=record.moved_from,
                since=record.since,
            )
            for record in registry.files
        ),
        entries=tuple(
            EntryState(
                key=entry.key,
                claims=registry.files.claims(entry.key),
                arrival=entry.arrival,
                registration=entry.registration,
                admission=entry.admission,
                served=entry.served,
            )
            for entry in sorted(registry.arbiter.entries.values(), key=lambda each: each.arrival)
        ),
        cohorts=tuple(
            sorted(
                (
                    CohortState(group, fingerprint, cohort.age)
                    for group, book in registry.arbiter.groups
                    for fingerprint, cohort in book.cohorts.items()
                ),
                key=lambda cohort: cohort.age,
            )
        ),
        operator_aliases=dict(registry.arbiter.names.operator),
    )


def put_back(state: State, ranks: Callable[[], int]) -> Registry:
    """Return a registry in that state. `ranks` must go on after the highest rank in it."""
    registry = Registry(ranks, state.operator_aliases)
    records = [_record(file) for file in state.files]
    registry.files.restore(records, {entry.key: entry.claims for entry in state.entries})
    arbiter = registry.arbiter
    for cohort in sorted(state.cohorts, key=lambda cohort: cohort.age):
        arbiter.groups[cohort.group].expect(cohort.fingerprint, cohort.age)
    for known in state.entries:
        holder = registry.files.get(known.claims[0])
        if holder is None or holder.card is None:
            raise ValueError(f"{known.key} is held by {known.claims[0]}, which has no card")
        entry = Entry(known.key, holder.card, holder.file, holder.owner, known.arrival)
        arbiter.arrive(entry)
        if known.registration is not None:
            arbiter.register(entry, known.registration)
    for known in sorted(state.entries, key=_serving_order):
        if known.served is not None:
            arbiter.reinstate(arbiter.entries[known.key], known.served)
    registry.resume()
    return registry


def _serving_order(entry: EntryState) -> tuple[bool, int]:
    """Bases before adapters, since an adapter's claims are made for the base beneath."""
    return entry.key.suffix is not None, entry.admission or 0


def _record(state: FileState) -> FileRecord:
    record = FileRecord(state.file)
    record.owner, record.mtime_ns = state.owner, state.mtime_ns
    record.card, record.fault, record.barred = state.card, state.fault, state.barred
    record.moved_from, record.since = state.moved_from, state.since
    return record
