"""Redis: the peer of Resolve's throughput. It runs on a Unix socket, and writes nothing to disk."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.bench.peers import children

BATCH = 1000


@contextlib.contextmanager
def running(place: Path, *, core: int | None = None) -> Iterator[Path]:
    """Run a server meanwhile, on one processor if `core` says which; give its socket."""
    server_socket, log = place / "redis", place / "redis.log"
    command = [children.program("redis-server"), "--port", "0", "--unixsocket", str(server_socket)]
    command += ["--save", "", "--appendonly", "no", "--dir", str(place)]
    command += ["--logfile", str(log)]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    with children.child(command, log) as process:
        children.until(lambda: _answers(server_socket), process, log)
        yield server_socket


def fill(server_socket: Path, values: dict[str, bytes]) -> None:
    """Set keys."""
    frames = [command(b"SET", key.encode(), value) for key, value in values.items()]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(server_socket))
        for first in range(0, len(frames), BATCH):
            batch = frames[first : first + BATCH]
            connection.sendall(b"".join(batch))
            replies = b""
            while replies.count(b"+OK\r\n") < len(batch):
                replies += connection.recv(1 << 16)


def command(*words: bytes) -> bytes:
    """Return the frame of a command."""
    said = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    return b"*%d\r\n" % len(words) + said


def _answers(server_socket: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(server_socket))
        connection.sendall(command(b"PING"))
        return connection.recv(64) == b"+PONG\r\n"
