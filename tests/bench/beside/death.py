"""From a worker's death to the first answer without it, and from a lease's last renewal to its end.

Dynamo's store goes by time: a card that is no longer touched is removed when another process comes
by. A lease measures time too, and the daemon's beside etcd's says how late each is.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import daemons, death
from tests.bench.beside.turns import Once, Peer, Turns, beside
from tests.bench.peers import etcd
from tests.bench.peers.dynamo import Dynamo
from tests.bench.table import Row, Setup

NAME = "death-peers"
TURNS, QUICK_TURNS = Turns(5, warm_up=False), Turns(1, warm_up=False)
LEASE_SECONDS = 2
DEADLINE_SECONDS = 10.0


def measure(setup: Setup) -> Iterator[Row]:
    """Yield one row beside Dynamo and one beside etcd."""
    turns = QUICK_TURNS if setup.quick else TURNS
    with daemons.workplace() as place, daemons.running(place) as daemon:
        yield beside(
            NAME,
            "worker killed until another client knows (ours: its card names its pid)",
            lambda number: death.until_told(daemon, number, death.by_pid) / 1e3,
            Peer("Dynamo's frontend", lambda: _until_unlisted(setup.peers, place / "dynamo")),
            turns,
        )
        yield beside(
            NAME,
            f"lease of {LEASE_SECONDS} s, never renewed, until what it kept is gone",
            lambda number: until_lapsed(daemon, f"leased-{number}"),
            Peer("etcd, by its gateway", lambda: _until_lapsed(place)),
            turns,
        )


def until_lapsed(daemon: daemons.Daemon, name: str) -> float:
    """Put a card with a lease; return the seconds until Resolve does not know it any more."""
    members = {"display_name": name, "liveness": {"lease_seconds": LEASE_SECONDS}}
    frame = daemons.call("Resolve", name=name)
    with daemon.connect() as connection:
        began = time.perf_counter()
        daemon.put(f"{name}.json", json.dumps(members).encode())
        daemons.ask(connection, daemons.call("Sync", files=[f"{name}.json"]))
        if daemons.ask(connection, frame).startswith(b'{"error"'):
            raise RuntimeError(f"{name} was never served")
        while not daemons.ask(connection, frame).startswith(b'{"error"'):
            if time.perf_counter() - began > DEADLINE_SECONDS:
                raise TimeoutError(f"{name} is still served")
            time.sleep(0.001)
        return time.perf_counter() - began


@contextlib.contextmanager
def _until_unlisted(peers: Path, place: Path) -> Iterator[Once]:
    dynamo = Dynamo(peers, place)
    with dynamo.frontend() as frontend:

        def until_unlisted(number: int) -> float:
            name = f"worker-{number}"
            with dynamo.worker(name, f"component{number}") as kill:
                frontend.until(name, listed=True)
                kill()
                return frontend.until(name, listed=False)

        yield until_unlisted


@contextlib.contextmanager
def _until_lapsed(place: Path) -> Iterator[Once]:
    with etcd.running(place) as server:
        yield lambda number: server.until_lapsed(number, daemons.flat_card(number), LEASE_SECONDS)
