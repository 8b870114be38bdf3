"""What a daemon takes of the machine while nobody asks it for anything.

Processor time is all threads', also of those that have ended. A wake-up is a thread that had been
waiting and runs again. Leases are touched by their workers every three seconds, evenly spread, and
that is what the daemon is told of then: it must take note, and change nothing.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import daemons
from tests.bench.table import Row, Setup, spread

NAME = "idle"

WINDOWS, WINDOWS_IF_QUICK = 3, 1
WINDOW_SECONDS, WINDOW_SECONDS_IF_QUICK = 30.0, 0.2
"""Rescans come every five seconds, of many cards more seldom: each window has to have some."""

SETTLE_SECONDS, SETTLE_SECONDS_IF_QUICK = 3.0, 0.2
"""After a start: stamps are young, so that the first rescan reads everything again."""

MANY, MANY_IF_QUICK = 10_000, 100
LEASED = 20
RENEW_SECONDS = 3.0
LEASE_SECONDS = 10

SHARE_PERCENT = 0.7


def measure(setup: Setup) -> Iterator[Row]:
    """Yield two rows for each kind of idleness: share of a processor, and wake-ups."""
    daemon_core, client_core = daemons.two_cores()
    windows = WINDOWS_IF_QUICK if setup.quick else WINDOWS
    seconds = WINDOW_SECONDS_IF_QUICK if setup.quick else WINDOW_SECONDS
    settle = SETTLE_SECONDS_IF_QUICK if setup.quick else SETTLE_SECONDS
    many = MANY_IF_QUICK if setup.quick else MANY
    for what, cards, leased, promised in (
        ("idle without cards", 0, 0, True),
        (f"idle with {many:,} cards", many, 0, True),
        (f"{LEASED} leases touched every {RENEW_SECONDS:g} s", 0, LEASED, False),
    ):
        with daemons.workplace() as place:
            for number in range(cards + leased):
                content = _leased(number) if number >= cards else daemons.flat_card(number)
                (place / "cards" / f"{number}.json").write_bytes(content)
            with daemons.running(place, core=daemon_core) as daemon, daemons.pinned(client_core):
                touched = [
                    daemon.cards / f"{number}.json" for number in range(cards, cards + leased)
                ]
                _idle(daemon, touched, settle)
                seen = [_idle(daemon, touched, seconds) for _ in range(windows)]
        shares, wakes = zip(*seen, strict=True)
        share = spread(shares)
        yield Row(
            part=NAME,
            what=f"{what}: of one processor",
            unit="%",
            ours=share,
            target=f"<= {SHARE_PERCENT:g} %" if promised else None,
            met=share.median <= SHARE_PERCENT if promised else None,
        )
        yield Row(part=NAME, what=f"{what}: wake-ups", unit="/s", ours=spread(wakes))


def _idle(daemon: daemons.Daemon, touched: list[Path], seconds: float) -> tuple[float, float]:
    """Leave a daemon alone but for what is touched; return per cent and wake-ups a second."""
    used, woken = daemon.cpu_seconds(), _wake_ups(daemon.pid)
    began = time.perf_counter()
    every = RENEW_SECONDS / len(touched) if touched else seconds
    number = 0
    while (left := began + seconds - time.perf_counter()) > 0:
        time.sleep(min(every, left))
        if touched:
            os.utime(touched[number % len(touched)])
            number += 1
    taken = time.perf_counter() - began
    used, woken = daemon.cpu_seconds() - used, _wake_ups(daemon.pid) - woken
    return 100 * used / taken, woken / taken


def _leased(number: int) -> bytes:
    members = json.loads(daemons.flat_card(number)) | {"liveness": {"lease_seconds": LEASE_SECONDS}}
    return json.dumps(members).encode()


def _wake_ups(pid: int) -> int:
    """Return how often the threads that a process has now have waited; few of them ever end."""
    waited = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        status = (thread / "status").read_text(encoding="ascii", errors="replace")
        waited += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return waited
