"""Keeping up with a few folders: what is to be looked at, by whom, and what comes of it.

Here live the rounds, their timing, and the status. One task makes all rounds, one after another;
everything that wants a look (an event, a Sync, the clock) adds to what the next round must do. The
theory stands at the top of dropdir.py; how looks become sightings is said by the two layouts.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from discoveryd.core.batch import Sighting
from discoveryd.core.text import display_path
from discoveryd.daemon.folder import Folder
from discoveryd.daemon.reading import Look
from discoveryd.daemon.watching import Arm, Lookout

Sink = Callable[[Sequence[Sighting]], Awaitable[None]]
"""Applies one batch of sightings; returns when it is applied."""

RESCAN_SECONDS = 5.0
"""How often everything is looked at again, at most."""

RESCAN_SHARE = 0.02
"""The share of one processor that looking again may cost."""

STEP_MS = 4
"""How long the notifier collects, in milliseconds: about the latency of an event."""

LATE_SECONDS = 1.0
"""A change that a scan found counts as unannounced if no event named it for so long."""


class DirectoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one followed directory is; the members are those of the interface's `Directory`."""

    path: str
    layout: Literal["cards", "dynamo"]
    watching: bool
    backend: Literal["native", "polling"]
    files: int
    rescan_seconds: float
    last_scan_seconds: float
    found_by_scan: int
    problem: str | None


class Layout(Protocol):
    """Which folders make up a directory, the one with the cards first, and what is in them.

    All but `name` and `files` is used in a thread, by one round at a time.
    """

    @property
    def name(self) -> Literal["cards", "dynamo"]:
        """What the layout is called."""
        ...

    @property
    def folders(self) -> Sequence[Folder]:
        """The folders to follow."""
        ...

    @property
    def files(self) -> int:
        """How many card files there are, good or bad."""
        ...

    def widen(self, names: Sequence[set[bytes]]) -> None:
        """Add the names that must be looked at together with these."""
        ...

    def sightings(self, looks: Sequence[dict[bytes, Look]]) -> list[Sighting]:
        """Say what is new, given the news of each folder. Called once each round."""
        ...

    def patience(self) -> float:
        """Return in how many seconds another round is due even if nothing happens."""
        ...


class _Wanted:
    """What the next round must do: names to look at in each folder, or everything."""

    def __init__(self, folders: int) -> None:
        self.names: list[set[bytes]] = [set() for _ in range(folders)]
        self.everything = False
        self.done = anyio.Event()


class _Outcome(NamedTuple):
    sightings: list[Sighting]
    unannounced: list[tuple[int, bytes]]
    patience: float
    scan_seconds: float | None


class Follower:
    """Follows the folders of one directory and tells `sink`, one batch a round.

    `path` names the directory for people, `display` the folder in it that holds the card files.
    `arm` begins to watch a folder; `step_ms` and `rescan_seconds` as the constants above.

    Call `first_scan`, apply what it returns, then `run`; or `run` alone. A follower that was
    cancelled cannot be used again. All methods are the loop's.
    """

    def __init__(  # noqa: PLR0913  # limits are arguments
        self,
        path: bytes,
        sink: Sink,
        layout: Layout,
        *,
        arm: Arm,
        step_ms: int,
        rescan_seconds: float,
    ) -> None:
        self.display = layout.folders[0].display
        self._path = display_path(path)
        self._sink = sink
        self._layout = layout
        self._folders = layout.folders
        self._lookouts = [
            Lookout(folder, partial(self._heard, number), arm=arm, step_ms=step_ms)
            for number, folder in enumerate(self._folders)
        ]
        self._wake = anyio.Event()
        self._wanted = _Wanted(len(self._folders))
        self._begun = False
        self._least_rescan_seconds = rescan_seconds
        self._rescan_seconds = rescan_seconds
        self._rescan_at = 0.0
        self._patience_at = float("inf")
        self._last_scan_seconds = 0.0
        self._found_by_scan = 0
        self._suspects: dict[tuple[int, bytes], float] = {}

    @property
    def status(self) -> DirectoryStatus:
        """How it is now."""
        now = anyio.current_time()
        self._convict(now)
        problems = [
            problem
            for folder, lookout in zip(self._folders, self._lookouts, strict=True)
            for problem in (folder.problem, lookout.problem(now))
            if problem is not None
        ]
        return DirectoryStatus(
            path=self._path,
            layout=self._layout.name,
            watching=all(lookout.identity is not None for lookout in self._lookouts),
            backend="native",
            files=self._layout.files,
            rescan_seconds=self._rescan_seconds,
            last_scan_seconds=self._last_scan_seconds,
            found_by_scan=self._found_by_scan,
            problem="; ".join(problems) or None,
        )

    async def first_scan(self) -> list[Sighting]:
        """Begin to watch, then look at everything, and return it instead of telling the sink.

        So that the first batch can be the union over several directories. `run` must follow.
        """
        try:
            for lookout in self._lookouts:
                await lookout.arm()
            nothing = _Wanted(len(self._folders))
            outcome = await self._look(nothing.names, everything=True)
        except BaseException:
            self._stop()
            raise
        self._begun = True
        self._note(outcome)
        return outcome.sightings

    async def run(self) -> None:
        """Follow until cancelled. Raises what the sink raises, in an exception group."""
        async with anyio.create_task_group() as tasks:
            try:
                if not self._begun and (sightings := await self.first_scan()):
                    await self._sink(sightings)
                for lookout in self._lookouts:
                    tasks.start_soon(lookout.hear)
                while True:
                    await self._until_due()
                    await self._round(tasks)
            finally:
                self._stop()

    async def look(self, names: Collection[bytes]) -> None:
        """Return when what these files were at the call has been applied. `run` must be running."""
        wanted = self._wanted
        wanted.names[0].update(names)
        self._wake.set()
        await wanted.done.wait()

    async def scan(self) -> None:
        """Return when a full scan that began after the call has been applied; many share one."""
        wanted = self._wanted
        wanted.everything = True
        self._wake.set()
        await wanted.done.wait()

    async def _until_due(self) -> None:
        due = min(self._rescan_at, self._patience_at, *(look.due for look in self._lookouts))
        with anyio.move_on_at(due):
            await self._wake.wait()

    async def _round(self, tasks: anyio.abc.TaskGroup) -> None:
        self._wake = anyio.Event()
        wanted, self._wanted = self._wanted, _Wanted(len(self._folders))
        now = anyio.current_time()
        everything = wanted.everything or now >= self._rescan_at
        for lookout in self._lookouts:
            if lookout.due <= now and await lookout.arm():
                everything = True
                tasks.start_soon(lookout.hear)
        outcome = await self._look(wanted.names, everything=everything)
        if outcome.sightings:
            await self._sink(outcome.sightings)
        self._note(outcome)
        for folder, lookout in zip(self._folders, self._lookouts, strict=True):
            if lookout.identity is not None and lookout.identity != folder.identity:
                lookout.drop()
        wanted.done.set()

    async def _look(self, names: list[set[bytes]], *, everything: bool) -> _Outcome:
        # A thread that is abandoned ends at the next file, since its folders are stopped then.
        return await anyio.to_thread.run_sync(
            self._look_now, names, everything, abandon_on_cancel=True
        )

    def _look_now(self, names: list[set[bytes]], everything: bool) -> _Outcome:
        began = time.monotonic()
        self._layout.widen(names)
        changes = [
            folder.look(wanted, everything=everything)
            for folder, wanted in zip(self._folders, names, strict=True)
        ]
        unannounced = [
            (number, name)
            for number, change in enumerate(changes)
            if change.scanned and not change.strange
            for name in change.looks.keys() - names[number]
        ]
        sightings = self._layout.sightings([change.looks for change in changes])
        seconds = time.monotonic() - began if everything else None
        return _Outcome(sightings, unannounced, self._layout.patience(), seconds)

    def _note(self, outcome: _Outcome) -> None:
        now = anyio.current_time()
        self._convict(now)
        self._patience_at = now + outcome.patience
        for number, name in outcome.unannounced:
            # What was heard of while the round went on waits for the next one.
            if name not in self._wanted.names[number]:
                self._suspects.setdefault((number, name), now)
        if outcome.scan_seconds is not None:
            self._last_scan_seconds = outcome.scan_seconds
            upkeep = sum(folder.upkeep_seconds for folder in self._folders)
            self._rescan_seconds = max(self._least_rescan_seconds, upkeep / RESCAN_SHARE)
            self._rescan_at = now + self._rescan_seconds

    def _heard(self, number: int, names: set[bytes]) -> None:
        self._convict(anyio.current_time())
        for name in names:
            self._suspects.pop((number, name), None)
        self._wanted.names[number] |= names
        self._wake.set()

    def _convict(self, now: float) -> None:
        """Count the changes that scans found and that no event has named in time."""
        late = [suspect for suspect, since in self._suspects.items() if now - since >= LATE_SECONDS]
        for suspect in late:
            del self._suspects[suspect]
        self._found_by_scan += len(late)

    def _stop(self) -> None:
        for folder in self._folders:
            folder.stop()
        for lookout in self._lookouts:
            lookout.stop()
