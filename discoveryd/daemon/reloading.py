"""Reload: the configuration read again, and a running daemon made what it says.

Theory
======

**One at a time.** All reloads are made by one task. Who asks while one is being made waits for the
next, which begins after he asked, and shares it with others who wait. Who asked and left (a peer
that hung up) stops nothing: what was begun is made.

**All or nothing.** A configuration that cannot be read or is faulty changes nothing: the daemon
goes by the one before, says so in its log and status until a later reload goes well, and looks at
everything all the same. Of a good one, what holds for a daemon's whole life is left as it is, and
told as a problem (differences.py).

**One batch.** New directories are watched and scanned first, beside what goes on. Then, in one
step: those that are no longer named are left, all that has passed the gates is judged by the new
terms, and both go into one batch together with what the new directories hold and the operator's
names: so a file that moved from one to the other has moved, and no revision between tells half of
it. Answers come from the revision before until then. Leases, processes and holds go on: their
books are not touched.

**Never for ever.** A directory may hang in a file system that does not answer. One that is left is
not heeded from then on, even if its threads never come back; a new one joins by itself as soon as
it has been scanned; one that stays is looked at for so long, and then named as a problem.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain

import anyio
import anyio.abc
import anyio.to_thread

from discoveryd import interface
from discoveryd.core.batch import Sighting
from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.configuration.differences import Difference, compare
from discoveryd.daemon.disk.followed import Course, Directory, Followed
from discoveryd.daemon.errors import ConfigError, StartError
from discoveryd.daemon.gates import Gates
from discoveryd.daemon.systemd.notify import Notifier

PATIENCE_SECONDS = 5.0
"""How long each step of a reload may wait for a file system or the host's user database."""

_log = logging.getLogger(__name__)


class _Round:
    """One reload, for all who asked before it began."""

    def __init__(self) -> None:
        self.reply: interface.ReloadReply | None = None
        self.done = anyio.Event()


class Reloading:
    """Makes reloads. `config` is what the daemon goes by.

    `reconfigure` reads the configuration again, and may block; it raises ConfigError or StartError
    where it cannot be had. `summary` says in a line how the daemon is. All methods are the loop's.
    """

    def __init__(  # noqa: PLR0913  # whoever takes part in a reload, by keyword
        self,
        config: Config,
        *,
        reconfigure: Callable[[], Config],
        followed: Followed,
        gates: Gates,
        notifier: Notifier,
        summary: Callable[[], str],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.config = config
        self._reconfigure = reconfigure
        self._followed = followed
        self._gates = gates
        self._notifier = notifier
        self._summary = summary
        self._patience_seconds = patience_seconds
        self._fault: str | None = None
        self._next = _Round()
        self._present: _Round | None = None
        self._wake = anyio.Event()
        self._ended = False

    def problems(self) -> list[str]:
        """Say that the daemon does not go by what its configuration says, and why."""
        return [] if self._fault is None else [self._fault]

    async def reload(self) -> interface.ReloadReply:
        """Have a reload made that begins after the call; return what came of it.

        Waits for `run` to begin. Once `close` was called nothing is made any more.
        """
        wanted = self._next
        self._wake.set()
        if not self._ended:
            await wanted.done.wait()
        if wanted.reply is None:
            return interface.ReloadReply(changed=(), problems=("the daemon is ending",))
        return wanted.reply

    async def run(self, tasks: anyio.abc.TaskGroup) -> None:
        """Make reloads when asked, until cancelled; what joins is followed in `tasks`."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            self._present, self._next = self._next, _Round()
            self._notifier.reloading()
            self._present.reply = await self._make(tasks)
            self._notifier.ready(self._summary())
            self._present.done.set()

    def close(self) -> None:
        """Keep nobody waiting: the daemon ends, and `run` is, or will be, cancelled."""
        self._ended = True
        for each in (self._present, self._next):
            if each is not None:
                each.done.set()

    async def _make(self, tasks: anyio.abc.TaskGroup) -> interface.ReloadReply:
        changed: tuple[str, ...] = ()
        problems: list[str] = []
        try:
            told = await self._read()
        except (ConfigError, StartError) as fault:
            moment = datetime.now(UTC).isoformat(timespec="seconds")
            self._fault = f"the configuration was not taken over at {moment}: {fault}"
            _log.error("%s", self._fault)
        else:
            self._fault = None
            difference = compare(self.config, told)
            changed = difference.changed
            problems += difference.kept
            await self._take_over(tasks, difference)
        late = await self._followed.scan(self._patience_seconds)
        problems += [
            f"{folder} could not be looked at within {self._patience_seconds:g} s: what changed "
            "there is known once its file system answers"
            for folder in late
        ]
        for line in changed:
            _log.info("%s", line)
        for problem in problems:
            _log.warning("%s", problem)
        reply = interface.ReloadReply(changed=changed, problems=(*self.problems(), *problems))
        _log.info("reloaded: %d changes, %d problems", len(reply.changed), len(reply.problems))
        return reply

    async def _read(self) -> Config:
        with anyio.move_on_after(self._patience_seconds):
            return await anyio.to_thread.run_sync(self._reconfigure, abandon_on_cancel=True)
        raise ConfigError(
            f"it could not be read within {self._patience_seconds:g} s: see whether its file system"
            " and the host's user database answer, then reload again"
        )

    async def _take_over(self, tasks: anyio.abc.TaskGroup, difference: Difference) -> None:
        """Go by another configuration; all that it changes is applied when this returns."""
        config, followed = difference.config, self._followed
        logging.getLogger().setLevel(config.log_level.upper())
        directories = directories_of(config)
        made = followed.make(directories)
        joined = await followed.join(tasks, made, self._patience_seconds)
        found = {course: course.take() for course in joined}
        owners = {sighting.owner for seen in found.values() for sighting in seen}
        await self._gates.prepare(config.allow, owners)
        # One step: nothing else runs until the batch has its place in the row.
        left = followed.replace(directories, made)
        sightings = [*self._gone(left, made), *chain.from_iterable(found.values())]
        self.config = config
        await self._gates.change(config, followed.folders, sightings)
        for course in made:
            course.begin()
        with anyio.move_on_after(self._patience_seconds):
            for course in left:
                await course.ended.wait()

    def _gone(self, left: Sequence[Course], made: Sequence[Course]) -> list[Sighting]:
        """Say that the files of the directories that are left, and not remade, are gone."""
        folders = {course.follower.display for course in left}
        folders -= {course.follower.display for course in made}
        return [Sighting(file=file, found=None) for file in self._gates.files_in(folders)]


def directories_of(config: Config) -> list[Directory]:
    """Return the directories that a configuration has followed, in its order."""
    return [
        *(Directory(path, "cards", config.follow_symlinks) for path in config.cards),
        *(Directory(path, "dynamo") for path in config.dynamo),
    ]
