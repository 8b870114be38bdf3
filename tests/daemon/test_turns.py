"""One at a time for each user, in order; the others do not wait."""

import asyncio

from discoveryd.daemon.socket.turns import Turns
from tests.daemon.stage import until

ANN, BOB = 1001, 1002


async def test_one_user_has_one_turn_at_a_time_in_order_and_others_have_theirs() -> None:
    turns = Turns()
    gate = asyncio.Event()
    began: list[str] = []

    async def take(uid: int, name: str) -> None:
        async with turns.of(uid):
            began.append(name)
            await gate.wait()

    async with asyncio.TaskGroup() as tasks:
        for uid, name in ((ANN, "a1"), (ANN, "a2"), (BOB, "b1"), (ANN, "a3")):
            tasks.create_task(take(uid, name))
        await until(lambda: len(began) == 2)
        assert began == ["a1", "b1"]
        gate.set()
    assert began == ["a1", "b1", "a2", "a3"]


async def test_who_gives_up_waiting_does_not_hold_the_others_up() -> None:
    turns = Turns()
    began: list[str] = []

    async def take(name: str) -> None:
        async with turns.of(ANN):
            began.append(name)

    async with turns.of(ANN):
        waiting = [asyncio.create_task(take(name)) for name in ("left", "stayed")]
        await asyncio.sleep(0)
        waiting[0].cancel()
    await asyncio.wait(waiting)
    assert began == ["stayed"]


async def test_nothing_is_kept_of_users_without_a_turn() -> None:
    turns = Turns()
    for uid in range(100):
        async with turns.of(uid):
            pass
    assert len(turns._locks) == 0
