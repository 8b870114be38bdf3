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

from discoveryd.core.places import SOCKET_PATH_LIMIT
from discoveryd.daemon.errors import StartError
from discoveryd.daemon.socket.listening import Listener, claim

SO_PASSRIGHTS = 83


@pytest.fixture
def path(socket_directory: Path) -> Path:
    return socket_directory / "io.discoveryd.Models"


@contextmanager
def claimed(path: Path, mode: int = 0o600, group: int | None = None) -> Iterator[Listener]:
    listener = claim(str(path), mode, group)
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


def another_group() -> int:
    """Return a group that the socket would not have by itself, and may be given."""
    if os.geteuid() == 0:
        return 54321
    others = set(os.getgroups()) - {os.getegid()}
    if not others:
        pytest.skip("GROUPS ARE NOT TESTED: this user is in one group only; run as root, or in two")
    return min(others)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_socket_is_given_to_a_group_before_the_group_may_do_anything(
    path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B89: never open to more than it will be, whatever the umask, which stays as it is."""
    modes: list[int] = []
    give = os.chown

    def watched(held: str, uid: int, gid: int) -> None:
        modes.append(stat.S_IMODE(Path(held).stat().st_mode))
        assert not path.exists()
        give(held, uid, gid)

    monkeypatch.setattr(os, "chown", watched)
    with umask(mask), claimed(path, 0o660, another_group()) as listener:
        listener.listen()
        assert modes == [0o600]
        assert path.stat().st_gid == another_group()
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert os.umask(mask) == mask


def test_whoever_finds_the_path_can_connect(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket is listened at before it gets its name."""
    before: list[bool] = []
    listen = socket.socket.listen

    def watched(listening: socket.socket, backlog: int) -> None:
        before.append(path.exists())
        listen(listening, backlog)

    monkeypatch.setattr(socket.socket, "listen", watched)
    with claimed(path) as listener:
        listener.listen()
        assert before == [False]
        assert connects(path)
        assert [file.name for file in path.parent.iterdir() if file.name.endswith(".new")] == []


def test_a_socket_whose_path_leaves_no_room_beside_it_is_made_in_its_place(path: Path) -> None:
    long = path.parent / ("s" * (SOCKET_PATH_LIMIT - len(str(path.parent)) - 1))
    with claimed(long) as listener:
        listener.listen()
        assert connects(long)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody for a while, where the tests are run by root; else nobody in particular already."""
    if os.geteuid() != 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def test_a_group_that_may_not_be_given_is_named_and_no_socket_is_left(path: Path) -> None:
    path.parent.chmod(0o777)
    with (
        unprivileged(),
        claimed(path, 0o660, 54321) as listener,
        pytest.raises(StartError, match="the group 54321: only root may do that"),
    ):
        listener.listen()
    assert list(path.parent.iterdir()) == []


def test_a_directory_that_may_not_be_written_is_named(path: Path) -> None:
    path.parent.chmod(0o555)
    with (
        unprivileged(),
        pytest.raises(StartError, match=r"cannot open the lock file .*: Permission denied"),
    ):
        claim(str(path))
    path.parent.chmod(0o755)


def test_a_directory_that_takes_no_files_is_not_called_missing() -> None:
    with pytest.raises(StartError, match="cannot open the lock file /proc/"):
        claim("/proc/discoveryd")


def test_a_directory_that_is_none_is_named(path: Path) -> None:
    path.parent.joinpath("file").write_text("")
    with pytest.raises(StartError, match="file, where the socket should be, is no directory"):
        claim(str(path.parent / "file" / "s"))


def test_a_dead_socket_is_taken_over(path: Path) -> None:
    leave_dead_socket(path)
    with claimed(path) as listener:
        listener.listen()
        assert connects(path)


def test_a_killed_daemon_bars_nobody(path: Path) -> None:
    program = (
        "import sys; from discoveryd.daemon.socket.listening import claim\n"
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


# A daemon that was just killed


def test_a_lock_that_is_given_up_in_a_moment_is_waited_for(path: Path) -> None:
    """B87: `kill -9` returns before the kernel is through with it."""
    dying = claim(str(path))
    with ThreadPoolExecutor(1) as pool:
        successor = pool.submit(claim, str(path))
        assert not successor.done()
        dying.close()
        successor.result().close()


# What is removed or replaced while the daemon runs


def test_nothing_is_made_anew_while_all_is_as_it_was(path: Path) -> None:
    with claimed(path) as listener:
        assert listener.mend() is None
        listener.listen()
        assert listener.mend() is None
        assert listener.problems() == []


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_a_removed_socket_is_made_anew_with_its_mode(path: Path, mask: int) -> None:
    with umask(mask), claimed(path, 0o666) as listener:
        old = listener.listen()
        path.unlink()
        made = listener.mend()
        assert made is not None
        assert made[0] is old
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert connects(path)
    assert list(path.parent.iterdir()) == []


def test_a_socket_replaced_by_a_dead_one_is_made_anew(path: Path) -> None:
    with claimed(path) as listener:
        listener.listen()
        path.unlink()
        leave_dead_socket(path)
        assert listener.mend() is not None
        assert connects(path)


def test_a_socket_replaced_by_a_live_one_is_left_to_whoever_serves_it(path: Path) -> None:
    with claimed(path) as listener:
        listener.listen()
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            assert listener.mend() is None
            [problem] = listener.problems()
            assert "somebody is serving" in problem
        assert listener.mend() is not None
        assert listener.problems() == []


def test_a_socket_replaced_by_a_file_is_a_problem_and_the_file_stays(path: Path) -> None:
    with claimed(path) as listener:
        listener.listen()
        path.unlink()
        path.write_text("mine")
        assert listener.mend() is None
        [problem] = listener.problems()
        assert "is no socket: remove it" in problem
    assert path.read_text() == "mine"


def test_a_removed_lock_is_made_anew_and_meanwhile_nobody_takes_the_path(path: Path) -> None:
    lock = path.parent / f".{path.name}.lock"
    with claimed(path) as listener:
        listener.listen()
        lock.unlink()
        with pytest.raises(StartError, match="somebody is serving"):
            claim(str(path))
        assert not lock.exists()
        assert listener.mend() is None
        assert lock.read_text() == f"{os.getpid()}\n"
        with pytest.raises(StartError, match="another discoveryd"):
            claim(str(path))
    assert list(path.parent.iterdir()) == []


def test_of_two_after_both_files_were_removed_the_later_keeps_what_it_has(path: Path) -> None:
    with claimed(path) as first:
        first.listen()
        for file in path.parent.iterdir():
            file.unlink()
        with claimed(path) as second:
            second.listen()
            assert first.mend() is None
            [problem] = first.problems()
            assert "another discoveryd is serving" in problem
            assert second.mend() is None
            assert second.problems() == []
        assert first.mend() is not None
        assert first.problems() == []
        assert connects(path)
    assert list(path.parent.iterdir()) == []


def test_a_moved_directory_is_not_followed(path: Path) -> None:
    place = path.parent / "place"
    place.mkdir()
    with claimed(place / "s") as listener:
        listener.listen()
        place.rename(path.parent / "moved")
        place.mkdir()
        assert listener.mend() is not None
        assert connects(place / "s")
