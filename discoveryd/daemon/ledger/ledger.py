"""The ledger: what must outlive the daemon, so that a restart changes no answer.

Theory
======

**What is kept.** The registry's state (core/state.py): per file its last valid card, per key who
claims it, its ranks, and what it serves; and the cursor at which that was published. Everything
else is worked out from it. Besides, a bounded history of verdicts, for people.

**Written first, then published.** `record` is called between judging and publishing, and returns
when the change is in the file: so whatever a client was ever told, a restart knows. A commit takes
some dozen microseconds and is not synced, since a killed process loses nothing that it has written;
only a power cut may. (The design would have departures published first. That spares them those
microseconds, and costs a ledger that lags behind what was told.) Only what changed is written: the
files and keys that the change names, in one transaction.

**When it cannot be written** the daemon goes on without: no answer waits longer than a second for
a ledger. What is owed is kept by name only, tried again every few seconds, and written whole where
the file had to be opened anew or the names grew too many. Meanwhile a restart would not know what
is published. So that no cursor ever means two things, what is published unwritten is published in
an epoch that the ledger has never heard of: watchers reset, once.

**The start.** The state is put back, then what a full scan found is applied as one batch, like any
other: edited, swapped or renamed files are edits and moves; files that are gone, or lie in no
directory any more, depart. Where that changes nothing, epoch and revision go on and watchers
resume.

**History** is written a little later than the rest: it decides nothing, so nobody should wait for
it. A killed daemon may lose the last twentieth of a second of it. What is not written yet is
answered from memory; without a file, that is all there is.
"""

import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import anyio

from discoveryd.core.batch import Change
from discoveryd.core.card import Card
from discoveryd.core.history import Cursor
from discoveryd.core.registry import Registry
from discoveryd.core.state import FileState, Ranks
from discoveryd.core.text import display_path
from discoveryd.daemon.errors import StartError
from discoveryd.daemon.ledger.attempt import Attempt
from discoveryd.daemon.ledger.faults import Broken, Taken, Unusable
from discoveryd.daemon.ledger.file import LedgerFile
from discoveryd.daemon.ledger.history import Unwritten
from discoveryd.daemon.ledger.owed import Owed
from discoveryd.daemon.ledger.rows import Event, Meta
from discoveryd.daemon.ledger.tables import MOST_EVENTS, Writing
from discoveryd.daemon.threads import OwnThread

PATIENCE_SECONDS = 1.0
"""How long publishing waits for the ledger, and besides"""

PATIENCE_SECONDS_A_ROW = 50e-6
"""for each row that is to be written."""

RETRY_SECONDS = 2.0
"""How often a ledger that could not be written is tried again."""

LINGER_SECONDS = 0.05
"""How long events are collected before they are written."""

MOST_UNWRITTEN = 10_000
"""How many events are kept in memory while they cannot be written."""

MOST_AT_ONCE = 500
"""How many events are written in one transaction, which others may have to wait for."""

_log = logging.getLogger(__name__)

Memory = tuple[Registry, Cursor]
"""A registry in its former state, and the cursor to go on from: that of the state where the
registry is wholly in it, else one of another epoch."""


class Ledger:
    """The ledger at `path`, an absolute one; with None there is none, and nothing is kept.

    Call `open`, then `recall`; `run` must run from then on, until `close`. All methods are the
    loop's. `record` has one caller at a time: the registry's writer, whose ranks are `ranks`.
    `by_owner` is as for Registry.
    """

    def __init__(
        self,
        path: str | None,
        *,
        by_owner: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.ranks = Ranks()
        self._file = None if path is None else LedgerFile(path, by_owner=by_owner)
        self._patience_seconds = patience_seconds
        self._retry_seconds = retry_seconds
        self._thread = OwnThread("ledger")
        self._wake = anyio.Event()
        # What is wrong, when to try again, the attempt that has not come back.
        self._fault: str | None = None
        self._try_at = 0.0
        self._stuck: Attempt | None = None
        # The epoch that stands in the file, and what is owed to it.
        self._epoch: str | None = None
        self._owed = Owed()
        self._begun = False
        # Events that are not in the file yet, and the number of the last that is.
        self._told = Unwritten()
        self._last_event = 0

    def problems(self) -> list[str]:
        """Say what is wrong, and what to do about it."""
        said = [
            f"{what}. A new ledger was begun: what waited or stood by may have lost its turn. When "
            f"you have seen to it, remove {display_path(os.fsencode(target))}"
            for target, what in ([] if self._file is None else list(self._file.aside.items()))
            if os.path.lexists(target)
        ]
        if self._fault is not None:
            said.append(f"the ledger is not kept, so a restart may change answers: {self._fault}")
        return said

    @property
    def lag(self) -> tuple[bool, int] | None:
        """Whether rows are owed to the file, and how many events are; None where there is none."""
        return None if self._file is None else (bool(self._owed), len(self._told))

    # The start

    async def open(self) -> Mapping[str, FileState]:
        """Open the ledger; return the files it knows, without their cards.

        Raises StartError if another daemon has it. Where it cannot be used, nothing is known.
        """
        file, known = self._file, dict[str, FileState]()
        if file is None:
            return known
        try:
            with anyio.CancelScope(shield=True):
                known = await self._thread.run(file.begin)
        except Taken as taken:
            raise StartError(str(taken)) from None
        except Unusable as fault:
            self._fall_behind(fault)
        return known

    async def recall(
        self, known: Mapping[str, FileState], cards: Mapping[str, Card]
    ) -> Memory | None:
        """Return what was remembered; None where nothing was.

        `known` is what `open` returned. `cards` are those which the files have now: where they are
        the remembered ones, they are in the memory themselves, not their equals.
        """
        file = self._file
        if file is None or not file.opened:
            return None
        recalled = None
        try:
            with anyio.CancelScope(shield=True):
                recalled = await self._thread.run(partial(file.recall, known, cards, self.ranks))
        except Unusable as fault:
            self._fall_behind(fault)
        finally:
            self._last_event = file.last_event
        if recalled is None:
            return None
        (registry, same), meta = recalled
        self._epoch = meta.epoch
        if same:
            self._owed.nothing()
        return registry, Cursor(meta.epoch, meta.revision) if same else Cursor(uuid.uuid4().hex, 0)

    # Between judging and publishing

    async def record(self, registry: Registry, change: Change, at: Cursor) -> Cursor:
        """Keep what a change made of the registry; return the cursor to publish it at.

        That is `at`, or the first of another epoch where the change could not be kept. The registry
        must be at rest until this returns.
        """
        if self._file is None:
            return at
        self._begun = True
        self._owed.change(change, registry)
        owed = self._owed or at.epoch != self._epoch
        if change.empty and not owed and self._fault is None:
            return at
        if await self._write(self._file, registry, at) or change.empty:
            return at
        stuck = None if self._stuck is None else self._stuck.writing.meta
        taken = at.epoch == self._epoch or (stuck is not None and at.epoch == stuck.epoch)
        return Cursor(uuid.uuid4().hex, 1) if taken else at

    async def _write(self, file: LedgerFile, registry: Registry, at: Cursor) -> bool:
        """Write what is owed; return whether it is in the file now."""
        if not self._may_try():
            return False
        opened = file.opened
        attempt = await self._take(registry, at)
        if await self._make(file, attempt):
            return True
        if not (attempt.anew or (opened and attempt.over and not file.opened)):
            return False
        # It was removed, or broken and moved aside. So there is nothing in the way of a new one.
        return await self._make(file, await self._take(registry, at))

    def _may_try(self) -> bool:
        stuck = self._stuck
        if stuck is not None:
            if not stuck.over:
                return False
            self._stuck = None
            if not self._settle(stuck):
                return False
        return self._fault is None or time.monotonic() >= self._try_at

    async def _take(self, registry: Registry, at: Cursor) -> Attempt:
        if self._file is not None and not self._file.opened:
            # Whatever is there by now, it is not what was written last.
            self._owed.everything()
        meta = Meta(
            epoch=at.epoch,
            revision=at.revision,
            rank=self.ranks.last,
            operator_aliases=dict(registry.arbiter.names.operator),
        )
        return Attempt(await self._owed.take(registry, meta))

    async def _make(self, file: LedgerFile, attempt: Attempt) -> bool:
        """Make an attempt, as long as patience lasts; return whether it went well."""
        writing = attempt.writing
        rows = len(writing.files) + len(writing.entries) + len(writing.events)
        patience = self._patience_seconds + rows * PATIENCE_SECONDS_A_ROW
        with anyio.move_on_after(patience, shield=True):
            await self._thread.run(partial(attempt.make, file))
        if attempt.over:
            return self._settle(attempt)
        slow = Unusable(f"writing {file.display} takes too long: see to its file system")
        self._fall_behind(slow)
        if attempt.give_up():
            self._owe_again(writing)
        else:
            self._stuck = attempt
        return False

    def _settle(self, attempt: Attempt) -> bool:
        """Draw the consequences of an attempt that is over; return whether it went well."""
        writing, file = attempt.writing, self._file
        if attempt.defect is not None:
            raise attempt.defect
        if file is not None:
            self._last_event = file.last_event
        if attempt.anew or attempt.fault is not None:
            self._owe_again(writing)
            if attempt.anew:
                self._epoch = None
                self._owed.everything()
                self._wake.set()
            if attempt.fault is not None:
                self._fall_behind(attempt.fault)
            return False
        if writing.events:
            self._told.written()
        if writing.meta is not None:
            self._epoch = writing.meta.epoch
            if self._fault is not None:
                self._fault = None
                _log.info("the ledger is kept again")
        return True

    def _owe_again(self, writing: Writing) -> None:
        """Put what was not written back on the list."""
        self._owed.again(writing)
        if writing.events:
            self._told.put_back()

    def _fall_behind(self, fault: Unusable) -> None:
        self._try_at = time.monotonic() + self._retry_seconds
        if self._fault != str(fault):
            self._fault = str(fault)
            _log.error("the ledger is not kept: %s", fault)
        self._wake.set()

    # History

    def tell(self, event: Event) -> None:
        """Keep an event; it is written soon."""
        idle = self._file is None or self._fault is not None
        self._told.add(event, MOST_UNWRITTEN if idle else MOST_EVENTS)
        self._wake.set()

    async def history(
        self, files: Sequence[str] | None, name: str | None, limit: int
    ) -> list[Event]:
        """Return the latest events of these files, of a name, or of all; newest first."""
        upto = self._last_event
        found = self._told.find(files, name, limit)
        file, more = self._file, limit - len(found)
        if file is None or self._fault or not file.opened or not more:
            return found
        try:
            with anyio.CancelScope(shield=True):
                find = partial(file.find, files, name, upto=upto, limit=more)
                found += await self._thread.run(find)
        except (Broken, Unusable) as fault:
            # What it means for the rest shows when something is written.
            _log.error("the history cannot be read: %s", fault)
        return found

    async def run(self, again: Callable[[], Awaitable[None]]) -> None:
        """Write the history, and try again what could not be written, until cancelled.

        `again` calls `record` with a change that is none.
        """
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await anyio.sleep(LINGER_SECONDS)
            while self._file is not None and (self._fault or self._owed):
                if self._fault:
                    await anyio.sleep(self._retry_seconds)
                await again()
            await self._write_events()

    async def _write_events(self) -> None:
        file = self._file
        while file is not None and len(self._told) and self._fault is None and file.opened:
            await self._make(file, Attempt(Writing(events=self._told.take(MOST_AT_ONCE))))

    async def close(self, again: Callable[[], Awaitable[None]]) -> None:
        """Write what is left, `again` as for `run`; give the file up. It takes seconds at most."""
        if (file := self._file) is None:
            return
        for _ in range(2):
            # Twice: that the file is broken may show only now. But not before the first record.
            if self._begun and self._owed:
                self._try_at = 0.0
                await again()
            await self._write_events()
        if self._stuck is None:
            with anyio.move_on_after(self._patience_seconds, shield=True):
                await self._thread.run(file.leave)
        self._thread.end()
