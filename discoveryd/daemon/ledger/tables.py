"""The ledger's tables: what stands in them, what is put there and found there.

Works on a connection that others open; each function is one transaction's worth of statements, and
lets through what SQLite and the rows raise.

| table | a row is |
|---|---|
| meta | the one row: epoch, revision, the last rank drawn, the operator's table |
| files | a file: its state, and apart from it its last valid card |
| entries | a held key |
| events | a change of a verdict, in the order in which they were told |
| names | that an event is of a card which asks for a name |

`FORMAT` grows with a change that an older daemon would misread.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from discoveryd.core.card import Card, Key
from discoveryd.core.state import EntryState, FileState, State
from discoveryd.daemon.ledger import rows
from discoveryd.daemon.ledger.rows import Event, Meta, Row, Undecodable

APPLICATION_ID = 0x64697363
"""Tells a ledger from the databases of other programs: "disc"."""

FORMAT = 1

MOST_EVENTS = 100_000
"""How many events are kept."""

_SCHEMA = (
    "CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), state BLOB NOT NULL)",
    "CREATE TABLE files (file TEXT PRIMARY KEY, state BLOB NOT NULL, card BLOB)",
    "CREATE TABLE entries (key TEXT PRIMARY KEY, state BLOB NOT NULL)",
    "CREATE TABLE events (id INTEGER PRIMARY KEY, file TEXT NOT NULL, event BLOB NOT NULL)",
    "CREATE INDEX events_of_file ON events (file)",
    "CREATE TABLE names (name TEXT, event INTEGER, PRIMARY KEY (name, event)) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)

_PUT_META = "INSERT INTO meta VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET state = excluded.state"
_PUT_FILE = (
    "INSERT INTO files VALUES (?, ?, ?) "
    "ON CONFLICT (file) DO UPDATE SET state = excluded.state, card = excluded.card"
)
_DROP_FILE = "DELETE FROM files WHERE file = ?"
_PUT_ENTRY = (
    "INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET state = excluded.state"
)
_DROP_ENTRY = "DELETE FROM entries WHERE key = ?"
_PUT_EVENT = "INSERT INTO events VALUES (?, ?, ?)"
_PUT_NAME = "INSERT INTO names VALUES (?, ?)"
_OLD_EVENTS = "SELECT id, file, event FROM events WHERE id <= ?"
_DROP_EVENTS = "DELETE FROM events WHERE id <= ?"
_DROP_NAME = "DELETE FROM names WHERE name = ? AND event = ?"
_FIND_BY_FILE = (
    "SELECT file, event FROM events WHERE file IN ({}) AND id <= ? ORDER BY id DESC LIMIT ?"
)
_FIND_BY_NAME = (
    "SELECT file, events.event FROM names JOIN events ON id = names.event "
    "WHERE name = ? AND names.event <= ? ORDER BY names.event DESC LIMIT ?"
)
_FIND_ANY = "SELECT file, event FROM events WHERE id <= ? ORDER BY id DESC LIMIT ?"


class Writing(msgspec.Struct, kw_only=True, gc=False):
    """What one transaction writes. With `whole`, files and entries are all there are.

    None stands for what is gone.
    """

    files: Mapping[str, FileState | None] = {}
    entries: Mapping[Key, EntryState | None] = {}
    whole: bool = False
    meta: Meta | None = None
    events: Sequence[Event] = ()


def make(connection: sqlite3.Connection) -> None:
    """Make the tables."""
    for statement in _SCHEMA:
        connection.execute(statement)


def last_event(connection: sqlite3.Connection) -> int:
    """Return the number of the latest event; 0 where there is none."""
    found = connection.execute("SELECT max(id) FROM events").fetchone()[0]
    return 0 if found is None else int(found)


def files(connection: sqlite3.Connection) -> dict[str, FileState]:
    """Return all files, without their cards."""
    return {
        file: rows.file_of(file, state)
        for file, state in connection.execute("SELECT file, state FROM files")
    }


def load(
    connection: sqlite3.Connection, known: Mapping[str, FileState], cards: Mapping[str, Card]
) -> tuple[State, Meta] | None:
    """Return all that is kept; None if nothing was ever written.

    `known` is what `files` returned. Where a file has the card that `cards` gives for it, it
    becomes that very object.
    """
    meta = connection.execute("SELECT state FROM meta").fetchone()
    if meta is None:
        return None
    told = rows.meta_of(meta[0])
    kept = [
        rows.with_card(known[file], card, cards.get(file))
        for file, card in connection.execute("SELECT file, card FROM files")
    ]
    entries = [
        rows.entry_of(key, state)
        for key, state in connection.execute("SELECT key, state FROM entries")
    ]
    entries.sort(key=lambda entry: entry.arrival)
    if max(map(_highest, entries), default=0) > told.rank:
        raise Undecodable("a rank was never drawn")
    aliases = dict(told.operator_aliases)
    return State(files=tuple(kept), entries=tuple(entries), operator_aliases=aliases), told


def write(connection: sqlite3.Connection, writing: Writing, latest: int) -> None:
    """Put what is to be written there; `latest` is the number of the latest event.

    Files are put in the order given, which `load` keeps; keys in the order of their index, whose
    pages are then written once each.
    """
    if writing.whole:
        connection.execute("DELETE FROM files")
        connection.execute("DELETE FROM entries")
    files = writing.files.items()
    _each(connection, _PUT_FILE, (rows.file_row(state) for _, state in files if state))
    _each(connection, _DROP_FILE, ((file,) for file, state in files if not state))
    entries = sorted(writing.entries.items(), key=lambda entry: str(entry[0]))
    _each(connection, _PUT_ENTRY, (rows.entry_row(state) for _, state in entries if state))
    _each(connection, _DROP_ENTRY, ((str(key),) for key, state in entries if not state))
    if writing.meta is not None:
        connection.execute(_PUT_META, rows.meta_row(writing.meta))
    if writing.events:
        _tell(connection, list(enumerate(writing.events, latest + 1)))


def _tell(connection: sqlite3.Connection, events: Sequence[tuple[int, Event]]) -> None:
    _each(connection, _PUT_EVENT, (rows.event_row(*each) for each in events))
    names = ((name, number) for number, event in events for name in set(event.names))
    _each(connection, _PUT_NAME, names)
    oldest = events[-1][0] - MOST_EVENTS
    if oldest <= 0:
        return
    for number, file, sealed in connection.execute(_OLD_EVENTS, (oldest,)).fetchall():
        names = ((name, number) for name in set(rows.event_of(file, sealed).names))
        _each(connection, _DROP_NAME, names)
    connection.execute(_DROP_EVENTS, (oldest,))


def find(
    connection: sqlite3.Connection,
    files: Sequence[str] | None,
    name: str | None,
    *,
    upto: int,
    limit: int,
) -> list[Event]:
    """Return the latest events of these files, or of a name, or of all, newest first.

    Only those numbered `upto` or lower, and at most `limit`.
    """
    chosen: Row = ()
    statement = _FIND_ANY
    if files is not None:
        marks = ", ".join("?" * len(files))
        statement, chosen = _FIND_BY_FILE.format(marks), tuple(files)
    elif name is not None:
        statement, chosen = _FIND_BY_NAME, (name,)
    found = connection.execute(statement, (*chosen, upto, limit))
    return [rows.event_of(file, event) for file, event in found]


def _each(connection: sqlite3.Connection, statement: str, values: Iterable[Row]) -> None:
    connection.executemany(statement, values)


def _highest(entry: EntryState) -> int:
    ranks = (entry.arrival, entry.registration, entry.admission, entry.cohort_age)
    return max(rank for rank in ranks if rank is not None)
