"""How discoveryctl doctor looks: at real files and processes, by a deadline, and what fails."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from discoveryd.client.doctor import (
    containers,
    directories,
    inotify,
    ledgers,
    peers,
    sockets,
    units,
)
from discoveryd.client.doctor.access import above, look_at_person
from discoveryd.client.doctor.findings import Finding
from discoveryd.client.doctor.looking import Look, Patience
from tests.client import fakes
from tests.client.fakes import FakeDaemon


class TestLooks:
    def test_what_was_seen_is_returned(self) -> None:
        findings: list[Finding] = []
        assert Look("x", lambda: 7).seen(10, findings) == 7
        assert findings == []

    @pytest.mark.parametrize(
        ("fault", "why"),
        [
            (PermissionError(1, "Operation not permitted"), "Operation not permitted"),
            (ValueError("no number"), "no number"),
            (KeyError(), "KeyError"),
            (TimeoutError(110, "Connection timed out"), "Connection timed out"),
        ],
    )
    def test_a_look_that_fails_is_a_note(self, fault: Exception, why: str) -> None:
        def look() -> None:
            raise fault

        findings: list[Finding] = []
        assert Look("the thing", look).seen(10, findings) is None
        (found,) = findings
        assert (found.level, found.what) == ("note", "the thing")
        assert found.why == f"it cannot be looked at: {why}"

    def test_a_look_that_hangs_is_given_up(self) -> None:
        over = threading.Event()
        findings: list[Finding] = []
        assert Look("/nfs", over.wait, late="wrong").seen(0.05, findings) is None
        over.set()
        (found,) = findings
        assert (found.level, found.what) == ("wrong", "/nfs")
        assert "hangs" in found.why

    def test_a_fault_of_ours_is_raised(self) -> None:
        def look() -> None:
            raise TypeError("ours")

        with pytest.raises(TypeError, match="ours"):
            Look("x", look).seen(10, [])

    def test_patience_ends(self) -> None:
        assert Patience(-1.0).left == 0.0
        assert 0 < Patience(100.0).left <= 100.0


class TestThisUser:
    def test_is_who_runs_it(self) -> None:
        person = look_at_person()
        assert (person.uid, os.getegid() in person.gids) == (os.geteuid(), True)
        known = os.umask(0o027)
        try:
            assert look_at_person().umask == 0o027
        finally:
            os.umask(known)

    def test_one_without_an_entry_has_a_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 3_999_999)
        person = look_at_person()
        assert (person.name, person.listed) == ("3999999", person.gids)

    def test_what_leads_to_a_path_is_seen_as_far_as_it_is_there(self, tmp_path: Path) -> None:
        led = above(str(tmp_path / "absent/further/x"))
        assert [entry.path for entry in led[:1] + led[-1:]] == ["/", str(tmp_path)]


class TestSockets:
    def test_the_daemon_is_asked_and_known(self, daemon: FakeDaemon) -> None:
        daemon.answer("GetStatus", fakes.status())
        (sight,) = sockets.look_at_sockets(daemon.path, {}, 10)
        assert sight.status is not None
        assert sight.status.version == "0.1.0"
        assert sight.peer == (os.getpid(), os.geteuid(), os.getegid())
        assert sight.entry is not None
        assert stat.S_ISSOCK(sight.entry.mode)
        assert (sight.problem, sight.fault, sight.alone) == (None, None, False)

    def test_a_silent_daemon_is_a_fault_in_time(self, daemon: FakeDaemon) -> None:
        daemon.scripts = [fakes.stay_silent]
        (sight,) = sockets.look_at_sockets(daemon.path, {}, 0.05)
        assert (sight.problem, sight.status) == (None, None)
        assert sight.fault == f"{daemon.path} did not answer in time"

    def test_another_program_is_a_fault(self, daemon: FakeDaemon) -> None:
        daemon.answer("GetStatus", {"version": 1})
        (sight,) = sockets.look_at_sockets(daemon.path, {}, 10)
        assert sight.fault is not None
        assert "not as the interface says" in sight.fault

    def test_what_is_not_there_has_the_clients_own_reason(self, directory: Path) -> None:
        (sight,) = sockets.look_at_sockets(str(directory / "x"), {}, 10)
        assert (sight.problem, sight.entry) == ("there is no such socket", None)

    def test_the_default_places_are_tried_in_order(self, directory: Path) -> None:
        places = {"XDG_RUNTIME_DIR": str(directory)}
        sights = sockets.look_at_sockets(None, places, 10)
        assert sights[-1].candidate.path == "/run/discoveryd/io.discoveryd.Models"


class TestDropDirectories:
    def test_own_cards_and_late_ones_are_seen(self, tmp_path: Path) -> None:
        for name in ("a.json", "b.json", ".hidden.json", "other"):
            (tmp_path / name).touch()
        late = time.time() + 1000
        os.utime(tmp_path / "b.json", (late, late))
        seen = directories.look_at_directory(str(tmp_path), os.geteuid())
        assert (seen.cards, len(seen.own), seen.writable, seen.read_only) == (2, 2, True, False)
        assert [name for name, _ in seen.ahead] == ["b.json"]
        assert not directories.look_at_directory(str(tmp_path), os.geteuid() + 1).own

    def test_what_is_wrong_with_it_is_told(self, tmp_path: Path) -> None:
        absent = directories.look_at_directory(str(tmp_path / "x"), 0)
        assert (absent.absent, absent.fault) == (True, "no such file or directory")
        (tmp_path / "file").touch()
        file = directories.look_at_directory(str(tmp_path / "file"), 0)
        assert (file.entry is not None, file.writable) == (True, False)

    def test_nothing_is_written(self, tmp_path: Path) -> None:
        before = tmp_path.stat()
        directories.look_at_directory(str(tmp_path), 0)
        assert tmp_path.stat().st_mtime_ns == before.st_mtime_ns
        assert list(tmp_path.iterdir()) == []


class TestProcesses:
    def test_our_own_is_where_we_are(self, tmp_path: Path) -> None:
        missing = str(tmp_path / "x")
        seen = peers.look_at_process(os.getpid(), [str(tmp_path), missing])
        assert (seen.pid, seen.reader.uid, seen.foreign) == (os.getpid(), os.geteuid(), ())
        assert seen.places is not None
        (there, gone) = seen.places
        assert there[1] == there[2] == (tmp_path.stat().st_dev, tmp_path.stat().st_ino)
        assert gone == (missing, None, None)
        assert seen.descriptors is not None
        assert seen.descriptors > 0

    def test_links_do_not_lead_back_to_our_own_root(self, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "there")
        asked: list[str] = []
        place = peers._place

        def noted(path: str) -> peers.Place | None:
            asked.append(path)
            return place(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peers, "_place", noted)
            peers.look_at_process(os.getpid(), [str(link)])
        real = str((tmp_path / "there").resolve())
        assert asked == [real, f"/proc/{os.getpid()}/root{real}"]

    def test_one_that_is_stopped_is_seen_to_be(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            child.send_signal(signal.SIGSTOP)
            os.waitpid(child.pid, os.WUNTRACED)
            stopped = peers.look_at_process(child.pid, [])
            child.kill()
        assert stopped.stopped
        assert not peers.look_at_process(os.getpid(), []).stopped

    def test_one_that_is_gone_is_a_fault(self) -> None:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        with pytest.raises(OSError, match=r"No such (file|process)"):
            peers.look_at_process(ended.pid, [])

    def test_what_may_not_be_seen_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(path: str) -> str:
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr("os.readlink", refuse)
        seen = peers.look_at_process(os.getpid(), ["/"])
        assert (seen.foreign, seen.places, seen.descriptors) == (None, None, None)


class TestInotify:
    @pytest.mark.skipif(
        not Path("/proc/sys/fs/inotify").exists(), reason="NOT TESTED: no table of limits"
    )
    def test_what_this_user_uses_is_counted(self) -> None:
        before = inotify.look_at_inotify(os.geteuid())
        program = """if True:
            import ctypes
            libc = ctypes.CDLL(None)
            libc.inotify_add_watch(libc.inotify_init(), b"/", 2)
            print(flush=True)
            input()
        """
        watching = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with watching:
            assert watching.stdout is not None
            watching.stdout.readline()
            seen = inotify.look_at_inotify(os.geteuid())
            assert seen.instances > 0
            assert seen.watches > 0
            assert seen.most_instances == before.most_instances > 0
            watching.kill()


class TestLedger:
    def test_it_is_found_beside_the_socket(self, tmp_path: Path) -> None:
        socket_path = str(tmp_path / "s")
        assert ledgers.look_at_ledger(socket_path) is None
        (tmp_path / ".s.ledger").write_bytes(b"12345")
        (tmp_path / ".s.ledger-wal").write_bytes(b"678")
        (tmp_path / ".s.ledger.broken-1").touch()
        seen = ledgers.look_at_ledger(socket_path)
        assert seen is not None
        assert (seen.path, seen.bytes) == (f"{socket_path.removesuffix('s')}.s.ledger", 8)
        assert seen.broken == (str(tmp_path / ".s.ledger.broken-1"),)


class TestContainers:
    def test_the_runtimes_word_is_heard(self) -> None:
        sign = containers.look_for_container({"container": "podman"}).sign
        assert sign is not None

    @pytest.mark.parametrize(
        ("groups", "sign"),
        [
            ("0::/docker/1f2e\n", "a control group of docker"),
            ("0::/kubepods.slice/x\n", "a control group of kubepods"),
            ("0::/system.slice/docker.service\n", None),
            ("0::/user.slice/user-1000.slice\n", None),
        ],
    )
    def test_control_groups_tell(
        self, monkeypatch: pytest.MonkeyPatch, groups: str, sign: str | None
    ) -> None:
        monkeypatch.setattr(Path, "exists", lambda _: False)
        monkeypatch.setattr(Path, "read_text", lambda *_, **__: groups)
        assert containers.look_for_container({}).sign == sign


class TestUnits:
    @pytest.fixture
    def systemctl(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Give what makes a systemctl that does as a script says, on a host with systemd."""
        monkeypatch.setattr(units, "_BOOTED", tmp_path)

        def make(script: str) -> None:
            program = tmp_path / "systemctl"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            monkeypatch.setattr(units, "shutil", SimpleNamespace(which=lambda _: str(program)))

        return make

    def test_what_it_says_is_read(self, systemctl: Callable[[str], None]) -> None:
        systemctl('echo "$*" >&2; printf "Id=discoveryd.service\\nMainPID=5\\n\\nId=x\\n"')
        found = units.look_at_units(of_user=True, seconds=10)
        assert found is not None
        assert (found.main_pid, found.fault, set(found.properties)) == (
            5,
            None,
            {"discoveryd.service", "x"},
        )

    def test_why_it_fails_is_told(self, systemctl: Callable[[str], None]) -> None:
        systemctl("echo Failed to connect to bus >&2; exit 1")
        found = units.look_at_units(of_user=True, seconds=10)
        assert found is not None
        assert (found.fault, found.main_pid) == ("Failed to connect to bus", 0)

    def test_one_that_hangs_is_given_up(self, systemctl: Callable[[str], None]) -> None:
        systemctl("exec sleep 30")
        found = units.look_at_units(of_user=False, seconds=0.2)
        assert found is not None
        assert found.fault == "it did not answer within 0.2 s"

    def test_without_systemd_nothing_is_asked(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(units, "_BOOTED", tmp_path / "absent")
        assert units.look_at_units(of_user=False, seconds=10) is None


class TestMounts:
    def test_a_socket_that_is_mounted_by_itself_is_seen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: Path
    ) -> None:
        path = directory / "a b"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            table = tmp_path / "mountinfo"
            point = str(path.resolve()).replace(" ", "\\040")
            table.write_text(f"36 35 0:30 /x {point} rw - tmpfs tmpfs rw\n")
            monkeypatch.setattr(sockets, "_MOUNTS", str(table))
            seen: Any = sockets.look_at_sockets(str(path), {}, 0.05)[0]
        assert seen.alone
