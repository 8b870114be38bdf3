"""Ticking for those to whom running time matters, and only while there are any.

Here lives when the loop ticks; what a tick does is liveness.py's. A host without leases, graces and
processes without descriptors needs no clock, and an idle daemon should not wake for one.

While nothing ticks, running time stands still, so nobody loses any by it: what begins then begins
at the time that stands, and the first tick, which is a late one, adds no more than any other.
"""

from collections.abc import Callable

import anyio

from discoveryd.daemon.life.holders import Holders
from discoveryd.daemon.life.leases import TICK_SECONDS, Leases, RunningTime
from discoveryd.daemon.life.processes import Processes


class Ticking:
    """Ticks while there is a lease, a grace, or a process to be looked at. Lives on the loop."""

    def __init__(
        self, running: RunningTime, leases: Leases[str], processes: Processes, holders: Holders
    ) -> None:
        self._running = running
        self._leases = leases
        self._processes = processes
        self._holders = holders
        self._shared = False
        self._needed = anyio.Event()

    def shared(self) -> RunningTime:
        """Return the running time for somebody else's use: it is counted without end from now."""
        self._shared = True
        self.go_on()
        return self._running

    def go_on(self) -> None:
        """Take note that there may be something now to which time matters."""
        self._needed.set()

    async def run(self, tick: Callable[[], None]) -> None:
        """Call `tick` as often as it should be, until cancelled."""
        while True:
            if not self._matters:
                self._needed = anyio.Event()
                await self._needed.wait()
                self._running.tick()
            await anyio.sleep(TICK_SECONDS)
            tick()

    @property
    def _matters(self) -> bool:
        return bool(
            self._shared or self._leases or self._processes.looked_at or self._holders.any_graced
        )
