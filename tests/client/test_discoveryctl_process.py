"""discoveryctl as a program: its exit status, its pipes, its terminal, its signals."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence

import pytest

from tests.client import fakes
from tests.client.fakes import FakeDaemon

PROGRAM = (sys.executable, "-c", "from discoveryd.client.ctl.start import main; main()")
DEADLINE = 30


def environment(daemon: FakeDaemon | None) -> dict[str, str]:
    socket = "/nowhere/at/all" if daemon is None else daemon.path
    return {**os.environ, "DISCOVERYD_SOCKET": socket, "PYTHONPATH": os.getcwd()}  # noqa: PTH109


def ctl(daemon: FakeDaemon | None, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *args],
        env=environment(daemon),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_yes_is_0_and_all_output_is_there(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", fakes.resolution(workers=[fakes.worker(str(n)) for n in range(5000)]))
    found = ctl(daemon, "resolve", "--json", "llama")
    assert (found.returncode, found.stderr) == (0, "")
    assert len(json.loads(found.stdout)["workers"]) == 5000


def test_no_is_1(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", **fakes.no_such_model("x"))
    found = ctl(daemon, "resolve", "x")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("discoveryctl: nobody serves x\n")


def test_wrong_usage_is_2(daemon: FakeDaemon) -> None:
    assert ctl(daemon, "resolve").returncode == 2


def test_no_daemon_is_3() -> None:
    assert ctl(None, "list").returncode == 3


def test_timed_out_is_4(daemon: FakeDaemon) -> None:
    daemon.scripts = [fakes.stay_silent]
    assert ctl(daemon, "list", "--timeout", "0.1").returncode == 4


def test_a_reader_that_has_seen_enough_ends_it_quietly(daemon: FakeDaemon) -> None:
    served = {"names": [fakes.name(f"n{n}") for n in range(50_000)], "cursor": fakes.CURSOR}
    daemon.answer("List", served)
    daemon.answer("Explain", {"verdicts": [], "cursor": fakes.CURSOR})
    with subprocess.Popen(
        [*PROGRAM, "list"],
        env=environment(daemon),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(DEADLINE) == 0


def test_an_interrupted_watch_ends_quietly_with_130(daemon: FakeDaemon) -> None:
    def watch(connection: fakes.Connection) -> None:
        connection.recv(65536)
        going_on = {"parameters": fakes.watched(reset=True), "continues": True}
        connection.sendall(fakes.frame(going_on))
        fakes.stay_silent(connection)

    daemon.scripts = [watch]
    with subprocess.Popen(
        [*PROGRAM, "watch", "--json"],
        env=environment(daemon),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert json.loads(running.stdout.readline())["reset"], "a change is printed at once"
        running.send_signal(signal.SIGINT)
        assert running.wait(DEADLINE) == 130
        assert running.stderr.read().strip() == b""


def on_a_terminal(columns: int, daemon: FakeDaemon, args: Sequence[str]) -> list[str]:
    ours, its = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen(
            [*PROGRAM, *args], env=environment(daemon), stdout=its, stderr=its
        ) as running:
            os.close(its)
            shown = b""
            try:
                while data := screen.read(65536):
                    shown += data
            except OSError:
                # How Linux says that nobody holds the other end any more.
                pass
            running.wait(DEADLINE)
    return shown.decode().splitlines()


@pytest.mark.parametrize(("columns", "cut"), [(60, True), (200, False)])
def test_tables_fit_the_terminal(daemon: FakeDaemon, columns: int, cut: bool) -> None:
    key = f"default/{'x' * 60}/generate/1"
    daemon.answer("Resolve", fakes.resolution(workers=[fakes.worker(key=key)]))
    last = on_a_terminal(columns, daemon, ["resolve", "llama"])[-1]
    assert last.startswith("http://127.0.0.1:8001  aggregated  8192")
    assert last.endswith("x/generate/1")
    assert ("…" in last) == cut
    assert len(last) <= columns


def imported(daemon: FakeDaemon, *args: str) -> set[str]:
    """Return the modules that a run of discoveryctl has imported at its end."""
    told = "print(*sys.modules, file=sys.stderr)"
    code = f"import sys; from discoveryd.client.ctl.cli import run; run(sys.argv[1:]); {told}"
    return set(
        subprocess.run(
            [sys.executable, "-c", code, *args],
            env=environment(daemon),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        ).stderr.split()
    )


HEAVY = {
    *("anyio", "asyncio", "concurrent", "ctypes", "difflib", "email", "http", "json", "logging"),
    *("multiprocessing", "pathlib", "rich", "sqlite3", "ssl", "subprocess", "tempfile", "trio"),
    *("unittest", "urllib", "uvloop", "watchfiles", "discoveryd.daemon", "discoveryd.core.card"),
}


def test_resolve_imports_only_what_asking_takes(daemon: FakeDaemon) -> None:
    daemon.answer("Resolve", fakes.resolution())
    modules = imported(daemon, "resolve", "llama")
    assert "discoveryd.client.blocking" in modules
    assert not HEAVY & modules
    commands = {name for name in modules if name.startswith("discoveryd.client.ctl.commands.")}
    assert commands == {"discoveryd.client.ctl.commands.asking"}


def test_help_imports_no_command_and_nothing_that_asks(daemon: FakeDaemon) -> None:
    modules = imported(daemon, "--help")
    assert "discoveryd.client.ctl.group" in modules
    assert not (HEAVY | {"msgspec", "socket"}) & modules
    ours = {name for name in modules if name.startswith("discoveryd.")}
    assert ours == {
        *("discoveryd.client", "discoveryd.client.ctl"),
        *("discoveryd.client.ctl.cli", "discoveryd.client.ctl.group"),
        *("discoveryd.client.ctl.session", "discoveryd.core", "discoveryd.core.text"),
    }
