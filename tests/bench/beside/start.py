"""A fresh process before many workers' files, until it has all of them to give.

Ours is `discoveryd serve` until its socket accepts: every card has been read and judged. Dynamo's
is a process of its bindings until its client has every instance: it reads, and does not judge.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import daemons
from tests.bench.beside.turns import Once, Peer, Turns, beside
from tests.bench.peers.dynamo import Dynamo
from tests.bench.table import Row, Setup

NAME = "start-peers"
COUNTS = {1_000: Turns(5), 10_000: Turns(2, warm_up=False)}
QUICK_COUNTS = {1_000: Turns(1, warm_up=False)}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield one row for each count of workers."""
    for count, turns in (QUICK_COUNTS if setup.quick else COUNTS).items():
        yield _row(setup, count, turns)


def _row(setup: Setup, count: int, turns: Turns) -> Row:
    with daemons.workplace() as place:
        for number in range(count):
            (place / "cards" / f"{number}.json").write_bytes(daemons.flat_card(number))
        return beside(
            NAME,
            f"fresh process until it has all of {count:,} workers",
            lambda _: ready(place),
            Peer("Dynamo's client", lambda: _seen(setup.peers, place / "dynamo", count)),
            turns,
        )


def ready(place: Path) -> float:
    """Start a daemon on the cards and end it; return the seconds until its socket accepted."""
    began = time.perf_counter()
    with daemons.running(place):
        return time.perf_counter() - began


@contextlib.contextmanager
def _seen(peers: Path, place: Path, count: int) -> Iterator[Once]:
    dynamo = Dynamo(peers, place)
    dynamo.fill("one", count)
    yield lambda _: dynamo.until_seen(count)
