"""What may be wrong with the ledger's file, in words that say what to do.

Two kinds of trouble are told apart. `Unusable`: the file is what it should be, but cannot be used
now (no directory, no right, no room, locked, another program's); it is left as it is. `Broken`: it
is no ledger, or not one that can be understood.
"""

import errno
import os
import sqlite3

from discoveryd.daemon.ledger.rows import Undecodable

ELSEWHERE = "or name another place with --state"

_NO_LEDGER = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}
)
_PASSING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL})


class Unusable(Exception):
    """The ledger cannot be used now. The message is a clause for people, and what to do."""


class Taken(Unusable):
    """Another daemon has it."""


class Broken(Exception):
    """There is no understanding what is there. The message is a clause for people."""


Error = sqlite3.Error | Undecodable | UnicodeDecodeError
"""What using a database may raise. SQLite's own messages may quote what it could not read."""

ERRORS = (sqlite3.Error, Undecodable, UnicodeDecodeError)


def passes(error: Error) -> bool:
    """Whether the trouble may pass by itself, the file being in order."""
    return _code(error) in _PASSING


def _code(error: Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def fault_of(error: Error, display: str) -> Broken | Unusable:
    """Say what an error means for the file."""
    code = _code(error)
    if code in _NO_LEDGER or (code is None and not isinstance(error, sqlite3.ProgrammingError)):
        return Broken(str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unusable(f"{display} is locked by another program: let it close the file")
    if code == sqlite3.SQLITE_FULL:
        return Unusable(f"there is no room to write {display}: free some, {ELSEWHERE}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return Unusable(
            f"{display} cannot be written ({error}): let the user with uid {os.geteuid()} write it "
            f"and its directory, {ELSEWHERE}"
        )
    return Unusable(f"{display} cannot be used ({error}): see to its file system, {ELSEWHERE}")


def unopened(display: str, error: OSError) -> Unusable:
    """Say why the file cannot even be opened."""
    what = (error.strerror or "unknown error").lower()
    advice = "see to its file system"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        advice = f"make the directory {display.rpartition('/')[0]}"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = f"let the user with uid {os.geteuid()} write it and its directory"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free some room"
    elif error.errno == errno.EISDIR:
        what, advice = "it is a directory", "remove it"
    return Unusable(f"{display} cannot be opened ({what}): {advice}, {ELSEWHERE}")
