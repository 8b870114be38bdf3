"""Leases at the liveness gate: renewed, run out, come back, torn."""

import asyncio
import os
import subprocess

import pytest

from discoveryd.core.batch import Sighting
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.verdict import Serves, Standing
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.life.leases import Seen
from tests.daemon.disk import card, until
from tests.daemon.living import FILE, NOW_NS, SECOND_NS, TORN, Gate, living

# Leases


async def test_a_card_without_liveness_passes_as_it_is(gate: Gate) -> None:
    found = parse_card(card("m"), stem="a")
    seen = [Sighting(file=FILE, found=found), Sighting(file="/b", found=TORN)]
    assert gate.liveness.judge(seen) == seen
    assert all(
        given is passed for given, passed in zip(seen, gate.liveness.judge(seen), strict=True)
    )


async def test_a_lease_that_is_not_renewed_runs_out_and_says_what_to_do(gate: Gate) -> None:
    gate.see(living(lease_seconds=10))
    await gate.pass_time(9.75)
    assert gate.rules() == []
    await gate.pass_time(0.5)
    assert gate.rules() == ["lease_expired"]
    (reason,) = gate.verdict().reasons
    assert FILE in reason.message
    assert "touch the file every 3.33 s" in reason.message
    assert reason.found == "2023-11-14T22:13:20.000Z"


async def test_touches_keep_a_card_alive_without_telling_anyone(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    for touch in range(20):
        await gate.pass_time(0.5)
        gate.touch(NOW_NS + touch + 1)
    assert gate.rules() == []
    assert gate.told == []
    assert gate.looks == 0


async def test_a_touch_that_nobody_announced_is_found_before_acting(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    await gate.pass_time(0.5)
    gate.touch(NOW_NS + 1, announced=False)
    await gate.pass_time(1.25)
    assert gate.rules() == []
    assert gate.looks == 1
    await gate.pass_time(1.0)
    assert gate.rules() == ["lease_expired"]


async def test_an_expired_card_comes_back_with_its_next_touch(gate: Gate) -> None:
    """B51."""
    gate.see(living(lease_seconds=1))
    await gate.pass_time(2)
    assert gate.rules() == ["lease_expired"]
    gate.touch(NOW_NS + 1)
    await gate.settle()
    assert gate.rules() == []


async def test_an_expired_card_comes_back_when_it_is_written_anew(gate: Gate) -> None:
    """B51."""
    gate.see(living(lease_seconds=1))
    await gate.pass_time(2)
    gate.see(card("m", liveness={"lease_seconds": 1}, aliases=["n"]), mtime_ns=NOW_NS + 1)
    assert gate.rules() == []
    assert gate.told[1:] == []


async def test_an_expired_card_blocks_nobody_holds_no_key_and_returns_behind_its_successor(
    gate: Gate,
) -> None:
    gate.see(living(lease_seconds=1))
    gate.see(card("m"), file="/cards/b.json")
    assert gate.verdict("/cards/b.json").standing is Standing.DUPLICATE
    await gate.pass_time(2)
    assert gate.rules() == ["lease_expired"]
    assert gate.verdict("/cards/b.json").standing is Standing.SERVING
    gate.touch(NOW_NS + 1)
    await gate.settle()
    assert gate.verdict().standing is Standing.DUPLICATE


async def test_a_file_that_is_stale_at_first_sight_never_serves(gate: Gate) -> None:
    """B53: ten years in the past."""
    gate.see(living(lease_seconds=10), mtime_ns=NOW_NS - 315_360_000 * SECOND_NS)
    assert gate.rules() == ["lease_expired"]
    gate.touch(NOW_NS - 315_360_000 * SECOND_NS + 1)
    await gate.settle()
    assert gate.rules() == []


@pytest.mark.parametrize("step_seconds", [3600, -3600])
async def test_a_stepped_wall_clock_neither_kills_nor_immortalises(
    gate: Gate, step_seconds: int
) -> None:
    """B53."""
    gate.see(living(lease_seconds=2))
    gate.see(card("left", liveness={"lease_seconds": 2}), file="/cards/left.json")
    await gate.pass_time(1)
    gate.wall_ns += step_seconds * SECOND_NS
    for touch in range(8):
        gate.touch(gate.wall_ns + touch)
        await gate.pass_time(0.5)
    assert gate.rules() == []
    assert gate.rules("/cards/left.json") == ["lease_expired"]
    assert len(gate.told) == 1


async def test_an_mtime_an_hour_ahead_lives_one_lease_longer_and_no_more(gate: Gate) -> None:
    """B53."""
    gate.see(living(lease_seconds=1), mtime_ns=NOW_NS + 3600 * SECOND_NS)
    await gate.pass_time(0.75)
    assert gate.rules() == []
    await gate.pass_time(0.5)
    assert gate.rules() == ["lease_expired"]


async def test_a_daemon_that_stood_still_for_a_minute_kills_nobody(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    await gate.pass_time(0.25)
    await gate.pass_time(60, at_once=True)
    assert gate.rules() == []
    # The workers stood still with it, and touch their files as soon as they run again.
    await gate.pass_time(0.25)
    gate.touch(NOW_NS + 1)
    await gate.pass_time(0.75)
    assert gate.rules() == []
    assert gate.told == []
    await gate.pass_time(0.5)
    assert gate.rules() == ["lease_expired"]


async def test_a_daemon_that_never_comes_on_time_judges_no_lease(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    for _ in range(20):
        await gate.pass_time(0.75, at_once=True)
    assert gate.rules() == []
    await gate.pass_time(0.25)
    assert gate.rules() == ["lease_expired"]


async def test_a_lease_whose_file_cannot_be_looked_at_is_not_over(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    gate.mtimes[FILE] = None
    await gate.pass_time(3)
    assert gate.rules() == []
    gate.mtimes[FILE] = NOW_NS
    await gate.pass_time(0.25)
    assert gate.rules() == ["lease_expired"]


async def test_a_lease_whose_file_is_gone_is_over(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    del gate.mtimes[FILE]
    await gate.pass_time(1.25)
    assert gate.rules() == ["lease_expired"]


async def test_a_directory_that_hangs_keeps_no_other_from_being_looked_at(gate: Gate) -> None:
    hung, released = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    plain = gate.look

    def look(file: str) -> Seen:
        if file.startswith("/hung/"):
            loop.call_soon_threadsafe(hung.set)
            asyncio.run_coroutine_threadsafe(released.wait(), loop).result(10)
        return plain(file)

    gate.liveness._renewals._look = look
    gate.see(living(lease_seconds=1), file="/hung/a.json")
    gate.see(card("n", liveness={"lease_seconds": 1}))
    gate.clock.seconds += 0.25
    for _ in range(5):
        gate.clock.seconds += 0.25
        gate.tick()
    await hung.wait()
    await until(lambda: gate.rules() == ["lease_expired"])
    assert gate.rules("/hung/a.json") == []
    released.set()
    await until(lambda: gate.rules("/hung/a.json") == ["lease_expired"])


async def test_a_file_that_is_gone_is_tracked_no_more(gate: Gate) -> None:
    """B57."""
    gate.see(living(lease_seconds=1, held=True, pid=os.getpid()))
    gate.see(None)
    assert not gate.liveness._lives
    assert len(gate.liveness._leases) == len(gate.liveness._processes) == 0
    await gate.pass_time(3)
    assert gate.told == []


async def test_a_card_that_asks_for_nothing_any_more_is_tracked_no_more(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    gate.see(card("m"))
    await gate.pass_time(3)
    assert gate.rules() == []
    assert not gate.liveness._lives


async def test_two_thousand_touches_cost_no_look_and_no_news(gate: Gate) -> None:
    files = [f"/cards/{number}.json" for number in range(500)]
    for number, file in enumerate(files):
        gate.see(card(f"m{number}", liveness={"lease_seconds": 1}), file=file)
    for turn in range(4):
        gate.liveness.touched([Touch(file, NOW_NS + turn + 1) for file in files])
        await gate.pass_time(0.75)
    assert gate.looks == 0
    assert gate.told == []
    assert len(gate.liveness._leases._heap) == len(files)


# Torn files


async def test_a_torn_file_whose_lease_runs_out_is_withdrawn_and_still_torn(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    gate.see(TORN, mtime_ns=NOW_NS + 1)
    assert (gate.verdict().standing, gate.verdict().serves) == (Standing.INVALID, Serves.PREVIOUS)
    await gate.pass_time(2)
    assert (gate.verdict().standing, gate.verdict().serves) == (Standing.INVALID, Serves.NOTHING)
    gate.touch(NOW_NS + 2)
    await gate.settle()
    assert (gate.verdict().standing, gate.verdict().serves) == (Standing.INVALID, Serves.PREVIOUS)


async def test_tearing_a_file_renews_its_lease(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    await gate.pass_time(0.75)
    gate.see(TORN, mtime_ns=NOW_NS + 1)
    await gate.pass_time(0.75)
    assert gate.verdict().serves is Serves.PREVIOUS


async def test_a_torn_file_that_holds_a_key_gives_it_up_when_it_dies(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    gate.see(living(pid=child.pid))
    gate.see(card("m"), file="/cards/b.json")
    gate.see(TORN)
    child.kill()
    await until(lambda: gate.verdict("/cards/b.json").standing is Standing.SERVING)
    assert gate.verdict().standing is Standing.INVALID
