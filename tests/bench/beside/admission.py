"""One more worker of a model that N serve already: until the worker itself knows it is admitted.

Ours writes a card, renames it and calls Sync for it; Dynamo's calls `register_model`, which reads
the whole store twice. Each is taken back after, so that N stays what it is.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import daemons
from tests.bench.beside.turns import Once, Peer, Turns, beside
from tests.bench.peers.dynamo import Dynamo
from tests.bench.table import Row, Setup

NAME = "admission-peers"
COUNTS, QUICK_COUNTS = (0, 100, 1_000, 10_000), (0, 100)
TURNS, QUICK_TURNS = Turns(15), Turns(3)
MODEL = "one"


def measure(setup: Setup) -> Iterator[Row]:
    """Yield one row for each count of workers that are there."""
    for count in QUICK_COUNTS if setup.quick else COUNTS:
        yield _row(setup, count)


def _row(setup: Setup, count: int) -> Row:
    with daemons.workplace() as place:
        for number in range(count):
            (place / "cards" / f"{number}.json").write_bytes(card(number))
        with daemons.running(place) as daemon:
            return beside(
                NAME,
                f"one more worker admitted to an endpoint with {count:,}",
                lambda _: admitted(daemon, count),
                Peer(
                    "Dynamo's register_model",
                    lambda: _registered(setup.peers, place / "dynamo", count),
                ),
                QUICK_TURNS if setup.quick else TURNS,
            )


def card(number: int) -> bytes:
    """Return the card of one of many workers of one model."""
    members = {
        "display_name": MODEL,
        "source_path": "/models/one",
        "url": f"http://127.0.0.1:{1_024 + number}",
    }
    return json.dumps(members).encode()


def admitted(daemon: daemons.Daemon, number: int) -> float:
    """Admit one more worker and let it go; return the seconds until it was admitted."""
    file, content = f"{number}.json", card(number)
    frame = daemons.call("Sync", files=[file])
    with daemon.connect() as connection:
        daemons.pause()
        began = time.perf_counter()
        path = daemon.put(file, content)
        reply = daemons.ask(connection, frame)
        taken = time.perf_counter() - began
        Path(path).unlink()
        daemons.ask(connection, frame)
    standing = json.loads(reply[:-1])["parameters"]["verdicts"][0]["standing"]
    if standing != "serving":
        raise RuntimeError(f"{file} is {standing}")
    return taken


@contextlib.contextmanager
def _registered(peers: Path, place: Path, count: int) -> Iterator[Once]:
    dynamo = Dynamo(peers, place)
    if count:
        dynamo.fill(MODEL, count)
    with dynamo.registrar(MODEL) as register:
        yield lambda _: register()
