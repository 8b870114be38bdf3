"""From a name in a directory to a sighting: the file-name rule, stamps, bounded reading.

Here lives everything that touches a card file, one look at a time, without memory: what changed
since the last look is folder.py's business. Nothing of anyio or watchfiles: `discoveryctl check`
reads directories with this module, offline.

A look never blocks and never wakes a device: the kind of a file is asked before it is opened, at
most `MAX_BYTES` + 1 bytes are read, whatever size it claims. What cannot be read is a value, an
`Invalid` that says what to do, since a bad file is news, not an accident.

A scan has asked already, and for nearly all files there is nothing more to find out than what is in
them: `read_listed` reads those, and leaves every file about which something is odd to `look`.

Links are followed only where that is asked for. The target is then held before its kind is asked,
and that very file is opened, so that nobody can turn the link to a device in between. The owner is
the link's: who put it there claims what it leads to.
"""

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple, Self

import msgspec

from discoveryd.core.batch import Found, Invalid, Sighting
from discoveryd.core.card import InvalidCard, Key
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.parsing.document import MAX_BYTES
from discoveryd.core.text import display_path
from discoveryd.daemon.disk import faults

SETTLING_NS = 2_000_000_000
"""A change time younger than this may be shared by a later write: the coarsest clock of any file
system that matters ticks every two seconds."""

_TRIES = 3
_PIECE = 1 << 16
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_FLAGS_OF_HELD = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """What tells two versions of a file apart without reading it.

    A scan makes one a file: the collector, which would stop the loop, is to know nothing of them.
    """

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp in a stat result."""
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )


class Look(NamedTuple):
    """What one look at one file found.

    `content` is None where there is no such file, and `Invalid` where there is one that cannot be
    read. `settled` promises that the same stamp will mean the same content. `linked` says that a
    link was followed: no event tells what happens at its other end.
    """

    content: bytes | Invalid | None
    stamp: Stamp | None = None
    owner: int | None = None
    settled: bool = False
    linked: bool = False

    @property
    def dangling(self) -> bool:
        """Whether a link was followed to where nothing is."""
        return self.linked and self.stamp is None and self.content is not None


GONE = Look(None)


class FileChange(NamedTuple):
    """What a card file says now, and the stamp it had when it said so."""

    sighting: Sighting
    stamp: Stamp | None


class Listing(NamedTuple):
    """The names in a directory that count, each with its stamp, or None where stat failed.

    `irregular` are those that are no regular files by themselves. `undecodable` is a name in the
    directory that is not UTF-8, whether it counts or not.
    """

    stamps: dict[bytes, Stamp | None]
    irregular: set[bytes]
    undecodable: bytes | None = None


def is_card_name(name: bytes) -> bool:
    """Whether a file of this name, in a drop directory, is a card file."""
    return (
        name.endswith(b".json")
        and not name.startswith(b".")
        and b"/" not in name
        and b"\0" not in name
    )


def scan(
    dir_fd: int, accepts: Callable[[bytes], bool] = is_card_name, *, follow: bool = False
) -> Listing:
    """List the directory; `accepts` is the file-name rule. Raises OSError if it cannot be listed.

    With `follow` the stamp of a link is that of what it leads to. The descriptor must not be used
    by another listing at the same time.
    """
    stamps: dict[bytes, Stamp | None] = {}
    irregular: set[bytes] = set()
    undecodable = None
    with os.scandir(dir_fd) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if not name.isascii() and not _is_utf8(name):
                undecodable = name
            if not accepts(name):
                continue
            link = follow and entry.is_symlink()
            if not entry.is_file(follow_symlinks=False):
                irregular.add(name)
            try:
                stamps[name] = Stamp.of(entry.stat(follow_symlinks=link))
            except FileNotFoundError:
                if link:
                    stamps[name] = None
            except OSError:
                stamps[name] = None
    return Listing(stamps, irregular, undecodable)


def read_listed(dir_fd: int, name: bytes, stamp: Stamp) -> Look | None:
    """Read a regular file that a scan of the directory gave this stamp.

    None where it is not just as it was then, or cannot be read whole: `look` finds out.
    """
    if stamp.size > MAX_BYTES:
        return None
    now = time.time_ns()
    try:
        fd = os.open(name, _FLAGS, dir_fd=dir_fd)
    except OSError:
        return None
    try:
        content = os.read(fd, stamp.size + 1)
        status = os.fstat(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(content) != stamp.size or Stamp.of(status) != stamp:
        return None
    return Look(content, stamp, status.st_uid, stamp.ctime_ns < now - SETTLING_NS)


def look(dir_fd: int, name: bytes, directory: str, *, follow: bool = False) -> Look:
    """Look at the file `name` in the directory that `dir_fd` is open on.

    `directory` is its path for people; `follow` says whether to look through a link. A file that
    changes while it is read is read again, three times at most; what was read then is not settled.
    """
    found = GONE
    file = f"{directory}/{display_path(name)}"
    for _ in range(_TRIES):
        found, whole = _look_once(dir_fd, name, file, follow=follow)
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


def is_link(dir_fd: int, name: bytes) -> bool:
    """Whether there is a link of that name."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except (OSError, ValueError):
        return False


def _look_once(dir_fd: int, name: bytes, file: str, *, follow: bool) -> tuple[Look, bool]:
    """Look once; the second value is whether the file stood still meanwhile."""
    status = None
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if follow and stat.S_ISLNK(status.st_mode):
            return _look_through(dir_fd, name, file, status)
        if not stat.S_ISREG(status.st_mode):
            return _not_a_file(status, file), True
        now = time.time_ns()
        fd = os.open(name, _FLAGS, dir_fd=dir_fd)
        return _look_into(fd, now, file)
    except OSError as error:
        return _failed(error, status, file), True


def _look_through(dir_fd: int, name: bytes, file: str, link: os.stat_result) -> tuple[Look, bool]:
    """Look once at what a link leads to."""
    try:
        held = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _ABSENT:
            dangling = faults.leads_nowhere(file)
            return Look(dangling, None, link.st_uid, linked=True), True
        return _failed(error, link, file)._replace(linked=True), True
    status = link
    try:
        status = os.fstat(held)
        if stat.S_ISREG(status.st_mode):
            now = time.time_ns()
            fd = os.open(b"/proc/self/fd/%d" % held, _FLAGS_OF_HELD)
            found, whole = _look_into(fd, now, file)
        else:
            found, whole = _not_a_file(status, file), True
    except OSError as error:
        found, whole = _failed(error, status, file), True
    finally:
        os.close(held)
    return found._replace(owner=link.st_uid, linked=True), whole


def _look_into(fd: int, now: int, file: str) -> tuple[Look, bool]:
    """Read the open file, and close it. `now` is of before it was opened.

    The change time is compared with a clock read before the content: a write that comes after the
    reading cannot then carry a settled change time.
    """
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return _not_a_file(status, file), True
        stamp = Stamp.of(status)
        settled = stamp.ctime_ns < now - SETTLING_NS
        if status.st_size > MAX_BYTES:
            return Look(faults.too_large(file), stamp, status.st_uid, settled), True
        content = _read(fd, status.st_size)
        whole = len(content) == stamp.size and Stamp.of(os.fstat(fd)) == stamp
    finally:
        os.close(fd)
    if len(content) > MAX_BYTES:
        return Look(faults.too_large(file), stamp, status.st_uid), whole
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


def _failed(error: OSError, status: os.stat_result | None, file: str) -> Look:
    """Say what a look came to that met with an error; `status` is what was known by then."""
    if error.errno in _ABSENT:
        return GONE
    if status is None:
        return Look(faults.unreadable(error, file))
    return Look(faults.unreadable(error, file), Stamp.of(status), status.st_uid)


def _not_a_file(status: os.stat_result, file: str) -> Look:
    fault = faults.not_a_file(stat.S_IFMT(status.st_mode), file)
    return Look(fault, Stamp.of(status), status.st_uid, settled=True)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
