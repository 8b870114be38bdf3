"""What there is to get over HTTP: paths in, pages out. Nothing here can change anything.

Long answers are made in slices, of which each is true when it is made: a name that comes while the
others are told may be missing, and one that goes is not told any more. What has to be asked of the
registry is asked between two batches (writer.py).
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qs, unquote_to_bytes

from discoveryd.core.registry import Registry
from discoveryd.daemon.http import metrics, pages
from discoveryd.daemon.http.calls import Calls
from discoveryd.daemon.http.pages import JSON, Page
from discoveryd.daemon.methods.upkeep import Surroundings
from discoveryd.daemon.writer import Writer

SLICE = 128
"""How many names or workers are told at once."""

PATHS = "/v1/models, /v1/models/NAME, /healthz, /metrics, /sd/prometheus"

_MODEL = "/v1/models/"

_Thing = TypeVar("_Thing")


class House(Protocol):
    """What is asked of the daemon as a whole."""

    def status(self) -> Surroundings:
        """Return how everything but the registry is."""
        ...

    def silent(self) -> str | None:
        """Say what has stopped that should never stop; None while all goes on."""
        ...


class Long(NamedTuple):
    """A page whose body is made piece by piece, while it is sent."""

    pieces: AsyncGenerator[bytes]
    content_type: str = JSON


class Site:
    """Answers requests from a writer's answers; `calls` are the interface's. Lives on the loop."""

    def __init__(self, writer: Writer, house: House, calls: Calls) -> None:
        self._writer = writer
        self._house = house
        self._calls = calls

    async def get(self, target: str) -> Page | Long:
        """Return what there is at a request's target: a path, and maybe a query."""
        path, _, query = target.partition("?")
        everything = parse_qs(query).get("all", [""])[-1] in ("1", "true")
        if path == "/v1/models":
            return Long(self._models(everything=everything))
        if path.startswith(_MODEL):
            return await self._model(path.removeprefix(_MODEL), everything=everything)
        if path == "/healthz":
            return self._health()
        if path == "/metrics":
            return self._metrics()
        if path == "/sd/prometheus":
            return Long(self._targets())
        return pages.fault(404, f"there is nothing here; there are {PATHS}")

    async def _models(self, *, everything: bool) -> AsyncGenerator[bytes]:
        async def slices() -> AsyncIterator[list[bytes]]:
            for names in _sliced(self._writer.answers.names()):
                async with self._writer.settled() as registry:
                    found = [self._read(registry, name) for name in names]
                yield [
                    pages.encode(model)
                    for model in found
                    if model is not None and (model.ready or everything)
                ]

        async for piece in _joined(b'{"object":"list","data":[', slices(), b"]}\n"):
            yield piece

    async def _model(self, quoted: str, *, everything: bool) -> Page:
        try:
            name = unquote_to_bytes(quoted).decode()
        except UnicodeDecodeError:
            return pages.fault(400, "the name of a model is UTF-8, percent-encoded")
        async with self._writer.settled() as registry:
            model = self._read(registry, name)
        if model is None or not (model.ready or everything):
            similar = self._writer.answers.similar(name)
            return pages.no_such_model(name, similar, unready=model is not None)
        return Page(200, pages.encode(model) + b"\n")

    def _read(self, registry: Registry, name: str) -> pages.Model | None:
        def since(file: str) -> float:
            verdict = registry.verdict(file)
            return 0.0 if verdict is None else verdict.since

        return pages.model(self._writer.answers, name, since)

    async def _targets(self) -> AsyncGenerator[bytes]:
        workers = self._writer.answers.workers
        told: set[tuple[str, str]] = set()

        async def slices() -> AsyncIterator[list[bytes]]:
            for keys in _sliced(list(workers)):
                present = [workers[key] for key in keys if key in workers]
                yield [pages.encode(target) for target in pages.targets(present, told)]

        async for piece in _joined(b"[", slices(), b"]\n"):
            yield piece

    def _health(self) -> Page:
        around = self._house.status()
        silent = self._house.silent()
        watching = silent is None and all(
            each.problem is None and (each.watching or each.backend == "polling")
            for each in around.directories
        )
        stopped = () if silent is None else (silent,)
        return pages.health(watching=watching, problems=(*around.all_problems, *stopped))

    def _metrics(self) -> Page:
        answers = self._writer.answers
        figures = metrics.Figures(
            around=self._house.status(),
            calls=self._calls,
            ledger_lag=self._writer.ledger.lag,
            names=len(answers),
            revision=answers.cursor.revision,
            standings=self._writer.standings,
            workers=len(answers.workers),
        )
        return Page(200, metrics.exposition(figures), metrics.CONTENT_TYPE)


def _sliced(things: Sequence[_Thing]) -> Iterator[Sequence[_Thing]]:
    return (things[at : at + SLICE] for at in range(0, len(things), SLICE))


async def _joined(
    before: bytes, slices: AsyncIterator[list[bytes]], after: bytes
) -> AsyncGenerator[bytes]:
    """Yield a JSON list, piece by piece."""
    yield before
    separator = b""
    async for items in slices:
        if items:
            yield separator + b",".join(items)
            separator = b","
    yield after
