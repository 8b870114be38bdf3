"""Waking many who wait for the same thing, a few at a time.

Whoever is woken has work to do at once: two hundred watchers of a revision, woken together, keep
the loop from every other connection for as long as two hundred replies take. So a few are woken,
then everybody else gets a turn, then the next few.

Futures and timers of the loop's, and no cancel scopes: a thousand watchers are woken by one change,
and a scope for each would be half of what that costs.
"""

import asyncio

import anyio.lowlevel


class Sleepers:
    """Who sleeps until the next `wake`; at most `at_once` of them wake in one turn of the loop."""

    def __init__(self, at_once: int = 16) -> None:
        self._at_once = at_once
        self._sleeping: dict[asyncio.Future[bool], None] = {}

    async def sleep(self, seconds: float | None = None) -> bool:
        """Return True when woken; False after so many seconds, if they are given."""
        loop = asyncio.get_running_loop()
        sleeping: asyncio.Future[bool] = loop.create_future()
        self._sleeping[sleeping] = None
        late = None if seconds is None else loop.call_later(seconds, _settle, sleeping, False)
        try:
            return await sleeping
        finally:
            if late is not None:
                late.cancel()
            self._sleeping.pop(sleeping, None)

    async def wake(self) -> None:
        """Wake all who sleep now, whoever cancels this; return when the last of them are awake."""
        waking, self._sleeping = self._sleeping, {}
        for number, sleeping in enumerate(waking):
            if number and number % self._at_once == 0:
                await anyio.lowlevel.cancel_shielded_checkpoint()
            _settle(sleeping, True)


def _settle(sleeping: asyncio.Future[bool], woken: bool) -> None:
    if not sleeping.done():
        sleeping.set_result(woken)
