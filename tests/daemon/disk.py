"""A sink that collects, stubs of the notifier, and ways to write: shared by the directory tests."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio

from discoveryd.core.batch import Sighting
from discoveryd.core.card import Card
from discoveryd.daemon.disk.following import Follower

Heard = set[tuple[int, str]] | Literal["signal", "stop", "timeout"]


class Collector:
    """Applies batches to a table, as the registry would."""

    def __init__(self) -> None:
        self.batches: list[list[Sighting]] = []
        self.present: dict[str, Sighting] = {}
        self.delay = 0.0

    async def __call__(self, sightings: Sequence[Sighting]) -> None:
        if self.delay:
            await anyio.sleep(self.delay)
        self.take(sightings)

    def take(self, sightings: Sequence[Sighting]) -> None:
        self.batches.append(list(sightings))
        for sighting in sightings:
            name = sighting.file.rsplit("/", 1)[1]
            if sighting.found is None:
                del self.present[name]
            else:
                self.present[name] = sighting

    def models(self) -> dict[str, str]:
        """Return the display_name by file name, of those that are cards."""
        return {
            name: sighting.found.display_name
            for name, sighting in self.present.items()
            if isinstance(sighting.found, Card)
        }

    async def expect(self, models: dict[str, str], seconds: float = 30.0) -> None:
        """Wait until exactly these cards are present: display_name by file name."""
        await until(lambda: self.models() == models, seconds)

    async def expect_card(self, name: str, seconds: float = 30.0) -> None:
        """Wait until a file of this name is a card."""
        await until(lambda: name in self.models(), seconds)

    def rule(self, name: str) -> str | None:
        """Return the rule by which the file is invalid, None if it is not there or a card."""
        sighting = self.present.get(name)
        reasons = getattr(sighting and sighting.found, "reasons", ())
        return reasons[0].rule if reasons else None


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.002)


@asynccontextmanager
async def following(directory: Follower) -> AsyncIterator[None]:
    """Run the directory; its first scan has been applied when the body begins."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(directory.run)
        with anyio.fail_after(30):
            await directory.scan()
        yield
        tasks.cancel_scope.cancel()


class Deaf:
    """A notifier that hears nothing, as on a network file system."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.closed = False

    def watch(self, _debounce: int, _step: int, _timeout: int, stop: threading.Event, /) -> Heard:
        stop.wait()
        return "stop"

    def close(self) -> None:
        self.closed = True


class Dying(Deaf):
    """A notifier whose watch ends with an error at once."""

    def watch(self, _debounce: int, _step: int, _timeout: int, _stop: threading.Event, /) -> Heard:
        raise RuntimeError("no ears")


def card(name: str, **members: object) -> bytes:
    return json.dumps({"display_name": name, **members}).encode()


def replace(path: Path, content: bytes) -> None:
    """Write as writers should."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_bytes(content)
    beside.rename(path)
