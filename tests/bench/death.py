"""From a worker's death to the first answer without it: `python -m tests.bench.death`.

A worker is a process whose card names its pid, or one whose connection holds its card; it is killed
while the daemon is otherwise idle, with some thousand other cards in its directory. Two clients
look: one asks Resolve again and again, one is told by Watch.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from tests.bench import daemons

CARDS = 1000
DEATHS = 100
DEADLINE_SECONDS = 10.0

_HOLD = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(sys.argv[2].encode() + b"\\0")
connection.recv(1 << 16)
sys.stdout.write("held\\n")
sys.stdout.flush()
connection.recv(1 << 16)
"""

Begin = Callable[[daemons.Daemon, int], subprocess.Popen[bytes]]
Away = Callable[[daemons.Daemon, int, subprocess.Popen[bytes]], float]


def by_pid(daemon: daemons.Daemon, number: int) -> subprocess.Popen[bytes]:
    """Begin a worker whose card names its process."""
    worker = subprocess.Popen(["sleep", "600"])
    _put(daemon, number, {"pid": worker.pid})
    return worker


def by_hold(daemon: daemons.Daemon, number: int) -> subprocess.Popen[bytes]:
    """Begin a worker that holds its card."""
    _put(daemon, number, {"held": True})
    message = {
        "method": "io.discoveryd.Models.Hold",
        "parameters": {"files": [f"w{number}.json"]},
        "more": True,
    }
    command = [sys.executable, "-c", _HOLD, str(daemon.socket_path), json.dumps(message)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE)
    if worker.stdout is None or worker.stdout.readline() != b"held\n":
        raise RuntimeError("the worker does not hold its card")
    return worker


def until_unresolved(daemon: daemons.Daemon, number: int, worker: subprocess.Popen[bytes]) -> float:
    """Kill it; return the seconds until Resolve does not know its name any more."""
    frame = daemons.call("Resolve", name=f"acme/model-{number}")
    with daemon.connect() as connection:
        if daemons.ask(connection, frame).startswith(b'{"error"'):
            raise RuntimeError(f"model-{number} is not served")
        daemons.pause()
        began = time.perf_counter()
        worker.kill()
        while not daemons.ask(connection, frame).startswith(b'{"error"'):
            if time.perf_counter() - began > DEADLINE_SECONDS:
                raise TimeoutError(f"model-{number} is still served")
        return time.perf_counter() - began


def until_told(daemon: daemons.Daemon, number: int, worker: subprocess.Popen[bytes]) -> float:
    """Kill it; return the seconds until a watcher of its name is told."""
    named = {"name": f"acme/model-{number}"}
    asked = {"method": "io.discoveryd.Models.Watch", "parameters": named, "more": True}
    with daemon.connect() as connection:
        daemons.ask(connection, json.dumps(asked).encode() + b"\0")
        daemons.pause()
        began = time.perf_counter()
        worker.kill()
        told = _receive(connection)
        taken = time.perf_counter() - began
    if json.loads(told[:-1])["parameters"]["gone"] != [named["name"]]:
        raise RuntimeError(f"the watcher was told {told!r}")
    return taken


def main() -> None:
    """Print the table."""
    daemon_core, client_core = daemons.two_cores()
    with daemons.workplace() as place:
        for number in range(CARDS):
            (place / "cards" / f"{number}.json").write_bytes(daemons.flat_card(number))
        with daemons.running(place, core=daemon_core) as daemon, daemons.pinned(client_core):
            numbers = iter(range(CARDS, 10 * CARDS))
            ways: list[tuple[str, Begin, Away]] = [
                ("pid killed -> Resolve without it", by_pid, until_unresolved),
                ("pid killed -> a watcher is told", by_pid, until_told),
                ("holder killed -> Resolve without it", by_hold, until_unresolved),
                ("holder killed -> a watcher is told", by_hold, until_told),
            ]
            for what, begin, away in ways:
                daemons.say(what, [_die(daemon, next(numbers), begin, away) for _ in range(DEATHS)])


def _die(daemon: daemons.Daemon, number: int, begin: Begin, away: Away) -> float:
    with begin(daemon, number) as worker:
        try:
            return away(daemon, number, worker)
        finally:
            worker.kill()


def _put(daemon: daemons.Daemon, number: int, liveness: dict[str, object]) -> None:
    members = json.loads(daemons.flat_card(number)) | {"liveness": liveness}
    daemon.put(f"w{number}.json", json.dumps(members).encode())
    with daemon.connect() as connection:
        daemons.ask(connection, daemons.call("Sync", files=[f"w{number}.json"]))


def _receive(connection: socket.socket) -> bytes:
    connection.settimeout(DEADLINE_SECONDS)
    received = connection.recv(daemons.READ_BYTES)
    while not received.endswith(b"\0"):
        received += connection.recv(daemons.READ_BYTES)
    return received


if __name__ == "__main__":
    main()
