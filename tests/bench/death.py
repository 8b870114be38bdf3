"""From a worker's death to answers without it.

A worker is a process whose card names its pid, or one whose connection holds its card, or one that
renews a lease; it is killed while the daemon is otherwise idle, with some thousand other cards in
its directory. What is measured is the time until a client that watches its name is told. A lease
must run out first: there it is the time after that which counts.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count

from tests.bench import daemons
from tests.bench.table import Row, Setup, spread
from tests.bench.watching import Watcher

NAME = "death"

CARDS = 1000
DEATHS, DEATHS_IF_QUICK = 100, 2
LEASES, LEASES_IF_QUICK = 10, 1
LEASE_SECONDS = 1

GONE_MS = 5.0

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
"""Begins a worker, with a card of its own."""


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


def until_told(daemon: daemons.Daemon, number: int, begin: Begin) -> float:
    """Kill a worker; return the milliseconds until a watcher of its name is told."""
    with begin(daemon, number) as worker:
        try:
            with Watcher(daemon, f"acme/model-{number}") as watcher:
                daemons.pause()
                began = time.perf_counter()
                worker.kill()
                return 1e3 * (_gone(watcher, number) - began)
        finally:
            worker.kill()


def until_expired(daemon: daemons.Daemon, number: int) -> float:
    """Renew a lease once; return the milliseconds from its end until a watcher is told."""
    _put(daemon, number, {"lease_seconds": LEASE_SECONDS})
    with Watcher(daemon, f"acme/model-{number}") as watcher:
        os.utime(daemon.cards / f"w{number}.json")
        ends = time.perf_counter() + LEASE_SECONDS
        return 1e3 * (_gone(watcher, number) - ends)


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for each way to live."""
    daemon_core, client_core = daemons.two_cores()
    deaths = DEATHS_IF_QUICK if setup.quick else DEATHS
    leases = LEASES_IF_QUICK if setup.quick else LEASES
    with daemons.workplace() as place:
        for number in range(CARDS):
            (place / "cards" / f"{number}.json").write_bytes(daemons.flat_card(number))
        with daemons.running(place, core=daemon_core) as daemon, daemons.pinned(client_core):
            numbers = count(CARDS)
            for what, begin in (("pid", by_pid), ("hold", by_hold)):
                seen = spread([until_told(daemon, next(numbers), begin) for _ in range(deaths)])
                yield Row(
                    part=NAME,
                    what=f"worker killed, until a watcher knows ({what})",
                    unit="ms",
                    ours=seen,
                    target=f"<= {GONE_MS:g} ms",
                    met=seen.median <= GONE_MS,
                )
            seen = spread([until_expired(daemon, next(numbers)) for _ in range(leases)])
            yield Row(part=NAME, what="lease run out, until a watcher knows", unit="ms", ours=seen)


def _gone(watcher: Watcher, number: int) -> float:
    told, reply = watcher.told()
    if reply["gone"] != [f"acme/model-{number}"]:
        raise RuntimeError(f"the watcher of model-{number} was told {reply}")
    return told


def _put(daemon: daemons.Daemon, number: int, liveness: dict[str, object]) -> None:
    members = json.loads(daemons.flat_card(number)) | {"liveness": liveness}
    daemon.put(f"w{number}.json", json.dumps(members).encode())
    with daemon.connect() as connection:
        daemons.ask(connection, daemons.call("Sync", files=[f"w{number}.json"]))
