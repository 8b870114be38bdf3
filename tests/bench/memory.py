"""Whether memory settles under change: `python -m tests.bench.memory [registry|daemon] [CHANGES]`.

Ten thousand keys change a million times: new labels, new names (each never used before, so that
whoever remembers names for ever is found out), new fingerprints, torn files, removals and
re-arrivals. What is resident after the first hundred thousand changes and at the end is compared;
it may grow by a tenth. `registry` drives a registry and its answers in this process; `daemon`
writes files before a daemon with its ledger, a fifth as often, and calls Sync after each round.

In the benchmark each has a process of its own, since memory that others left would hide its own.
"""

import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Batch, Found, Invalid, Sighting
from discoveryd.core.card import InvalidCard
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.registry import Registry
from tests.bench import daemons
from tests.bench.table import Row, Setup, Spread

NAME = "memory"

KEYS = 10_000
CHANGES = 1_000_000
DAEMON_CHANGES = 200_000
QUICK_CHANGES = 2_500
ROUND = 2_000
SEED = 7
MARKS = 10
SETTLED_AFTER = 100_000
"""By then as many names are gone as the history remembers."""

ALLOWED_GROWTH = 1.10

Change = tuple[int, bytes | None]
"""The number of a card and its new content; None: it is removed."""


def changes(seed: int) -> Iterator[Change]:
    """Yield changes without end. Every key arrives before any changes."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    here = [False] * KEYS
    count = 0
    while True:
        number = count if count < KEYS else chance.randrange(KEYS)
        count += 1
        what = chance.random()
        if here[number] and what < 0.1:
            here[number] = False
            yield number, None
            continue
        card = json.loads(daemons.flat_card(number))
        # Few models share a source and an endpoint with many others, so that cards also wait.
        card["source_path"] = f"/models/{number % 2_000}"
        card["aliases"] = [f"alias-{count}", f"shared-{chance.randrange(KEYS)}"]
        card["labels"] = {"zone": str(chance.randrange(1000))}
        if what < 0.4:
            card["kv_cache_block_size"] = chance.choice((16, 32))
        content = json.dumps(card).encode()
        if count > KEYS and what > 0.97:
            content = content[: len(content) // 2]
        here[number] = True
        yield number, content


class InProcess:
    """A registry and its answers, as a daemon has them."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.answers = Answers("epoch")
        self._chance = random.Random(SEED)  # noqa: S311  # no secret
        self._pending: list[Sighting] = []

    def change(self, number: int, content: bytes | None) -> None:
        """Make one change; batches are of one to forty."""
        file = f"/cards/{number}.json"
        found = None if content is None else _read(content, str(number))
        if any(sighting.file == file for sighting in self._pending):
            self.settle()
        self._pending.append(Sighting(file=file, found=found, mtime_ns=0, owner=1000))
        if len(self._pending) >= self._chance.randint(1, 40):
            self.settle()

    def settle(self) -> None:
        """Apply what is pending."""
        batch = Batch(sightings=tuple(self._pending), now=time.time())
        self.answers.publish(self.registry.apply(batch))
        self._pending.clear()

    def resident_bytes(self) -> int:
        """Return how much memory of this process is resident."""
        gc.collect()
        return daemons.resident_bytes(os.getpid())


class OnDisk:
    """A daemon and its directory."""

    def __init__(self, daemon: daemons.Daemon) -> None:
        self._daemon = daemon
        self._connection = daemon.connect()
        self._written = 0

    def change(self, number: int, content: bytes | None) -> None:
        """Make one change; rounds of ROUND are waited for."""
        if content is None:
            (self._daemon.cards / f"{number}.json").unlink()
        else:
            self._daemon.put(f"{number}.json", content)
        self._written += 1
        if self._written % ROUND == 0:
            self.settle()

    def settle(self) -> None:
        """Return when the daemon has applied what is on disk."""
        reply = daemons.ask(self._connection, daemons.call("Sync"))
        if b'"error"' in reply[:10]:
            raise RuntimeError(f"Sync was answered by {reply!r}")

    def resident_bytes(self) -> int:
        """Return how much memory of the daemon is resident."""
        return self._daemon.resident_bytes()


def growth(host: InProcess | OnDisk, total: int, say: Callable[[str], None]) -> float:
    """Make so many changes; return how many times what it was after SETTLED_AFTER memory is."""
    marks: dict[int, int] = {}
    began = time.perf_counter()
    for count, (number, content) in enumerate(changes(SEED), start=1):
        host.change(number, content)
        if count % (total // MARKS) == 0:
            host.settle()
            marks[count] = host.resident_bytes()
            say(
                f"{count:9} changes {marks[count] / 2**20:8.1f} MiB resident"
                f" {time.perf_counter() - began:8.1f} s"
            )
        if count == total:
            break
    first = min(mark for mark in marks if mark >= min(SETTLED_AFTER, total // 2))
    grown = marks[max(marks)] / marks[first]
    say(f"from {first} changes to the end: {grown:.3f} times")
    return grown


def _read(content: bytes, stem: str) -> Found:
    try:
        return parse_card(content, stem=stem)
    except InvalidCard as invalid:
        return Invalid(invalid.reasons, invalid.warnings)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def measure(setup: Setup) -> Iterator[Row]:
    """Yield how memory has grown under change; when `quick`, nothing is promised."""
    for which, usual in (("registry", CHANGES), ("daemon", DAEMON_CHANGES)):
        total = QUICK_CHANGES if setup.quick else usual
        command = [sys.executable, "-m", "tests.bench.memory", which, str(total)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if not ended.stdout.endswith(" times\n"):
            raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}")
        grown = float(ended.stdout.split()[-2])
        yield Row(
            part=NAME,
            what=f"memory of the {which} after {total:,} changes of {KEYS:,} cards, of that before",
            unit="times",
            ours=Spread(grown, grown, grown, 1),
            target=None if setup.quick else f"at most {ALLOWED_GROWTH}",
            met=None if setup.quick else grown <= ALLOWED_GROWTH,
        )


def main(which: str = "registry", total: str = "") -> int:
    """Print the table; the exit status is 1 if memory grew."""
    if which == "registry":
        grown = growth(InProcess(), int(total or CHANGES), _say)
    else:
        with daemons.workplace() as place, daemons.running(place) as daemon:
            grown = growth(OnDisk(daemon), int(total or DAEMON_CHANGES), _say)
    return 0 if grown <= ALLOWED_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
