"""From a name in a directory to a sighting: the file-name rule, stamps, bounded reading.

Here lives everything that touches a card file, one look at a time, without memory: what changed
since the last look is folder.py's business. Nothing of anyio or watchfiles: `discoveryctl check`
reads directories with this module, offline.

A look never blocks and never wakes a device: the kind of a file is asked before it is opened, links
are not followed, at most `MAX_BYTES` + 1 bytes are read. What cannot be read is a value, an
`Invalid` that says what to do, since a bad file is news, not an accident.
"""

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple, Self

from discoveryd.core.batch import Found, Invalid, Sighting
from discoveryd.core.card import InvalidCard, Key
from discoveryd.core.document import MAX_BYTES
from discoveryd.core.parsing import parse_card
from discoveryd.core.text import display_path
from discoveryd.core.verdict import Reason

SETTLING_NS = 2_000_000_000
"""A change time younger than this may be shared by a later write: the coarsest clock of any file
system that matters ticks every two seconds."""

_TRIES = 3
_PIECE = 1 << 16
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class Stamp(NamedTuple):
    """What tells two versions of a file apart without reading it, within one file system."""

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp in a stat result."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Look(NamedTuple):
    """What one look at one file found.

    `content` is None where there is no such file, and `Invalid` where there is one that cannot be
    read. `settled` promises that the same stamp will mean the same content.
    """

    content: bytes | Invalid | None
    stamp: Stamp | None = None
    owner: int | None = None
    settled: bool = False


GONE = Look(None)


class FileChange(NamedTuple):
    """What a card file says now, and the stamp it had when it said so."""

    sighting: Sighting
    stamp: Stamp | None


class Listing(NamedTuple):
    """The names in a directory that count, each with its stamp, or None where stat failed.

    `undecodable` is a name in the directory that is not UTF-8, whether it counts or not.
    """

    stamps: dict[bytes, Stamp | None]
    undecodable: bytes | None = None


def is_card_name(name: bytes) -> bool:
    """Whether a file of this name, in a drop directory, is a card file."""
    return (
        name.endswith(b".json")
        and not name.startswith(b".")
        and b"/" not in name
        and b"\0" not in name
    )


def scan(dir_fd: int, accepts: Callable[[bytes], bool] = is_card_name) -> Listing:
    """List the directory; `accepts` is the file-name rule. Raises OSError if it cannot be listed.

    The descriptor must not be used by another listing at the same time.
    """
    stamps: dict[bytes, Stamp | None] = {}
    undecodable = None
    with os.scandir(dir_fd) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if not name.isascii() and not _is_utf8(name):
                undecodable = name
            if not accepts(name):
                continue
            try:
                stamps[name] = Stamp.of(entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue
            except OSError:
                stamps[name] = None
    return Listing(stamps, undecodable)


def look(dir_fd: int, name: bytes, directory: str) -> Look:
    """Look at the file `name` in the directory that `dir_fd` is open on.

    `directory` is its path for people. A file that changes while it is read is read again, three
    times at most; what was read then is not settled.
    """
    found = GONE
    for _ in range(_TRIES):
        found, whole = _look_once(dir_fd, name, directory)
        if whole:
            break
    return found


def judge(seen: Look, stem: str, *, key: Key | None = None, url: str | None = None) -> Found:
    """Parse what a look found. `stem`, `key` and `url` are as for `parse_card`."""
    content = seen.content
    if not isinstance(content, bytes):
        return content
    try:
        return parse_card(content, stem=stem, key=key, url=url)
    except InvalidCard as fault:
        return Invalid(fault.reasons, fault.warnings)


def stem_of(name: bytes) -> str:
    """Return the file name without its `.json`, as `parse_card` wants it."""
    return os.fsdecode(name.removesuffix(b".json"))


def sighting(file: str, seen: Look, found: Found) -> Sighting:
    """Return the core's view of a look at `file`."""
    mtime_ns = 0 if seen.stamp is None else seen.stamp.mtime_ns
    return Sighting(file=file, found=found, mtime_ns=mtime_ns, owner=seen.owner)


def read_card(dir_fd: int, directory: str, name: bytes) -> FileChange:
    """Look at one card file and parse it, whatever its name; `directory` as for `look`."""
    seen = look(dir_fd, name, directory)
    file = f"{directory}/{display_path(name)}"
    return FileChange(sighting(file, seen, judge(seen, stem_of(name))), seen.stamp)


def read_directory(path: str | os.PathLike[str]) -> list[Sighting]:
    """Look at every card file in a drop directory, once. Raises OSError if it cannot be listed."""
    root = absolute(path)
    directory = display_path(root)
    dir_fd = open_directory(root)
    try:
        changes = [read_card(dir_fd, directory, name) for name in scan(dir_fd).stamps]
    finally:
        os.close(dir_fd)
    return [change.sighting for change in changes if change.sighting.found is not None]


def absolute(path: str | os.PathLike[str]) -> bytes:
    """Return the absolute path in bytes, since names need not be text."""
    return os.fsencode(os.path.abspath(path))  # noqa: PTH100  # pathlib keeps "..", people do not mean it


def open_directory(path: bytes) -> int:
    """Open a directory for listing; the caller closes the descriptor. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _look_once(dir_fd: int, name: bytes, directory: str) -> tuple[Look, bool]:
    """Look once; the second value is whether the file stood still meanwhile."""
    status = None
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return _not_a_file(status, directory, name), True
        # The change time is compared with a clock read before the content: a write that comes after
        # the reading cannot then carry a settled change time.
        now = time.time_ns()
        fd = os.open(name, _FLAGS, dir_fd=dir_fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return _not_a_file(status, directory, name), True
            stamp = Stamp.of(status)
            settled = stamp.ctime_ns < now - SETTLING_NS
            if status.st_size > MAX_BYTES:
                return Look(_too_large(directory, name), stamp, status.st_uid, settled), True
            content = _read(fd, status.st_size)
            whole = len(content) == stamp.size and Stamp.of(os.fstat(fd)) == stamp
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in _ABSENT:
            return GONE, True
        owner = None if status is None else status.st_uid
        at_fault = None if status is None else Stamp.of(status)
        return Look(_unreadable(error, directory, name), at_fault, owner), True
    if len(content) > MAX_BYTES:
        return Look(_too_large(directory, name), stamp, status.st_uid), whole
    return Look(content, stamp, status.st_uid, whole and settled), whole


def _read(fd: int, expected: int) -> bytes:
    piece = os.read(fd, expected + 1)
    if len(piece) == expected:
        return piece
    pieces = [piece]
    left = MAX_BYTES + 1 - len(piece)
    while left > 0 and (piece := os.read(fd, min(_PIECE, left))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _not_a_file(status: os.stat_result, directory: str, name: bytes) -> Look:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "of an unknown kind")
    link = stat.S_ISLNK(status.st_mode)
    reason = Reason(
        rule="symbolic_link" if link else "not_a_file",
        message=f"{directory}/{display_path(name)} is {kind}: a card is a regular file. "
        + ("Put the file itself there." if link else "Move it elsewhere, or rename it."),
        found=kind,
        expected="a regular file",
    )
    return Look(Invalid((reason,)), Stamp.of(status), status.st_uid, settled=True)


def _too_large(directory: str, name: bytes) -> Invalid:
    reason = Reason(
        rule="too_large",
        message=f"{directory}/{display_path(name)} is larger than {MAX_BYTES} bytes, the most a "
        "card may hold. Shorten it.",
        expected=f"at most {MAX_BYTES} bytes",
    )
    return Invalid((reason,))


def _unreadable(error: OSError, directory: str, name: bytes) -> Invalid:
    file = f"{directory}/{display_path(name)}"
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = f"Let the user with uid {os.geteuid()} read it: chmod a+r {file}"
    else:
        advice = "It is tried again at every look at the directory."
    what = (error.strerror or "unknown error").lower()
    reason = Reason(rule="unreadable", message=f"{file} cannot be read: {what}. {advice}")
    return Invalid((reason,))


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
