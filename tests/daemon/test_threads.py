import asyncio
import gc
import threading
from collections.abc import Iterator

import anyio
import pytest

from discoveryd.daemon.threads import OwnThread
from tests.daemon.disk import until


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a call may hang at; opened at the end."""
    event = threading.Event()
    yield event
    event.set()


def alive(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


async def test_calls_are_made_one_after_another_in_one_thread_that_is_not_ours() -> None:
    own = OwnThread("calls")
    names = {await own.run(threading.get_ident) for _ in range(3)}
    assert len(names) == 1
    assert threading.get_ident() not in names
    own.end()
    await until(lambda: not alive("calls"))


async def test_what_a_call_raises_is_raised_and_the_next_is_made() -> None:
    own = OwnThread("raises")
    with pytest.raises(ZeroDivisionError):
        await own.run(lambda: 1 // 0)
    assert await own.run(lambda: 7) == 7
    own.end()


async def test_a_call_that_hangs_is_left_alone_and_the_next_has_another_thread(
    gate: threading.Event,
) -> None:
    own = OwnThread("hangs")
    with anyio.move_on_after(0.05) as patience:
        await own.run(gate.wait)
    assert patience.cancelled_caught
    assert await own.run(lambda: 7) == 7
    assert alive("hangs") == 2
    gate.set()
    await until(lambda: alive("hangs") == 1)
    own.end()


async def test_who_waits_behind_a_call_that_is_left_alone_does_not_hang_with_it(
    gate: threading.Event,
) -> None:
    own = OwnThread("behind")
    behind: list[int] = []

    async def wait_behind() -> None:
        # As the ledger's history is asked: nothing but an answer ends it.
        with anyio.CancelScope(shield=True):
            behind.append(await own.run(lambda: 7))

    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0.05):
            tasks.start_soon(wait_behind)
            await own.run(gate.wait)
        await until(lambda: behind == [7])
    assert not gate.is_set()
    own.end()


async def test_it_ends_when_told_and_may_be_begun_again() -> None:
    own = OwnThread("ends")
    own.end()
    first = await own.run(threading.current_thread)
    own.end()
    await until(lambda: not first.is_alive())
    assert await own.run(threading.current_thread) is not first
    own.end()


async def test_it_ends_with_whoever_had_it_and_keeps_nothing_of_a_call() -> None:
    own = OwnThread("kept")
    await own.run(int)
    gc.disable()
    try:
        del own
        await until(lambda: not alive("kept"))
    finally:
        gc.enable()


def test_it_survives_the_loop_it_began_on(gate: threading.Event) -> None:
    async def leave() -> None:
        with anyio.move_on_after(0.05):
            await OwnThread("survives").run(gate.wait)

    asyncio.run(leave())
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "survives":
            thread.join(10)
    assert not alive("survives")
