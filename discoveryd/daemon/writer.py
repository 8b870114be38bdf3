"""The registry's single writer: batches in, revisions out, one at a time.

Everything that changes the registry goes through `apply`. A long batch is applied in slices, so
that the loop goes on answering; until it is through, answers come from the revision before, and
whoever must ask the registry itself waits for `settled`.
"""

import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from discoveryd.core.answers import Answers, Published
from discoveryd.core.batch import Batch, Change, Sighting
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Serves
from discoveryd.daemon import replies

SLICE_SECONDS = 0.005
"""How long the loop may be kept from everything else by judging."""

MOST_LOGGED = 20
"""How many cards of one batch are logged one by one."""

_log = logging.getLogger(__name__)


class Writer:
    """Owns a registry and its published answers. Lives on the loop.

    `tail` is the end of every reply that speaks of the present revision. While `busy`, the registry
    must not be asked.
    """

    def __init__(self, epoch: str, operator_aliases: Mapping[str, str]) -> None:
        self.registry = Registry(operator_aliases=operator_aliases)
        self.answers = Answers(epoch, operator_aliases)
        self.standings: dict[str, int] = {}
        self.busy = False
        self._turn = anyio.Lock()
        self._published = anyio.Event()
        self._renders: dict[str, bytes] = {}
        self.tail = replies.tail(self.answers.cursor)

    async def apply(self, sightings: Sequence[Sighting]) -> None:
        """Apply one batch, and publish what it changed. Batches are applied in order of arrival."""
        async with self._turn:
            self.busy = True
            try:
                batch = Batch(sightings=tuple(sightings), now=time.time())
                change = await self._judge(batch)
                published = self.answers.publish(change)
                self.standings = {k: n for k, n in self.registry.standings.items() if n}
            finally:
                self.busy = False
        self._log_change(change)
        if published is not None:
            self._announce(published)

    async def _judge(self, batch: Batch) -> Change:
        steps = self.registry.applying(batch)
        until = time.monotonic() + SLICE_SECONDS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                change: Change = end.value
                return change
            if time.monotonic() >= until:
                await anyio.lowlevel.cancel_shielded_checkpoint()
                until = time.monotonic() + SLICE_SECONDS

    @asynccontextmanager
    async def settled(self) -> AsyncGenerator[Registry]:
        """Hold the registry still between two batches, and lend it."""
        async with self._turn:
            yield self.registry

    def render(self, name: str) -> bytes | None:
        """Return what was kept of a name's answer since the name last changed."""
        return self._renders.get(name)

    def keep(self, name: str, rendered: bytes) -> None:
        """Keep what a name's answer was made into until the name changes."""
        self._renders[name] = rendered

    async def wait_published(self) -> None:
        """Return at the next revision."""
        await self._published.wait()

    def _announce(self, published: Published) -> None:
        for name in published.names:
            self._renders.pop(name, None)
        self.tail = replies.tail(published.cursor)
        waiting, self._published = self._published, anyio.Event()
        waiting.set()

    def _log_change(self, change: Change) -> None:
        for file in change.forgotten[:MOST_LOGGED]:
            _log.info("%s is gone", file)
        logged = 0
        for file in change.judged:
            verdict = self.registry.verdict(file) if logged < MOST_LOGGED else None
            if verdict is None:
                continue
            logged += 1
            if verdict.serves is Serves.CURRENT:
                _log.info("%s serves %s", file, ", ".join(verdict.names))
            else:
                reasons = " ".join(reason.message for reason in verdict.reasons)
                kept = verdict.serves is Serves.PREVIOUS
                previous = "; its last version is still served" if kept else ""
                _log.warning("%s is %s%s. %s", file, verdict.standing, previous, reasons)
        further = len(change.judged) + len(change.forgotten)
        if further > 2 * MOST_LOGGED:
            counts = ", ".join(f"{n} {standing}" for standing, n in sorted(self.standings.items()))
            _log.info("%d card files changed at once; now %s", further, counts or "none")
