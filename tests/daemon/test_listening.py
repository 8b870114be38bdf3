"""The daemon's socket in the file system: one owner, the right mode, nothing else touched."""

import array
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from discoveryd.daemon.errors import StartError
from discoveryd.daemon.listening import Listener, claim

SO_PASSRIGHTS = 83


@pytest.fixture
def path(socket_directory: Path) -> Path:
    return socket_directory / "io.discoveryd.Models"


@contextmanager
def claimed(path: Path, mode: int = 0o600) -> Iterator[Listener]:
    listener = claim(str(path), mode)
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(str(path)) == 0


def leave_dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_the_socket_appears_with_listen_and_not_before(path: Path) -> None:
    with claimed(path) as listener:
        assert not path.exists()
        listener.listen()
        assert connects(path)


def test_nothing_is_left_after_close(path: Path) -> None:
    with claimed(path) as listener:
        listener.listen()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_mode_is_right_from_birth(
    path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*_: object) -> None:
        pytest.fail("the mode was mended after birth")

    monkeypatch.setattr(Path, "chmod", unwanted)
    with umask(mask), claimed(path, 0o600) as listener:
        listener.listen()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_wider_mode_holds_whatever_the_umask(path: Path) -> None:
    with umask(0o077), claimed(path, 0o666) as listener:
        listener.listen()
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_a_dead_socket_is_taken_over(path: Path) -> None:
    leave_dead_socket(path)
    with claimed(path) as listener:
        listener.listen()
        assert connects(path)


def test_a_killed_daemon_bars_nobody(path: Path) -> None:
    program = (
        "import sys; from discoveryd.daemon.listening import claim\n"
        "claim(sys.argv[1]).listen(); print('there', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"there\n"
        with pytest.raises(StartError, match=f"another discoveryd .*process {daemon.pid}"):
            claim(str(path))
        daemon.kill()
    with claimed(path) as listener:
        listener.listen()
        assert connects(path)


def test_of_ten_that_claim_at_once_exactly_one_wins(path: Path) -> None:
    leave_dead_socket(path)
    start = Barrier(10)

    def attempt(_: int) -> Listener | str:
        start.wait()
        try:
            listener = claim(str(path))
        except StartError as error:
            return str(error)
        listener.listen()
        return listener

    with ThreadPoolExecutor(10) as pool:
        outcomes = list(pool.map(attempt, range(10)))
    [winner] = [outcome for outcome in outcomes if isinstance(outcome, Listener)]
    assert connects(path)
    winner.close()
    assert not path.exists()


def test_somebody_who_serves_without_a_lock_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(StartError, match="somebody is serving"):
            claim(str(path))
        assert connects(path)
    assert not (path.parent / f".{path.name}.lock").exists()


def test_whoever_came_between_claim_and_listen_is_left_alone(path: Path) -> None:
    with claimed(path) as listener, socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(StartError, match="somebody is serving"):
            listener.listen()
        assert connects(path)


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link", "link to a live socket"])
def test_what_is_no_socket_is_refused_and_left_alone(path: Path, kind: str) -> None:
    with socket.socket(socket.AF_UNIX) as live:
        if kind == "file":
            path.write_text("mine")
        elif kind == "directory":
            path.mkdir()
        else:
            target = path.with_name("live")
            if kind == "link to a live socket":
                live.bind(str(target))
                live.listen()
            path.symlink_to(target)
        before = path.lstat()
        with pytest.raises(StartError, match="exists and is no socket: remove it"):
            claim(str(path))
        assert path.lstat() == before


def test_close_removes_no_socket_but_its_own(path: Path) -> None:
    with claimed(path) as listener:
        listener.listen()
        path.unlink()
        leave_dead_socket(path)
    assert path.is_socket()


def test_a_removed_socket_does_not_disturb_close(path: Path) -> None:
    with claimed(path) as listener:
        listener.listen()
        path.unlink()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 150, "模" * 40])
def test_a_path_too_long_is_refused_with_its_length_and_the_limit(path: Path, name: str) -> None:
    long = path.with_name(name)
    with pytest.raises(StartError, match=rf"has {len(os.fsencode(long))} bytes.* 107"):
        claim(str(long))


def test_a_path_as_long_as_can_be_works(path: Path) -> None:
    longest = path.with_name("x" * (107 - len(os.fsencode(path.parent)) - 1))
    with claimed(longest) as listener:
        listener.listen()
        assert connects(longest)


def test_a_missing_directory_is_named(path: Path) -> None:
    with pytest.raises(StartError, match=f"no directory {path.parent}/missing for the socket"):
        claim(str(path.parent / "missing" / "socket"))


def test_a_lock_file_that_is_a_link_is_not_followed(path: Path) -> None:
    victim = path.with_name("victim")
    victim.write_text("precious")
    (path.parent / f".{path.name}.lock").symlink_to(victim)
    with pytest.raises(StartError, match="cannot open the lock file"):
        claim(str(path))
    assert victim.read_text() == "precious"


def test_many_may_knock_at_once(path: Path) -> None:
    with claimed(path) as listener, ExitStack() as peers:
        listener.listen()
        for _ in range(120):
            peer = peers.enter_context(socket.socket(socket.AF_UNIX))
            peer.setblocking(False)
            assert peer.connect_ex(str(path)) == 0


def test_descriptors_that_peers_send_are_refused_where_the_kernel_can(path: Path) -> None:
    with claimed(path) as listener, socket.socket(socket.AF_UNIX) as peer:
        listening = listener.listen()
        peer.connect(str(path))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
        try:
            listening.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS)
        except OSError:  # before Linux 6.16
            assert peer.sendmsg([b"x"], rights) == 1
        else:
            with pytest.raises(PermissionError):
                peer.sendmsg([b"x"], rights)
