"""What all peers together may make the daemon hold of their calls. One peer's bounds are elsewhere.

Theory
======

Each connection is bounded by itself: one call, and a read-ahead. Thousands of them are not, so what
they hold is added up. While the sum is over the limit,

- reads are small, so that however many peers send at once, little is added (`squeeze` is told, and
  again once enough has been answered);
- with each arrival the largest of those that are still read is *held back*: not read any more. Who
  holds no more than a fair share, the limit divided by how many there may be, never is. So peers
  with ordinary calls notice nothing;
- one of those held back at a time is *favoured*: read all the same, until something of it is
  answered, or until it has done nothing for a moment and another one waits. So large calls still
  get through, one after the other, even where all that is held are beginnings of calls, and most
  of these will never be finished. The last one held back is the first to be favoured, since those
  who stopped in the middle of a call are older than the one who still goes on. Each favour may add
  as much as a call, so there is some slack for that; where it is used up, whoever is favoured and
  does nothing has to go.

All are read again once enough has been answered. Where that does not come, those who have been held
back or favoured for too long are *overdue*, the longest first, and the server ends their
connections: they have stopped in the middle of a call, or ask behind a stream that never ends.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

TIGHT_READ = 4 * 1024
_RELIEF = 0.75
_IDLE_SECONDS = 0.1
_FAVOUR_SECONDS = 1.0
_SLACK = 0.125


class Source(Protocol):
    """One connection, as far as it matters here."""

    def hold_back(self) -> None:
        """Read no more until `let_on`."""
        ...

    def let_on(self) -> None:
        """Read again."""
        ...


class Intake:
    """Adds up what connections hold of unanswered calls, and holds them back.

    `limit` bytes over all of them and an eighth more, give or take one call, and a `share` and a
    small read of each. `squeeze` is called with whether reads are to be small, when that changes.
    One buffer serves all small reads, each of which is over before the next begins. `now` is the
    loop's time throughout.
    """

    def __init__(
        self, *, limit: int, share: int, squeeze: Callable[[bool], None] | None = None
    ) -> None:
        self.total = 0
        self.squeezed = False
        self.buffer = memoryview(bytearray(TIGHT_READ))
        self._squeeze = squeeze
        self._limit = limit
        self._share = share
        self._held: dict[Source, int] = {}
        self._large: set[Source] = set()
        self._since: dict[Source, float] = {}
        self._back: deque[Source] = deque()
        self._favoured: Source | None = None
        self._favoured_at = self._moved_at = 0.0
        self._answered: Source | None = None

    @property
    def tight(self) -> bool:
        """Whether the limit is exceeded."""
        return self.total > self._limit

    def was_read(self, count: int) -> bytes:
        """Return the bytes that were just read into the buffer."""
        return bytes(self.buffer[:count])

    def note(self, source: Source, held: int, now: float) -> None:
        """Take note that this one holds `held` bytes now."""
        before = self._held.get(source, 0)
        self.total += held - before
        if held:
            self._held[source] = held
        else:
            self._held.pop(source, None)
        if source is self._favoured:
            self._moved_at = now
            if held < before:
                self._set_free(source)
                self._answered = source
        self._sort_in(source)
        self._react(now)

    def forget(self, source: Source, now: float) -> None:
        """Take note that this one is gone, and what it held with it."""
        self.total -= self._held.pop(source, 0)
        self._large.discard(source)
        if source in self._since:
            self._set_free(source)
        if source is self._answered:
            self._answered = None
        self._react(now)

    def overdue(self, now: float, seconds: float) -> list[Source]:
        """Return those to end, for room, of those held back or favoured for that many seconds.

        Ask now and again: it also passes favour on where nobody sends anything.
        """
        self._react(now)
        ended: list[Source] = []
        left = self.total
        if self._favoured is not None and not self._slack and self._is_used_up(now):
            left -= self._held[self._favoured]
            ended.append(self._favoured)
        for source, since in self._since.items():
            if now - since < seconds or left <= self._limit * _RELIEF:
                break
            if source not in ended:
                left -= self._held.get(source, 0)
                ended.append(source)
        return ended

    @property
    def _slack(self) -> bool:
        return self.total <= self._limit * (1 + _SLACK)

    def _is_used_up(self, now: float) -> bool:
        """Whether whoever is favoured has had its time."""
        return now - self._moved_at >= _IDLE_SECONDS or now - self._favoured_at >= _FAVOUR_SECONDS

    def _react(self, now: float) -> None:
        if self.tight:
            self._set_squeezed(True)
            self._hold_back_largest(now)
        if self.total <= self._limit * _RELIEF:
            self._set_squeezed(False)
            self._let_all_on()
        elif self._back:
            self._pass_favour_on(now)

    def _set_squeezed(self, squeezed: bool) -> None:
        if squeezed != self.squeezed:
            self.squeezed = squeezed
            if self._squeeze is not None:
                self._squeeze(squeezed)

    def _sort_in(self, source: Source) -> None:
        if source not in self._since and self._held.get(source, 0) > self._share:
            self._large.add(source)
        else:
            self._large.discard(source)

    def _hold_back_largest(self, now: float) -> None:
        if self._large:
            largest = max(self._large, key=self._held.__getitem__)
            self._large.remove(largest)
            self._since[largest] = now
            if largest is self._answered:
                self._back.appendleft(largest)
            else:
                self._back.append(largest)
            largest.hold_back()

    def _pass_favour_on(self, now: float) -> None:
        before = self._favoured
        if before is not None:
            if not (self._slack and self._is_used_up(now)):
                return
            self._back.appendleft(before)
            before.hold_back()
        self._favoured = self._back.pop()
        self._favoured_at = self._moved_at = now
        self._favoured.let_on()

    def _set_free(self, source: Source) -> None:
        del self._since[source]
        if source is self._favoured:
            self._favoured = None
        else:
            self._back.remove(source)

    def _let_all_on(self) -> None:
        waiting, self._favoured = tuple(self._back), None
        free = tuple(self._since)
        self._back.clear()
        self._since.clear()
        for source in free:
            self._sort_in(source)
        for source in waiting:
            source.let_on()
