"""Keeping up with a few folders: what is to be looked at, by whom, and what comes of it.

Here live the rounds, their timing, and the status. One task makes all rounds, one after another;
everything that wants a look (an event, a Sync, the clock) adds to what the next round must do. The
theory stands at the top of dropdir.py; how looks become sightings is said by the layout.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Literal, NamedTuple

import anyio
import anyio.abc
import msgspec

from discoveryd.core.batch import Sighting
from discoveryd.core.text import display_path
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.disk.hearing import Arm
from discoveryd.daemon.disk.layout import Layout
from discoveryd.daemon.disk.mounts import private_temporary, tells_nothing
from discoveryd.daemon.disk.pulse import Pulse
from discoveryd.daemon.disk.saying import Saying
from discoveryd.daemon.disk.unannounced import Unannounced
from discoveryd.daemon.disk.watching import SILENT_SECONDS, Lookout
from discoveryd.daemon.threads import OwnThread

Sink = Callable[[Sequence[Sighting]], Awaitable[None]]
"""Applies one batch of sightings; returns when it is applied."""

Touched = Callable[[Collection[Touch]], None]
"""Takes in which card files were only touched. Called on the loop."""

RESCAN_SECONDS = 5.0
"""How often everything is looked at again, at most."""

POLL_SECONDS = 0.5
"""How often everything is looked at again, at most, while events cannot be relied on."""

RESCAN_SHARE, POLL_SHARE = 0.004, 0.02
"""The share of one processor that looking again may cost, usually and then."""

STEP_MS = 4
"""How often the notifier looks for news while they keep coming, in milliseconds."""


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


class _Wanted:
    """What the next round must do: names to look at in each folder, or everything.

    `lost` says that some names may be missing, so that what is found was bound to go unannounced.
    """

    def __init__(self, folders: int) -> None:
        self.names: list[set[bytes]] = [set() for _ in range(folders)]
        self.everything = False
        self.lost = False
        self.done = anyio.Event()


class _Outcome(NamedTuple):
    sightings: list[Sighting]
    touches: Collection[Touch]
    unannounced: list[tuple[int, bytes]]
    patience: float
    scan_seconds: float | None


class Follower:
    """Follows the folders of one directory and tells `sink`, one batch a round.

    `path` names the directory for people; `folder` in it holds the card files, `display` names it.
    `touched` is told of touches as soon as they are seen, and `sink` of nothing that is only that.
    `arm` begins to watch a folder; None is to do without events. `step_ms`, `rescan_seconds` and
    `poll_seconds` are as the constants above.

    Call `first_scan`, apply what it returns, then `run`; or `run` alone. A follower that was
    cancelled cannot be used again. All methods are the loop's.
    """

    def __init__(  # noqa: PLR0913  # limits are arguments
        self,
        path: bytes,
        sink: Sink,
        layout: Layout,
        *,
        arm: Arm | None,
        step_ms: int,
        rescan_seconds: float,
        touched: Touched | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.folder = layout.folders[0]
        self.display = self.folder.display
        self._root = path
        self._path = display_path(path)
        self._sink = sink
        self._touched = touched
        self._layout = layout
        self._folders = layout.folders
        self._lookouts = [
            Lookout(folder, partial(self._heard, number), self._lost, arm=arm, step_ms=step_ms)
            for number, folder in enumerate(self._folders)
        ]
        self._thread = OwnThread(f"looks at {self._path}")
        self._wake = anyio.Event()
        self._wanted = _Wanted(len(self._folders))
        self._begun = False
        self._unheeded = arm is None
        self._least_rescan_seconds = rescan_seconds
        self._poll_seconds = min(poll_seconds, rescan_seconds)
        self._upkeep_seconds = 0.0
        self._scanned_at = float("-inf")
        self._pulse = Pulse(self._path)
        self._elsewhere: str | None = None
        self._saying = Saying(self._path)
        self._patience_at = float("inf")
        self._last_scan_seconds = 0.0
        self._unannounced = Unannounced()

    @property
    def status(self) -> DirectoryStatus:
        """How it is now."""
        self._convict(anyio.current_time())
        polling = self._polling
        return DirectoryStatus(
            path=self._path,
            layout=self._layout.name,
            watching=not polling and all(lookout.identity for lookout in self._lookouts),
            backend="polling" if polling else "native",
            files=self._layout.files,
            rescan_seconds=self._rescan_seconds,
            last_scan_seconds=self._last_scan_seconds,
            found_by_scan=self._unannounced.total,
            problem=self._problem,
        )

    @property
    def _polling(self) -> bool:
        """Whether events cannot be relied on: there is a folder that is not watched, or in vain."""
        return self._unheeded or any(
            folder.identity is not None
            and (lookout.identity is None or lookout.deaf or tells_nothing(folder.file_system))
            for folder, lookout in zip(self._folders, self._lookouts, strict=True)
        )

    @property
    def _rescan_seconds(self) -> float:
        if self._polling:
            return max(self._poll_seconds, self._upkeep_seconds / POLL_SHARE)
        return max(self._least_rescan_seconds, self._upkeep_seconds / RESCAN_SHARE)

    @property
    def _problem(self) -> str | None:
        now = anyio.current_time()
        problems = [
            problem
            for folder, lookout in zip(self._folders, self._lookouts, strict=True)
            for problem in (folder.problem, lookout.problem(now))
            if problem is not None
        ]
        problems += filter(None, (self._pulse.slow(now), self._elsewhere))
        return "; ".join(problems) or None

    def silent(self, now: float) -> str | None:
        """Say what has stopped ticking at `now`, a time of the loop's; None while nothing has.

        Nothing is expected before `run`, nor of a look that takes long: see pulse.py.
        """
        since = self._pulse.beating_since
        if since is not None and now - since > SILENT_SECONDS:
            for lookout in self._lookouts:
                if (silence := lookout.silent(now)) is not None:
                    return silence
        return self._pulse.silent(now, self._rescan_seconds)

    def expect(self, names: Collection[bytes]) -> None:
        """Count these card files as known: those that the first look does not find are gone.

        For what outlived an earlier daemon; before `first_scan`. While the directory cannot be
        listed, nothing is said of them.
        """
        self._layout.expect(names)

    async def first_scan(self) -> list[Sighting]:
        """Begin to watch, then look at everything, and return it instead of telling the sink.

        So that the first batch can be the union over several directories. `run` must follow.
        """
        try:
            for lookout in self._lookouts:
                await lookout.arm()
            nothing = _Wanted(len(self._folders))
            outcome = await self._look(nothing, everything=True)
        except BaseException:
            self.stop()
            raise
        self._begun = True
        self._note(outcome)
        self._say()
        return outcome.sightings

    async def run(self) -> None:
        """Follow until cancelled. Raises what the sink raises, in an exception group."""
        async with anyio.create_task_group() as tasks:
            try:
                if not self._begun and (sightings := await self.first_scan()):
                    await self._sink(sightings)
                for lookout in self._lookouts:
                    tasks.start_soon(lookout.hear)
                self._pulse.begin()
                while True:
                    await self._until_due()
                    await self._round(tasks)
            finally:
                self.stop()

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
        due = min(
            self._scanned_at + self._rescan_seconds,
            self._patience_at,
            *(look.due for look in self._lookouts),
        )
        clock = asyncio.get_running_loop().call_at(due, self._wake.set)
        await self._wake.wait()
        clock.cancel()

    async def _round(self, tasks: anyio.abc.TaskGroup) -> None:
        self._wake = anyio.Event()
        wanted, self._wanted = self._wanted, _Wanted(len(self._folders))
        now = anyio.current_time()
        everything = wanted.everything or now >= self._scanned_at + self._rescan_seconds
        for lookout in self._lookouts:
            if lookout.due <= now:
                with self._pulse.looking():
                    armed = await lookout.arm()
                if armed:
                    everything = True
                    tasks.start_soon(lookout.hear)
        outcome = await self._look(wanted, everything=everything)
        if outcome.touches and self._touched is not None:
            self._touched(outcome.touches)
        if outcome.sightings:
            await self._sink(outcome.sightings)
        self._note(outcome)
        for folder, lookout in zip(self._folders, self._lookouts, strict=True):
            if lookout.identity is not None and lookout.identity != folder.identity:
                lookout.drop()
        self._say()
        wanted.done.set()

    async def _look(self, wanted: _Wanted, *, everything: bool) -> _Outcome:
        # A thread that is abandoned ends at the next file, since its folders are stopped then.
        with self._pulse.looking():
            return await self._thread.run(partial(self._look_now, wanted, everything))

    def _look_now(self, wanted: _Wanted, everything: bool) -> _Outcome:
        began = time.monotonic()
        names = wanted.names
        if everything:
            self._elsewhere = private_temporary(self._root)
        self._layout.widen(names)
        changes = [
            folder.look(some, everything=everything)
            for folder, some in zip(self._folders, names, strict=True)
        ]
        unannounced = [
            (number, name)
            for number, change in enumerate(changes)
            if change.scanned and not change.strange and not wanted.lost
            for name, seen in change.looks.items()
            if name not in names[number] and not seen.linked
        ]
        sightings = self._layout.sightings([change.looks for change in changes])
        seconds = time.monotonic() - began if everything else None
        touches = self._folders[0].take_touches().values()
        return _Outcome(sightings, touches, unannounced, self._layout.patience(), seconds)

    def _note(self, outcome: _Outcome) -> None:
        now = anyio.current_time()
        self._convict(now)
        self._patience_at = now + outcome.patience
        for number, name in outcome.unannounced:
            # What was heard of while the round went on waits for the next one.
            if name not in self._wanted.names[number]:
                self._unannounced.found((number, name), now)
        if outcome.scan_seconds is not None:
            self._last_scan_seconds = outcome.scan_seconds
            self._upkeep_seconds = sum(folder.upkeep_seconds for folder in self._folders)
            self._scanned_at = now

    def _heard(self, number: int, names: set[bytes]) -> None:
        self._convict(asyncio.get_running_loop().time())
        for name in names:
            self._unannounced.named((number, name))
        self._wanted.names[number] |= names
        self._wake.set()

    def _lost(self) -> None:
        self._wanted.everything = self._wanted.lost = True
        self._wake.set()

    def _convict(self, now: float) -> None:
        """Count the changes that scans found and that no event has named in time."""
        for number, changes in self._unannounced.convict(now).items():
            if not tells_nothing(self._folders[number].file_system):
                self._lookouts[number].miss(changes)

    def _say(self) -> None:
        """Log what is news about the directory."""
        silent = {f.file_system for f in self._folders if tells_nothing(f.file_system)}
        self._saying.silent(silent, self._rescan_seconds)
        self._saying.problem(self._problem, anyio.current_time())

    def stop(self) -> None:
        """Stop watching, for good. For one that does not run: who runs stops when cancelled."""
        for folder in self._folders:
            folder.stop()
        for lookout in self._lookouts:
            lookout.stop()
        self._thread.end()
