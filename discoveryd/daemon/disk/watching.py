"""Staying told that something may have changed in one folder.

Here lives the rule by which a dead, deaf or refused watch is set up again. How a watch hears is
said in hearing.py.

**Deaf.** A notifier may be dead inside and say nothing, or hear nothing of a file system that tells
nothing. Both look alike: scans find changes again and again, and not one event comes in between.
Then it is set up again, once: if it was dead, it hears the next change. Until something is heard
the folder counts as not watched.

**Lost.** More may change than the kernel keeps for those who are slow to ask. Where it says so,
everything is looked at at once, and what is found so counts neither as heard nor as missed.

**Silent** is a notifier that does not ask any more whether to stop: its thread is dead or stuck,
whatever else may be well. Nothing here can end it, so that is told to whoever watches the daemon.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial

import anyio
import anyio.to_thread
from watchfiles import Change

from discoveryd.daemon.disk.bell import Bell
from discoveryd.daemon.disk.folder import Folder, Identity, identity_of
from discoveryd.daemon.disk.hearing import Arm, Armed, Watch
from discoveryd.daemon.disk.reading import open_directory

MISSING_SECONDS = 0.5
"""How often a directory that is not there is looked for."""

STEADY_SECONDS = 10.0
"""How long a watch must live for the death of the one before to be forgotten."""

SILENT_SECONDS = 10.0
"""How long a notifier may ask nothing before it counts as silent."""

_BEATS = 5
"""How many signs of life a notifier gives in that time though nothing happens."""

DEAF_AFTER = 3
"""How many unannounced changes, with nothing heard in between, prove a watch deaf."""

_FIRST_DELAY = 0.1
_LAST_DELAY = 5.0


class _Refused(Exception):
    """The notifier cannot be had, whatever there is at the path."""


class Lookout:
    """Keeps a folder watched; all methods are the loop's.

    `arm` is None where no watch is wanted. `heard` is called with the names to look at: of what
    matters in the folder, and without names where the directory itself changed or the watch ended;
    `lost` where more changed than can be told.
    `identity` is of the directory that is watched, None while none is. `due` is the time (of the
    loop's clock) to call `arm` again. `deaf` says that the watch hears nothing, though there was
    something to hear.
    """

    def __init__(
        self,
        folder: Folder,
        heard: Callable[[set[bytes]], None],
        lost: Callable[[], None],
        *,
        arm: Arm | None,
        step_ms: int,
    ) -> None:
        self.due = 0.0 if arm is not None else float("inf")
        self.deaf = False
        self._path = folder.path
        self._display = folder.display
        self._heeds = folder.heeds
        self._heard = heard
        self._lost = lost
        self._arm = arm
        self._step_seconds = step_ms / 1e3
        self._watch: Watch | None = None
        self._ended: str | None = None
        self._refused = False
        self._delay = 0.0
        self._missed = 0

    @property
    def identity(self) -> Identity | None:
        """The directory that is watched."""
        return None if self._watch is None else self._watch.identity

    def problem(self, now: float) -> str | None:
        """Say what is wrong with the watch, for people."""
        if self.deaf:
            return (
                f"scans find changes in {self._display} that the watch does not hear of:"
                " everything is looked at more often instead"
            )
        if self._ended is None:
            return None
        if self._watch is None:
            advice = _advice(self._ended) if self._refused else ""
            return (
                f"{self._display} is not watched ({self._ended}): everything is looked at more"
                f" often instead, until the watch can be set up again{advice}"
            )
        if now - self._watch.armed_at < STEADY_SECONDS:
            return f"the watch of {self._display} ended ({self._ended}) and was set up again"
        return None

    def silent(self, now: float) -> str | None:
        """Say that the watch, which `hear` should be listening to, has stopped ticking."""
        if self._watch is None or now - self._watch.asked_at <= SILENT_SECONDS:
            return None
        seconds = now - self._watch.asked_at
        return f"the watch of {self._display} has not looked for news for {seconds:.0f} s"

    async def arm(self) -> bool:
        """Try to watch; return whether a scan is due, since the directory is watched from now on.

        Where it fails, `due` says when to try again.
        """
        if self._arm is None:
            return False
        try:
            # Abandoned in a file system that hangs, it lets go of the watch when it comes back.
            armed = await anyio.to_thread.run_sync(self._arm_now, self._arm, abandon_on_cancel=True)
        except OSError:
            # What keeps the directory from being opened is the folder's to tell.
            self._ended = None
            self.due = anyio.current_time() + MISSING_SECONDS
            return False
        except _Refused as refusal:
            self._ended = str(refusal)
            self._refused = True
            self._postpone()
            return False
        self._watch = Watch(
            armed,
            anyio.current_time(),
            step_seconds=self._step_seconds,
            beat_seconds=SILENT_SECONDS / _BEATS,
        )
        if self._refused:
            self._refused, self._ended = False, None
        self.due = float("inf")
        return True

    async def hear(self) -> None:
        """Pass on what the present watch hears, until it dies or is dropped."""
        watch = self._watch
        if watch is None or watch.heard:
            return
        ended = await watch.hear(partial(self._tell, watch))
        if watch is self._watch and ended is not None:
            self._ended = ended.replace(watch.path.decode(), self._display)
            self._postpone()
            self._heard(set())

    def miss(self, changes: int) -> None:
        """Take note of so many changes that were found and should have been heard of."""
        self._missed += changes
        if self._missed >= DEAF_AFTER and self._watch is not None and not self.deaf:
            self.deaf = True
            self.drop()

    def drop(self) -> None:
        """Stop watching a directory that is not the right one any more, or a watch of no use."""
        if self._watch is not None:
            self._watch.stop()
        self._ended = None
        self._postpone()

    def stop(self) -> None:
        """Stop watching, for good, and let go of who was told: see collecting.py."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        self._heard = self._lost = _nobody

    def _postpone(self) -> None:
        """Be without a watch until `due`: at once at first, then ever later."""
        now = asyncio.get_running_loop().time()
        if self._watch is not None and now - self._watch.armed_at >= STEADY_SECONDS:
            self._delay = 0.0
        self._watch = None
        self.due = now + self._delay
        self._delay = min(max(2 * self._delay, _FIRST_DELAY), _LAST_DELAY)

    def _arm_now(self, arm: Arm) -> Armed:
        directory = open_directory(self._path)
        path = f"/proc/self/fd/{directory}"
        try:
            bell = Bell(directory)
            return Armed(arm(path), bell, identity_of(directory), path.encode())
        except Exception as error:  # whatever the notifier raises, it is refused
            fault = _fault(error).replace(path, self._display)
            raise _Refused(fault) from error
        finally:
            os.close(directory)

    def _tell(
        self, watch: Watch, heard: set[tuple[int, str]], lost: bool
    ) -> None:  # as `Heard` has it
        if watch is not self._watch:
            return
        self._missed = 0
        self.deaf = False
        names: set[bytes] = set()
        itself = False
        for kind, path in heard:
            changed = path.encode()
            if changed == watch.path:
                itself = True
                if kind == Change.deleted:
                    self.drop()
            elif self._heeds(name := changed[len(watch.path) + 1 :]):
                names.add(name)
        if lost:
            self._lost()
        if names or itself:
            self._heard(names)


def _nobody(*_names: set[bytes]) -> None:
    """Heed nothing."""


def _fault(error: Exception) -> str:
    """Say why a watch was refused, the kernel's own refusals as watchfiles says them."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "OS file watch limit reached"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.strerror} (os error {error.errno})"
    return str(error) or type(error).__name__


def _advice(refusal: str) -> str:
    """Say which limit to raise."""
    if "os error 24" in refusal:
        limit = "max_user_instances"
    elif "watch limit" in refusal:
        limit = "max_user_watches"
    else:
        return ""
    return (
        f". Raise the limit: sysctl fs.inotify.{limit}, or user.{limit.replace('user', 'inotify')}"
    )
