"""From a fresh process to its first answer: the daemon's with many cards, and discoveryctl's.

Beside the daemon runs the least that anybody must do, the *bare loop*: a fresh process that lists
the directory, stats and reads every file and decodes its JSON. The daemon is started twice in each
turn, on the same cards: with no ledger yet, and again with the ledger that the first one left. It
is ready when its socket accepts: then every card has been judged. What is resident then, beyond
what a daemon without cards has, is its memory.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench import daemons
from tests.bench.table import Row, Setup, Spread, spread

NAME = "start"

ROUNDS = {1_000: 9, 10_000: 5, 100_000: 3}
QUICK_ROUNDS = {1_000: 1}
COMMANDS = 25
QUICK_COMMANDS = 3

PROMISED_FROM = 10_000
"""How many cards there must be for a promise of what each costs: few cost less than the rest."""

TIMES_BARE = 3
MICROSECONDS_A_CARD = 25
BYTES_A_CARD = 2048
COMMAND_MS = 60

_BARE_LOOP = """
import os, sys
from pathlib import Path
import msgspec
for entry in os.scandir(sys.argv[1]):
    entry.stat(follow_symlinks=False)
    msgspec.json.decode(Path(entry.path).read_bytes())
"""


class Start(NamedTuple):
    """One start: seconds until the socket accepted, and what was resident then."""

    seconds: float
    resident_bytes: int


class Turn(NamedTuple):
    """The bare loop, a start without a ledger, and one with that ledger, one after the other."""

    bare_seconds: float
    fresh: Start
    again: Start


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the rows of each count of cards, then those of discoveryctl."""
    with daemons.workplace() as empty:
        rounds = QUICK_ROUNDS if setup.quick else ROUNDS
        starts = [start(empty) for _ in range(max(rounds.values()))]
    nothing = Start(
        spread([each.seconds for each in starts]).median,
        min(each.resident_bytes for each in starts),
    )
    for count, turns in rounds.items():
        yield from _with_cards(count, turns, nothing)
    yield from _command(QUICK_COMMANDS if setup.quick else COMMANDS)


def start(place: Path, own: Path | None = None) -> Start:
    """Start a daemon on the cards, and end it. `own` as for `daemons.running`."""
    began = time.perf_counter()
    with daemons.running(place, own=own) as daemon:
        return Start(time.perf_counter() - began, daemon.resident_bytes())


def _with_cards(count: int, turns: int, nothing: Start) -> Iterator[Row]:
    with daemons.workplace() as place:
        json_bytes = 0
        for number in range(count):
            content = daemons.flat_card(number)
            json_bytes += len(content)
            (place / "cards" / f"{number}.json").write_bytes(content)
        taken = [_turn(place) for _ in range(turns)]
    bare = spread([turn.bare_seconds for turn in taken])
    promised = count >= PROMISED_FROM
    target = f"<= {TIMES_BARE} times, or {MICROSECONDS_A_CARD} us a card"
    for what, starts in (
        (f"start to ready, {count:,} cards", [turn.fresh for turn in taken]),
        (f"start to ready with a ledger, {count:,} cards", [turn.again for turn in taken]),
    ):
        ours = spread([each.seconds for each in starts])
        each_us = 1e6 * (ours.median - nothing.seconds) / count
        met = ours.median <= TIMES_BARE * bare.median or each_us <= MICROSECONDS_A_CARD
        yield Row(
            part=NAME,
            what=what,
            unit="s",
            ours=ours,
            peer="bare loop",
            theirs=bare,
            target=target if promised else None,
            met=met if promised else None,
        )
    grown = [
        (turn.fresh.resident_bytes - nothing.resident_bytes - json_bytes) / count for turn in taken
    ]
    memory = spread(grown)
    yield Row(
        part=NAME,
        what=f"memory of a card beside its JSON, {count:,} cards",
        unit="bytes",
        ours=memory,
        target=f"<= {BYTES_A_CARD // 1024} KiB" if promised else None,
        met=memory.median <= BYTES_A_CARD if promised else None,
    )


def _turn(place: Path) -> Turn:
    own = Path(tempfile.mkdtemp(dir=place))
    bare = _seconds_of([sys.executable, "-c", _BARE_LOOP, str(place / "cards")])
    return Turn(bare, start(place, own), start(place, own))


def _command(turns: int) -> Iterator[Row]:
    with daemons.workplace() as place:
        (place / "cards" / "1.json").write_bytes(daemons.flat_card(1))
        with daemons.running(place) as daemon:
            resolve = [str(Path(sys.executable).with_name("discoveryctl"))]
            resolve += ["--socket", str(daemon.socket_path), "resolve", "acme/model-1"]
            ours: list[float] = []
            peers: dict[str, list[float]] = {"pass": [], "import msgspec": []}
            _seconds_of(resolve)  # What it imports may have to be compiled.
            for _ in range(turns):
                ours.append(_seconds_of(resolve))
                for code, seen in peers.items():
                    seen.append(_seconds_of([sys.executable, "-c", code]))
    taken = _milliseconds(ours)
    for code, seen in peers.items():
        yield Row(
            part=NAME,
            what="discoveryctl resolve NAME, the whole process",
            unit="ms",
            ours=taken,
            peer=f"python -c '{code}'",
            theirs=_milliseconds(seen),
            target=f"<= {COMMAND_MS} ms",
            met=taken.median <= COMMAND_MS,
        )


def _seconds_of(command: Sequence[str]) -> float:
    """Return how long a process takes that must go well; what it prints is dropped."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=daemons.ENVIRONMENT)
    return time.perf_counter() - began


def _milliseconds(seconds: Sequence[float]) -> Spread:
    return spread([1e3 * each for each in seconds])
