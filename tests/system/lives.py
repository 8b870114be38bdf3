"""A host whose daemon is killed and started again on the same directories, ledger and socket."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from discoveryd.interface import Cursor, Verdict
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, write

KILLED = -9


class Lives:
    """One host, and its daemon of the moment. Begun with `arguments` where they are given."""

    def __init__(self, start: Start, arguments: list[str] | None = None, **told: Any) -> None:
        self._start = start
        self._arguments = arguments
        self._told = told
        self.begin()

    def begin(self, **told: Any) -> None:
        """Start a daemon."""
        self.daemon = self._start(self._arguments, **(self._told | told)).wait_ready()
        self.client = self.daemon.client()
        self.host = Host(self.daemon, self.client)
        self.cards = self.daemon.cards

    def kill(self) -> None:
        """Kill it where it stands."""
        self.client.close()
        self.daemon.process.kill()
        assert self.daemon.process.wait() == KILLED

    def again(self) -> None:
        """Kill it, and start another."""
        self.kill()
        self.begin()

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """Kill it, let the body do to the files what it likes, and start another."""
        self.kill()
        yield
        self.begin()

    def put(self, name: str, **members: object) -> str:
        """Drop a card, by default of its own endpoint; return its standing."""
        return self.host.put(name, flat(name, **members)).standing

    def write(self, name: str, **members: object) -> None:
        """Drop a card without a daemon."""
        write(self.cards / f"{name}.json", flat(name, **members))

    def order(self, name: str) -> list[str]:
        """Return the files of the workers of a name, as resolve has them, without their suffix."""
        found = self.host.client.workers(name=name).workers
        return [Path(worker.file).stem for worker in found]

    def dump(self) -> dict[str, object]:
        """Return everything that the daemon says, but for how it is itself.

        Workers in their order; what has no order is sorted. Why a card waits is left out: which of
        several rivals it names may change.
        """
        return {
            "cursor": self.cursor,
            "workers": self.client.workers().workers,
            "names": sorted(self.client.list().names, key=lambda name: name.name),
            "verdicts": sorted(map(_said, self.client.explain().verdicts), key=lambda v: v.file),
            "standings": self.client.status().standings,
        }

    @property
    def cursor(self) -> Cursor:
        """The cursor of the moment."""
        return self.client.list().cursor


def _said(verdict: Verdict) -> Verdict:
    own = verdict.standing in ("invalid", "forbidden", "expired")
    return verdict if own else msgspec.structs.replace(verdict, reasons=())


def flat(name: str, **members: object) -> Json:
    """Return a card that is `name` and whose instance is, unless it says otherwise."""
    return {"display_name": name, "instance": name, **members}


def older(path: Path, seconds: int) -> None:
    """Make a file look older than those of this minute: who judges anew would let it come first."""
    os.utime(path, (1_600_000_000 - seconds, 1_600_000_000 - seconds))
