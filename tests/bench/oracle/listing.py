"""The differential test of names: the real frontend's `/v1/models`, and our `List`, on one store.

Some worlds have an event each; then both are asked until they agree, or until the frontend has had
time to retry: it does so after 1, 2, 4 ... 30 s, so that who was blocked for a while waits no
longer than that again. A world that still differs either is a documented deviation, and ends there,
since the two have gone separate ways; or it is a bug of somebody's.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from discoveryd.client import Client
from tests.bench.oracle.frontend import Frontend, Json, Store, real_card, running
from tests.bench.oracle.runtime import Runtime
from tests.bench.oracle.worlds import World
from tests.system.running import Daemon, short_directory

LOT = 6
"""How many worlds live at once. The frontend has four inotify instances for every endpoint, of the
128 that a user usually has."""

_SLACK_SECONDS = 3.0
_RETRY_SECONDS = 30.0
_POLL_SECONDS = 0.02


class Difference(msgspec.Struct, frozen=True):
    """What a world's history led to on both sides."""

    world: World
    theirs: frozenset[str]
    ours: frozenset[str]


class Report(msgspec.Struct):
    """What became of many worlds. `agreed` counts events after which both listed the same."""

    worlds: int = 0
    groups: int = 0
    agreed: int = 0
    names: int = 0
    deviated: Counter[str] = msgspec.field(default_factory=Counter)
    differing: list[Difference] = msgspec.field(default_factory=list)


def run(runtime: Runtime, python: Path, *, seed: str, worlds: int, events: int) -> Report:
    """Let every world have so many events. `python` is that of an environment with the frontend."""
    report, card = Report(), real_card(runtime)
    for first in range(0, worlds, LOT):
        lot = [World(seed, number) for number in range(first, min(first + LOT, worlds))]
        report.worlds += len(lot)
        with _sides(python, card) as sides:
            _live(lot, events, sides, report)
        report.groups += sum(len(world.groups) for world in lot)
    return report


class _Sides(NamedTuple):
    """A store, and the two that list its names."""

    store: Store
    frontend: Frontend
    client: Client


@contextlib.contextmanager
def _sides(python: Path, card: Json) -> Iterator[_Sides]:
    with short_directory() as root:
        daemon = Daemon(root)
        try:
            daemon.wait_ready()
            store = Store(daemon.store, card)
            with (
                store.alive(),
                running(python, root, daemon.store) as frontend,
                daemon.client() as client,
            ):
                yield _Sides(store, frontend, client)
        finally:
            daemon.kill()


def _live(lot: list[World], events: int, sides: _Sides, report: Report) -> None:
    began = time.monotonic()
    for _ in range(events):
        for world in lot:
            sides.store.happen(world.next_event())
        age = time.monotonic() - began
        ours, theirs = _agreed(sides, min(age, _RETRY_SECONDS) + _SLACK_SECONDS)
        if ours != theirs:
            sides.frontend.check()
        lot = [world for world in lot if _compare(world, theirs, ours, report)]


def _agreed(sides: _Sides, patience: float) -> tuple[frozenset[str], frozenset[str]]:
    """Return what both list, once that is the same, or in the end: ours, then the frontend's."""
    sides.client.sync()
    deadline = time.monotonic() + patience
    while True:
        ours = frozenset(name.name for name in sides.client.list().names if name.ready)
        theirs = sides.frontend.names()
        if ours == theirs or time.monotonic() > deadline:
            return ours, theirs
        time.sleep(_POLL_SECONDS)


def _compare(world: World, theirs: frozenset[str], ours: frozenset[str], report: Report) -> bool:
    """Enter what became of a world; return whether it goes on."""
    mine, its = _of(world, ours), _of(world, theirs)
    if mine == its:
        report.agreed += 1
        report.names += len(mine)
        return True
    if world.deviations:
        report.deviated[" + ".join(sorted(world.deviations))] += 1
    else:
        report.differing.append(Difference(world, its, mine))
    return False


def _of(world: World, names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if name.startswith(world.name))


def told(report: Report) -> str:
    """Return the report in words."""
    went = f"{report.worlds} worlds, {report.groups} groups; after {report.agreed} events the same"
    lines = [f"{went} {report.names} names listed"]
    lines += [f"{count:6} deviate: {name}" for name, count in report.deviated.most_common()]
    lines.append(f"{len(report.differing):6} DIFFER")
    for difference in report.differing:
        for event in difference.world.history:
            lines.append(f"    {event.key} {event.what} {event.card or ''}")
        lines.append(f"    Dynamo: {sorted(difference.theirs)}")
        lines.append(f"    discoveryd: {sorted(difference.ours)}")
    return "\n".join(lines)
