"""Where the client looks for a daemon, and what it says where there is none."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from discoveryd.client import NoDaemon, Timeout
from discoveryd.client.asking.locate import Candidate, candidates, connect
from tests.client.fakes import FakeDaemon

UID = 1000
SYSTEM = "/run/discoveryd/io.discoveryd.Models"


def paths(named: str | None, environ: dict[str, str], uid: int = UID) -> list[str]:
    return [candidate.path for candidate in candidates(named, environ, uid)]


@pytest.mark.parametrize(
    ("named", "environ", "uid", "expected"),
    [
        ("/a", {"DISCOVERYD_SOCKET": "/b", "XDG_RUNTIME_DIR": "/run/user/1"}, UID, ["/a"]),
        (None, {"DISCOVERYD_SOCKET": "/b", "XDG_RUNTIME_DIR": "/run/user/1"}, UID, ["/b"]),
        (
            None,
            {"DISCOVERYD_SOCKET": "", "XDG_RUNTIME_DIR": "/run/user/1"},
            UID,
            ["/run/user/1/discoveryd/io.discoveryd.Models", SYSTEM],
        ),
        (None, {}, UID, ["/tmp/discoveryd-1000/io.discoveryd.Models", SYSTEM]),  # noqa: S108 - a name
        (
            None,
            {"TMPDIR": "/t/", "XDG_RUNTIME_DIR": "relative"},
            UID,
            ["/t/discoveryd-1000/io.discoveryd.Models", SYSTEM],
        ),
        (None, {"XDG_RUNTIME_DIR": "/run/user/0"}, 0, [SYSTEM]),
    ],
)
def test_the_sockets_that_are_tried_in_order(
    named: str | None, environ: dict[str, str], uid: int, expected: list[str]
) -> None:
    assert paths(named, environ, uid) == expected


def test_only_what_lies_in_public_must_be_private() -> None:
    in_tmp, system = candidates(None, {}, UID)
    in_runtime, _ = candidates(None, {"XDG_RUNTIME_DIR": "/run/user/1"}, UID)
    assert in_tmp.private == "/tmp/discoveryd-1000"  # noqa: S108 - only its name
    assert in_runtime.private is system.private is None


def test_the_first_that_accepts_is_taken(daemon: FakeDaemon, directory: Path) -> None:
    missing = Candidate(str(directory / "missing"), "first")
    connection, path = connect((missing, Candidate(daemon.path, "second")), 10)
    connection.close()
    assert path == daemon.path


def test_a_socket_that_accepts_ends_the_search(daemon: FakeDaemon, directory: Path) -> None:
    missing = Candidate(str(directory / "missing"), "second")
    connection, path = connect((Candidate(daemon.path, "first"), missing), 10)
    connection.close()
    assert path == daemon.path


@pytest.fixture
def deserted(directory: Path) -> Iterator[str]:
    path = str(directory / "deserted")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path)
        yield path


def test_no_daemon_says_what_was_tried_and_why_each_failed(directory: Path, deserted: str) -> None:
    missing = str(directory / "missing")
    with pytest.raises(NoDaemon) as caught:
        connect((Candidate(missing, "yours"), Candidate(deserted, "the system's")), 10)
    assert [tuple(attempt) for attempt in caught.value.tried] == [
        (missing, "yours", "there is no such socket"),
        (deserted, "the system's", "nobody listens there"),
    ]
    assert str(caught.value).splitlines() == [
        "no discoveryd answers; tried:",
        f"  {missing} (yours): there is no such socket",
        f"  {deserted} (the system's): nobody listens there",
    ]


def problem(candidate: Candidate) -> str:
    with pytest.raises(NoDaemon) as caught:
        connect((candidate,), 10)
    return caught.value.tried[0].problem


def test_a_regular_file_is_no_daemon(directory: Path) -> None:
    file = directory / "file"
    file.touch()
    assert problem(Candidate(str(file), "yours")) == "nobody listens there"


def test_a_datagram_socket_is_no_daemon(directory: Path) -> None:
    path = str(directory / "datagrams")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(path)
        assert problem(Candidate(path, "yours")) == "it is a socket of another kind"


def test_a_path_longer_than_a_sockets_may_be_is_named_as_the_fault(directory: Path) -> None:
    path = str(directory / ("\u00e9" * 60))
    bytes_of_path = len(os.fsencode(path))
    assert problem(Candidate(path, "yours")) == (
        f"the path has {bytes_of_path} bytes, a Unix socket's at most 107"
    )


def test_a_path_of_107_bytes_is_used(directory: Path) -> None:
    path = str(directory / "x").ljust(107, "x")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connection, _ = connect((Candidate(path, "yours"),), 10)
        connection.close()


class TestPrivateDirectory:
    """Anybody may make the directory under the temporary one."""

    @pytest.fixture
    def private(self, directory: Path) -> Path:
        path = directory / "discoveryd-1000"
        path.mkdir(0o700)
        return path

    @pytest.fixture
    def listening(self, private: Path) -> Iterator[Candidate]:
        fake = FakeDaemon(str(private / "socket"))
        yield Candidate(fake.path, "yours", str(private))
        fake.close()

    def test_our_own_of_mode_0700_is_used(self, listening: Candidate) -> None:
        connection, _ = connect((listening,), 10)
        connection.close()

    @pytest.mark.parametrize("mode", [0o755, 0o770, 0o1700])
    def test_one_that_others_may_enter_is_not_trusted(
        self, listening: Candidate, private: Path, mode: int
    ) -> None:
        private.chmod(mode)
        assert problem(listening) == f"not to be trusted: {private} is not of mode 0700"

    def test_a_link_is_not_trusted(self, listening: Candidate, private: Path) -> None:
        link = private.with_name("link")
        link.symlink_to(private)
        found = problem(listening._replace(private=str(link)))
        assert found == f"not to be trusted: {link} is no directory of yours"

    def test_one_of_somebody_else_is_not_trusted(
        self, listening: Candidate, private: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = private.stat().st_uid
        monkeypatch.setattr("os.getuid", lambda: owner + 1)
        assert problem(listening) == f"not to be trusted: {private} is no directory of yours"

    def test_one_that_is_missing_is_no_more_than_that(self, directory: Path) -> None:
        absent = directory / "absent"
        found = problem(Candidate(str(absent / "socket"), "yours", str(absent)))
        assert found == "there is no such socket"


def test_a_full_backlog_is_waited_for_then_timed_out(directory: Path) -> None:
    path = str(directory / "busy")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        first, _ = connect((Candidate(path, "yours"),), 10)
        with pytest.raises(Timeout):
            connect((Candidate(path, "yours"),), 0.05)
        first.close()


def test_a_place_in_a_full_backlog_is_taken_when_it_comes_free(directory: Path) -> None:
    daemon_path = str(directory / "busy")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(daemon_path)
        listener.listen(0)
        candidate = (Candidate(daemon_path, "yours"),)
        first, _ = connect(candidate, 10)
        accepted: list[socket.socket] = []
        later = threading.Timer(0.1, lambda: accepted.append(listener.accept()[0]))
        later.start()
        second, _ = connect(candidate, 10)
        later.join()
        for each in (first, second, *accepted):
            each.close()
    assert len(accepted) == 1
