"""From start to ready with many cards, and their memory: `python -m tests.bench.start [CARDS ...]`.

Beside the daemon runs the least that anybody must do: a fresh process that lists the directory,
reads every file and decodes its JSON. Each is run several times in turns, the best of each counts.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.bench import daemons

CARDS = (10_000, 100_000)
ROUNDS = 3


class Start(NamedTuple):
    """One start: seconds until the socket accepted, the daemon's own time, its memory then."""

    seconds: float
    cpu_seconds: float
    resident_bytes: int


def bare_loop(directory: str) -> None:
    """Do the least that anybody must do."""
    for entry in os.scandir(directory):
        entry.stat(follow_symlinks=False)
        msgspec.json.decode(Path(entry.path).read_bytes())


def bare_seconds(directory: Path) -> float:
    """Return how long a fresh process takes for that."""
    command = [sys.executable, "-m", "tests.bench.start", "bare", str(directory)]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def start(place: Path) -> Start:
    """Start a daemon on the cards, and end it."""
    began = time.perf_counter()
    with daemons.running(place) as daemon:
        seconds = time.perf_counter() - began
        return Start(seconds, daemon.cpu_seconds(), daemon.resident_bytes())


def main(counts: list[int]) -> None:
    """Print the table."""
    with daemons.workplace() as empty:
        nothing = min(start(empty) for _ in range(ROUNDS))
    sys.stdout.write(
        f"{'no cards':12} {nothing.seconds:7.3f} s, {nothing.resident_bytes / 2**20:.1f} MiB\n"
    )
    for count in counts or CARDS:
        with daemons.workplace() as place:
            json_bytes = 0
            for number in range(count):
                content = daemons.flat_card(number)
                json_bytes += len(content)
                (place / "cards" / f"{number}.json").write_bytes(content)
            rounds = [(bare_seconds(place / "cards"), start(place)) for _ in range(ROUNDS)]
        bare = min(seconds for seconds, _ in rounds)
        best = min(started for _, started in rounds)
        grown = min(started.resident_bytes for _, started in rounds) - nothing.resident_bytes
        each = 1e6 * (best.seconds - nothing.seconds) / count
        sys.stdout.write(
            f"{count:7} cards {best.seconds:6.3f} s, {best.cpu_seconds:.3f} s of its own time,"
            f" {each:.1f} us a card; bare loop {bare:.3f} s: {best.seconds / bare:.1f} times;"
            f" {grown / count:.0f} bytes a card beside {json_bytes // count} of JSON\n"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        bare_loop(sys.argv[2])
    else:
        main([int(argument) for argument in sys.argv[1:]])
