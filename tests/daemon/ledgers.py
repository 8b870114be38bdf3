"""A writer with a ledger, begun and ended as the daemon does, or killed: for the ledger's tests."""

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from discoveryd.core.batch import Found, Sighting
from discoveryd.core.card import Card
from discoveryd.daemon.ledger.ledger import Ledger
from discoveryd.daemon.writer import Writer


@asynccontextmanager
async def keeping(
    path: Path | None,
    epoch: str = "first",
    *,
    cards: Mapping[str, Card] | None = None,
    patience_seconds: float = 30.0,
    retry_seconds: float = 0.02,
) -> AsyncIterator[Writer]:
    """Begin as the daemon does, up to the first scan; end in good order."""
    ledger = Ledger(
        None if path is None else str(path),
        patience_seconds=patience_seconds,
        retry_seconds=retry_seconds,
    )
    known = await ledger.open()
    writer = Writer(epoch, {}, ledger)
    memory = await ledger.recall(known, cards or {})
    if memory is not None:
        writer.resume(memory)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run, writer.apply)
        yield writer
        tasks.cancel_scope.cancel()
    await ledger.close(writer.apply)


def sightings(found: Mapping[str, Found]) -> Sequence[Sighting]:
    """Return what a look found, by file."""
    return [Sighting(file=file, found=content, owner=1000) for file, content in found.items()]


async def put(writer: Writer, **found: Found) -> None:
    """Apply a batch, by file."""
    await writer.apply(sightings(found))


def as_killed(path: Path) -> Path:
    """Return a copy of the ledger as a daemon that is killed now would leave it."""
    copy = path.with_name(f"{path.name}.copy")
    for part in ("", "-wal"):
        if Path(f"{path}{part}").exists():
            shutil.copy(f"{path}{part}", f"{copy}{part}")
        else:
            Path(f"{copy}{part}").unlink(missing_ok=True)
    return copy


def beside(path: Path) -> list[Path]:
    """Return the ledgers that were moved aside, oldest first, without their further parts."""
    aside = path.parent.glob(f"{path.name}.broken-*")
    return sorted(each for each in aside if not each.name.endswith(("-wal", "-shm")))
