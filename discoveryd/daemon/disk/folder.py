"""What is known of the files in one folder, and what is new there.

A folder remembers for each file its stamp and a digest of its content, and answers a look with the
files whose content or owner changed. It parses nothing. It is used by one thread at a time; why
that is enough, and when a stamp may be believed, is told in dropdir.py.
"""

import fcntl
import hashlib
import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from discoveryd.core.batch import Invalid
from discoveryd.core.text import display_path
from discoveryd.daemon.disk import faults
from discoveryd.daemon.disk.mounts import file_system_of
from discoveryd.daemon.disk.reading import (
    GONE,
    Listing,
    Look,
    Stamp,
    is_link,
    look,
    open_directory,
    read_listed,
    scan,
)

Identity = tuple[int, int, int]
"""Device, inode and generation of a directory: what a path leads to, and no other ever.

An inode number is used again, often at once; its generation is then another. File systems that
know no generation (0 stands for it) seldom use a number twice.
"""

_GET_GENERATION = 2 << 30 | struct.calcsize("l") << 16 | ord("v") << 8 | 1
_NO_GENERATION = bytes(struct.calcsize("l"))


def identity_of(directory: int) -> Identity:
    """Return the identity of an open directory."""
    status = os.fstat(directory)
    try:
        answer = fcntl.ioctl(directory, _GET_GENERATION, _NO_GENERATION)
    except OSError:
        answer = _NO_GENERATION
    return status.st_dev, status.st_ino, int.from_bytes(answer, sys.byteorder)


_TRIES = 3
"""How often what may have come earlier is looked for, while there is any."""

LEAST_TURN = 50
SCANS_A_ROUND = 100
"""Each scan reads this share of the files, and no fewer than so many, whatever their stamps say."""


class Changes(NamedTuple):
    """What a look at a folder found: only files that differ from what was known.

    `scanned` says that all files were looked at; `strange` that this was not the directory of the
    look before, or that links lead elsewhere, so that what changed was bound to go unannounced.
    """

    looks: dict[bytes, Look]
    scanned: bool = False
    strange: bool = False


class Touch(NamedTuple):
    """A new mtime of a file whose content and owner are as they were.

    `file` names it as its sightings do; `replaced` says that another inode has its name by now.
    """

    file: str
    mtime_ns: int
    replaced: bool = False


class _Known(msgspec.Struct, frozen=True, gc=False):
    """The last look at a file: its content as a digest, or the fault that kept it from us."""

    stamp: Stamp | None
    settled: bool
    mark: bytes | Invalid
    owner: int | None


_UNSEEN = _Known(None, settled=False, mark=b"", owner=None)


class Folder:
    """The files in the directory at `path` whose names `accepts` takes.

    `follow_symlinks` lets links stand for the files that they lead to. `shared` asks that whoever
    may write here may not remove what is another's, and makes it a problem if he may.

    `identity` is of the directory last listed, None while there is none; `file_system` is the type
    of its file system, None where that cannot be known. `many_writers` says that others than the
    directory's owner may make files, by its mode. `upkeep_seconds` is the processor time that
    the last scan took before it read anything new.
    """

    def __init__(
        self,
        path: bytes,
        accepts: Callable[[bytes], bool],
        *,
        follow_symlinks: bool = False,
        shared: bool = False,
    ) -> None:
        self.path = path
        self.display = display_path(path)
        self.identity: Identity | None = None
        self.file_system: str | None = None
        self.upkeep_seconds = 0.0
        self._fault: str | None = None
        self._undecodable: bytes | None = None
        self.many_writers = False
        self._open_to_all = False
        self._accepts = accepts
        self._follow = follow_symlinks
        self._shared = shared
        self._stopped = threading.Event()
        self._known: dict[bytes, _Known] = {}
        self._touches: dict[bytes, Touch] = {}
        self._doubted: set[bytes] = set()
        self._rota: list[bytes] = []

    def __len__(self) -> int:
        return len(self._known)

    @property
    def problem(self) -> str | None:
        """Say why the files cannot be known or followed, or trusted, for people."""
        if self._fault is not None:
            return self._fault
        problems: list[str] = []
        if self._undecodable is not None:
            problems.append(
                f"the file name {self.display}/{display_path(self._undecodable)} is not UTF-8, so"
                " changes of that file end the watch, and are found by scans only. Rename it"
            )
        if self._shared and self._open_to_all:
            problems.append(
                f"in {self.display} everybody can remove or replace everybody's files."
                f" Let only owners do that: chmod +t {self.display}"
            )
        return "; ".join(problems) or None

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

    def heeds(self, name: bytes) -> bool:
        """Whether it matters here if something of this name changes."""
        return self._follow or self._accepts(name)

    def stamp(self, name: bytes) -> Stamp | None:
        """Return the stamp that the file had at the last look; touches are seen here only."""
        known = self._known.get(name)
        return None if known is None else known.stamp

    def expect(self, names: Iterable[bytes]) -> None:
        """Count these files as known, whatever they hold: that one is not there is news then."""
        for name in filter(self._accepts, names):
            self._known.setdefault(name, _UNSEEN)

    def take_touches(self) -> dict[bytes, Touch]:
        """Take what was only touched in the looks since the last call, by name."""
        taken, self._touches = self._touches, {}
        return taken

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
            self._fault = faults.no_directory(error, self.display)
            self.identity = None
            return Changes(self._record((name, GONE) for name in tuple(self._known)))
        except OSError as error:
            self._fault = faults.unlistable(error, self.display)
            return Changes({})
        try:
            identity = identity_of(directory)
            strange = identity != self.identity
            turned = self._follow and self._turned(directory, names)
            if not (everything or strange or turned or self._fault is not None):
                return Changes(self._read_in_order(directory, filter(self._accepts, names)))
            if strange:
                self.file_system = file_system_of(identity[0])
                self._distrust_stamps()
            looks = self._scan(directory, in_order=not strange)
        except OSError as error:
            self._fault = faults.unlistable(error, self.display)
            return Changes({})
        finally:
            os.close(directory)
        self.identity = identity
        return Changes(looks, scanned=True, strange=strange or turned)

    def _turned(self, directory: int, names: Collection[bytes]) -> bool:
        """Whether one of these names is a link that files may be reached through.

        So one update of a directory of links, by turning the one they all lead through, is seen at
        once and whole.
        """
        return any(not self._accepts(name) and is_link(directory, name) for name in names)

    def _scan(self, directory: int, *, in_order: bool) -> dict[bytes, Look]:
        began = time.thread_time()
        listing = scan(directory, self._accepts, follow=self._follow)
        mode = os.fstat(directory).st_mode
        self.many_writers = bool(mode & (stat.S_IWGRP | stat.S_IWOTH))
        self._open_to_all = bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
        self._fault = None
        self._undecodable = listing.undecodable
        fresh: list[bytes] = [name for name in self._known if name not in listing.stamps]
        again = [name for name in self._doubted if name in listing.stamps]
        dated: list[tuple[int, bytes]] = []
        for name, stamp in listing.stamps.items():
            known = self._known.get(name)
            if known is None or not known.settled or stamp is None or known.stamp != stamp:
                dated.append((0 if stamp is None else stamp.mtime_ns, name))
        # In the order in which they are judged: what comes of them lies in memory like that.
        fresh += [name for _, name in sorted(dated) if name not in self._doubted]
        due = {*fresh, *again}
        again += [name for name in self._next_on_rota() if name not in due]
        looks = self._read(directory, again, listing)
        self.upkeep_seconds = time.thread_time() - began
        looks.update(self._read_in_order(directory, fresh, listing, anywhere=in_order))
        return looks

    def _next_on_rota(self) -> list[bytes]:
        """Return the few files that are read again in this scan, though their stamps stand."""
        if not self._rota:
            self._rota = list(self._known)
        turn = max(LEAST_TURN, len(self._known) // SCANS_A_ROUND)
        self._rota, names = self._rota[turn:], self._rota[:turn]
        return names

    def _read(
        self, directory: int, names: Iterable[bytes], listing: Listing | None = None
    ) -> dict[bytes, Look]:
        return self._record((name, self._look_at(directory, name, listing)) for name in names)

    def _look_at(self, directory: int, name: bytes, listing: Listing | None) -> Look:
        if listing is not None and name not in listing.irregular:
            stamp = listing.stamps.get(name)
            seen = None if stamp is None else read_listed(directory, name, stamp)
            if seen is not None:
                return seen
        return look(directory, name, self.display, follow=self._follow)

    def _read_in_order(
        self,
        directory: int,
        names: Iterable[bytes],
        listing: Listing | None = None,
        *,
        anywhere: bool = False,
    ) -> dict[bytes, Look]:
        """Read these, and where some have come, what came before them and was missed.

        `anywhere` says that it may be any file, else it is one of these.
        """
        due = names = list(names)
        looks: dict[bytes, Look] = {}
        for _ in range(_TRIES):
            absent = [name for name in due if name not in self._known]
            looks.update(self._read(directory, due, listing))
            if not any(name in self._known for name in absent):
                break
            listing = None
            if anywhere:
                listed = map(os.fsencode, os.listdir(directory))
                names = [name for name in listed if self._accepts(name)]
            due = [name for name in names if name not in self._known]
        return looks

    def _record(self, looks: Iterable[tuple[bytes, Look]]) -> dict[bytes, Look]:
        """Remember the looks; return those that are news."""
        news: dict[bytes, Look] = {}
        for name, seen in looks:
            if self.stopped:
                break
            before = self._known.get(name)
            if seen.dangling and before is not None and isinstance(before.mark, bytes):
                # Gone like any file; that the link has stayed is told by the next scan.
                seen = GONE  # noqa: PLW2901  # what is recorded is what is told
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
            elif seen.stamp is not None:
                self._note_touch(name, before.stamp, seen.stamp)
            if isinstance(content, Invalid) and not seen.settled:
                self._doubted.add(name)
        return news

    def _note_touch(self, name: bytes, before: Stamp | None, stamp: Stamp) -> None:
        if before is None or before.mtime_ns == stamp.mtime_ns:
            return
        file = f"{self.display}/{display_path(name)}"
        self._touches[name] = Touch(file, stamp.mtime_ns, replaced=before.ino != stamp.ino)

    def _distrust_stamps(self) -> None:
        for name, known in self._known.items():
            self._known[name] = msgspec.structs.replace(known, settled=False)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
