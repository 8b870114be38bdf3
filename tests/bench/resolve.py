"""How many calls of Resolve one connection gets answered: `python -m tests.bench.resolve`.

The daemon has one processor, the client another. Known and unknown names take turns, so that what
else the machine does meets both; each line is the median of the rounds, and their range.
"""

import statistics
import sys
import time
from typing import NamedTuple

from tests.bench import daemons

BATCHES = (16, 64)
CARDS = 100
ROUNDS = 7
ROUND_SECONDS = 0.6

KNOWN = daemons.call("Resolve", name="acme/model-50")
UNKNOWN = daemons.call("Resolve", name="acme/model-none")


class Rates(NamedTuple):
    """One rate a round."""

    known: list[daemons.Rate]
    unknown: list[daemons.Rate]


def measure(
    daemon: daemons.Daemon, *, batch: int, rounds: int = ROUNDS, seconds: float = ROUND_SECONDS
) -> Rates:
    """Ask for one known and one unknown name in turns."""
    rates = Rates([], [])
    for _ in range(rounds):
        for frame, kept in ((KNOWN, rates.known), (UNKNOWN, rates.unknown)):
            kept.append(daemons.pipelined(daemon, frame, batch=batch, seconds=seconds))
    return rates


def one_at_a_time(daemon: daemons.Daemon, calls: int = 5_000) -> list[float]:
    """Return how many microseconds each of many blocking calls took."""
    taken: list[float] = []
    with daemon.connect() as connection:
        for _ in range(calls):
            began = time.perf_counter()
            daemons.ask(connection, KNOWN)
            taken.append((time.perf_counter() - began) * 1e6)
    return taken


def main() -> None:
    """Print the table."""
    daemon_core, client_core = daemons.two_cores()
    with daemons.workplace() as place:
        for number in range(CARDS):
            (place / "cards" / f"{number}.json").write_bytes(daemons.flat_card(number))
        with daemons.running(place, core=daemon_core) as daemon, daemons.pinned(client_core):
            for batch in BATCHES:
                rates = measure(daemon, batch=batch)
                for what, seen in zip(rates._fields, rates, strict=True):
                    name = f"{what} name, {batch} at a time"
                    say(name, [rate.on_the_wall for rate in seen], "calls/s")
                    say("", [rate.of_its_time for rate in seen], "calls/s of its own time")
            say("known name, one blocking call", one_at_a_time(daemon), "us")


def say(what: str, seen: list[float], unit: str) -> None:
    """Print one line: the median, and the range without the highest and lowest twentieth."""
    ordered = sorted(seen)
    cut = len(ordered) // 20
    low, high = ordered[cut], ordered[-1 - cut]
    median = statistics.median(ordered)
    sys.stdout.write(f"{what:34} {median:9.1f} {unit} ({low:.1f} to {high:.1f})\n")


if __name__ == "__main__":
    main()
