"""The process that forks the daemons of tests: whoever ends how, nobody is left behind."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from discoveryd.client.testing import DaemonFailed, LocalDaemon
from discoveryd.client.testing.mother import Mother
from discoveryd.core.places import SOCKET_PATH_LIMIT
from tests.system.running import PROMPT_SECONDS, short_directory, until

STARTER = """
import os, signal
from discoveryd.client.testing import LocalDaemon
from discoveryd.client.testing.mother import Mother

mother = Mother()
daemons = [LocalDaemon(mother, {}) for _ in range(2)]
for daemon in daemons:
    daemon.start()
if FORKS and (child := os.fork()) == 0:
    signal.pause()
print(mother.directory, child if FORKS else 0, mother.pid, *(d.pid for d in daemons), flush=True)
signal.pause()
"""


class Watched:
    """Processes of others: whether they have ended, whoever reaps them, if anybody does."""

    def __init__(self, ends: ExitStack, *pids: int) -> None:
        self._processes = [os.pidfd_open(pid) for pid in pids]
        for process in self._processes:
            ends.callback(os.close, process)

    def ended(self) -> bool:
        """Whether all of them have."""
        return all(select.select([each], [], [], 0)[0] for each in self._processes)


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as ends:
        yield ends


@pytest.fixture
def mother() -> Iterator[Mother]:
    with Mother() as mother:
        yield mother


def started(mother: Mother, config: Mapping[str, object] | None = None) -> LocalDaemon:
    daemon = LocalDaemon(mother, config or {})
    daemon.start()
    return daemon


def files(pid: int) -> set[str]:
    """Return what a process has open, as the kernel names it."""
    return {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


def test_it_has_one_thread_since_a_fork_copies_one(mother: Mother) -> None:
    with started(mother):
        assert len(list(Path(f"/proc/{mother.pid}/task").iterdir())) == 1


def test_a_daemon_has_nothing_open_that_is_the_mothers(mother: Mother) -> None:
    with started(mother) as daemon:
        mothers = {name for name in files(mother.pid) if name.startswith(("pipe:", "/"))}
        assert len(mothers) > 1
        assert not mothers & files(daemon.pid)


def test_ctrl_c_at_the_terminal_reaches_neither(mother: Mother) -> None:
    with started(mother) as daemon:
        assert os.getsid(mother.pid) == os.getsid(daemon.pid) == mother.pid
        assert os.getsid(mother.pid) != os.getsid(0)


def test_closing_it_ends_what_is_left_and_removes_the_directory(ends: ExitStack) -> None:
    with Mother() as mother:
        daemon = started(mother)
        watched = Watched(ends, mother.pid, daemon.pid)
        assert not watched.ended()
    assert watched.ended()
    assert not mother.directory.exists()
    daemon.client.close()


@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a forked child"])
def test_when_the_tests_process_is_killed_everything_goes(forks: bool, ends: ExitStack) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER.replace("FORKS", str(forks))], stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        directory, child, *pids = starter.stdout.readline().decode().split()
        if forks:
            # It keeps the pipe to the mother open.
            ends.callback(os.kill, int(child), signal.SIGKILL)
        watched = Watched(ends, *map(int, pids))
        assert not watched.ended()
        starter.kill()
        until(watched.ended, "the mother and the daemons have ended")
        until(lambda: not Path(directory).exists(), "the directory is gone")


def test_when_the_mother_is_killed_the_daemons_go_and_the_next_one_says_why(
    mother: Mother, ends: ExitStack
) -> None:
    daemon = started(mother)
    watched = Watched(ends, daemon.pid)
    os.kill(mother.pid, signal.SIGKILL)
    until(watched.ended, "the daemon has ended")
    with pytest.raises(DaemonFailed, match="starts daemons for tests has ended"):
        started(mother)
    daemon.client.close()


def test_what_the_mother_could_not_do_is_told_and_it_goes_on(mother: Mother) -> None:
    with pytest.raises(DaemonFailed, match="No child processes"):
        mother.reap(os.getpid())
    with started(mother) as daemon:
        assert daemon.client.list().names == ()


def test_a_mother_that_cannot_run_says_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with short_directory() as directory:
        (directory / "sitecustomize.py").write_text("raise SystemExit('no interpreter today')")
        monkeypatch.setenv("PYTHONPATH", str(directory))
        with Mother() as mother, pytest.raises(DaemonFailed, match="no interpreter today"):
            started(mother)


def test_sockets_have_room_however_long_the_temporary_directory_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * SOCKET_PATH_LIMIT)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with Mother() as mother, started(mother) as daemon:
        assert daemon.client.list().names == ()
        assert len(daemon.socket) < SOCKET_PATH_LIMIT


def test_daemons_may_be_many_at_once(mother: Mother, ends: ExitStack) -> None:
    daemons = [ends.enter_context(started(mother)) for _ in range(10)]
    assert len({daemon.pid for daemon in daemons}) == len(daemons)
    for number, daemon in enumerate(daemons):
        daemon.drop({"display_name": f"model-{number}"})
        assert [line.name for line in daemon.client.list().names] == [f"model-{number}"]


def test_a_daemon_that_does_not_end_is_killed_and_told(
    mother: Mother, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discoveryd.client.testing.mother._END_SECONDS", 0.1)
    daemon = started(mother)
    os.kill(daemon.pid, signal.SIGSTOP)
    with pytest.raises(DaemonFailed, match="and was killed"):
        daemon.close()


def test_a_daemon_that_does_not_come_is_killed_and_told(
    mother: Mother, monkeypatch: pytest.MonkeyPatch, ends: ExitStack
) -> None:
    monkeypatch.setattr("discoveryd.client.testing.local._START_SECONDS", 0.1)
    fork = mother.fork
    watched: list[Watched] = []

    def fork_and_stop(flags: list[str], log: Path) -> object:
        forked = fork(flags, log)
        forked.send(signal.SIGSTOP)
        watched.append(Watched(ends, forked.pid))
        return forked

    monkeypatch.setattr(mother, "fork", fork_and_stop)
    with pytest.raises(DaemonFailed, match="did not answer in 0 s"):
        started(mother)
    until(watched[0].ended, "the daemon has ended", PROMPT_SECONDS)
