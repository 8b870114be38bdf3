"""Leases: deadlines that are put off by touching a file, counted in time that really ran.

Theory
======

**No wall clock, but for the first sight.** How old a file is when it is first seen can only be
told by the wall clock: its age is the wall clock minus its mtime, at least nothing and at most the
lease. From then on an mtime is not a time but a mark: if it is another than before, forwards or
backwards, the lease is renewed. So a stepped clock neither kills nor immortalises, nor does an
mtime in the future: it is one mark like any other, and when it changes no more the lease runs out.

**Running time.** A daemon that was stopped for a minute (SIGSTOP, a frozen container, a machine
that slept) has not seen what was touched meanwhile, and the workers may have stood still with it.
So deadlines lie in running time: the loop ticks, and a tick adds what has passed since the one
before; one that is late adds no more than one that is not. After a late tick nobody's lease is
judged until one has come on time again.

**Look before acting.** Touches may be announced late or never. So a lease that seems due is only
over after a fresh look at the file that finds the mtime unchanged; whoever acts on `due` looks, and
then asks `over`.

**Cost.** A touch writes two numbers. The heap holds one deadline a lease, which may be older than
the truth; when it comes up and the lease was renewed, it is put back with the later one.
"""

import heapq
import time
from collections.abc import Callable, Hashable
from typing import Generic, Literal, TypeVar

TICK_SECONDS = 0.25
"""How often the loop should tick: how exactly leases are counted."""

LATE_SECONDS = 0.5
"""A tick that comes so long after the one before is late."""

_SLACK = 64

Seen = int | Literal["absent"] | None
"""What a look found: a file's mtime in nanoseconds, no file, or None where it was not possible."""

Name = TypeVar("Name", bound=Hashable)


class RunningTime:
    """Counts the time in which the loop really ran; may be read from any thread.

    `clock` must not go backwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._counted = 0.0
        self.on_time = True
        self._clock = clock
        self._ticked_at = clock()

    @property
    def seconds(self) -> float:
        """The running time so far."""
        return self._counted + min(self._clock() - self._ticked_at, TICK_SECONDS)

    @property
    def late(self) -> bool:
        """Whether the loop was stopped or kept busy just now, so that nobody is to be judged."""
        return not self.on_time or self._clock() - self._ticked_at > LATE_SECONDS

    def tick(self) -> bool:
        """Count what has passed since the last tick; return whether this one is on time."""
        now = self._clock()
        passed, self._ticked_at = now - self._ticked_at, now
        self.on_time = passed <= LATE_SECONDS
        self._counted += passed if self.on_time else TICK_SECONDS
        return self.on_time


class _Lease:
    __slots__ = ("mtime_ns", "over", "queued_for", "renewed_at", "seconds")

    def __init__(self, seconds: float, mtime_ns: int, renewed_at: float) -> None:
        self.seconds = seconds
        self.mtime_ns = mtime_ns
        self.renewed_at = renewed_at
        self.over = False
        self.queued_for: float | None = None


class Leases(Generic[Name]):
    """Leases by the name of a file. Used by one thread at a time.

    `now` is always running time in seconds, `mtime_ns` what a look at the file found.
    """

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._wall_ns = wall_ns
        self._leases: dict[Name, _Lease] = {}
        self._heap: list[tuple[float, int, Name]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, name: Name) -> bool:
        return name in self._leases

    def grant(self, name: Name, seconds: float, mtime_ns: int, now: float) -> bool:
        """Begin a lease at the first sight of a file, or go on with it, maybe at another length.

        Returns whether it runs: it does not where the file is older than its lease already.
        """
        lease = self._leases.get(name)
        if lease is None:
            age = (self._wall_ns() - mtime_ns) / 1e9
            lease = _Lease(seconds, mtime_ns, now - min(max(age, 0.0), seconds))
            self._leases[name] = lease
        else:
            if lease.mtime_ns != mtime_ns:
                lease.mtime_ns, lease.renewed_at, lease.over = mtime_ns, now, False
            lease.seconds = seconds
        lease.over = lease.over or lease.renewed_at + seconds <= now
        self._queue(name, lease)
        return not lease.over

    def end(self, name: Name) -> None:
        """Call the lease over: what is not renewed from now on stays so."""
        self._leases[name].over = True

    def renew(self, name: Name, mtime_ns: int, now: float) -> bool:
        """Take in what a look found; return whether that renewed a lease."""
        lease = self._leases.get(name)
        if lease is None or lease.mtime_ns == mtime_ns:
            return False
        lease.mtime_ns, lease.renewed_at, lease.over = mtime_ns, now, False
        self._queue(name, lease)
        return True

    def drop(self, name: Name) -> None:
        """Forget a lease, if there is one."""
        if self._leases.pop(name, None) is not None and len(self._heap) > (
            2 * len(self._leases) + _SLACK
        ):
            self._heap = [entry for entry in self._heap if self._is_queued(entry)]
            heapq.heapify(self._heap)

    def runs(self, name: Name) -> bool:
        """Whether there is such a lease, and it is not over."""
        lease = self._leases.get(name)
        return lease is not None and not lease.over

    def next_due(self) -> float:
        """Return the running time at which to ask `due` again: never late, maybe early."""
        return self._heap[0][0] if self._heap else float("inf")

    def due(self, now: float) -> list[Name]:
        """Return whose time is up unless a look at the file says otherwise.

        Each must then be given to `renew` or to `settle`, or it never comes up again.
        """
        names: list[Name] = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if not self._is_queued(entry):
                continue
            lease = self._leases[entry[2]]
            lease.queued_for = None
            if lease.over:
                continue
            if lease.renewed_at + lease.seconds <= now:
                names.append(entry[2])
            else:
                self._queue(entry[2], lease)
        return names

    def settle(self, name: Name, seen: Seen, now: float) -> bool:
        """Take in what a look at a file that was due found; return whether its lease is over.

        It is where the file was not touched, or is not there. Where nobody could look, it comes up
        again with the next `due`.
        """
        lease = self._leases.get(name)
        if lease is None:
            return False
        if seen is None:
            self._queue(name, lease)
            return False
        if seen != "absent" and self.renew(name, seen, now):
            return False
        lease.over = lease.renewed_at + lease.seconds <= now
        self._queue(name, lease)
        return lease.over

    def _queue(self, name: Name, lease: _Lease) -> None:
        """See to it that the lease comes up no later than it runs out."""
        at = lease.renewed_at + lease.seconds
        if lease.over or (lease.queued_for is not None and lease.queued_for <= at):
            return
        lease.queued_for = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, name))

    def _is_queued(self, entry: tuple[float, int, Name]) -> bool:
        lease = self._leases.get(entry[2])
        return lease is not None and lease.queued_for == entry[0]
