"""The oracle as a part of the benchmark: how often verdicts and names are not the real Dynamo's.

Differences that are documented are deviations, and counted apart; what is left should be nothing.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.bench.oracle import comparing, listing
from tests.bench.oracle.frontend import Hindered
from tests.bench.oracle.ours import Watched
from tests.bench.oracle.runtime import Runtime
from tests.bench.table import Row, Setup, Spread
from tests.system.running import Daemon, short_directory

NAME = "oracle"
SEED = "1"

CASES, QUICK_CASES = 10_000, 50
WATCHED, QUICK_WATCHED = 300, 10
WORLDS, QUICK_WORLDS = 84, 3
EVENTS, QUICK_EVENTS = 6, 4
"""Each world has some three groups in its time. The longer it lives, the longer are the retries of
the frontend, which are waited for."""


def measure(setup: Setup) -> Iterator[Row]:
    """Yield rows: verdicts of the registry, verdicts of a daemon, names; differences are printed
    to standard error, each with its seed."""
    cases, watched, worlds, events = (
        (QUICK_CASES, QUICK_WATCHED, QUICK_WORLDS, QUICK_EVENTS)
        if setup.quick
        else (CASES, WATCHED, WORLDS, EVENTS)
    )
    python = setup.peers / "dynamo-runtime" / "bin" / "python"
    frontend = setup.peers / "dynamo-frontend" / "bin" / "python"
    whats = (
        f"{cases:,} random cases against the real runtime",
        f"{watched:,} of them through a daemon that follows a store",
        f"{worlds:,} random hosts, {events} events each, against the real frontend's names",
    )
    if not python.exists():
        yield from (_missing(what, _absent(python)) for what in whats)
        return
    with Runtime(python) as runtime:
        yield from _verdicts(whats[0], lambda: comparing.run(runtime, SEED, range(cases)), runtime)
        yield from _verdicts(whats[1], lambda: through_daemon(runtime, watched), runtime)
        if frontend.exists():
            yield from _names(whats[2], runtime, frontend, worlds, events)
        else:
            yield _missing(whats[2], _absent(frontend))


def through_daemon(runtime: Runtime, cases: int, seed: str = SEED) -> comparing.Report:
    """Compare cases as a daemon judges them that follows a store."""
    with short_directory() as root:
        daemon = Daemon(root)
        try:
            daemon.wait_ready()
            with daemon.client() as client:
                judge = Watched(daemon.store, client).judged
                report = comparing.run(runtime, seed, range(cases), judge)
        finally:
            daemon.kill()
    return report


def _verdicts(what: str, run: Callable[[], comparing.Report], runtime: Runtime) -> Iterator[Row]:
    report = run()
    if report.differing:
        sys.stderr.write(f"{comparing.told(report, runtime)}\n")
    yield from _rows(what, report.differing, report.deviated.total())


def _names(what: str, runtime: Runtime, python: Path, worlds: int, events: int) -> Iterator[Row]:
    try:
        report = listing.run(runtime, python, seed=SEED, worlds=worlds, events=events)
    except Hindered as why:
        yield _missing(what, str(why))
        return
    if report.differing:
        sys.stderr.write(f"{listing.told(report)}\n")
    yield from _rows(what, report.differing, report.deviated.total())


def _rows(what: str, differing: Sequence[object], deviated: int) -> Iterator[Row]:
    count = len(differing)
    yield Row(
        part=NAME,
        what=f"{what}: differences beyond the documented deviations",
        unit="cases",
        ours=_once(count),
        target="0",
        met=count == 0,
    )
    yield Row(part=NAME, what=f"{what}: documented deviations", unit="cases", ours=_once(deviated))


def _absent(python: Path) -> str:
    return f"Dynamo is not installed: there is no {python.parent.parent.name}"


def _once(count: int) -> Spread:
    return Spread(count, count, count, 1)


def _missing(what: str, why: str) -> Row:
    return Row(
        part=NAME,
        what=f"{what}: differences beyond the documented deviations",
        unit="cases",
        ours=None,
        target="0",
        missing=why,
    )
