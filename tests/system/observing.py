"""Askers that never stop, and hold every answer against the others of its revision.

What two answers of one cursor say must agree, whoever asked, before and after a restart: what List
says with what the workers of ListWorkers amount to, Resolve with the workers of that name, and what
a watcher has put together with both. And what one answer says must be able to be true: all that
serve at once coexist. An answer that mixed two revisions fails one or the other.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import NamedTuple

from discoveryd.client import Client, ConnectionLost, NoDaemon, NoSuchModel, Timeout
from discoveryd.interface import Cursor, Name, WatchReply, Worker

NAMES = "mnoxlryz"
AWAY = (ConnectionLost, NoDaemon, Timeout)

MOST_REMEMBERED = 3_000

Lines = dict[str, tuple[str, str, int, bool]]
Workers = dict[str, Worker]


class Part(NamedTuple):
    """What an answer was about: the names, the workers, or the workers of one name in order."""

    kind: str
    name: str = ""


def lines_of(names: Iterable[Name]) -> Lines:
    """Return what is said of each name."""
    return {line.name: (line.kind, line.model, line.workers, line.ready) for line in names}


def lines_from(workers: Iterable[Worker]) -> Lines:
    """Work out what must be said of names. Every card of a history can do the whole job."""
    lines: Lines = {}
    for worker in workers:
        for name in dict.fromkeys((worker.model, *(() if worker.adapter else worker.aliases))):
            kind = "adapter" if worker.adapter else "primary" if name == worker.model else "alias"
            before = lines.get(name, (kind, worker.model, 0, False))
            assert before[:2] == (kind, worker.model), f"{name} is {kind} and {before}"
            count = before[2] + worker.accepting
            lines[name] = (kind, worker.model, count, count > 0)
    return lines


def assert_coexist(workers: Workers) -> None:
    """Assert that these may serve at once, as far as workers show it."""
    groups: dict[object, str] = {}
    for worker in workers.values():
        if worker.adapter:
            base = worker.key.rpartition("/")[0]
            assert base in workers, f"{worker.key} serves without a base"
            assert not workers[base].adapter
            continue
        place = (worker.namespace, worker.component, worker.endpoint)
        group = (worker.model, place, worker.model_type, worker.worker_type)
        other = groups.setdefault(group, worker.fingerprint)
        assert other == worker.fingerprint, f"two cohorts serve in {group}"


class Book:
    """What was answered at each cursor. `compared` counts the answers that met another."""

    def __init__(self) -> None:
        self.compared = 0
        self.answers = 0
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[Cursor, Part], object] = OrderedDict()

    def enter(self, cursor: Cursor, part: Part, said: object) -> None:
        """Hold an answer against what is known of its revision."""
        with self._lock:
            self.answers += 1
            known = self._seen.setdefault((cursor, part), said)
            self.compared += known is not said
            if len(self._seen) > MOST_REMEMBERED:
                self._seen.popitem(last=False)
        assert known == said, f"{part} at {cursor} is {said}, and was {known}"

    def enter_workers(self, cursor: Cursor, workers: Workers) -> None:
        """Hold all workers of a revision against what else is known of it."""
        assert_coexist(workers)
        self.enter(cursor, Part("workers"), workers)
        self.enter(cursor, Part("names"), lines_from(workers.values()))


class Observers:
    """One watcher and two askers, each in a thread of its own."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self.book = Book()
        self.resets = 0
        self.faults: list[str] = []
        self._open = client
        self._over = threading.Event()

    @contextlib.contextmanager
    def observing(self) -> Iterator["Observers"]:
        """Observe meanwhile. At its end the daemon must have ended: a watcher waits for news."""
        loops = (self._ask, self._ask, self._watch)
        threads = [threading.Thread(target=self._guard, args=(loop,)) for loop in loops]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _guard(self, loop: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                with contextlib.suppress(*AWAY):
                    loop()
                self._over.wait(0.005)
        except Exception as fault:  # noqa: BLE001  # told by the test, whatever it is
            self.faults.append(f"{loop.__name__}: {type(fault).__name__}: {fault}")

    def _ask(self) -> None:
        book, last = self.book, Cursor("", 0)
        names = cycle(NAMES)
        with self._open() as client:
            while not self._over.is_set():
                listed = client.list()
                book.enter(listed.cursor, Part("names"), lines_of(listed.names))
                assert len({line.name for line in listed.names}) == len(listed.names)
                served = client.workers()
                workers = {worker.key: worker for worker in served.workers}
                assert len(workers) == len(served.workers)
                book.enter_workers(served.cursor, workers)
                for name in {name for name in NAMES if name in lines_from(workers.values())}:
                    answering = [w for w in served.workers if name in (w.model, *w.aliases)]
                    keys = [worker.key for worker in answering if worker.accepting]
                    book.enter(served.cursor, Part("resolve", name), keys)
                name = next(names)
                cursor = served.cursor
                with contextlib.suppress(NoSuchModel):
                    resolved = client.resolve(name)
                    cursor = resolved.cursor
                    keys = [worker.key for worker in resolved.workers]
                    book.enter(cursor, Part("resolve", name), keys)
                seen = [last, listed.cursor, served.cursor, cursor]
                same = [at.revision for at in seen if at.epoch == cursor.epoch]
                assert same == sorted(same), f"revisions went back: {seen}"
                last = cursor

    def _watch(self) -> None:
        state = _Copy()
        while not self._over.is_set():
            with (
                contextlib.suppress(*AWAY),
                self._open() as client,
                contextlib.closing(client.watch(state.cursor)) as replies,
            ):
                state.forget_pieces()
                for reply in replies:
                    self.resets += reply.reset
                    if state.take(reply) and not reply.heartbeat:
                        expected = lines_from(state.workers.values())
                        assert expected == state.lines, f"told {state.lines}, not {expected}"
                        self.book.enter_workers(reply.cursor, dict(state.workers))
                    if self._over.is_set():
                        return
            self._over.wait(0.005)


class _Copy:
    """What a watcher knows."""

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self.workers: Workers = {}
        self.lines: Lines = {}
        self._pieces: list[WatchReply] = []

    def forget_pieces(self) -> None:
        """Begin anew after a connection was lost in the middle of an answer."""
        self._pieces = []

    def take(self, reply: WatchReply) -> bool:
        """Take a reply in; return whether it completed a revision."""
        self._pieces.append(reply)
        if reply.partial:
            return False
        for piece in self._pieces:
            if piece.reset:
                self.workers, self.lines = {}, {}
            for key in piece.removed:
                self.workers.pop(key, None)
            for name in piece.gone:
                self.lines.pop(name, None)
            self.workers.update({worker.key: worker for worker in piece.changed})
            self.lines.update(lines_of(piece.names))
        self._pieces = []
        self.cursor = reply.cursor
        return True
