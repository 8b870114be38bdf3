import time

import anyio
import pytest

from discoveryd.daemon.life import ticking
from discoveryd.daemon.life.holders import Holders
from discoveryd.daemon.life.leases import Leases, RunningTime
from discoveryd.daemon.life.processes import Process, Processes
from discoveryd.daemon.life.ticking import Ticking

TICK_SECONDS = 0.01


class _Stage:
    """A ticking whose ticks are counted, and what it ticks for."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.running = RunningTime(lambda: self.clock)
        self.leases: Leases[str] = Leases()
        self.holders = Holders(5.0)
        processes = Processes(_nobody)
        self.ticking = Ticking(self.running, self.leases, processes, self.holders)
        self.ticks = 0

    def tick(self) -> None:
        self.ticks += 1

    async def until_ticked(self, times: int) -> None:
        seen = self.ticks
        with anyio.fail_after(30):
            while self.ticks < seen + times:
                await anyio.sleep(TICK_SECONDS)

    async def rest(self) -> int:
        """Return how many ticks there are in the time of many."""
        seen = self.ticks
        await anyio.sleep(20 * TICK_SECONDS)
        return self.ticks - seen


def _nobody(_process: Process) -> None:
    """Heed no death."""


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> _Stage:
    monkeypatch.setattr(ticking, "TICK_SECONDS", TICK_SECONDS)
    return _Stage()


async def test_nothing_ticks_while_time_matters_to_nobody(stage: _Stage) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.ticking.run, stage.tick)
        assert await stage.rest() == 0
        tasks.cancel_scope.cancel()


async def test_a_lease_makes_it_tick_until_it_is_gone(stage: _Stage) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.ticking.run, stage.tick)
        await anyio.wait_all_tasks_blocked()
        stage.leases.grant("a.json", 10, time.time_ns(), stage.running.seconds)
        stage.ticking.go_on()
        await stage.until_ticked(3)
        stage.leases.drop("a.json")
        await stage.until_ticked(1)
        assert await stage.rest() == 0
        tasks.cancel_scope.cancel()


async def test_a_grace_makes_it_tick_from_the_beginning(stage: _Stage) -> None:
    stage.holders.grace("a.json")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.ticking.run, stage.tick)
        await stage.until_ticked(3)
        tasks.cancel_scope.cancel()


async def test_time_that_is_shared_is_counted_without_end(stage: _Stage) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.ticking.run, stage.tick)
        await anyio.wait_all_tasks_blocked()
        assert stage.ticking.shared() is stage.running
        await stage.until_ticked(3)
        tasks.cancel_scope.cancel()


async def test_who_comes_after_long_idleness_loses_no_time_by_it(stage: _Stage) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.ticking.run, stage.tick)
        await anyio.wait_all_tasks_blocked()
        stage.clock += 3600.0
        granted = stage.running.seconds
        stage.leases.grant("a.json", 10, time.time_ns(), granted)
        stage.ticking.go_on()
        await stage.until_ticked(1)
        assert stage.running.seconds == granted
        tasks.cancel_scope.cancel()
