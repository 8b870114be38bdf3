"""A site of a daemon that there is not: a writer with cards, and surroundings to choose."""

import json
from typing import Any

import msgspec

from discoveryd import interface
from discoveryd.core.batch import Sighting
from discoveryd.core.card import Card
from discoveryd.daemon.http.calls import Calls
from discoveryd.daemon.http.site import Long, Site
from discoveryd.daemon.methods.upkeep import Surroundings
from discoveryd.daemon.writer import Writer

DIRECTORY = interface.Directory(
    path="/cards",
    layout="cards",
    watching=True,
    backend="inotify",
    files=3,
    rescan_seconds=5.0,
    last_scan_seconds=0.25,
    found_by_scan=2,
)


class Place:
    """What a site is made of; `around` and `stopped` are what the daemon says of itself."""

    def __init__(self, operator_aliases: dict[str, str] | None = None) -> None:
        self.writer = Writer("epoch", operator_aliases or {})
        self.calls = Calls()
        self.around = Surroundings(
            uptime_seconds=7.0, directories=(DIRECTORY,), watchers=1, connections=2
        )
        self.stopped: str | None = None
        self.site = Site(self.writer, self, self.calls)

    def status(self) -> Surroundings:
        return self.around

    def silent(self) -> str | None:
        return self.stopped

    def change_directory(self, **members: object) -> None:
        directory = msgspec.structs.replace(DIRECTORY, **members)
        self.around = msgspec.structs.replace(self.around, directories=(directory,))

    async def drop(self, *cards: Card) -> None:
        """Apply the cards as one batch."""
        before = len(self.writer.registry.files)
        await self.writer.apply(
            [
                Sighting(file=f"/cards/{number}.json", found=card, mtime_ns=number)
                for number, card in enumerate(cards, before)
            ]
        )

    async def get(self, target: str) -> tuple[int, bytes]:
        """Return the status and the whole body."""
        page = await self.site.get(target)
        if isinstance(page, Long):
            return 200, b"".join([piece async for piece in page.pieces])
        return page.status, page.body

    async def read(self, target: str) -> tuple[int, Any]:
        """Return the status, and what the body's JSON means."""
        status, body = await self.get(target)
        return status, json.loads(body)

    async def models(self, target: str = "/v1/models") -> dict[str, dict[str, Any]]:
        """Return what is listed, by its ids."""
        status, body = await self.read(target)
        assert (status, body["object"]) == (200, "list")
        return {model["id"]: model for model in body["data"]}
