"""Workers and daemons in containers, as far as `unshare` makes them: the namespaces, no images.

A container here is a program in namespaces of its own. It says what it has to say in lines, and
goes on at each line that it is told.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from discoveryd.interface import Verdict
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, write
from tests.system.raw import Raw
from tests.system.running import Daemon, until

BEGINNING = """
import json, os, socket, sys, time
from pathlib import Path

def drop(directory, **members):
    beside = Path(directory) / ".tmp_worker"
    beside.write_text(json.dumps({"display_name": "worker", "instance": "worker", **members}))
    beside.rename(Path(directory) / "worker.json")

def connect(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(path)
    return connection

def call(connection, method, parameters, **flags):
    call = {"method": f"io.discoveryd.Models.{method}", "parameters": parameters, **flags}
    connection.sendall(json.dumps(call).encode() + b"\\0")
    reply = b""
    while not reply.endswith(b"\\0"):
        piece = connection.recv(1 << 16)
        if not piece:
            raise EOFError
        reply += piece
    return json.loads(reply[:-1])

def say(*words):
    print(*words, flush=True)
    sys.stdin.readline()
"""


class Container:
    """A program in namespaces, spoken to by lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def line(self) -> str:
        """Return the next line that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.process.wait()}"
        return line.strip()

    def go_on(self) -> None:
        """Let it go on after a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


def namespaces(*flags: str) -> list[str]:
    """Return the command that makes these namespaces; skip the test where it is refused."""
    command = ["unshare", *flags]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: this needs {' '.join(command)}: {tried.stderr.strip()}")
    return command


@contextlib.contextmanager
def container(flags: Sequence[str], program: str, *arguments: object) -> Iterator[Container]:
    command = [*namespaces(*flags), sys.executable, "-c", BEGINNING + program]
    with subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Container(process)
        finally:
            process.kill()


PIDS = ("--pid", "--fork", "--kill-child", "--mount-proc")
USERS = ("--user", "--map-root-user")

NAMED_BY_PID = """
namespace = os.stat("/proc/self/ns/pid").st_ino
drop(sys.argv[1], liveness={"pid": os.getpid(), "pid_namespace": namespace})
say("dropped", os.getpid())
"""

HELD = """
drop(sys.argv[1], liveness={"held": True})
connection = connect(sys.argv[2])
reply = call(connection, "Hold", {"files": ["worker.json"]}, more=True)
say(reply.get("error") or reply["parameters"]["verdicts"][0]["standing"])
"""


def verdict(daemon: Daemon) -> Verdict:
    with daemon.client() as client:
        return Host(daemon, client).verdict_of(daemon.cards / "worker.json")


def test_a_process_of_another_pid_namespace_is_unknown_which_is_not_gone(
    shared_daemon: Daemon, host: Host
) -> None:
    """B52: its number is some other process's here, or nobody's."""
    with container(PIDS, NAMED_BY_PID, host.cards) as worker:
        assert worker.line() == "dropped 1"
        said = verdict(shared_daemon)
        assert said.standing == "serving"
        assert [warning for warning in said.warnings if '{"held": true}' in warning]
    # Nobody can know that it has ended.
    assert verdict(shared_daemon).standing == "serving"


@pytest.mark.parametrize("users", [(), USERS], ids=["root", "mapped"])
def test_a_held_card_dies_with_its_container(
    shared_daemon: Daemon, host: Host, users: tuple[str, ...]
) -> None:
    """Whose the file is and who holds it are told alike through a user namespace."""
    with container((*users, *PIDS), HELD, host.cards, shared_daemon.socket) as worker:
        assert worker.line() == "serving"
        said = verdict(shared_daemon)
        assert (said.standing, said.owner_uid) == ("serving", os.geteuid())
    until(lambda: verdict(shared_daemon).standing == "expired", "the container has ended")
    assert [reason.rule for reason in verdict(shared_daemon).reasons] == ["not_held"]


MOUNTED = """
run, cards, inside = map(Path, sys.argv[1:])
for name, what in ("run", run), ("cards", cards), ("socket", run / "s"):
    place = inside / name
    place.touch() if name == "socket" else place.mkdir()
    assert os.spawnlp(os.P_WAIT, "mount", "mount", "--bind", str(what), str(place)) == 0

def ask(path):
    try:
        call(connect(path), "Sync", {"files": ["worker.json"]})
    except OSError as error:
        return type(error).__name__
    return "answered"

os.chdir("/")
drop(inside / "cards")
say("through the directory", ask(f"{inside}/run/s"), "through the file", ask(f"{inside}/socket"))
say("through the directory", ask(f"{inside}/run/s"), "through the file", ask(f"{inside}/socket"))
"""


def test_a_container_has_the_sockets_directory_mounted_never_the_socket_alone(
    root: Path, start: Start
) -> None:
    """A mounted file stays the one that it was: after a restart of the daemon nobody answers."""
    run, inside = root / "run", root / "inside"
    run.mkdir()
    inside.mkdir()
    (root / "cards").mkdir()
    arguments = ["--cards", str(root / "cards"), "--socket", str(run / "s")]
    flags = ("--mount", "--propagation", "private")
    first = start(arguments, at=run / "s").wait_ready()
    with container(flags, MOUNTED, run, root / "cards", inside) as worker:
        assert worker.line() == "through the directory answered through the file answered"
        assert verdict(first).standing == "serving"
        first.stop()
        start(arguments, at=run / "s").wait_ready()
        worker.go_on()
        told = worker.line()
        assert told == "through the directory answered through the file ConnectionRefusedError"


def test_a_daemon_in_a_user_namespace_knows_its_own_user_and_nobody_else(
    root: Path, start: Start
) -> None:
    """Users who have no number there all look alike, so none of them is taken for another."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can give files to other users")
    config = root / "config.toml"
    config.write_text('cards = ["cards"]\nsocket = "s"\nowner = "uid"\n')
    cards = root / "cards"
    cards.mkdir(mode=0o1777)
    daemon = start(["--config", str(config)], prefix=namespaces(*USERS)).wait_ready()
    with daemon.client() as client:
        host = Host(daemon, client)
        own: Json = {"display_name": "own", "liveness": {"held": True}}
        write(cards / "own.json", own)
        with Raw(daemon.socket) as holder:
            reply = holder.ask("Hold", {"files": ["own.json"]}, more=True)
            (held,) = reply["parameters"]["verdicts"]
            assert (held["standing"], held["owner_uid"]) == ("serving", 0)
        other = cards / "other.json"
        write(other, {"display_name": "other"})
        os.chown(other, 4711, 4711)
        until(lambda: host.verdict_of(other).standing == "forbidden", "it is another's now")
        said = host.verdict_of(other)
        assert [reason.rule for reason in said.reasons] == ["not_allowed"]
        assert "user namespace" in said.reasons[0].message
        assert said.owner_uid is None
