"""From a card on disk to an answer that has it.

The daemon is otherwise idle, and between two cards the machine gets time to fall asleep. The card
is new each time. It is written beside its place beforehand and renamed into it, or written in its
place; what is measured is the time until another client, which watches the name, is told of it, or
until a Sync of that file has returned with the verdict.
"""

import json
import time
from collections.abc import Callable, Iterator
from itertools import count

from discoveryd.client import publish
from tests.bench import daemons
from tests.bench.table import Row, Setup, spread
from tests.bench.watching import Watcher

NAME = "latency"

CARDS = 200
CARDS_IF_QUICK = 3

TOLD_MS = 3.0
SYNCED_MS = 0.5

Put = Callable[[daemons.Daemon, str, bytes], float]
"""Puts a card into the directory; returns when that was begun, by `time.perf_counter`."""


def renamed(daemon: daemons.Daemon, file: str, content: bytes) -> float:
    """Rename a card into place that was written beside it."""
    beside = daemon.cards / f".{file}.tmp"
    beside.write_bytes(content)
    daemons.pause()
    began = time.perf_counter()
    beside.rename(daemon.cards / file)
    return began


def written(daemon: daemons.Daemon, file: str, content: bytes) -> float:
    """Write a card in its place."""
    began = time.perf_counter()
    (daemon.cards / file).write_bytes(content)
    return began


def published(daemon: daemons.Daemon, file: str, content: bytes) -> float:
    """Let our client publish a card."""
    began = time.perf_counter()
    publish(content, file, str(daemon.cards))
    return began


def until_told(daemon: daemons.Daemon, number: int, put: Put) -> float:
    """Put a card in place; return the milliseconds until a watcher of its name is told."""
    with Watcher(daemon, f"acme/model-{number}") as watcher:
        daemons.pause()
        began = put(daemon, f"{number}.json", daemons.flat_card(number))
        told, reply = watcher.told()
    if not reply["changed"]:
        raise RuntimeError(f"the watcher of model-{number} was told {reply}")
    return 1e3 * (told - began)


def until_synced(daemon: daemons.Daemon, number: int, put: Put) -> float:
    """Put a card in place; return the milliseconds until Sync has answered that it is served."""
    frame = daemons.call("Sync", files=[f"{number}.json"])
    with daemon.connect() as connection:
        began = put(daemon, f"{number}.json", daemons.flat_card(number))
        reply = daemons.ask(connection, frame)
        taken = time.perf_counter() - began
    standing = json.loads(reply[:-1])["parameters"]["verdicts"][0]["standing"]
    if standing != "serving":
        raise RuntimeError(f"Sync returned, and model-{number} is {standing}")
    return 1e3 * taken


def measure(setup: Setup) -> Iterator[Row]:
    """Yield a row for each way to put a card."""
    daemon_core, client_core = daemons.two_cores()
    runs = CARDS_IF_QUICK if setup.quick else CARDS
    numbers = count()
    with (
        daemons.workplace() as place,
        daemons.running(place, core=daemon_core) as daemon,
        daemons.pinned(client_core),
    ):
        for what, put, until, most in (
            ("card renamed into place, until a watcher has it", renamed, until_told, TOLD_MS),
            ("card written in place, until a watcher has it", written, until_told, None),
            ("publish() of our client, until a watcher has it", published, until_told, None),
            ("card renamed into place, until Sync has returned", renamed, until_synced, SYNCED_MS),
        ):
            seen = spread([until(daemon, next(numbers), put) for _ in range(runs)])
            target = None if most is None else f"<= {most:g} ms"
            met = None if most is None else seen.median <= most
            yield Row(part=NAME, what=what, unit="ms", ours=seen, target=target, met=met)
