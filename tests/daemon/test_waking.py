"""Many who wait are woken a few at a time, and nobody is left asleep."""

from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest

from discoveryd.daemon.waking import Sleepers


async def test_others_get_a_turn_between_a_few_and_the_next() -> None:
    sleepers = Sleepers(at_once=3)
    awake: list[int] = []

    async def sleep(number: int) -> None:
        await sleepers.sleep()
        awake.append(number)

    seen: list[int] = []
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(sleep, number)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(sleepers.wake)
        while len(awake) < 8:
            await anyio.lowlevel.checkpoint()
            seen.append(len(awake))
    assert awake == list(range(8))
    assert all(after - before <= 3 for before, after in pairwise(seen))


async def test_who_falls_asleep_during_a_wake_is_woken_by_the_next() -> None:
    sleepers = Sleepers(at_once=1)
    woken = 0

    async def sleep_twice() -> None:
        nonlocal woken
        for _ in range(2):
            await sleepers.sleep()
            woken += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(sleep_twice)
        await anyio.wait_all_tasks_blocked()
        await sleepers.wake()
        await anyio.wait_all_tasks_blocked()
        assert woken == 3
        await sleepers.wake()
    assert woken == 6


async def test_all_are_woken_even_if_whoever_wakes_them_is_cancelled() -> None:
    sleepers = Sleepers(at_once=1)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(sleepers.sleep)
            await anyio.wait_all_tasks_blocked()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await sleepers.wake()


@pytest.mark.parametrize("at_once", [1, 4])
async def test_who_gives_up_costs_nothing_any_more(at_once: int) -> None:
    sleepers = Sleepers(at_once)
    for _ in range(10):
        with anyio.move_on_after(0):
            await sleepers.sleep()
    assert not sleepers._sleeping


async def test_sleep_says_whether_it_was_woken_or_has_waited_long_enough() -> None:
    sleepers = Sleepers()
    woken: list[bool] = []

    async def sleep(seconds: float) -> None:
        woken.append(await sleepers.sleep(seconds))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep, 600.0)
        await sleep(0.0)
        await sleepers.wake()
    assert woken == [False, True]
    assert not sleepers._sleeping
