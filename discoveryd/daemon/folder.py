"""What is known of the files in one folder, and what is new there.

A folder remembers for each file its stamp and a digest of its content, and answers a look with the
files whose content or owner changed. It parses nothing. It is used by one thread at a time; why
that is enough, and when a stamp may be believed, is told in dropdir.py.
"""

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from discoveryd.core.batch import Invalid
from discoveryd.core.text import display_path
from discoveryd.daemon.reading import GONE, Look, Stamp, look, open_directory, scan

Identity = tuple[int, int]
"""Device and inode of a directory: what a path leads to."""


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity in a stat result."""
    return status.st_dev, status.st_ino


class Changes(NamedTuple):
    """What a look at a folder found: only files that differ from what was known.

    `scanned` says that all files were looked at; `strange` that this was not the directory of the
    look before, so that whatever changed was bound to go unannounced.
    """

    looks: dict[bytes, Look]
    scanned: bool = False
    strange: bool = False


class _Known(NamedTuple):
    """The last look at a file: its content as a digest, or the fault that kept it from us."""

    stamp: Stamp | None
    settled: bool
    mark: bytes | Invalid
    owner: int | None


class Folder:
    """The files in the directory at `path` whose names `accepts` takes.

    `identity` is of the directory last listed, None while there is none. `upkeep_seconds` is the
    processor time that the last scan took before it read anything new.
    """

    def __init__(self, path: bytes, accepts: Callable[[bytes], bool]) -> None:
        self.path = path
        self.display = display_path(path)
        self.identity: Identity | None = None
        self.upkeep_seconds = 0.0
        self._fault: str | None = None
        self._undecodable: bytes | None = None
        self._accepts = accepts
        self._stopped = threading.Event()
        self._known: dict[bytes, _Known] = {}
        self._doubted: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def problem(self) -> str | None:
        """Say why the files cannot be known or followed, for people."""
        if self._fault is None and self._undecodable is not None:
            return (
                f"the file name {self.display}/{display_path(self._undecodable)} is not UTF-8, so"
                " changes of that file end the watch, and are found by scans only. Rename it"
            )
        return self._fault

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Make a look in another thread return early, with less than the truth."""
        self._stopped.set()

    def accepts(self, name: bytes) -> bool:
        """Whether a file of this name counts here."""
        return self._accepts(name)

    def stamp(self, name: bytes) -> Stamp | None:
        """Return the stamp that the file had at the last look; touches are seen here only."""
        known = self._known.get(name)
        return None if known is None else known.stamp

    def doubt(self, name: bytes) -> None:
        """Read this file again at every scan, whatever its stamp says, until it changes."""
        if name in self._known:
            self._doubted.add(name)

    def look(self, names: Collection[bytes], *, everything: bool) -> Changes:
        """Look at these names, or at every file where `everything` or the directory is another.

        Where there is no directory, its files are gone. Where there is one that cannot be listed,
        nothing changes, and `problem` says so.
        """
        try:
            directory = open_directory(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            self._fault = _waiting(error, self.display)
            self.identity = None
            return Changes(self._record((name, GONE) for name in tuple(self._known)))
        except OSError as error:
            self._fault = _unlistable(error, self.display)
            return Changes({})
        try:
            identity = identity_of(os.fstat(directory))
            strange = identity != self.identity
            if not (everything or strange or self._fault is not None):
                return Changes(self._read(directory, filter(self._accepts, names)))
            if strange:
                self._distrust_stamps()
            looks = self._scan(directory)
        except OSError as error:
            self._fault = _unlistable(error, self.display)
            return Changes({})
        finally:
            os.close(directory)
        self.identity = identity
        return Changes(looks, scanned=True, strange=strange)

    def _scan(self, directory: int) -> dict[bytes, Look]:
        began = time.thread_time()
        listing = scan(directory, self._accepts)
        self._fault = None
        self._undecodable = listing.undecodable
        fresh: list[bytes] = [name for name in self._known if name not in listing.stamps]
        again: list[bytes] = []
        for name, stamp in listing.stamps.items():
            known = self._known.get(name)
            if name in self._doubted:
                again.append(name)
            elif known is None or not known.settled or stamp is None or known.stamp != stamp:
                fresh.append(name)
        looks = self._read(directory, again)
        self.upkeep_seconds = time.thread_time() - began
        looks.update(self._read(directory, fresh))
        return looks

    def _read(self, directory: int, names: Iterable[bytes]) -> dict[bytes, Look]:
        return self._record((name, look(directory, name, self.display)) for name in names)

    def _record(self, looks: Iterable[tuple[bytes, Look]]) -> dict[bytes, Look]:
        """Remember the looks; return those that are news."""
        news: dict[bytes, Look] = {}
        for name, seen in looks:
            if self.stopped:
                break
            before = self._known.get(name)
            content = seen.content
            if content is None:
                if before is not None:
                    del self._known[name]
                    self._doubted.discard(name)
                    news[name] = seen
                continue
            mark = _digest(content) if isinstance(content, bytes) else content
            self._known[name] = _Known(seen.stamp, seen.settled, mark, seen.owner)
            if before is None or before.mark != mark or before.owner != seen.owner:
                self._doubted.discard(name)
                news[name] = seen
            if isinstance(content, Invalid) and not seen.settled:
                self._doubted.add(name)
        return news

    def _distrust_stamps(self) -> None:
        for name, known in self._known.items():
            self._known[name] = known._replace(settled=False)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _waiting(error: OSError, directory: str) -> str:
    if error.errno == errno.ENOENT:
        return f"waiting for directory {directory}: it does not exist"
    return f"waiting for directory {directory}: something else is there"


def _unlistable(error: OSError, directory: str) -> str:
    what = (error.strerror or "unknown error").lower()
    advice = ""
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = f". Let the user with uid {os.geteuid()} read and enter it"
    return f"the directory {directory} cannot be listed: {what}{advice}"
