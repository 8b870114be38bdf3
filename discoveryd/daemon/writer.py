"""The registry's single writer: batches in, revisions out, one at a time.

Everything that changes the registry goes through `apply`. A long batch is applied in slices, so
that the loop goes on answering; until it is through, answers come from the revision before, and
whoever must ask the registry itself waits for `settled`. What a batch changed is in the ledger
before it is published (ledger.py).
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from discoveryd.core.answers import Answers, Published
from discoveryd.core.batch import Batch, Change, Sighting
from discoveryd.core.card import Card
from discoveryd.core.history import Cursor
from discoveryd.core.registry import Registry
from discoveryd.core.rejudging import difference, rejudged
from discoveryd.core.verdict import Serves
from discoveryd.core.verdicts import Outcome
from discoveryd.daemon.collecting import without_collecting
from discoveryd.daemon.ledger.ledger import Ledger, Memory
from discoveryd.daemon.ledger.rows import Event
from discoveryd.daemon.methods import replies
from discoveryd.daemon.waking import Sleepers
from discoveryd.varlink import Recall

SLICE_SECONDS = 0.005
"""How long the loop may be kept from everything else by judging."""

MOST_LOGGED = 20
"""How many cards of one batch are logged one by one."""

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Writer:
    """Owns a registry and its published answers. Lives on the loop.

    `recall` has the replies of Resolve that are as good as when they were made. While `busy`, the
    registry must not be asked. `differences` is where watch.py keeps what it told until the next
    revision.
    `listeners` are told of each change that is not empty, once it is published.
    `by_owner` is as for Registry.
    """

    def __init__(
        self,
        epoch: str,
        operator_aliases: Mapping[str, str],
        ledger: Ledger | None = None,
        *,
        by_owner: bool = False,
    ) -> None:
        self.ledger = Ledger(None) if ledger is None else ledger
        self.registry = Registry(self.ledger.ranks, operator_aliases, by_owner=by_owner)
        self.answers = Answers(epoch, operator_aliases)
        self.standings: dict[str, int] = {}
        self.busy = False
        self.listeners: list[Callable[[Change], None]] = []
        self._turn = anyio.Lock(fast_acquire=True)
        # What the history is told later, None where it is told everything at once.
        self._held_back: list[tuple[Change, float]] | None = None
        self._watchers = Sleepers()
        self.differences: dict[tuple[Cursor | None, Cursor], list[bytes]] = {}
        self.recall = Recall(replies.whole_tail(self.answers.cursor))

    def resume(self, memory: Memory) -> None:
        """Go on from what the ledger remembered. Before the first batch."""
        registry, cursor = memory
        aliases = registry.arbiter.names.operator
        self.registry, self.answers = registry, Answers(cursor.epoch, aliases)
        self.answers.resume(cursor.revision, registry.served.values())
        self.recall.revise((), replies.whole_tail(self.answers.cursor))
        self._count()

    async def apply(
        self,
        sightings: Sequence[Sighting] = (),
        operator_aliases: Mapping[str, str] | None = None,
        *,
        by_owner: bool | None = None,
    ) -> None:
        """Apply one batch, and publish what it changed. Batches are applied in order of arrival.

        With `by_owner` everything is judged anew before, where it was judged otherwise so far.
        """
        async with self._turn:
            if self._held_back:
                await self._tell_held_back()
            self.busy = True
            try:
                batch = Batch(
                    sightings=tuple(sightings),
                    operator_aliases=operator_aliases,
                    now=time.time(),
                )
                before = self.registry
                if by_owner not in (None, before.arbiter.by_owner):
                    await self._rejudge(by_owner=bool(by_owner))
                change = await _in_slices(self.registry.applying(batch))
                if self.registry is not before:
                    aliases = change.operator_aliases
                    change = difference(before, self.registry, aliases, batch.now)
                await self._publish(change, await self._record(change))
            finally:
                self.busy = False
            if not change.empty:
                await self._watchers.wake()
            if self._held_back is None:
                await self._tell(change, batch.now)
            else:
                self._held_back.append((change, batch.now))
        self._log_change(change)

    async def _rejudge(self, *, by_owner: bool) -> None:
        """Judge everything anew, in a thread: nobody may ask the registry until this returns."""
        anew = partial(rejudged, self.registry, self.ledger.ranks, by_owner=by_owner)
        with without_collecting():
            self.registry = await anyio.to_thread.run_sync(anew)

    async def _record(self, change: Change) -> Cursor:
        history = self.answers.history
        at = history.cursor if change.empty else history.following
        return await self.ledger.record(self.registry, change, at)

    async def _publish(self, change: Change, at: Cursor) -> None:
        published = await _in_slices(self.answers.publishing(change, at.epoch))
        self._count()
        if published is not None:
            self._announce(published)
            for listen in self.listeners:
                listen(change)

    def _count(self) -> None:
        self.standings = {k: n for k, n in self.registry.standings.items() if n}

    def hold_back(self) -> None:
        """Tell the history nothing until `tell`: who waits for a batch need not wait for that."""
        self._held_back = []

    async def tell(self) -> None:
        """Tell the history what was held back, and everything at once from now on."""
        async with self._turn:
            await self._tell_held_back()
            self._held_back = None

    async def _tell_held_back(self) -> None:
        held, self._held_back = self._held_back or (), []
        for change, now in held:
            await self._tell(change, now)

    async def _tell(self, change: Change, now: float) -> None:
        """Let the ledger's history know; nobody waits for that but the next batch."""
        for file, card in change.forgotten.items():
            self.ledger.tell(_event(now, file, card))
        until = time.monotonic() + SLICE_SECONDS
        for file in change.judged:
            outcome = self.registry.outcome(file)
            if outcome is not None:
                self.ledger.tell(_event(now, file, outcome.card, outcome))
            if time.monotonic() >= until:
                await anyio.lowlevel.cancel_shielded_checkpoint()
                until = time.monotonic() + SLICE_SECONDS

    @asynccontextmanager
    async def settled(self) -> AsyncGenerator[Registry]:
        """Hold the registry still between two batches, and lend it."""
        async with self._turn:
            yield self.registry

    async def wait_published(self, seconds: float | None = None) -> bool:
        """Return True at the next revision; False after so many seconds, if they are given."""
        return await self._watchers.sleep(seconds)

    def _announce(self, published: Published) -> None:
        self.differences.clear()
        self.recall.revise(published.names, replies.whole_tail(published.cursor))

    def _log_change(self, change: Change) -> None:
        for file in islice(change.forgotten, MOST_LOGGED):
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


async def _in_slices(steps: Generator[None, None, Result]) -> Result:
    """Return what the steps come to, without keeping the loop from everything else."""
    until = time.monotonic() + SLICE_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if time.monotonic() >= until:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            until = time.monotonic() + SLICE_SECONDS


def _event(now: float, file: str, card: Card | None, outcome: Outcome | None = None) -> Event:
    return Event(
        time=now,
        file=file,
        key=None if card is None else card.key,
        names=() if card is None else card.names,
        standing=None if outcome is None else outcome.standing,
        reasons=() if outcome is None else outcome.reasons,
    )
