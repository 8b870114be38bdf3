"""The liveness gate with clocks, looks and a sink of its own; processes are real ones."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

from discoveryd.core.batch import Barred, Batch, Found, Invalid, Sighting
from discoveryd.core.entry import FileRecord
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Reason, Serves, Standing, Verdict
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.life.leases import TICK_SECONDS, RunningTime, Seen
from discoveryd.daemon.life.liveness import Liveness
from discoveryd.daemon.life.processes import Process, Processes, own_pid_namespace, start_of
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


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    async with telling(gate):
        yield gate


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def living(**liveness: object) -> bytes:
    return card("m", liveness=liveness)


class User:
    def __init__(self, uid: int) -> None:
        self.uid = uid


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


# Processes


async def test_a_card_dies_with_its_process(gate: Gate, child: subprocess.Popen[bytes]) -> None:
    gate.see(living(pid=child.pid, pid_start=start_of(child.pid)))
    assert gate.rules() == []
    child.kill()
    await until(lambda: gate.rules() == ["process_gone"])
    (reason,) = gate.verdict().reasons
    assert str(child.pid) in reason.message
    assert FILE in reason.message


async def test_all_cards_of_a_process_die_in_one_batch(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    for number in range(5):
        members = {"liveness": {"pid": child.pid}}
        gate.see(card(f"m{number}", **members), file=f"/cards/{number}.json")
    child.kill()
    await until(lambda: bool(gate.told))
    assert [len(batch) for batch in gate.told] == [5]


async def test_a_number_with_another_start_time_is_another_process(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    """B52."""
    start = start_of(child.pid)
    assert start is not None
    gate.see(living(pid=child.pid, pid_start=start - 1))
    assert gate.rules() == ["process_gone"]
    (reason,) = gate.verdict().reasons
    assert (reason.found, reason.expected) == (str(start), str(start - 1))
    assert reason.field == "$.liveness.pid_start"
    assert len(gate.liveness._processes) == 0


async def test_a_number_that_nobody_has_is_gone(gate: Gate, child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    gate.see(living(pid=child.pid))
    assert gate.rules() == ["process_gone"]


async def test_a_process_in_another_namespace_is_unknown_with_a_warning(gate: Gate) -> None:
    """B52."""
    namespace = own_pid_namespace()
    assert namespace is not None
    gate.see(living(pid=4_000_000, pid_namespace=namespace + 1))
    assert gate.rules() == []
    (warning,) = gate.verdict().warnings
    assert str(namespace + 1) in warning
    assert "unknown" in warning
    gate.see(living(pid=os.getpid(), pid_namespace=namespace))
    assert gate.rules() == []
    assert gate.verdict().warnings == ()


async def test_an_edit_keeps_the_process_and_one_descriptor(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    gate.see(living(pid=child.pid))
    (life,) = gate.liveness._lives.values()
    process = life.process
    gate.see(card("m", aliases=["n"], liveness={"pid": child.pid}))
    assert life.process is process
    assert len(gate.liveness._processes) == 1
    child.kill()
    await until(lambda: gate.rules() == ["process_gone"])


async def test_an_edit_to_another_process_leaves_the_first(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    gate.see(living(pid=child.pid))
    gate.see(living(pid=os.getpid()))
    child.kill()
    child.wait()
    await gate.settle()
    assert gate.rules() == []
    assert len(gate.liveness._processes) == 1


async def test_a_dead_process_stays_dead_until_the_file_is_written_anew(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    """B52: the number is given to another process, and somebody goes on renewing the lease."""
    gate.see(living(pid=child.pid, lease_seconds=60))
    child.kill()
    await until(lambda: gate.rules() == ["process_gone"])
    (life,) = gate.liveness._lives.values()
    life.wanted = type(life.wanted)(lease_seconds=60, pid=os.getpid())
    gate.touch(NOW_NS + 1)
    await gate.settle()
    assert gate.rules() == ["process_gone"]
    gate.liveness.touched([Touch(FILE, NOW_NS + 2, replaced=True)])
    await gate.settle()
    assert gate.rules() == []


async def test_without_descriptors_a_death_is_noticed_later_and_the_status_says_so(
    child: subprocess.Popen[bytes],
) -> None:
    gate = Gate(most_pidfds=0)
    async with telling(gate):
        gate.see(living(pid=child.pid))
        (problem,) = gate.liveness.problems()
        assert "LimitNOFILE" in problem
        child.kill()
        child.wait()
        await gate.settle()
        assert gate.rules() == []
        await gate.pass_time(1)
        assert gate.rules() == ["process_gone"]
        assert gate.liveness.problems() == []


# Holds


async def test_a_card_that_wants_to_be_held_is_expired_until_it_is(gate: Gate) -> None:
    gate.see(living(held=True))
    assert gate.rules() == ["not_held"]
    await gate.liveness.hold(User(1000), [FILE])
    assert gate.rules() == []


async def test_the_last_of_several_holders_ends_it(gate: Gate) -> None:
    gate.see(living(held=True))
    one, two = User(1000), User(0)
    await gate.liveness.hold(one, [FILE])
    await gate.liveness.hold(two, [FILE])
    gate.liveness.release(one, [FILE])
    await gate.settle()
    assert gate.rules() == []
    gate.liveness.release(two, [FILE])
    await gate.settle()
    assert gate.rules() == ["not_held"]
    assert "since 2023-11-14T22:13:20.000Z" in gate.verdict().reasons[0].message


async def test_a_hold_survives_edits_and_the_file_being_made_again(gate: Gate) -> None:
    gate.see(living(held=True))
    await gate.liveness.hold(User(1000), [FILE])
    gate.see(card("m", aliases=["n"], liveness={"held": True}))
    assert gate.rules() == []
    gate.see(None)
    gate.see(living(held=True))
    assert gate.rules() == []


async def test_a_hold_of_another_user_does_not_count(gate: Gate) -> None:
    gate.see(living(held=True), owner=1000)
    await gate.liveness.hold(User(1000), [FILE])
    gate.see(living(held=True), owner=1001)
    assert gate.rules() == ["not_held"]
    gate.see(living(held=True), owner=1000)
    assert gate.rules() == []


async def test_all_that_are_given_must_hold(gate: Gate, child: subprocess.Popen[bytes]) -> None:
    user = User(1000)
    gate.see(living(held=True, pid=child.pid, lease_seconds=1))
    assert gate.rules() == ["not_held"]
    await gate.liveness.hold(user, [FILE])
    assert gate.rules() == []
    await gate.pass_time(1.25)
    assert gate.rules() == ["lease_expired"]
    child.kill()
    await until(lambda: len(gate.rules()) == 2)
    gate.liveness.release(user, [FILE])
    await gate.settle()
    assert gate.rules() == ["lease_expired", "process_gone", "not_held"]


async def test_nobody_dies_of_the_daemons_own_end(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    user = User(1000)
    gate.see(living(held=True, pid=child.pid))
    await gate.liveness.hold(user, [FILE])
    gate.liveness.close()
    gate.liveness.release(user, [FILE])
    child.kill()
    child.wait()
    await gate.settle()
    assert gate.rules() == []


# Restarts


def restart(gate: Gate) -> None:
    """Begin with a new gate and what the old one's registry remembers."""
    gate.liveness.close()
    gate.told.clear()
    gate.liveness = gate.make()
    gate.liveness.restore(gate.registry.files)


async def test_who_was_held_has_five_seconds_from_listening_to_come_back(gate: Gate) -> None:
    user = User(1000)
    gate.see(living(held=True))
    await gate.liveness.hold(user, [FILE])
    gate.see(card("n", liveness={"held": True}), file="/cards/dead.json")
    restart(gate)
    async with telling(gate):
        gate.see(living(held=True))
        gate.see(card("n", liveness={"held": True}), file="/cards/dead.json")
        assert gate.rules() == []
        assert gate.rules("/cards/dead.json") == ["not_held"]
        await gate.pass_time(10)
        assert gate.rules() == []
        gate.liveness.listening()
        await gate.pass_time(4.75)
        assert gate.rules() == []
        await gate.pass_time(0.5)
        assert gate.rules() == ["not_held"]
        await gate.liveness.hold(user, [FILE])
        assert gate.rules() == []


async def test_who_came_back_in_time_stays(gate: Gate) -> None:
    gate.see(living(held=True))
    await gate.liveness.hold(User(1000), [FILE])
    restart(gate)
    async with telling(gate):
        gate.liveness.listening()
        gate.see(living(held=True))
        await gate.liveness.hold(User(1000), [FILE])
        await gate.pass_time(10)
        assert gate.rules() == []
        assert gate.told == []


async def test_who_was_dead_stays_dead_unless_the_file_has_changed(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    """An expired lease with an mtime ahead, and a process whose number is in use again."""
    ahead = NOW_NS + 3600 * SECOND_NS
    gate.see(living(lease_seconds=1), mtime_ns=ahead)
    gate.see(card("n", liveness={"pid": child.pid}), file="/cards/n.json")
    await gate.pass_time(2)
    child.kill()
    await until(lambda: gate.rules("/cards/n.json") == ["process_gone"])
    given_away = {"pid": os.getpid()}
    gate.see(card("n", liveness=given_away), file="/cards/n.json", mtime_ns=NOW_NS)
    record = gate.registry.files.get("/cards/n.json")
    assert record is not None
    remembered = FileRecord("/cards/n.json")
    remembered.card, remembered.mtime_ns = record.card, NOW_NS
    remembered.barred = Barred(
        parse_card(card("n", liveness=given_away), stem="n"),
        Standing.EXPIRED,
        (Reason(rule="process_gone", message="gone"),),
    )
    files = [file for file in gate.registry.files if file.file != "/cards/n.json"]
    gate.liveness.close()
    gate.liveness = gate.make()
    gate.liveness.restore([*files, remembered])
    async with telling(gate):
        gate.see(living(lease_seconds=1), mtime_ns=ahead)
        gate.see(card("n", liveness=given_away), file="/cards/n.json", mtime_ns=NOW_NS)
        assert gate.rules() == ["lease_expired"]
        assert gate.rules("/cards/n.json") == ["process_gone"]
        gate.touch(ahead + 1)
        gate.touch(NOW_NS + 1, file="/cards/n.json")
        await gate.settle()
        assert gate.rules() == gate.rules("/cards/n.json") == []


async def test_the_process_observed_before_the_restart_is_the_one_that_counts(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    """B52: the number was given away while the daemon was down."""
    gate.see(living(pid=child.pid))
    record = gate.registry.files.get(FILE)
    assert record is not None
    assert record.observed == start_of(child.pid)
    assert record.observed is not None
    record.observed -= 1
    restart(gate)
    async with telling(gate):
        gate.see(living(pid=child.pid))
        assert gate.rules() == ["process_gone"]
        # Written anew, it means whoever has the number now.
        gate.see(living(pid=child.pid), mtime_ns=NOW_NS + 1)
        assert gate.rules() == []


async def test_who_lived_and_died_while_the_daemon_was_down_is_expired_at_the_first_sight(
    gate: Gate, child: subprocess.Popen[bytes]
) -> None:
    gate.see(living(pid=child.pid, lease_seconds=60))
    restart(gate)
    child.kill()
    child.wait()
    gate.wall_ns += 3600 * SECOND_NS
    async with telling(gate):
        gate.see(living(pid=child.pid, lease_seconds=60))
        await until(lambda: gate.rules() == ["lease_expired", "process_gone"])


async def test_a_torn_file_goes_on_with_its_life_after_a_restart(gate: Gate) -> None:
    gate.see(living(lease_seconds=1))
    gate.see(TORN, mtime_ns=NOW_NS + 1)
    restart(gate)
    async with telling(gate):
        gate.see(TORN, mtime_ns=NOW_NS + 1)
        assert gate.verdict().serves is Serves.PREVIOUS
        await gate.pass_time(2)
        assert gate.verdict().serves is Serves.NOTHING
        assert gate.verdict().standing is Standing.INVALID
