"""Real processes: found, told apart, and missed as soon as they end."""

import asyncio
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discoveryd.daemon.life import processes as processes_module
from discoveryd.daemon.life.processes import Process, Processes, own_pid_namespace, start_of
from tests.daemon.disk import until

Begin = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Give a function that begins a process which does nothing until it is ended."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(program: str | Path = "sleep") -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen([program, "600"]))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()


@pytest.fixture
def ended() -> list[int]:
    return []


@pytest.fixture
async def processes(ended: list[int]) -> Processes:
    return Processes(lambda process: ended.append(process.pid))


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().split()[2]


async def test_the_end_of_a_process_is_told_once(
    processes: Processes, ended: list[int], begin: Begin
) -> None:
    child = begin()
    assert processes.follow(child.pid, "/a") is not None
    child.kill()
    await until(lambda: bool(ended))
    await asyncio.sleep(0.05)
    assert ended == [child.pid]
    assert len(processes) == 0


async def test_a_zombie_is_gone(processes: Processes, ended: list[int], begin: Begin) -> None:
    child = begin()
    processes.follow(child.pid, "/a")
    child.kill()
    await until(lambda: bool(ended))
    # Only now is it reaped.
    assert state_of(child.pid) == "Z"
    assert processes.follow(child.pid, "/b") is None
    child.wait()
    assert processes.follow(child.pid, "/b") is None


async def test_cards_of_one_process_share_one_descriptor(
    processes: Processes, begin: Begin
) -> None:
    child = begin()
    before = open_descriptors()
    first = processes.follow(child.pid, "/a")
    assert first is not None
    assert processes.follow(child.pid, "/b") is first
    assert first.cards == {"/a", "/b"}
    assert open_descriptors() == before + 1
    processes.leave(first, "/a")
    assert open_descriptors() == before + 1
    processes.leave(first, "/b")
    assert open_descriptors() == before
    assert len(processes) == 0


async def test_the_start_time_tells_processes_apart(processes: Processes, begin: Begin) -> None:
    child = begin()
    process = processes.follow(child.pid, "/a")
    assert process is not None
    assert process.start == start_of(child.pid)
    own = start_of(os.getpid())
    assert own is not None
    assert process.start is not None
    assert process.start >= own
    processes.close()


async def test_a_name_with_parentheses_and_spaces_does_not_hide_the_start_time(
    processes: Processes, begin: Begin, tmp_path: Path
) -> None:
    program = tmp_path / "a) Z 1 ("
    program.symlink_to("/bin/sleep")
    child = begin(program)
    comm = Path(f"/proc/{child.pid}/comm")
    await until(lambda: comm.read_text().startswith("a) Z"))
    process = processes.follow(child.pid, "/a")
    assert process is not None
    assert process.start is not None
    assert process.start >= (start_of(os.getpid()) or 0)
    processes.close()


async def test_the_number_of_a_thread_is_no_process(processes: Processes) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert processes.follow(thread.native_id, "/a") is None
    finally:
        over.set()
        thread.join()


async def test_a_process_that_ends_unseen_is_noticed_when_it_is_asked_for(
    processes: Processes, ended: list[int], begin: Begin
) -> None:
    child = begin()
    processes.follow(child.pid, "/a")
    child.kill()
    child.wait()
    assert processes.follow(child.pid, "/b") is None
    assert ended == [child.pid]


async def test_without_descriptors_processes_are_looked_at_until_there_are_some(
    ended: list[int], begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = Processes(lambda process: ended.append(process.pid))

    def refuse(_pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    dying, living = begin(), begin()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        assert processes.follow(dying.pid, "/a") is not None
        assert processes.follow(living.pid, "/b") is not None
        assert processes.looked_at == 2
        processes.look()
        assert ended == []
        dying.send_signal(signal.SIGKILL)
        await until(lambda: state_of(dying.pid) == "Z")
        processes.look()
        assert ended == [dying.pid]
        assert processes.looked_at == 1
    processes.look()
    assert processes.looked_at == 0
    living.kill()
    await until(lambda: ended == [dying.pid, living.pid])


async def test_only_a_share_of_the_descriptors_goes_to_processes(
    ended: list[int], begin: Begin
) -> None:
    processes = Processes(lambda process: ended.append(process.pid), most=1)
    first, second = begin(), begin()
    one = processes.follow(first.pid, "/a")
    two = processes.follow(second.pid, "/b")
    assert one is not None
    assert two is not None
    assert one.fd is not None
    assert two.fd is None
    first.kill()
    await until(lambda: ended == [first.pid])
    processes.look()
    assert two.fd is not None
    processes.close()


async def test_a_number_that_was_given_away_unseen_is_noticed_by_its_start_time(
    ended: list[int], begin: Begin
) -> None:
    processes = Processes(lambda process: ended.append(process.pid), most=0)
    child = begin()
    process = processes.follow(child.pid, "/a")
    assert process is not None
    assert process.start is not None
    process.start -= 1
    processes.look()
    assert ended == [child.pid]


async def test_where_proc_hides_it_a_process_lives_as_long_as_it_can_be_signalled(
    ended: list[int], begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(_pid: int) -> None:
        return None

    monkeypatch.setattr(processes_module, "_stat_of", hidden)
    processes = Processes(lambda process: ended.append(process.pid), most=0)
    child = begin()
    process = processes.follow(child.pid, "/a")
    assert isinstance(process, Process)
    assert process.start is None
    processes.look()
    assert ended == []
    child.kill()
    child.wait()
    processes.look()
    assert ended == [child.pid]


async def test_closing_gives_all_descriptors_back(processes: Processes, begin: Begin) -> None:
    before = open_descriptors()
    for number in range(3):
        processes.follow(begin().pid, f"/{number}")
    processes.close()
    assert open_descriptors() == before


def test_the_own_pid_namespace_is_the_inode_that_others_see() -> None:
    assert own_pid_namespace() == Path("/proc/self/ns/pid").stat().st_ino
