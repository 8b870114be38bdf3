"""Random histories of real files before a real daemon that is killed again and again.

While one runs, askers hold every answer against the others (observing.py). In the end the daemon's
full dump is that of a fresh one on the same directory and a copy of the ledger. And all that its
registry was told (recorded.py), told to the plain model, makes the same; at every restart too.

By default a short one. `DISCOVERYD_OPERATIONS=20000 DISCOVERYD_SEED=1 pytest` makes a long one; the
seed is printed. It draws the operations, not what of them the daemon sees at once.
"""

import contextlib
import copy
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from discoveryd.client import Client
from discoveryd.core.batch import Batch
from discoveryd.interface import Cursor, Verdict, Worker
from tests.core.plain import PlainRegistry
from tests.system import recorded
from tests.system.history import LEASE_SECONDS, Directory
from tests.system.observing import NAMES, Lines, Observers, lines_of
from tests.system.operations import step
from tests.system.running import Daemon, until

OPERATIONS = int(os.environ.get("DISCOVERYD_OPERATIONS", "300"))
SEED = os.environ.get("DISCOVERYD_SEED", "")

RESTART_AFTER = 150
"""How many operations a daemon lives, on average."""

SYNC_AFTER = 15
"""After how many operations the history waits for the daemon, on average."""


@dataclass
class Dump:
    """All that a daemon says, but for which of several rivals a reason names."""

    cursor: Cursor
    lines: Lines
    workers: tuple[Worker, ...]
    answers: dict[str, list[str]]
    verdicts: dict[str, Verdict]
    standings: dict[str, int]


@dataclass
class Lives:
    """The daemons of one history, one after another."""

    root: Path
    daemons: list[Daemon] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        return [
            *("--cards", str(self.root / "cards"), "--socket", str(self.root / "s")),
            *("--state", str(self.root / "state"), "--log-level", "warning"),
        ]

    def begin(self) -> Daemon:
        self.records.append(self.root / f"record-{len(self.records)}")
        self.records[-1].touch()
        prefix = recorded.command(self.records[-1])
        daemon = Daemon(self.root, self.arguments, prefix=prefix)
        self.daemons.append(daemon)
        return daemon

    def kill(self) -> None:
        daemon = self.daemons[-1]
        daemon.send(signal.SIGKILL)
        daemon.process.wait()
        assert "Traceback" not in daemon.log, daemon.log


@pytest.fixture
def lives(root: Path) -> Iterator[Lives]:
    (root / "cards").mkdir()
    lives = Lives(root)
    try:
        yield lives
    finally:
        for daemon in lives.daemons:
            daemon.kill()


@pytest.fixture
def mortal() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "6000"]) as process:
        yield process
        process.kill()


@pytest.mark.timeout(120 + OPERATIONS // 4)
def test_a_random_history_ends_as_a_fresh_daemon_and_the_plain_model_say(
    lives: Lives, mortal: subprocess.Popen[bytes]
) -> None:
    seed = SEED or str(random.SystemRandom().randrange(10**6))
    print(f"DISCOVERYD_OPERATIONS={OPERATIONS} DISCOVERYD_SEED={seed}")  # noqa: T201  # promised
    directory = Directory(lives.root / "cards", seed, mortal.pid)
    done: Counter[str] = Counter()
    lives.begin().wait_ready()
    with Observers(lambda: Client(str(lives.root / "s"))).observing() as observers:
        for number in range(OPERATIONS):
            step(directory, done)
            if number == OPERATIONS // 2:
                mortal.kill()
            if directory.chance.random() < 1 / SYNC_AFTER:
                with lives.daemons[-1].client() as client:
                    client.sync()
            if directory.chance.random() < 1 / RESTART_AFTER:
                lives.kill()
                lives.begin()
                if directory.chance.random() < 0.2:
                    # In the middle of its start, somewhere.
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        lives.daemons[-1].process.wait(directory.chance.uniform(0, 0.4))
                    lives.kill()
                    lives.begin()
                lives.daemons[-1].wait_ready()
            assert not observers.faults, f"seed {seed}: {observers.faults}"
        dump = settled(lives)
        copied = copy_of_the_ledger(lives.root)
        lives.daemons[-1].stop()  # which ends its watcher, who would wait for a heartbeat
    assert not observers.faults, f"seed {seed}: {observers.faults}"
    assert observers.book.compared > OPERATIONS // 4

    arguments = [*lives.arguments, "--socket", str(lives.root / "f"), "--state", str(copied)]
    fresh = Daemon(lives.root, arguments, at=lives.root / "f")
    lives.daemons.append(fresh)
    with fresh.wait_ready().client() as client:
        assert dump_of(client) == dump, f"seed {seed}"
    assert_plain(replayed(lives.records), dump)
    book = observers.book
    print(  # noqa: T201  # shows of a long run what it was
        f"{len(lives.records)} lives, {dump.cursor.revision} revisions, {observers.resets} resets,"
        f" {book.compared} of {book.answers} answers compared; {dict(done)}"
    )


def settled(lives: Lives) -> Dump:
    """Wait until all that can happen by itself has happened, and return what the daemon says."""
    deadline = time.monotonic() + LEASE_SECONDS + 1.5
    with lives.daemons[-1].client() as client:
        client.sync()
        # Leases run out.
        until(lambda: time.monotonic() > deadline, "time goes by", seconds=60)
        client.sync()
        dump = dump_of(client)
        assert dump.cursor == client.sync().cursor
        return dump


def dump_of(client: Client) -> Dump:
    listed, served = client.list(), client.workers()
    verdicts = list(client.explain().verdicts)
    unsettled = {verdict.file for verdict in verdicts}
    for worker in served.workers:
        if worker.file not in unsettled:
            verdicts += client.explain(file=worker.file).verdicts
    known = lines_of(listed.names)
    status = client.status()
    assert len({listed.cursor, served.cursor, status.cursor}) == 1
    return Dump(
        cursor=listed.cursor,
        lines=known,
        workers=served.workers,
        answers={name: [w.key for w in client.resolve(name).workers] for name in known},
        verdicts={verdict.file: without_rivals(verdict) for verdict in verdicts},
        standings=status.standings,
    )


def without_rivals(verdict: Verdict) -> Verdict:
    """Leave out the reasons that name one of several rivals: which of them is not promised."""
    if verdict.good:
        assert not verdict.reasons
        return verdict
    assert verdict.reasons
    if not any(reason.against for reason in verdict.reasons):
        return verdict
    return msgspec.structs.replace(verdict, reasons=())


def copy_of_the_ledger(root: Path) -> Path:
    """Copy the ledger of a daemon that writes nothing now."""
    for part in root.glob("state*"):
        shutil.copy(part, root / f"copy{part.name.removeprefix('state')}")
    return root / "copy"


# The plain model


def replayed(records: list[Path]) -> PlainRegistry:
    """Tell the plain model all that the registries of all lives were told."""
    plain = before = PlainRegistry()
    pending = False
    for number, record in enumerate(records):
        for note in recorded.read(record):
            match note:
                case Batch():
                    # What was judged may not have come as far as the ledger.
                    before = copy.deepcopy(plain)
                    plain.apply(note)
                    pending = True
                case recorded.Kept():
                    pending = False
                case recorded.Recalled():
                    matching = [
                        model
                        for model in ([plain, before] if pending else [plain])
                        if model.verdicts() == note.verdicts
                        and list(model.served().items()) == list(note.served.items())
                    ]
                    assert matching, f"life {number} began with another state than the last left"
                    plain, pending = matching[0], False
    return plain


def assert_plain(plain: PlainRegistry, dump: Dump) -> None:
    verdicts = {f: (v.standing, v.serves) for f, v in dump.verdicts.items()}
    assert verdicts == {f: (str(s), str(v)) for f, (s, v) in plain.verdicts().items()}
    assert dump.lines == plain.names()
    assert [w.key for w in dump.workers] == [str(key) for key in plain.served()]
    for name in {*NAMES, *dump.lines}:
        assert dump.answers.get(name, []) == [str(key) for key in plain.answer(name)]
