"""A busy host: how long answers take and whether they are right while everything changes.

Every card has a lease. One process touches 2,000 of them each second and rewrites 50; another keeps
200 watchers of everything; this one asks Resolve over 1,000 connections, each about once a second,
half of the questions being for cards that are rewritten. In the end every rewritten card is
answered as its file has it, none of the others has lapsed, and no answer on the way was older than
one before it.

`python -m tests.bench.load [SECONDS] [CARDS]` does it for as long as you like, and prints every few
seconds how long answers took and what memory the daemon has; the exit status is 1 if a promise was
not kept.
"""

import contextlib
import heapq
import json
import os
import random
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench import daemons
from tests.bench.table import Row, Setup, Spread

NAME = "load"
CARDS, QUICK_CARDS = 100_000, 2_000
SECONDS, QUICK_SECONDS = 45.0, 1.0
CLIENTS = 1_000
WATCHERS = 200
TOUCHES_A_SECOND = 2_000
REWRITES_A_SECOND = 50
REWRITTEN = 1_000
"""How many cards are rewritten at all: the first ones."""

LEASE_SECONDS = 900
ASK_EVERY_SECONDS = 1.0
REPORT_SECONDS = 5.0
TICK_SECONDS = 0.01
WARM_UP_SECONDS = 3.0
"""How long the other processes take to start, which is none of the daemon's load."""

PROMISED_MS = 20.0

_VERSION = re.compile(rb'"version":"(\d+)"')


def card(number: int, version: int) -> bytes:
    """Return a card with a lease and a version."""
    members = json.loads(daemons.flat_card(number))
    members["labels"] = {"version": str(version)}
    members["liveness"] = {"lease_seconds": LEASE_SECONDS}
    return json.dumps(members).encode()


# The other processes


def touch(cards: Path, count: int) -> None:
    """Touch and rewrite cards in the pace of the clock, for ever."""
    chance = random.Random(1)  # noqa: S311  # no secret
    paths = [str(cards / f"{number}.json") for number in range(count)]
    began = time.monotonic()
    touched = rewritten = 0
    while True:
        now = time.monotonic() - began
        while touched < now * TOUCHES_A_SECOND:
            os.utime(paths[touched % count])
            touched += 1
        while rewritten < now * REWRITES_A_SECOND:
            number = chance.randrange(min(REWRITTEN, count))
            rewritten += 1
            beside = cards / f".{number}.tmp"
            beside.write_bytes(card(number, rewritten))
            beside.rename(cards / f"{number}.json")
        time.sleep(TICK_SECONDS)


def watch(path: str, cursor: str) -> None:
    """Keep watchers of everything from a cursor on; print the count of replies every second."""
    parameters = {"since": json.loads(cursor)}
    named = {"method": "io.discoveryd.Models.Watch", "parameters": parameters, "more": True}
    poll = select.epoll()
    connections: dict[int, socket.socket] = {}
    for _ in range(WATCHERS):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        connection.sendall(json.dumps(named).encode() + b"\0")
        connections[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    replies = resets = 0
    told = time.monotonic()
    while True:
        for number, _ in poll.poll(0.1):
            received = connections[number].recv(daemons.READ_BYTES)
            if not received:
                raise ConnectionError("a watcher was cut off")
            replies += received.count(b"\0")
            resets += received.count(b'{"reset":true')
        if time.monotonic() - told > 1:
            told = time.monotonic()
            sys.stdout.write(f"{replies} {resets}\n")
            sys.stdout.flush()


# This process


class Asked:
    """What many clients asked and were answered."""

    def __init__(self, daemon: daemons.Daemon, cards: int) -> None:
        self.taken: list[float] = []
        self.faults: list[str] = []
        self._cards = cards
        self._chance = random.Random(2)  # noqa: S311  # no secret
        self._versions: dict[int, int] = {}
        self._poll = select.epoll()
        self._clients: dict[int, socket.socket] = {}
        self._waiting: dict[int, tuple[int, float, bytes]] = {}
        self._due: list[tuple[float, int]] = []
        now = time.perf_counter()
        for _ in range(CLIENTS):
            client = daemon.connect()
            self._clients[client.fileno()] = client
            self._poll.register(client, select.EPOLLIN)
            first = now + self._chance.random() * ASK_EVERY_SECONDS
            heapq.heappush(self._due, (first, client.fileno()))

    def go_on(self, seconds: float) -> None:
        """Ask and be answered for so long."""
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until:
            while self._due and self._due[0][0] <= now:
                self._ask(heapq.heappop(self._due)[1])
            pause = self._due[0][0] - time.perf_counter() if self._due else TICK_SECONDS
            for number, _ in self._poll.poll(min(max(pause, 0), TICK_SECONDS)):
                self._answered(number)

    def close(self) -> None:
        """Let all clients go."""
        self._poll.close()
        for client in self._clients.values():
            client.close()

    def _ask(self, client: int) -> None:
        among = self._chance.choice((min(REWRITTEN, self._cards), self._cards))
        number = self._chance.randrange(among)
        frame = daemons.call("Resolve", name=f"model-{number}-0")
        self._waiting[client] = (number, time.perf_counter(), b"")
        self._clients[client].sendall(frame)

    def _answered(self, client: int) -> None:
        number, began, before = self._waiting[client]
        reply = before + self._clients[client].recv(daemons.READ_BYTES)
        if not reply.endswith(b"\0"):
            self._waiting[client] = (number, began, reply)
            return
        now = time.perf_counter()
        self.taken.append(now - began)
        heapq.heappush(
            self._due, (now + ASK_EVERY_SECONDS * self._chance.uniform(0.5, 1.5), client)
        )
        version = _version_in(reply)
        if version is None:
            self.faults.append(f"model-{number}-0: {reply[:200]!r}")
        elif version < self._versions.get(number, 0):
            self.faults.append(f"model-{number}-0 went back to version {version}")
        else:
            self._versions[number] = version


def _version_in(reply: bytes) -> int | None:
    found = _VERSION.search(reply)
    return None if found is None else int(found[1])


def check_all(daemon: daemons.Daemon, cards: int) -> list[str]:
    """Return what is answered otherwise than it lies on disk."""
    faults: list[str] = []
    with daemon.connect() as connection:
        synced = json.loads(daemons.ask(connection, daemons.call("Sync"))[:-1])["parameters"]
        if synced["standings"] != {"serving": cards}:
            faults.append(f"in the end: {synced['standings']}")
        for number in range(min(REWRITTEN, cards)):
            reply = daemons.ask(connection, daemons.call("Resolve", name=f"acme/model-{number}"))
            version = json.loads((daemon.cards / f"{number}.json").read_bytes())["labels"][
                "version"
            ]
            if _version_in(reply) != int(version):
                faults.append(f"{number} is answered as {_version_in(reply)}, and is {version}")
    return faults


@contextlib.contextmanager
def beside(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run another process of this program meanwhile."""
    command = [sys.executable, "-m", "tests.bench.load", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
            if process.poll() is not None:
                raise RuntimeError(f"{arguments[0]} has ended")
        finally:
            process.kill()


class Outcome(NamedTuple):
    """What a busy time brought: seconds for each answer, what was wrong, and the daemon's memory.

    Memory is in bytes, before the load and at its end.
    """

    taken: list[float]
    faults: list[str]
    memory: tuple[int, int]


def measure(setup: Setup) -> Iterator[Row]:
    """Yield three rows of one busy time."""
    cards = QUICK_CARDS if setup.quick else CARDS
    outcome = busy(QUICK_SECONDS if setup.quick else SECONDS, cards, sys.stderr.write)
    ordered = sorted(outcome.taken)
    late = _percentile(outcome.taken, 99)
    on = f"busy host with {cards:,} cards"
    yield Row(
        part=NAME,
        what=f"{on}: 99 of 100 answers within",
        unit="s",
        ours=Spread(late, late, ordered[-1], len(ordered)),
        target=f"<= {PROMISED_MS:.0f} ms",
        met=1e3 * late <= PROMISED_MS,
    )
    count = len(outcome.faults)
    yield Row(
        part=NAME,
        what=f"{on}: answers wrong, older than one before, or lapsed, of {len(ordered):,}",
        unit="answers",
        ours=Spread(count, count, count, len(ordered)),
        target="0",
        met=not count,
    )
    growth = outcome.memory[1] / outcome.memory[0]
    yield Row(
        part=NAME,
        what=f"{on}: the daemon's memory at the end, of that before",
        unit="times",
        ours=Spread(growth, growth, growth, 1),
    )


def main(seconds: str = "60", cards: str = str(CARDS)) -> int:
    """Print the table."""
    outcome = busy(float(seconds), int(cards), sys.stdout.write)
    return 1 if outcome.faults or 1e3 * _percentile(outcome.taken, 99) > PROMISED_MS else 0


def busy(seconds: float, count: int, write: Callable[[str], object]) -> Outcome:
    """Keep a daemon busy for so long, saying how it goes."""
    with daemons.workplace() as place:
        for number in range(count):
            (place / "cards" / f"{number}.json").write_bytes(card(number, 0))
        with daemons.running(place) as daemon, daemon.connect() as connection:
            before = daemon.resident_bytes()
            write(f"{count} cards, {before / 2**20:.0f} MiB\n")
            listed = daemons.ask(connection, daemons.call("Resolve", name="acme/model-0"))
            cursor = json.dumps(json.loads(listed[:-1])["parameters"]["cursor"])
            with (
                beside("watch", str(daemon.socket_path), cursor) as watchers,
                contextlib.closing(Asked(daemon, count)) as asked,
            ):
                with beside("touch", str(daemon.cards), str(count)):
                    _load(daemon, asked, seconds, write)
                if watchers.stdout is not None:
                    told = os.read(watchers.stdout.fileno(), daemons.READ_BYTES)
                    write(f"watchers: replies and resets {told.splitlines()[-1].decode()}\n")
            faults = asked.faults + check_all(daemon, count)
            status = daemons.ask(connection, daemons.call("GetStatus"))
            said = json.loads(status[:-1])["parameters"]
            write(f"found by scan: {said['directories'][0]['found_by_scan']}; {said['problems']}\n")
            after = daemon.resident_bytes()
    write(_line("all", asked.taken) + "\n")
    for fault in faults[:20]:
        write(fault + "\n")
    return Outcome(asked.taken, faults, (before, after))


def _load(
    daemon: daemons.Daemon, asked: Asked, seconds: float, write: Callable[[str], object]
) -> None:
    asked.go_on(min(WARM_UP_SECONDS, seconds))
    asked.taken.clear()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        before, used, waited = len(asked.taken), daemon.cpu_seconds(), _waited_seconds(daemon)
        began = time.monotonic()
        asked.go_on(min(REPORT_SECONDS, seconds))
        took = time.monotonic() - began
        line = _line(f"{seconds - (until - time.monotonic()):.0f} s", asked.taken[before:])
        write(
            f"{line}; {(daemon.cpu_seconds() - used) / took:.0%} of a core,"
            f" {(_waited_seconds(daemon) - waited) / took:.0%} waiting for one;"
            f" {daemon.resident_bytes() / 2**20:.1f} MiB\n"
        )


def _waited_seconds(daemon: daemons.Daemon) -> float:
    """Return how long the daemon's loop was kept waiting for a processor: others' load, not its."""
    return int(Path(f"/proc/{daemon.pid}/schedstat").read_text().split()[1]) / 1e9


def _line(what: str, taken: list[float]) -> str:
    half, late = (1e3 * _percentile(taken, part) for part in (50, 99))
    most = 1e3 * max(taken)
    return f"{what:>6}: {len(taken)} answers in {half:.2f} ms, 99 % {late:.2f}, at most {most:.1f}"


def _percentile(taken: list[float], part: int) -> float:
    ordered = sorted(taken)
    return ordered[min(len(ordered) - 1, len(ordered) * part // 100)]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["touch", place, number]:
            touch(Path(place), int(number))
        case ["watch", path, at]:
            watch(path, at)
        case arguments:
            sys.exit(main(*arguments))
