"""How fast names are resolved, beside Redis' GET and etcd's range read, by one client in C.

The servers have one processor, the client another; etcd's threads have both, as they want. Ours and
theirs take turns. A key of Redis is a name, its value as long as our reply. A table has as many
names as it says, all asked for in turn: an answer that is only fast again and again shows. Every
name has been asked for once, of either server, before anything is measured.

How many calls a second there are says as much about how two processors wake each other as about
the servers. So what a call costs its server, in processor time, stands beside it.
"""

import contextlib
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import anyio

from discoveryd.client import AsyncClient, Client
from tests.bench import daemons
from tests.bench.peers import etcd, redis
from tests.bench.peers.children import Missing
from tests.bench.table import Row, Setup, spread
from tests.bench.volley import Counted, Volley

NAME = "resolve"
TABLES, QUICK_TABLES = (10, 1_000, 100_000), (10, 100)
ROUNDS, ROUND_SECONDS = 7, 0.8
QUICK_ROUND_SECONDS = 0.02
CALLS, QUICK_CALLS = 5_000, 100
REWRITES_A_SECOND = 50
BLOCKING_TARGET_US = 20.0
REDIS, ETCD = "redis-server GET", "etcd's range read, by its gateway"
ETCD_LEAST = 10.0
WARM_SECONDS = 0.25
COUNTED_PART = 0.9
"""Of which part of a run the calls are counted, its time being that of the whole: volley.c."""


class Load(NamedTuple):
    """How a server is asked."""

    connections: int
    pipeline: int

    def __str__(self) -> str:
        each = "one at a time" if self.pipeline == 1 else f"{self.pipeline} at a time"
        return f"{self.connections} connection{'s'[: self.connections > 1]}, {each}"


USUAL = Load(16, 1)
LOADS = {Load(1, 1): 1.0, USUAL: 1.0, Load(50, 1): 1.0, Load(16, 16): 0.8}
"""With how many times the peer's speed is promised."""


class Side(NamedTuple):
    """What is asked of whom; `expected` is which part of the answers is an error or nil.

    `server` is the process whose time is measured, if it is.
    """

    ask: Callable[[Load, float], Counted]
    expected: float = 0.0
    server: int | None = None


class Round(NamedTuple):
    """What one run saw: calls a second, a call's microseconds of the server's processor, and within
    how many microseconds 99 of 100 calls were answered."""

    rate: float
    cost_us: float
    late_us: float


class Rival(NamedTuple):
    """Whom ours is measured beside: `side` may say why it is missing, `least` is the promise."""

    peer: str
    side: Side | str
    least: float | None = None


class Bench:
    """One daemon with its table, Redis with the same, and the client."""

    def __init__(self, setup: Setup, place: Path, count: int) -> None:
        self.setup = setup
        self.place = place
        self.count = count
        self.server_core, client_core = daemons.two_cores()
        self.volley = Volley(place, client_core)

    def ours(
        self, daemon: daemons.Daemon, name: Callable[[int], str], *, missing: bool = False
    ) -> Side:
        """Return our side: Resolve of the names of all numbers."""
        frames = self.volley.frames(
            daemons.call("Resolve", name=name(number)) for number in range(self.count)
        )

        def ask(load: Load, seconds: float) -> Counted:
            return self.volley.ask(
                "varlink", daemon.socket_path, frames, **load._asdict(), seconds=seconds
            )

        return self._warmed(Side(ask, float(missing), daemon.pid))

    def redis(self, at: Path, name: Callable[[int], str], *, missing: bool = False) -> Side:
        """Return Redis' side: GET of the same."""
        keys = (name(number).encode() for number in range(self.count))
        frames = self.volley.frames(redis.command(b"GET", key) for key in keys)

        def ask(load: Load, seconds: float) -> Counted:
            return self.volley.ask("redis", at, frames, **load._asdict(), seconds=seconds)

        return self._warmed(Side(ask, float(missing), daemons.pid_behind(at)))

    def etcd(self, server: etcd.Etcd, value: bytes) -> Side:
        """Return etcd's side: a range read of one key, by its gateway."""
        names = [b64encode(primary(number).encode()).decode() for number in range(self.count)]
        for name in names:
            server.call("kv/put", key=name, value=b64encode(value).decode())
        frames = self.volley.frames(_post(b'{"key":"%b"}' % name.encode()) for name in names)

        def ask(load: Load, seconds: float) -> Counted:
            return self.volley.ask("http", server.port, frames, **load._asdict(), seconds=seconds)

        return Side(ask)

    def _warmed(self, side: Side) -> Side:
        """Ask for everything at least once."""
        seconds = WARM_SECONDS
        while side.ask(Load(16, 16), seconds).calls < self.count:
            seconds *= 2
        return side

    def rows(self, what: str, load: Load, ours: Side, rival: Rival) -> Iterator[Row]:
        """Measure both in turns: calls a second, late answers, and what a call costs its server."""
        here: list[Round] = []
        there: list[Round] = []
        missing = rival.side if isinstance(rival.side, str) else None
        for _ in range(1 if self.setup.quick else ROUNDS):
            here.append(self._round(ours, load))
            if isinstance(rival.side, Side) and missing is None:
                try:
                    there.append(self._round(rival.side, load))
                except Missing as why:
                    missing = str(why)
        seen = spread([one.rate for one in here])
        theirs = spread([one.rate for one in there]) if missing is None else None
        met = None
        if rival.least is not None and theirs is not None:
            met = seen.median >= rival.least * theirs.median
        asked = f"{self.count:,} names, {load}"
        yield Row(
            part=NAME,
            what=f"{what}, {asked}",
            unit="calls/s",
            ours=seen,
            better="more",
            peer=rival.peer,
            theirs=theirs,
            target=None if rival.least is None else f"at least {rival.least:g} x the peer",
            met=met,
            missing=missing,
        )
        yield Row(
            part=NAME,
            what=f"99 of 100 answers within: {what}, {asked}",
            unit="us",
            ours=spread([one.late_us for one in here]),
            peer=rival.peer,
            theirs=spread([one.late_us for one in there]) if missing is None else None,
            missing=missing,
        )
        if isinstance(rival.side, Side) and rival.side.server is not None and missing is None:
            yield Row(
                part=NAME,
                what=f"the server's processor time a call: {what}, {asked}",
                unit="us",
                ours=spread([one.cost_us for one in here]),
                peer=rival.peer,
                theirs=spread([one.cost_us for one in there]),
            )

    def _round(self, side: Side, load: Load) -> Round:
        used = 0.0 if side.server is None else daemons.cpu_seconds(side.server)
        counted = side.ask(load, QUICK_ROUND_SECONDS if self.setup.quick else ROUND_SECONDS)
        if counted.failed != side.expected * counted.calls:
            raise RuntimeError(f"{counted.failed} of {counted.calls} answers are errors")
        used = 0.0 if side.server is None else daemons.cpu_seconds(side.server) - used
        cost_us = 1e6 * used * COUNTED_PART / counted.calls
        return Round(counted.calls_per_second, cost_us, counted.p99_us)


def measure(setup: Setup) -> Iterator[Row]:
    """Yield the rows of each table."""
    tables = QUICK_TABLES if setup.quick else TABLES
    for count in tables:
        with daemons.workplace() as place:
            try:
                bench = Bench(setup, place, count)
            except Missing as why:
                what = f"Resolve, {count:,} names"
                yield Row(part=NAME, what=what, unit="calls/s", ours=None, missing=str(why))
                continue
            for number in range(count):
                (place / "cards" / f"{number}.json").write_bytes(daemons.flat_card(number))
            with daemons.running(place, core=bench.server_core) as daemon:
                yield from _rows(bench, daemon, whole=count == tables[1])


def primary(number: int) -> str:
    """Return the primary name of a card."""
    return f"acme/model-{number}"


def alias(number: int) -> str:
    """Return the alias of a card."""
    return f"model-{number}-0"


def nobody(number: int) -> str:
    """Return a name that nobody serves."""
    return f"acme/model-{number}-none"


def _rows(bench: Bench, daemon: daemons.Daemon, *, whole: bool) -> Iterator[Row]:
    """Yield the rows of one table: all that there are of one, of the others only the usual."""
    with daemon.connect() as connection:
        value = daemons.ask(connection, daemons.call("Resolve", name=primary(0)))
    ours = bench.ours(daemon, primary)
    with contextlib.ExitStack() as running:
        hits: Side | str
        aliases: Side | str
        misses: Side | str
        try:
            at = running.enter_context(redis.running(bench.place, core=bench.server_core))
            names = [name(number) for name in (primary, alias) for number in range(bench.count)]
            redis.fill(at, dict.fromkeys(names, value))
        except Missing as why:
            hits = aliases = misses = str(why)
        else:
            hits, aliases = bench.redis(at, primary), bench.redis(at, alias)
            misses = bench.redis(at, nobody, missing=True)
        for load, least in LOADS.items() if whole else ((USUAL, LOADS[USUAL]),):
            yield from bench.rows("Resolve", load, ours, Rival(REDIS, hits, least))
        if not whole:
            return
        by_alias, unknown = bench.ours(daemon, alias), bench.ours(daemon, nobody, missing=True)
        yield from bench.rows("Resolve of aliases", USUAL, by_alias, Rival(REDIS, aliases))
        yield from bench.rows("Resolve of unknown names", USUAL, unknown, Rival(REDIS, misses))
        with _changing(daemon, bench.count):
            what = f"Resolve while {REWRITES_A_SECOND} cards a second change"
            yield from bench.rows(what, USUAL, ours, Rival(REDIS, hits))
    with contextlib.ExitStack() as running:
        ranges: Side | str
        try:
            server = running.enter_context(etcd.running(bench.place))
            ranges = bench.etcd(server, value)
        except Missing as why:
            ranges = str(why)
        yield from bench.rows("Resolve", USUAL, ours, Rival(ETCD, ranges, ETCD_LEAST))
    yield from _from_python(bench, daemon)


def _from_python(bench: Bench, daemon: daemons.Daemon) -> Iterator[Row]:
    calls = QUICK_CALLS if bench.setup.quick else CALLS
    _, client_core = daemons.two_cores()
    with daemons.pinned(client_core):
        floor = spread(_by_hand(daemon, calls))
        blocking = spread(_blocking(daemon, calls))
        awaited = spread(anyio.run(_awaiting, daemon, calls))
    yield Row(
        part=NAME,
        what="Resolve by discoveryd.client, blocking",
        unit="us",
        ours=blocking,
        target=f"at most {BLOCKING_TARGET_US:g} us",
        met=blocking.median <= BLOCKING_TARGET_US,
    )
    yield Row(part=NAME, what="Resolve by discoveryd.client, async", unit="us", ours=awaited)
    what = "Resolve by a socket and no client: what two processors and the kernel take"
    yield Row(part=NAME, what=what, unit="us", ours=floor)


def _by_hand(daemon: daemons.Daemon, calls: int) -> list[float]:
    taken: list[float] = []
    frame = daemons.call("Resolve", name=primary(0))
    with daemon.connect() as connection:
        for _ in range(calls):
            began = time.perf_counter()
            connection.sendall(frame)
            connection.recv(daemons.READ_BYTES)
            taken.append(1e6 * (time.perf_counter() - began))
    return taken


def _blocking(daemon: daemons.Daemon, calls: int) -> list[float]:
    taken: list[float] = []
    with Client(str(daemon.socket_path)) as client:
        for _ in range(calls):
            began = time.perf_counter()
            client.resolve(primary(0))
            taken.append(1e6 * (time.perf_counter() - began))
    return taken


async def _awaiting(daemon: daemons.Daemon, calls: int) -> list[float]:
    taken: list[float] = []
    async with AsyncClient(str(daemon.socket_path)) as client:
        for _ in range(calls):
            began = time.perf_counter()
            await client.resolve(primary(0))
            taken.append(1e6 * (time.perf_counter() - began))
    return taken


@contextlib.contextmanager
def _changing(daemon: daemons.Daemon, count: int) -> Iterator[None]:
    """Rewrite one card after another meanwhile, in the pace of the clock."""
    ended = threading.Event()

    def rewrite() -> None:
        turn = 0
        while not ended.wait(1 / REWRITES_A_SECOND):
            number = turn % count
            content = daemons.flat_card(number).replace(b'"1"', b'"%d"' % turn)
            daemon.put(f"{number}.json", content)
            turn += 1

    writing = threading.Thread(target=rewrite)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


def _post(body: bytes) -> bytes:
    head = b"POST /v3/kv/range HTTP/1.1\r\nHost: etcd\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body
