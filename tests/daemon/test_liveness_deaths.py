"""Processes and holds at the liveness gate, and what outlives the daemon."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import pytest

from discoveryd.core.batch import Barred, Change, Sighting
from discoveryd.core.entry import FileRecord
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.verdict import Reason, Serves, Standing
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.life.holds import Holds
from discoveryd.daemon.life.processes import own_pid_namespace, start_of
from discoveryd.daemon.writer import Writer
from discoveryd.varlink import PermissionDenied
from tests.daemon.disk import card, until
from tests.daemon.living import FILE, NOW_NS, SECOND_NS, TORN, Gate, User, living, restart, telling

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


class Files:
    """A directory that shows its file to the gate when it is looked at."""

    def __init__(self, gate: Gate, writer: Writer, content: bytes) -> None:
        self._gate, self._writer, self._content = gate, writer, content

    def files_named(self, file: str) -> list[str]:
        return [FILE, f"/elsewhere/{file}"]

    async def sync(self, files: Sequence[str] | None) -> None:
        assert files == ["a.json"]
        found = parse_card(self._content, stem="a")
        seen = Sighting(file=FILE, found=found, mtime_ns=NOW_NS, owner=1000)
        await self._writer.apply(self._gate.liveness.judge([seen]))


async def test_a_card_that_is_held_when_it_is_first_seen_was_never_expired(gate: Gate) -> None:
    writer = Writer("epoch", {})
    changes: list[Change] = []
    writer.listeners.append(changes.append)
    holds = Holds(writer, gate.liveness, Files(gate, writer, living(held=True)), 1 << 20)
    async with aclosing(holds.hold(["a.json"], 1000)) as told:
        (verdict,) = msgspec.json.decode(await anext(told))["verdicts"]
        assert (verdict["file"], verdict["standing"]) == (FILE, "serving")
        assert [list(change.judged) for change in changes] == [[FILE]]
        assert gate.liveness._holders._holders.keys() == {FILE}
    assert not gate.liveness._holders._holders


async def test_a_hold_of_another_users_file_keeps_nothing_alive_and_is_refused(gate: Gate) -> None:
    writer = Writer("epoch", {})
    holds = Holds(writer, gate.liveness, Files(gate, writer, living(held=True)), 1 << 20)
    with pytest.raises(PermissionDenied):
        await anext(holds.hold(["a.json"], 1001))
    verdict = writer.registry.verdict(FILE)
    assert verdict is not None
    assert verdict.standing is Standing.EXPIRED
    assert not gate.liveness._holders._holders


async def test_a_file_of_a_directory_that_comes_while_a_hold_begins_is_held_too(gate: Gate) -> None:
    class Growing(Files):
        followed = False

        def files_named(self, file: str) -> list[str]:
            return super().files_named(file) if self.followed else []

        async def sync(self, files: Sequence[str] | None) -> None:
            await super().sync(files)
            self.followed = True

    writer = Writer("epoch", {})
    gate.liveness._apply = writer.apply
    files = Growing(gate, writer, living(held=True))
    holds = Holds(writer, gate.liveness, files, 1 << 20)
    async with telling(gate), aclosing(holds.hold(["a.json"], 1000)) as told:
        (verdict,) = msgspec.json.decode(await anext(told))["verdicts"]
        assert (verdict["file"], verdict["standing"]) == (FILE, "serving")
        assert gate.liveness._holders._holders.keys() == {FILE}
    assert not gate.liveness._holders._holders


# Restarts


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
