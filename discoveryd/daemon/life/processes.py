"""Processes that cards depend on: whether each still lives, and which one it is.

Theory
======

A number names one process after another, so a process is its number and its start time (field 22
of /proc/PID/stat, in clock ticks since the machine started). A pidfd stays with the process it was
opened on, tells its end within microseconds, and is opened once for all cards that name it.

**Open, read, then trust.** The number may be given to another process between any two looks. So the
pidfd is opened first, then the start time is read, and then the pidfd must say that its process is
not over: a number is not given away while its process lives, so what was read was that process's.

**A zombie is gone**: a pidfd is ready as soon as all threads have ended, long before anybody reaps.

**Without a descriptor** (none are left, the share of pidfds is used up, or the kernel refuses them)
a process is looked at in /proc instead, whenever `look` is called. Where /proc hides the processes
of others, the start time stays unknown, and signal 0 tells whether there is such a process.
"""

import asyncio
import errno
import os
import resource
import select
from collections.abc import Callable
from pathlib import Path

_PIDFD_SHARE = 2
"""One part in so many of the descriptors may go to pidfds: the rest is for those who ask."""

_NO_PROCESS = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})
"""There is none, or the number is that of a thread."""

_ZOMBIE = frozenset({"Z", "X", "x"})
_STATE, _START = 0, 19
"""Where the state (field 3) and the start time (field 22) stand after the command's name."""


class Process:
    """One living process, as far as is known. `start` is None where it cannot be read.

    `cards` are the files whose cards name it; `fd` is its pidfd, None while it is looked at.
    """

    __slots__ = ("cards", "fd", "pid", "start")

    def __init__(self, pid: int, start: int | None, fd: int | None) -> None:
        self.pid = pid
        self.start = start
        self.fd = fd
        self.cards: set[str] = set()


class Processes:
    """The processes that are followed; lives on the running loop.

    `ended` is called once for each that ends while it is followed, which then is followed no more.
    At most `most` pidfds are open; by default half of the descriptors this process may have.
    """

    def __init__(self, ended: Callable[[Process], None], *, most: int | None = None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = soft // _PIDFD_SHARE if most is None else most
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._followed: dict[int, Process] = {}
        self._looked_at: set[int] = set()

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def looked_at(self) -> int:
        """How many have no pidfd, so that only `look` notices their end."""
        return len(self._looked_at)

    def follow(self, pid: int, card: str) -> Process | None:
        """Follow the process that has this number now, for one more card; None if there is none."""
        process = self._followed.get(pid)
        if process is not None and self._is_over(process):
            self._end(process)
            process = None
        if process is None:
            process = self._meet(pid)
            if process is None:
                return None
            self._followed[pid] = process
        process.cards.add(card)
        return process

    def leave(self, process: Process, card: str) -> None:
        """Follow it no longer for that card."""
        process.cards.discard(card)
        if not process.cards and self._followed.get(process.pid) is process:
            self._drop(process)

    def look(self) -> None:
        """Look at those that have no pidfd; give them one where there is one to be had by now."""
        for pid in tuple(self._looked_at):
            process = self._followed[pid]
            if self._is_over(process):
                self._end(process)
                continue
            try:
                fd = self._open(pid)
            except ProcessLookupError:
                self._end(process)
                continue
            if fd is None:
                continue
            if start_of(pid) != process.start or _is_ready(fd):
                os.close(fd)
                self._end(process)
                continue
            process.fd = fd
            self._looked_at.discard(pid)
            self._loop.add_reader(fd, self._end, process)

    def close(self) -> None:
        """Follow none any more."""
        for process in tuple(self._followed.values()):
            self._drop(process)

    def _meet(self, pid: int) -> Process | None:
        try:
            fd = self._open(pid)
        except ProcessLookupError:
            return None
        start = start_of(pid)
        process = Process(pid, start, fd)
        if self._is_over(process):
            if fd is not None:
                os.close(fd)
            return None
        if fd is None:
            self._looked_at.add(pid)
        else:
            self._loop.add_reader(fd, self._end, process)
        return process

    def _open(self, pid: int) -> int | None:
        """Return a pidfd, or None where none can be had. Raises ProcessLookupError."""
        if len(self._followed) - len(self._looked_at) >= self._most:
            return None
        try:
            return os.pidfd_open(pid)
        except OSError as error:
            if error.errno in _NO_PROCESS:
                raise ProcessLookupError(pid) from None
            return None

    def _is_over(self, process: Process) -> bool:
        if process.fd is not None:
            return _is_ready(process.fd)
        found = _stat_of(process.pid)
        if found is not None:
            state, start = found
            return state in _ZOMBIE or (process.start is not None and start != process.start)
        try:
            os.kill(process.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it is there, and is not ours
        return False

    def _end(self, process: Process) -> None:
        self._drop(process)
        self._ended(process)

    def _drop(self, process: Process) -> None:
        self._followed.pop(process.pid, None)
        self._looked_at.discard(process.pid)
        if process.fd is not None:
            self._loop.remove_reader(process.fd)
            os.close(process.fd)
            process.fd = None


def start_of(pid: int) -> int | None:
    """Return when the process started, in clock ticks since the machine did; None if hidden."""
    found = _stat_of(pid)
    return None if found is None else found[1]


def own_pid_namespace() -> int | None:
    """Return the inode of this process's PID namespace; None where it cannot be read."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None


def _stat_of(pid: int) -> tuple[str, int] | None:
    """Return a process's state and start time, None where they cannot be read."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name stands in parentheses and may hold any byte, parentheses too.
    fields = line[line.rfind(b")") + 1 :].split()
    try:
        return fields[_STATE].decode(), int(fields[_START])
    except (IndexError, ValueError):
        return None


def _is_ready(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
