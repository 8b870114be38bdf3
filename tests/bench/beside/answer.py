"""From a card's rename, or a key's put, to the first other client that has it.

Our client watches, as etcd's does; Dynamo's frontend can only be asked again and again, and lists a
name when it has built the pipeline that serves it: its time is not that of its watcher alone. Each
card is taken back before the next comes: a model that is listed costs the frontend four instances
of inotify, and a user has 128 in all.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import daemons, latency
from tests.bench.beside.turns import Once, Peer, Turns, beside
from tests.bench.peers import etcd
from tests.bench.peers.dynamo import Dynamo
from tests.bench.table import Row, Setup

NAME = "answer-peers"
TURNS, QUICK_TURNS = Turns(40), Turns(3)
SETTLE_SECONDS = 2.0
"""How long the frontend has to learn of the workers' instances before their cards come.

One whose instance it does not know yet is never listed.
"""


def measure(setup: Setup) -> Iterator[Row]:
    """Yield one row beside Dynamo's frontend and one beside etcd."""
    turns = QUICK_TURNS if setup.quick else TURNS
    daemon_core, client_core = daemons.two_cores()
    with (
        daemons.workplace() as place,
        daemons.running(place, core=daemon_core) as daemon,
        daemons.pinned(client_core),
    ):
        yield beside(
            NAME,
            "card renamed into place until another client has it",
            lambda number: until_told(daemon, number),
            Peer("Dynamo's frontend", lambda: _listed(setup.peers, place / "dynamo", turns)),
            turns,
        )
        yield beside(
            NAME,
            "card renamed into place, or key put, until another client has it",
            lambda number: until_told(daemon, turns.warm_up + turns.measured + number),
            Peer("etcd, by its gateway", lambda: _watched(place)),
            turns,
        )


def until_told(daemon: daemons.Daemon, number: int) -> float:
    """Rename a card into place; return the seconds until a watcher of its name is told."""
    return latency.until_told(daemon, number, latency.renamed) / 1e3


@contextlib.contextmanager
def _listed(peers: Path, place: Path, turns: Turns) -> Iterator[Once]:
    dynamo = Dynamo(peers, place)
    with dynamo.frontend() as frontend, dynamo.worker("base"):
        frontend.until("base", listed=True)
        for number in range(turns.warm_up + turns.measured):
            dynamo.spare(number)
        time.sleep(SETTLE_SECONDS)

        def until_listed(number: int) -> float:
            name = f"model-{number}"
            put = dynamo.card(name, number)
            daemons.pause()
            began = time.perf_counter()
            put()
            frontend.until(name, listed=True)
            taken = time.perf_counter() - began
            dynamo.withdraw(number)
            frontend.until(name, listed=False)
            return taken

        yield until_listed


@contextlib.contextmanager
def _watched(place: Path) -> Iterator[Once]:
    with etcd.running(place) as server:

        def until_watched(number: int) -> float:
            daemons.pause()
            return server.until_watched(number, daemons.flat_card(number))

        yield until_watched
