"""From one card renamed into place until every watcher has been told, and what each costs.

All watch everything, from the same revision on. One more does not read: it must cost the others
nothing. How long a change takes to be seen at all is in it; the row of one watcher says how much
that is.
"""

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator

from tests.bench import daemons
from tests.bench.table import Row, Setup, spread

NAME = "fanout"
WATCHERS = (1, 100, 1_000)
CHANGES, QUICK_CHANGES = 30, 2
DEADLINE_SECONDS = 20.0
CARDS = 100


class Watchers:
    """Connections that are told what changes; `more` begins some."""

    def __init__(self, daemon: daemons.Daemon) -> None:
        self._daemon = daemon
        self._poll = select.epoll()
        self._connections: dict[int, socket.socket] = {}
        with daemon.connect() as connection:
            reply = daemons.ask(connection, daemons.call("List"))
        self._since = json.loads(reply[:-1])["parameters"]["cursor"]

    def more(self, count: int, running: contextlib.ExitStack) -> None:
        """Begin watchers until there are so many; each has got its first reply."""
        while len(self._connections) < count:
            connection = self.begin(running)
            self._connections[connection.fileno()] = connection
            self._poll.register(connection, select.EPOLLIN)

    def begin(self, running: contextlib.ExitStack) -> socket.socket:
        """Begin one that is nobody's yet."""
        connection = running.enter_context(self._daemon.connect())
        called = {"method": "io.discoveryd.Models.Watch", "more": True}
        daemons.ask(
            connection,
            json.dumps({**called, "parameters": {"since": self._since}}).encode() + b"\0",
        )
        return connection

    def until_all_told(self, number: int) -> float:
        """Put a card in place; return the seconds until all have been told of it."""
        content = daemons.flat_card(number)
        mark = json.loads(content)["display_name"].encode()
        told: dict[int, bytes] = {}
        missing = set(self._connections)
        daemons.pause()
        began = time.perf_counter()
        self._daemon.put(f"{number}.json", content)
        while missing:
            for descriptor, _ in self._poll.poll(1.0):
                received = self._connections[descriptor].recv(daemons.READ_BYTES)
                told[descriptor] = told.get(descriptor, b"") + received
                if mark in told[descriptor] and told[descriptor].endswith(b"\0"):
                    missing.discard(descriptor)
            if time.perf_counter() - began > DEADLINE_SECONDS:
                raise TimeoutError(f"{len(missing)} watchers were not told of {number}.json")
        return time.perf_counter() - began


def measure(setup: Setup) -> Iterator[Row]:
    """Yield two rows for each number of watchers."""
    changes = QUICK_CHANGES if setup.quick else CHANGES
    server_core, client_core = daemons.two_cores()
    with daemons.workplace() as place, contextlib.ExitStack() as running:
        for number in range(CARDS):
            (place / "cards" / f"{number}.json").write_bytes(daemons.flat_card(number))
        daemon = running.enter_context(daemons.running(place, core=server_core))
        running.enter_context(daemons.pinned(client_core))
        watchers = Watchers(daemon)
        slow = watchers.begin(running)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        number = CARDS
        for count in WATCHERS:
            watchers.more(count, running)
            taken: list[float] = []
            each: list[float] = []
            for _ in range(changes):
                used = daemon.cpu_seconds()
                taken.append(1e3 * watchers.until_all_told(number))
                each.append(1e6 * (daemon.cpu_seconds() - used) / count)
                number += 1
            watching = f"{count:,} watcher{'s'[: count > 1]} and one that does not read"
            yield Row(
                part=NAME,
                what=f"a card renamed into place until the last is told, {watching}",
                unit="ms",
                ours=spread(taken),
            )
            yield Row(
                part=NAME,
                what=f"the daemon's processor time a watcher, {watching}",
                unit="us",
                ours=spread(each),
            )
