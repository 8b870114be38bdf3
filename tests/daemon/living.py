"""The liveness gate with clocks, looks and a sink of its own; processes are real ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio

from discoveryd.core.batch import Batch, Found, Invalid, Sighting
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Reason, Serves, Standing, Verdict
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.life.leases import TICK_SECONDS, RunningTime, Seen
from discoveryd.daemon.life.liveness import Liveness
from discoveryd.daemon.life.processes import Process, Processes
from tests.daemon.disk import card, until

SECOND_NS = 1_000_000_000
NOW_NS = 1_700_000_000 * SECOND_NS
FILE = "/cards/a.json"
TORN = Invalid((Reason(rule="not_json", message="torn"),))


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Tasks:
    """A task group that fixtures can hold."""

    def __init__(self) -> None:
        self._begun: set[asyncio.Task[None]] = set()

    def start_soon(
        self, work: Callable[..., Coroutine[None, None, None]], *arguments: object
    ) -> None:
        self._begun.add(asyncio.create_task(work(*arguments)))

    async def end(self) -> None:
        """Cancel what goes on; fail for what has failed."""
        begun, self._begun = self._begun, set()
        for task in begun:
            task.cancel()
        for ended in await asyncio.gather(*begun, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError), ended


class Gate:
    """A gate between files that are only told of and a registry, with its own clocks and disk.

    `mtimes` is what a look at a file finds; what is not in it is absent, None is unknown.
    """

    def __init__(self, *, most_pidfds: int | None = None) -> None:
        self.clock = Clock()
        self.wall_ns = NOW_NS
        self.mtimes: dict[str, Seen] = {}
        self.registry = Registry()
        self.told: list[Sequence[Sighting]] = []
        self.looks = 0
        self._most = most_pidfds
        self.liveness = self.make()
        self.tasks = Tasks()

    def make(self) -> Liveness:
        return Liveness(
            self.apply,
            running=RunningTime(self.clock),
            wall_ns=lambda: self.wall_ns,
            look=self.look,
            processes=self.make_processes,
        )

    def make_processes(self, ended: Callable[[Process], None]) -> Processes:
        return Processes(ended, most=self._most)

    def look(self, file: str) -> Seen:
        self.looks += 1
        return self.mtimes.get(file, "absent")

    async def apply(self, sightings: Sequence[Sighting]) -> None:
        self.told.append(sightings)
        self.registry.apply(Batch(sightings=tuple(sightings)))

    def see(
        self, found: Found | bytes, *, file: str = FILE, owner: int = 1000, mtime_ns: int = NOW_NS
    ) -> None:
        """Pass one sighting through, as a directory would."""
        if isinstance(found, bytes):
            found = parse_card(found, stem="a")
        if found is None:
            self.mtimes.pop(file, None)
        else:
            self.mtimes[file] = mtime_ns
        seen = Sighting(file=file, found=found, mtime_ns=mtime_ns, owner=owner)
        self.registry.apply(Batch(sightings=tuple(self.liveness.judge([seen]))))

    def touch(self, mtime_ns: int, *, file: str = FILE, announced: bool = True) -> None:
        self.mtimes[file] = mtime_ns
        if announced:
            self.liveness.touched([Touch(file, mtime_ns)])

    async def pass_time(self, seconds: float, *, at_once: bool = False) -> None:
        """Let the time go by in ticks, or in one that is late."""
        for _ in range(1 if at_once else round(seconds / TICK_SECONDS)):
            self.clock.seconds += seconds if at_once else TICK_SECONDS
            self.tick()
            await self.settle()

    def tick(self) -> None:
        self.liveness.tick(cast("anyio.abc.TaskGroup", self.tasks))

    async def settle(self) -> None:
        """Return when all looks have been taken and all that follows has been told."""
        await until(lambda: not self.liveness._renewals._looking)
        await anyio.wait_all_tasks_blocked()

    def verdict(self, file: str = FILE) -> Verdict:
        verdict = self.registry.verdict(file)
        assert verdict is not None
        return verdict

    def rules(self, file: str = FILE) -> list[str]:
        """Return why the card is expired; nothing where it serves."""
        verdict = self.verdict(file)
        expected = (Standing.EXPIRED, Serves.NOTHING)
        if not verdict.reasons:
            expected = (Standing.SERVING, Serves.CURRENT)
        assert (verdict.standing, verdict.serves) == expected
        return [reason.rule for reason in verdict.reasons]


@asynccontextmanager
async def telling(gate: Gate) -> AsyncIterator[None]:
    """Let the gate tell of deaths, but not tick: the tests do."""
    gate.tasks.start_soon(gate.liveness._tell_on)
    try:
        yield
    finally:
        gate.liveness.close()
        await gate.tasks.end()


def living(**liveness: object) -> bytes:
    return card("m", liveness=liveness)


class User:
    def __init__(self, uid: int) -> None:
        self.uid = uid


def restart(gate: Gate) -> None:
    """Begin with a new gate and what the old one's registry remembers."""
    gate.liveness.close()
    gate.told.clear()
    gate.liveness = gate.make()
    gate.liveness.restore(gate.registry.files)
