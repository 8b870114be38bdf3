"""A daemon process to be measured, cards to put before it, and a client that costs little.

What a program here prints of the daemon should be the daemon's: the client sends bytes that were
made beforehand, counts NULs in what comes back, and runs on another processor where there is one.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PAUSE_SECONDS = 0.03
START_SECONDS = 60.0
END_SECONDS = 60.0
"""How long a daemon may take to write what is left of a history of 100,000 cards."""

READ_BYTES = 1 << 18
PEER_BYTES = 12
PROCESS_CLOCK = 2
"""With a process's number, Linux's name for the clock of its time: see clock_getcpuclockid(3)."""

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
"""What processes that are timed are started with: they may keep what they have compiled."""


class Daemon:
    """A running `discoveryd serve`: one drop directory, one socket."""

    def __init__(self, process: subprocess.Popen[bytes], cards: Path, socket_path: Path) -> None:
        self.process = process
        self.cards = cards
        self.socket_path = socket_path

    @property
    def pid(self) -> int:
        """Whose processor time and memory are measured."""
        return self.process.pid

    def connect(self) -> socket.socket:
        """Return a new connection, the caller's to close."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.socket_path))
        except OSError:
            connection.close()
            raise
        return connection

    def cpu_seconds(self) -> float:
        """Return the processor time used so far, by all threads, also those that have ended."""
        return cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        """Return how much memory is resident."""
        return resident_bytes(self.pid)

    def put(self, file: str, content: bytes) -> str:
        """Write a card the way writers should: beside it, then renamed. Return its path."""
        beside = self.cards / f".{file}.tmp"
        beside.write_bytes(content)
        path = self.cards / file
        beside.rename(path)
        return str(path)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, by all threads, also those that ended."""
    return time.clock_gettime(~pid << 3 | PROCESS_CLOCK)


def resident_bytes(pid: int) -> int:
    """Return how much memory of a process is resident."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def pid_behind(server_socket: Path) -> int:
    """Return the process that listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(server_socket))
        said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_BYTES)
    return int.from_bytes(said[:4], sys.byteorder)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Give a directory with a drop directory `cards` in it, short enough for a socket's path."""
    place = Path(tempfile.mkdtemp(prefix="dd-"))
    (place / "cards").mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)


@contextlib.contextmanager
def running(place: Path, *, core: int | None = None, own: Path | None = None) -> Iterator[Daemon]:
    """Run a daemon on `place/cards`, on one processor if `core` says which.

    The body begins when the socket accepts, that is, when every card has been judged. The daemon
    has a new directory of its own, so that it remembers nothing of one that ran before, or `own`,
    with the ledger of the last that had that.
    """
    own = own or Path(tempfile.mkdtemp(dir=place))
    daemon_socket, daemon_log = own / "socket", own / "log"
    command = [sys.executable, "-m", "discoveryd", "serve"]
    command += ["--cards", str(place / "cards"), "--socket", str(daemon_socket)]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    with daemon_log.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=ENVIRONMENT)
    daemon = Daemon(process, place / "cards", daemon_socket)
    try:
        _wait_for(daemon)
        _warn_of_problems(daemon)
        yield daemon
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(END_SECONDS)


def two_cores() -> tuple[int | None, int | None]:
    """Return a processor for the daemon and one for the client, or None twice: there is but one."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1]) if len(cores) > 1 else (None, None)


@contextlib.contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Keep this process on one processor meanwhile."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def call(method: str, **parameters: object) -> bytes:
    """Return the frame of a call of our interface."""
    named = {"method": f"io.discoveryd.Models.{method}", "parameters": parameters}
    return json.dumps(named).encode() + b"\0"


def flat_card(number: int, *, aliases: int = 1) -> bytes:
    """Return a card as people write it, of some 300 bytes: a model of its own, with aliases."""
    members = {
        "display_name": f"acme/model-{number}",
        "aliases": [f"model-{number}-{which}" for which in range(aliases)],
        "source_path": f"/models/acme/model-{number}",
        "url": f"http://127.0.0.1:{10_000 + number % 50_000}/{number}",
        "model_type": "Chat | Completions",
        "kv_cache_block_size": 16,
        "context_length": 32_768,
        "runtime_config": {"max_gpu_lora_count": 4, "taints": []},
        "labels": {"zone": "a", "weight": "1"},
    }
    return json.dumps(members).encode()


def ask(connection: socket.socket, frame: bytes) -> bytes:
    """Send one call and return its whole reply."""
    connection.sendall(frame)
    reply = connection.recv(READ_BYTES)
    while reply and not reply.endswith(b"\0"):
        reply += connection.recv(READ_BYTES)
    return reply


def pipelined(daemon: Daemon, frame: bytes, *, batch: int, seconds: float) -> float:
    """Send one call again and again, `batch` at a time with two batches on their way.

    Returns how many were answered by the second of the daemon's own processor time.
    """
    with daemon.connect() as connection:
        ask(connection, frame)
        return _pipelined(daemon, connection, frame * batch, batch, seconds)


def _pipelined(
    daemon: Daemon, connection: socket.socket, frames: bytes, batch: int, seconds: float
) -> float:
    answered = sent = 0
    used = daemon.cpu_seconds()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        while sent - answered <= batch:
            connection.sendall(frames)
            sent += batch
        answered += connection.recv(READ_BYTES).count(b"\0")
    while answered < sent:
        answered += connection.recv(READ_BYTES).count(b"\0")
    return answered / (daemon.cpu_seconds() - used)


def _wait_for(daemon: Daemon) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            daemon.connect().close()
        except (FileNotFoundError, ConnectionRefusedError):
            if daemon.process.poll() is not None or time.monotonic() > until:
                log = daemon.socket_path.with_name("log").read_text()
                raise RuntimeError(f"the daemon did not come up:\n{log}") from None
            time.sleep(0.0005)
        else:
            return


def _warn_of_problems(daemon: Daemon) -> None:
    """Say what would make the numbers those of a daemon in trouble, as one that cannot watch."""
    with daemon.connect() as connection:
        status = json.loads(ask(connection, call("GetStatus"))[:-1])["parameters"]
    for problem in status["problems"]:
        sys.stderr.write(f"MEASURED IN TROUBLE: {problem}\n")


def pause() -> None:
    """Wait a moment between two measurements, out of step with any clock of the daemon's."""
    time.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311  # no secret
