"""The ledger's file: one SQLite database, opened, locked, read, written, and moved aside.

Everything here blocks and belongs into a thread, one at a time. When it is used, and what happens
where it cannot be, is ledger.py's business; what stands in it is tables.py's.

What is broken (faults.py) is moved aside under a name that nothing has, never removed, and a
new one is begun. Everything else is left as it is.

A ledger has one daemon at a time, proven by a lock on the file itself (flock, which knows nothing
of the record locks that SQLite takes). Closing any descriptor of a file gives up all record locks
of the process on it: so the lock's is opened first and closed last.
"""

import fcntl
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from discoveryd.core.card import Card
from discoveryd.core.state import FileState, Ranks, Restored, put_back
from discoveryd.core.text import display_path
from discoveryd.daemon.ledger import tables
from discoveryd.daemon.ledger.faults import (
    ELSEWHERE,
    ERRORS,
    Broken,
    Error,
    Taken,
    Unusable,
    fault_of,
    passes,
    unopened,
)
from discoveryd.daemon.ledger.rows import Event, Meta
from discoveryd.daemon.ledger.tables import Writing

BUSY_SECONDS = 0.1
"""How long to wait for a lock that another program has on the database."""

_log = logging.getLogger(__name__)

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
_PARTS = ("", "-wal", "-shm")
_CHECKPOINT_PAGES = 1000


class LedgerFile:
    """The ledger at `path`, an absolute one; `display` for people. Used by one thread at a time.

    `last_event` is the number of the latest event in it. `aside` tells what was moved aside, by the
    path it has now.
    """

    def __init__(self, path: str, *, by_owner: bool = False) -> None:
        self.path = path
        self._by_owner = by_owner
        self.display = display_path(os.fsencode(path))
        self.last_event = 0
        self.aside: dict[str, str] = {}
        self._lock = -1
        self._born: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._alone = threading.RLock()

    def take(self) -> bool:
        """Claim the file for this thread, without waiting; return False where another has it.

        A thread that hangs keeps it, although nobody waits for that thread any more. What is taken
        is given back with `give`, as often.
        """
        return self._alone.acquire(blocking=False)

    def give(self) -> None:
        """Give back what this thread has taken."""
        self._alone.release()

    @property
    def opened(self) -> bool:
        """Whether it is open, so that what it holds is what was written last."""
        return self._connection is not None

    def open(self) -> None:
        """Open it, or begin one. What is broken is moved aside. Raises Taken and Unusable."""
        try:
            self._lock_it()
            try:
                self._connect()
            except Broken as why:
                self._move_aside(why)
                self._lock_it()
                self._connect()
        except Broken as why:
            self.close()
            raise Unusable(f"a new ledger at {self.display} cannot be read back: {why}") from None
        except Unusable:
            self.close()
            raise

    def replace(self, why: Broken) -> None:
        """Move aside what turned out to be broken, and begin anew. Raises Taken and Unusable."""
        try:
            self._move_aside(why)
        finally:
            self.close()
        self.open()

    def close(self) -> None:
        """Give it up. Again is harmless."""
        self._disconnect()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def leave(self) -> None:
        """Give it up, unless a thread that hangs still has it: then the process's end does."""
        if self.take():
            try:
                self.close()
            finally:
                self.give()

    # The start. Both raise Unusable, `begin` also Taken.

    def begin(self) -> dict[str, FileState]:
        """Open it, and return the files it knows, without their cards."""
        self.open()
        try:
            with self._reading() as connection:
                return tables.files(connection)
        except Broken as why:
            self.replace(why)
            return {}

    def recall(
        self, known: Mapping[str, FileState], cards: Mapping[str, Card], ranks: Ranks
    ) -> tuple[Restored, Meta] | None:
        """Return a registry in the state that is kept; None if nothing was ever kept.

        `known` is what `begin` returned, `cards` as for `tables.load`; `ranks` are set to go on.
        """
        try:
            with self._reading() as connection:
                loaded = tables.load(connection, known, cards)
            if loaded is None:
                return None
            state, meta = loaded
            ranks.last = meta.rank
            return put_back(state, ranks, by_owner=self._by_owner), meta
        except ValueError as impossible:
            fault = Broken(str(impossible))
        except Broken as why:
            fault = why
        ranks.last = 0
        self.replace(fault)
        return None

    # Reading and writing. Both raise Broken and Unusable.

    def find(
        self, files: Sequence[str] | None, name: str | None, *, upto: int, limit: int
    ) -> list[Event]:
        """Return the latest events of files, or of a name, or of all. See tables.py."""
        if not self.take():
            raise Unusable(f"{self.display} is being written, which takes too long")
        try:
            with self._reading() as connection:
                return tables.find(connection, files, name, upto=upto, limit=limit)
        finally:
            self.give()

    def write(self, writing: Writing) -> None:
        """Write all of it or nothing; where the file is not open it is opened first.

        It stays open after what may pass by itself (locked, no room), and after Broken, for
        `replace`; else it is closed, and the next writing must be `whole`.
        """
        if self._connection is not None and _identity(self.path) != self._born:
            self.close()
            raise Unusable(f"{self.display} was removed or replaced")
        if self._connection is None:
            if not writing.whole:
                raise AssertionError("a ledger that is not open may hold anything but this")
            self.open()
        connection = self._connected()
        try:
            if writing.whole:
                # Who waits for that need not wait besides until the log is copied into the
                # database, and synced: the next writing does it.
                connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("BEGIN IMMEDIATE")
            tables.write(connection, writing, self.last_event)
            connection.execute("COMMIT")
            if writing.whole:
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        except ERRORS as error:
            raise self._undo(connection, error) from None
        self.last_event += len(writing.events)

    def _undo(self, connection: sqlite3.Connection, error: Error) -> Broken | Unusable:
        fault = fault_of(error, self.display)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            # What cannot even be undone is undone by closing.
            self._disconnect()
        if isinstance(fault, Unusable) and not passes(error):
            self.close()
        return fault

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        try:
            yield self._connected()
        except ERRORS as error:
            raise fault_of(error, self.display) from None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise AssertionError("the ledger is not open")
        return self._connection

    # Opening

    def _lock_it(self) -> None:
        while self._lock < 0:
            try:
                lock = os.open(self.path, _FLAGS, 0o600)
            except OSError as error:
                raise unopened(self.display, error) from None
            try:
                self._born = _lock_alone(lock, self.display)
            except Unusable:
                os.close(lock)
                raise
            if _identity(self.path) == self._born:
                self._lock = lock
            else:
                # Its last owner moved the file aside between our opening and locking it.
                os.close(lock)

    def _connect(self) -> None:
        try:
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection = self._connection
            begun = self._begun(connection)
            if not begun:
                # Nothing is lost with what holds nothing: the first checkpoint syncs all of it.
                connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
            if not begun:
                connection.execute("BEGIN IMMEDIATE")
                tables.make(connection)
                connection.execute("COMMIT")
            connection.execute("PRAGMA synchronous = NORMAL")
            self.last_event = tables.last_event(connection)
        except ERRORS as error:
            self._disconnect()
            raise fault_of(error, self.display) from None

    def _begun(self, connection: sqlite3.Connection) -> bool:
        """Return whether a ledger has been begun there; raise where it is something else."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        known = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == tables.APPLICATION_ID:
            if version > tables.FORMAT:
                raise Broken(f"a newer discoveryd wrote it, in format {version}")
            return True
        if application or version or known:
            raise Unusable(
                f"{self.display} is the database of another program: move it away, {ELSEWHERE}"
            )
        return False

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _move_aside(self, why: Broken) -> None:
        self._disconnect()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        target, more = f"{self.path}.broken-{stamp}", 0
        while any(os.path.lexists(target + part) for part in _PARTS):
            more += 1
            target = f"{self.path}.broken-{stamp}-{more}"
        try:
            for part in _PARTS:
                if part == "" or os.path.lexists(self.path + part):
                    Path(self.path + part).rename(target + part)
        except OSError as error:
            raise Unusable(
                f"{self.display} is broken ({why}) and cannot be moved aside ({error.strerror}): "
                f"move it away, {ELSEWHERE}"
            ) from None
        there = display_path(os.fsencode(target))
        what = f"{self.display} was broken ({why}) and was moved aside to {there}"
        self.aside[target] = what
        _log.error("%s; a new one is begun", what)
        os.close(self._lock)
        self._lock = -1


def _lock_alone(lock: int, display: str) -> tuple[int, int]:
    """Lock the open file and return its identity. Raises Taken and Unusable."""
    try:
        found = os.fstat(lock)
        if stat.S_ISREG(found.st_mode):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return found.st_dev, found.st_ino
    except BlockingIOError:
        raise Taken(
            f"another discoveryd keeps its ledger at {display}: stop it, or give each its own with "
            "--state"
        ) from None
    except OSError as error:
        raise Unusable(
            f"{display} cannot be locked ({error.strerror}): name a place on a local file system "
            "with --state"
        ) from None
    raise Unusable(f"{display} is no regular file: move it away, {ELSEWHERE}")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
