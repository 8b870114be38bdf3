"""One daemon for one socket: who gets it, who gives way, what it looks like, and that it stays."""

import functools
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from discoveryd.client import ConnectionLost
from tests.system.conftest import Start
from tests.system.dropping import GOOD, write
from tests.system.raw import Raw
from tests.system.running import REPOSITORY, Daemon, environment, until

DAEMON = (sys.executable, "-m", "discoveryd", "serve")


def begin(arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DAEMON, *arguments],
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def umask(mask: str) -> list[str]:
    """Return the command that starts a daemon under a umask."""
    return ["sh", "-c", f'umask {mask}; exec "$@"', "sh"]


# Who gets it


def test_of_ten_that_start_at_once_one_serves_and_nine_say_why_not(root: Path) -> None:
    """B87."""
    cards = root / "cards"
    cards.mkdir()
    write(cards / "good.json", GOOD)
    place = root / "s"
    arguments = ["--cards", str(cards), "--socket", str(place), "--log-level", "error"]
    daemons = [begin(arguments) for _ in range(10)]
    try:
        until(lambda: sum(d.poll() is None for d in daemons) == 1, "nine have given up", 40.0)
        [winner] = [daemon for daemon in daemons if daemon.poll() is None]
        for daemon in daemons:
            if daemon is not winner:
                _, said = daemon.communicate()
                assert daemon.returncode == 1
                [line] = said.splitlines()
                assert str(place) in line
                assert "--socket" in line
        until(place.exists, "the winner serves")
        with Raw(place) as raw:
            assert raw.ask("Resolve", {"name": "good"})["parameters"]["workers"]
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.communicate(timeout=20)
    assert winner.returncode == 0
    assert not place.exists()


def test_after_a_kill_the_next_one_starts_at_once(root: Path, start: Start) -> None:
    """B87: nobody waits for the kernel to be through with the one that was killed."""
    (root / "cards").mkdir()
    write(root / "cards/good.json", GOOD)
    daemon = start().wait_ready()
    for _ in range(3):
        daemon.process.kill()
        successor = start()
        daemon.process.wait()
        until(functools.partial(serves, successor), "the successor serves")
        daemon = successor
    with daemon.client() as client:
        assert client.resolve("good").workers


def serves(daemon: Daemon) -> bool:
    """Whether it is this daemon that accepts at its socket, and not one before it."""
    assert daemon.process.poll() is None, daemon.log
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(daemon.socket)) != 0:
            return False
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("iII", credentials)[0]
    return pid == daemon.process.pid


def test_a_second_daemon_does_no_harm_even_if_the_lock_is_gone(root: Path, start: Start) -> None:
    (root / "cards").mkdir()
    write(root / "cards/good.json", GOOD)
    first = start().wait_ready()
    (root / ".s.lock").unlink()
    second = begin(first.usual_arguments())
    _, said = second.communicate(timeout=30)
    assert second.returncode == 1
    assert str(first.socket) in said
    with first.client() as client:
        assert client.resolve("good").workers
    until((root / ".s.lock").exists, "the lock is there again")


@pytest.mark.parametrize("place", ["s" * 150, "模" * 40])
def test_a_path_that_is_too_long_is_refused_in_one_line(root: Path, place: str) -> None:
    """B90: bytes are counted, not characters."""
    long = str(root / place)
    daemon = begin(["--cards", str(root), "--socket", long])
    _, said = daemon.communicate(timeout=30)
    assert daemon.returncode == 1
    [line] = said.splitlines()
    assert f"{len(os.fsencode(long))} bytes" in line
    assert "107" in line


@pytest.mark.parametrize("place", ["missing/s", "/proc/discoveryd-test"])
def test_a_directory_that_cannot_hold_a_socket_is_refused_in_one_line(
    root: Path, place: str
) -> None:
    daemon = begin(["--cards", str(root), "--socket", str(root / place)])
    _, said = daemon.communicate(timeout=30)
    assert daemon.returncode == 1
    [line] = said.splitlines()
    assert str((root / place).parent) in line


# Who may connect


@pytest.mark.parametrize("mask", ["000", "077"])
@pytest.mark.parametrize(
    ("flags", "mode"),
    [([], 0o600), (["--socket-mode", "0666"], 0o666), (["--socket-mode", "640"], 0o640)],
)
def test_the_mode_is_as_asked_whatever_the_umask(
    root: Path, start: Start, mask: str, flags: list[str], mode: int
) -> None:
    """B89."""
    (root / "cards").mkdir()
    usual = ["--cards", str(root / "cards"), "--socket", str(root / "s")]
    daemon = start([*usual, *flags], prefix=umask(mask)).wait_ready()
    assert mode_of(daemon.socket) == mode
    assert mode_of(root / ".s.lock") == 0o600
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    assert f"Umask:\t0{mask}" in status


@pytest.mark.skipif(
    os.geteuid() != 0, reason="SOCKET GROUPS ARE NOT TESTED END TO END: that takes root"
)
def test_the_group_may_connect_and_others_may_not(root: Path, start: Start) -> None:
    """B89."""
    root.chmod(0o755)
    (root / "cards").mkdir()
    file = root / "config.toml"
    file.write_text('socket_group = "54321"\n')
    usual = ["--cards", str(root / "cards"), "--socket", str(root / "s"), "--config", str(file)]
    daemon = start(usual).wait_ready()
    assert mode_of(daemon.socket) == 0o660
    assert daemon.socket.stat().st_gid == 54321
    assert connects_as(daemon.socket, 65534, 54321)
    assert not connects_as(daemon.socket, 65534, 65534)


def connects_as(place: Path, uid: int, gid: int) -> bool:
    """Whether somebody else may connect: asked by a process of theirs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            with Raw(place) as raw:
                status = 0 if raw.ask("List")["parameters"] is not None else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--socket-mode", "rw"], "'rw' is no mode of a socket; write it like 0660"),
        (["--socket-mode", "4755"], "'4755' is no mode of a socket"),
        (["--socket-group", "no-such-group"], "there is no group 'no-such-group' on this host"),
    ],
)
def test_a_mode_or_group_that_is_none_is_a_usage_error(
    root: Path, flags: list[str], said: str
) -> None:
    daemon = begin(["--cards", str(root), "--socket", str(root / "s"), *flags])
    _, lines = daemon.communicate(timeout=30)
    assert daemon.returncode == 2
    assert said in lines


# That it stays


def test_a_removed_socket_is_there_again_and_connections_go_on(root: Path, start: Start) -> None:
    """B99."""
    (root / "cards").mkdir()
    write(root / "cards/good.json", GOOD)
    daemon = start().wait_ready()
    with Raw(daemon.socket) as raw, daemon.client() as client:
        watch = client.watch()
        next(watch)
        daemon.socket.unlink()
        until(daemon.accepts, "the socket is there again")
        assert mode_of(daemon.socket) == 0o600
        assert raw.ask("Resolve", {"name": "good"})["parameters"]["workers"]
        write(root / "cards/more.json", {"display_name": "more", "url": "http://127.0.0.1:2"})
        assert [worker.model for worker in next(watch).changed] == ["more"]
        with daemon.client() as late:
            assert late.resolve("more").workers
        daemon.stop()
        with pytest.raises(ConnectionLost):
            next(watch)
    assert not (root / ".s.lock").exists()


def test_a_replaced_directory_gets_the_socket_back(root: Path, start: Start) -> None:
    """B99."""
    place = root / "run"
    place.mkdir()
    (root / "cards").mkdir()
    arguments = ["--cards", str(root / "cards"), "--socket", str(place / "s")]
    daemon = start(arguments, at=place / "s").wait_ready()
    shutil.rmtree(place)
    until(lambda: "clients cannot connect any more" in daemon.log, "the loss is logged")
    place.mkdir()
    until(daemon.accepts, "the socket is there again")
    daemon.stop()
    assert list(place.iterdir()) == []


def test_what_was_put_in_the_sockets_place_stays_there(root: Path, start: Start) -> None:
    """B88, later: the daemon goes on for those who are connected."""
    (root / "cards").mkdir()
    daemon = start().wait_ready()
    with Raw(daemon.socket) as raw:
        daemon.socket.unlink()
        daemon.socket.write_text("mine")
        until(lambda: "is no socket: remove it" in daemon.log, "the loss is logged")
        assert raw.ask("List")["parameters"]["names"] == []
        daemon.socket.unlink()
        until(daemon.accepts, "the socket is there again")
