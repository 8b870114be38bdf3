"""Waking many who wait for the same thing, a few at a time.

Whoever is woken has work to do at once: two hundred watchers of a revision, woken together, keep
the loop from every other connection for as long as two hundred replies take. So a few are woken,
then everybody else gets a turn, then the next few.
"""

import anyio
import anyio.lowlevel


class _Few:
    __slots__ = ("event", "size")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.size = 0


class Sleepers:
    """Who sleeps until the next `wake`; at most `at_once` of them wake in one turn of the loop."""

    def __init__(self, at_once: int = 16) -> None:
        self._at_once = at_once
        self._sleeping: list[_Few] = []

    async def sleep(self) -> None:
        """Return when woken."""
        if not self._sleeping or self._sleeping[-1].size >= self._at_once:
            self._sleeping.append(_Few())
        few = self._sleeping[-1]
        few.size += 1
        try:
            await few.event.wait()
        finally:
            few.size -= 1
            if not few.size and few in self._sleeping:
                self._sleeping.remove(few)

    async def wake(self) -> None:
        """Wake all who sleep now, whoever cancels this; return when the last of them are awake."""
        waking, self._sleeping = self._sleeping, []
        for number, few in enumerate(waking):
            if number:
                await anyio.lowlevel.cancel_shielded_checkpoint()
            few.event.set()
