"""Sockets that were passed in: which are taken, and what is said of the others (B96, B97)."""

import array
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from discoveryd.daemon.errors import StartError
from discoveryd.daemon.systemd.activation import Passed, passed
from discoveryd.daemon.systemd.paths import PassedPaths
from tests.system.running import short_directory

SO_PASSRIGHTS = 83
FIRST = 300
"""The descriptors from 3 on are the test runner's."""


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


class Passing:
    """Passes sockets to this process, as a service manager would."""

    def __init__(self) -> None:
        self.environ: dict[str, str] = {"HOME": "/"}
        self.count = 0

    def put(self, descriptor: int) -> int:
        """Pass a copy of the descriptor; return its number."""
        number = FIRST + self.count
        os.dup2(descriptor, number, inheritable=True)
        self.count += 1
        return number

    def put_socket(
        self,
        address: str | tuple[str, int],
        *,
        family: int = socket.AF_UNIX,
        kind: int = socket.SOCK_STREAM,
        listening: bool = True,
        mode: int = 0o600,
    ) -> int:
        with socket.socket(family, kind) as made:
            made.bind(address)
            if listening:
                made.listen()
            if isinstance(address, str) and address.startswith("/"):
                Path(address).chmod(mode)
            return self.put(made.fileno())

    def tell(self, names: str | None = "varlink", **variables: str) -> dict[str, str]:
        """Return the environment, with these variables told otherwise or besides."""
        self.environ["LISTEN_PID"] = str(os.getpid())
        self.environ["LISTEN_FDS"] = str(self.count)
        if names is not None:
            self.environ["LISTEN_FDNAMES"] = names
        self.environ.update(variables)
        return self.environ

    def is_open(self, number: int) -> bool:
        try:
            os.fstat(number)
        except OSError:
            return False
        return True

    def close(self) -> None:
        for number in range(FIRST, FIRST + self.count):
            if self.is_open(number):
                os.close(number)


Take = Callable[[dict[str, str]], Passed]


@pytest.fixture
def passing() -> Iterator[Passing]:
    passing = Passing()
    yield passing
    passing.close()


@pytest.fixture
def take() -> Iterator[Take]:
    with ExitStack() as ends:

        def take(environ: dict[str, str]) -> Passed:
            taken = passed(environ, FIRST)
            for each in (*taken.sockets, *taken.http):
                ends.enter_context(each)
            return taken

        yield take


def test_a_socket_named_varlink_is_taken(passing: Passing, take: Take, directory: Path) -> None:
    path = str(directory / "s")
    number = passing.put_socket(path, mode=0o660)
    environ = passing.tell()
    taken = take(environ)
    [listening] = taken.sockets
    assert listening.fileno() == number
    assert not listening.get_inheritable()
    assert not listening.getblocking()
    assert (taken.path, taken.mode, taken.warnings) == (path, 0o660, ())
    assert environ == {"HOME": "/"}
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        listening.setblocking(True)
        connection, _ = listening.accept()
        connection.close()


def test_nothing_passed_in_is_nothing_taken(take: Take) -> None:
    environ = {"HOME": "/"}
    assert take(environ) == Passed()
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0", "LISTEN_FDNAMES": ""}
    assert take(environ) == Passed()
    assert environ == {}


@pytest.mark.parametrize("pid", ["1", "me", "-1"])
def test_what_was_passed_to_another_process_is_left_alone(
    passing: Passing, take: Take, directory: Path, pid: str
) -> None:
    number = passing.put_socket(str(directory / "s"))
    environ = passing.tell(LISTEN_PID=pid)
    taken = take(environ)
    assert (taken.sockets, taken.path) == ((), None)
    assert f"to the process {pid}, and this is {os.getpid()}" in taken.warnings[0]
    assert environ == {"HOME": "/"}
    assert passing.is_open(number)
    assert os.get_inheritable(number)


def own_pidfd_id() -> str:
    own = os.pidfd_open(os.getpid())
    other = os.eventfd(0)
    try:
        if os.fstat(own).st_ino == os.fstat(other).st_ino:
            pytest.skip("NOT TESTED: this kernel's pidfds have no inodes of their own")
        return str(os.fstat(own).st_ino)
    finally:
        os.close(own)
        os.close(other)


def test_the_process_is_known_by_its_pidfd(passing: Passing, take: Take, directory: Path) -> None:
    passing.put_socket(str(directory / "s"))
    environ = passing.tell(LISTEN_PIDFDID=own_pidfd_id())
    assert len(take(environ).sockets) == 1
    assert environ == {"HOME": "/"}


def test_a_former_process_with_the_same_number_is_another(
    passing: Passing, take: Take, directory: Path
) -> None:
    own = own_pidfd_id()
    passing.put_socket(str(directory / "s"))
    taken = take(passing.tell(LISTEN_PIDFDID=f"{own}1"))
    assert taken.sockets == ()
    assert len(taken.warnings) == 1


def test_where_the_kernel_cannot_tell_the_number_alone_counts(
    passing: Passing, take: Take, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pidfd_open", lambda _: os.eventfd(0))
    passing.put_socket(str(directory / "s"))
    assert len(take(passing.tell(LISTEN_PIDFDID="12345")).sockets) == 1


def test_several_may_be_served_and_the_widest_counts(
    passing: Passing, take: Take, directory: Path
) -> None:
    passing.put_socket(str(directory / "a"), mode=0o600)
    passing.put_socket(str(directory / "b"), mode=0o666)
    taken = take(passing.tell("varlink:varlink"))
    assert len(taken.sockets) == 2
    assert (taken.path, taken.mode) == (str(directory / "a"), 0o666)


def test_a_path_that_cannot_be_seen_may_be_open_to_anybody(
    passing: Passing, take: Take, directory: Path
) -> None:
    """B96."""
    path = directory / "s"
    passing.put_socket(str(path))
    path.unlink()
    assert stat.S_IMODE(take(passing.tell()).mode) == 0o666


def test_descriptors_that_peers_send_are_refused_where_the_kernel_can(
    passing: Passing, take: Take, directory: Path
) -> None:
    path = str(directory / "s")
    passing.put_socket(path)
    [listening] = take(passing.tell()).sockets
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        try:
            listening.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS)
        except OSError:  # before Linux 6.16
            assert peer.sendmsg([b"x"], rights) == 1
        else:
            with pytest.raises(PermissionError):
                peer.sendmsg([b"x"], rights)


def test_a_path_that_is_gone_or_another_s_is_a_problem(
    passing: Passing, take: Take, directory: Path
) -> None:
    """B99: only the socket unit can make it again."""
    path = directory / "s"
    passing.put_socket(str(path))
    paths = PassedPaths(take(passing.tell()).sockets)
    assert paths.problems() == []
    path.rename(directory / "elsewhere")
    assert f"{path}, which was passed in, was removed or replaced" in paths.problems()[0]
    path.touch()
    assert len(paths.problems()) == 1
    (directory / "elsewhere").rename(path)
    assert paths.problems() == []


def test_a_path_that_was_never_seen_is_not_missed(
    passing: Passing, take: Take, directory: Path
) -> None:
    path = directory / "s"
    passing.put_socket(str(path))
    path.unlink()
    assert PassedPaths(take(passing.tell()).sockets).problems() == []


@pytest.mark.parametrize(
    ("address", "family"),
    [
        ("http", socket.AF_UNIX),
        (("127.0.0.1", 0), socket.AF_INET),
        (("127.9.9.9", 0), socket.AF_INET),
        (("::1", 0), socket.AF_INET6),
    ],
)
def test_sockets_named_http_are_taken_apart_from_those_of_the_interface(
    passing: Passing,
    take: Take,
    directory: Path,
    address: str | tuple[str, int],
    family: socket.AddressFamily,
) -> None:
    where = str(directory / address) if isinstance(address, str) else address
    number = passing.put_socket(where, family=family)
    passing.put_socket(str(directory / "s"), mode=0o660)
    taken = take(passing.tell("http:varlink"))
    [for_http] = taken.http
    assert for_http.fileno() == number
    assert not for_http.getblocking()
    assert [each.getsockname() for each in taken.sockets] == [str(directory / "s")]
    assert (taken.path, taken.mode, taken.warnings) == (str(directory / "s"), 0o660, ())


def test_http_is_not_answered_to_other_hosts(passing: Passing, take: Take, directory: Path) -> None:
    passing.put_socket(str(directory / "s"))
    number = passing.put_socket(("0.0.0.0", 0), family=socket.AF_INET)  # noqa: S104  # to be refused
    with pytest.raises(StartError, match=r"listens at 0\.0\.0\.0 for other hosts"):
        take(passing.tell("varlink:http"))
    assert not passing.is_open(number)


def test_a_socket_of_another_name_is_closed_with_a_warning(
    passing: Passing, take: Take, directory: Path
) -> None:
    other = passing.put_socket(str(directory / "a"))
    passing.put_socket(str(directory / "b"))
    taken = take(passing.tell("web:varlink"))
    assert taken.path == str(directory / "b")
    assert not passing.is_open(other)
    [warning] = taken.warnings
    assert f"descriptor {other}" in warning
    assert '"web"' in warning


@pytest.mark.parametrize("names", ["http", "", None])
def test_if_none_is_named_varlink_the_unit_is_told_what_to_say(
    passing: Passing, take: Take, directory: Path, names: str | None
) -> None:
    passing.put_socket(str(directory / "s"))
    environ = passing.tell(names)
    with pytest.raises(StartError, match="put FileDescriptorName=varlink into the socket unit"):
        take(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LISTEN_FDS": "two"}, 'LISTEN_FDS is "two"'),
        ({"LISTEN_FDS": ""}, 'LISTEN_FDS is ""'),
        ({"LISTEN_FDS": "-1"}, 'LISTEN_FDS is "-1"'),
        ({"LISTEN_FDNAMES": "varlink:http"}, "LISTEN_FDNAMES has 2 names, and 1 sockets"),
    ],
)
def test_variables_that_cannot_be_meant_are_a_fault(
    passing: Passing, take: Take, directory: Path, variables: dict[str, str], said: str
) -> None:
    passing.put_socket(str(directory / "s"))
    with pytest.raises(StartError, match=said):
        take(passing.tell(**variables))


def test_a_descriptor_that_is_not_there_is_a_fault(
    passing: Passing, take: Take, directory: Path
) -> None:
    passing.put_socket(str(directory / "s"))
    environ = passing.tell("varlink:varlink", LISTEN_FDS="2")
    with pytest.raises(StartError, match=f"the descriptor {FIRST + 1}, which LISTEN_FDS speaks of"):
        take(environ)


def put_tcp(passing: Passing, _directory: Path) -> None:
    passing.put_socket(("127.0.0.1", 0), family=socket.AF_INET)


def put_datagrams(passing: Passing, directory: Path) -> None:
    passing.put_socket(str(directory / "s"), kind=socket.SOCK_DGRAM, listening=False)


def put_deaf(passing: Passing, directory: Path) -> None:
    passing.put_socket(str(directory / "s"), listening=False)


def put_abstract(passing: Passing, directory: Path) -> None:
    passing.put_socket(f"\0{directory}")


def put_file(passing: Passing, directory: Path) -> None:
    with (directory / "file").open("w") as file:
        passing.put(file.fileno())


@pytest.mark.parametrize(
    ("put", "fault"),
    [
        (put_tcp, "is no Unix socket"),
        (put_datagrams, "is no stream socket"),
        (put_deaf, "does not listen"),
        (put_abstract, "has no path in the file system"),
        (put_file, "is no socket"),
    ],
)
def test_what_cannot_be_served_is_told_with_its_number_and_what_the_unit_should_say(
    passing: Passing,
    take: Take,
    directory: Path,
    put: Callable[[Passing, Path], None],
    fault: str,
) -> None:
    passing.put_socket(str(directory / "good"))
    put(passing, directory)
    with pytest.raises(StartError) as raised:
        take(passing.tell("varlink:varlink"))
    sentence = str(raised.value)
    assert f"the socket passed in as descriptor {FIRST + 1} {fault}" in sentence
    assert "ListenStream=" in sentence
