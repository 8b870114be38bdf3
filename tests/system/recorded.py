"""`discoveryd`, keeping a record of what its registry was told; see `command`.

The record is a row of pickles: each batch before it is judged, a word once the ledger has it, and,
after a restart, what the ledger gave back. So whoever reads it knows what a registry must say, and
after kill -9 of how much of it the ledger knew.
"""

import os
import pickle
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from discoveryd.core.batch import Batch, Change
from discoveryd.core.card import Card, Key
from discoveryd.core.history import Cursor
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Serves, Standing
from discoveryd.daemon.cli import main
from discoveryd.daemon.ledger.ledger import Ledger, Memory
from discoveryd.daemon.writer import Writer


class Kept(NamedTuple):
    """The batch before is in the ledger, to be published at this cursor."""

    at: Cursor


class Recalled(NamedTuple):
    """What a daemon began with: the verdicts, what is served, and the cursor."""

    verdicts: dict[str, tuple[Standing, Serves]]
    served: dict[Key, tuple[Card, str, bool]]
    at: Cursor


Note = Batch | Kept | Recalled


def read(record: Path) -> list[Note]:
    """Return what was recorded; a note that was cut off by a kill is left out."""
    notes: list[Note] = []
    with record.open("rb") as lines:
        while True:
            try:
                note: Note = pickle.load(lines)  # noqa: S301  # written by this program
            except (EOFError, pickle.UnpicklingError):
                return notes
            notes.append(note)


def record_into(path: str) -> None:
    """Let the daemon of this process keep a record in a file, which is there and empty."""
    record = os.open(path, os.O_WRONLY | os.O_APPEND)

    def note(what: Note) -> None:
        os.write(record, pickle.dumps(what))

    applying, keep, resume = Registry.applying, Ledger.record, Writer.resume

    def recorded_applying(self: Registry, batch: Batch) -> Generator[None, None, Change]:
        note(batch)
        return (yield from applying(self, batch))

    async def recorded_keep(self: Ledger, registry: Registry, change: Change, at: Cursor) -> Cursor:
        at = await keep(self, registry, change, at)
        note(Kept(at))
        return at

    def recorded_resume(self: Writer, memory: Memory) -> None:
        resume(self, memory)
        registry = self.registry
        verdicts = [registry.verdict(record.file) for record in registry.files]
        note(
            Recalled(
                {v.file: (v.standing, v.serves) for v in verdicts if v is not None},
                {key: (s.card, s.file, s.firm) for key, s in registry.served.items()},
                self.answers.cursor,
            )
        )

    Registry.applying = recorded_applying  # type: ignore[method-assign]  # this is what it is for
    Ledger.record = recorded_keep  # type: ignore[method-assign]  # the same
    Writer.resume = recorded_resume  # type: ignore[method-assign]  # the same


def command(record: Path) -> list[str]:
    """Return what to put before the usual command of a daemon."""
    return [sys.executable, "-c", "from tests.system.recorded import run; run()", str(record)]


def run() -> None:
    """Run the daemon that the arguments name: record, interpreter, -m, discoveryd, arguments."""
    record_into(sys.argv[1])
    sys.exit(main(sys.argv[5:]))
