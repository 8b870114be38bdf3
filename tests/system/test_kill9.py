"""SIGKILL at random moments under churn: no order is lost, no ledger broken, nothing left behind.

By default a few kills. For the long run: `DISCOVERYD_KILLS=200 pytest tests/system/test_kill9.py`.
`DISCOVERYD_SEED` repeats one.
"""

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from discoveryd.client import DiscoverydError
from tests.system.conftest import Start
from tests.system.dropping import write
from tests.system.lives import Lives, flat, older

KILLS = int(os.environ.get("DISCOVERYD_KILLS", "10"))
SEED = int(os.environ.get("DISCOVERYD_SEED", str(time.time_ns() % 1_000_000)))

NAMES = ("n0", "n1", "n2", "n3")
MOST_WAITING = 5
LEFT_BEHIND = {"cards", "store", "stderr", "s", ".s.lock"} | {
    f".s.ledger{part}" for part in ("", "-wal", "-shm")
}


class Queues:
    """Cards that contend for names, and the one truth about them: who came first has the name.

    Each file looks older than those before it, so that judging anew would turn the order round.
    """

    def __init__(self, lives: Lives, chance: random.Random) -> None:
        self.waiting: dict[str, list[str]] = {name: [] for name in NAMES}
        self._lives = lives
        self._chance = chance
        self._count = 0

    def step(self) -> None:
        """Let somebody come, change or go, and wait until the daemon knows; it may die."""
        name = self._chance.choice(NAMES)
        queue = self.waiting[name]
        kind = self._chance.choice(("come", "come", "change", "go"))
        if not queue or (kind == "come" and len(queue) < MOST_WAITING):
            self._count += 1
            queue.append(f"card-{self._count}")
            self._write(queue[-1], name)
        elif kind in ("go", "come"):
            gone = self._chance.choice(queue)
            queue.remove(gone)
            (self._lives.cards / f"{gone}.json").unlink()
        else:
            self._write(self._chance.choice(queue), name, labels={"n": str(self._count)})
        self._lives.client.sync()

    def check(self) -> None:
        """See that everybody has what is his."""
        self._lives.client.sync()
        for name, queue in self.waiting.items():
            assert self._lives.order(name) == queue[:1], name
            for card in queue[1:]:
                (verdict,) = self._lives.client.explain(file=f"{card}.json").verdicts
                assert (verdict.standing, verdict.serves) == ("blocked", "nothing"), card

    def _write(self, card: str, name: str, **members: object) -> None:
        path = self._lives.cards / f"{card}.json"
        beside = path.with_suffix(".new")
        write(beside, flat(card, aliases=[name], **members))
        older(beside, int(card.partition("-")[2]))
        beside.rename(path)


@contextlib.contextmanager
def noise(cards: Path, seed: int) -> Iterator[None]:
    """Write, tear, and remove files all the while, in every way, without waiting for anybody."""
    done = threading.Event()

    def make() -> None:
        chance = random.Random(seed)  # noqa: S311 - a test that can be run again
        while not done.wait(0.002):
            path = cards / f"noise-{chance.randrange(30)}.json"
            card = {"display_name": f"m{chance.randrange(20)}", "aliases": ["x"], "component": "c"}
            match chance.randrange(4):
                case 0:
                    path.unlink(missing_ok=True)
                case 1:
                    path.write_bytes(b'{"display_name": "to')
                case _:
                    write(path, card | {"labels": {"n": str(chance.randrange(1000))}})

    maker = threading.Thread(target=make)
    maker.start()
    try:
        yield
    finally:
        done.set()
        maker.join()


@pytest.mark.timeout(60 + 12 * KILLS)
def test_no_kill_loses_anything(start: Start, root: Path) -> None:
    print(f"DISCOVERYD_SEED={SEED}")  # noqa: T201 - shown where the test fails
    chance = random.Random(SEED)  # noqa: S311 - a test that can be run again
    lives = Lives(start)
    queues = Queues(lives, chance)
    with noise(lives.cards, SEED):
        for _ in range(KILLS):
            killer = threading.Timer(chance.uniform(0, 0.25), lives.daemon.process.kill)
            killer.start()
            with contextlib.suppress(DiscoverydError):
                while True:
                    queues.step()
            killer.join()
            lives.again()
            assert lives.client.status().problems == ()
            queues.check()
    lives.client.sync()
    before = lives.dump()
    lives.again()
    assert lives.dump() == before
    assert {path.name for path in root.iterdir()} == LEFT_BEHIND
    lives.client.close()
    lives.daemon.stop()
    assert "Traceback" not in lives.daemon.log
    assert "ERROR" not in lives.daemon.log
