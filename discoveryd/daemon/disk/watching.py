"""Being told that something may have changed in one folder, and staying so.

Here live the notifier's thread and the rule by which a dead, deaf or refused watch is set up again.
What is heard are hints: names to look at. What they are worth is told in dropdir.py.

**The very directory that is looked at is watched**: it is opened, identified, and watched through
its descriptor's name in /proc, so that no renaming in between can part the two, and a path that is
not UTF-8 is as good as any.

**Pace.** The notifier looks for news at each step, and returns them only when another step brought
no more. So it is given steps of no length, and is held up in the question that it asks at each,
whether to stop: before every second one. What has changed is then told when one pause ends, not
two, and a burst is still told as one.

**Deaf.** A notifier may be dead inside and say nothing, or hear nothing of a file system that tells
nothing. Both look alike: scans find changes again and again, and not one event comes in between.
Then it is set up again, once: if it was dead, it hears the next change. Until something is heard
the folder counts as not watched.

**Silent** is a notifier that does not ask any more whether to stop: its thread is dead or stuck,
whatever else may be well. Nothing here can end it, so that is told to whoever watches the daemon.
"""

import os
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Literal, NamedTuple, Protocol

import anyio
import anyio.from_thread
import anyio.to_thread
from watchfiles import Change

# watchfiles documents this class as the backend to build on.
from watchfiles._rust_notify import RustNotify

from discoveryd.daemon.disk.folder import Folder, Identity, identity_of
from discoveryd.daemon.disk.reading import open_directory

MISSING_SECONDS = 0.5
"""How often a directory that is not there is looked for."""

STEADY_SECONDS = 10.0
"""How long a watch must live for the death of the one before to be forgotten."""

SILENT_SECONDS = 10.0
"""How long a notifier may ask nothing before it counts as silent; it asks at each step."""

DEAF_AFTER = 3
"""How many unannounced changes, with nothing heard in between, prove a watch deaf."""

_FIRST_DELAY = 0.1
_LAST_DELAY = 5.0


class Notifier(Protocol):
    """What watchfiles' `RustNotify` does, as far as it is used here; armed once constructed."""

    def watch(
        self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: threading.Event, /
    ) -> set[tuple[int, str]] | Literal["signal", "stop", "timeout"]:
        """Block until something changed or the event is set; it is asked at each step.

        May raise anything.
        """
        ...

    def close(self) -> None:
        """Let go of the directory, once or more often. Not while `watch` runs."""
        ...


Arm = Callable[[str], Notifier]
"""Begins to watch the directory that a path leads to, through links, but not its subdirectories.

Raises where it is refused. What is heard begins with the path as it was given."""


def native(path: str) -> Notifier:
    """Watch through the operating system."""
    return RustNotify(
        [path],
        debug=False,
        force_polling=False,
        poll_delay_ms=300,
        recursive=False,
        ignore_permission_denied=False,
    )


class _Pace(threading.Event):
    """An event to stop by that takes its time to answer, every second time it is asked.

    `asked_at` is when it was asked last, on the loop's clock.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.asked_at = time.monotonic()
        # Asked some hundred times a second for ever: a generator answers cheaper than a method.
        self.is_set = self._answer(seconds).__next__  # type: ignore[method-assign]  # as meant

    def _answer(self, seconds: float) -> Generator[bool]:
        stopped = super().is_set
        sleep, clock = time.sleep, time.monotonic
        while True:
            sleep(seconds)
            self.asked_at = clock()
            yield stopped()
            yield False


class _Armed(NamedTuple):
    """A notifier, what it was armed on, and the path that what it hears begins with."""

    notifier: Notifier
    identity: Identity
    path: bytes


class _Refused(Exception):
    """The notifier cannot be had, whatever there is at the path."""


class _Watch:
    """One armed notifier, until it dies or is stopped.

    `identity` is of the directory it lies on; `path` begins what it hears; `heard` is whether its
    thread has begun.
    """

    def __init__(self, armed: _Armed, armed_at: float, step_seconds: float) -> None:
        self._notifier, self.identity, self.path = armed
        self.armed_at = armed_at
        self._debounce_ms = round(5e3 * step_seconds)
        self._stop = _Pace(step_seconds)
        self.heard = False

    @property
    def asked_at(self) -> float:
        """When the notifier asked last whether to stop."""
        return self._stop.asked_at

    async def hear(self, tell: Callable[[set[tuple[int, str]]], None]) -> str | None:
        """Call `tell` on the loop with what changed, until stopped; return what it died of."""
        self.heard = True
        try:
            return await anyio.to_thread.run_sync(
                self._drain, tell, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            # Cancelled before its thread began, a watch is closed by nobody else.
            self._notifier.close()

    def stop(self) -> None:
        """Let the thread end within a step."""
        self._stop.set()
        if not self.heard:
            self._notifier.close()

    def _drain(self, tell: Callable[[set[tuple[int, str]]], None]) -> str | None:
        try:
            while (heard := self._notifier.watch(self._debounce_ms, 0, 0, self._stop)) != "stop":
                if isinstance(heard, set):
                    anyio.from_thread.run_sync(tell, heard)
        except Exception as error:  # noqa: BLE001  # whatever ends a watch, it is set up again
            return str(error) or type(error).__name__
        return None


class Lookout:
    """Keeps a folder watched; all methods are the loop's.

    `arm` is None where no watch is wanted. `heard` is called with the names to look at: of what
    matters in the folder, and without names where the directory itself changed or the watch ended.
    `identity` is of the directory that is watched, None while none is. `due` is the time (of the
    loop's clock) to call `arm` again. `deaf` says that the watch hears nothing, though there was
    something to hear.
    """

    def __init__(
        self,
        folder: Folder,
        heard: Callable[[set[bytes]], None],
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
        self._arm = arm
        self._step_seconds = step_ms / 1e3
        self._watch: _Watch | None = None
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
        self._watch = _Watch(armed, anyio.current_time(), self._step_seconds)
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
        self._heard = _nobody

    def _postpone(self) -> None:
        """Be without a watch until `due`: at once at first, then ever later."""
        now = anyio.current_time()
        if self._watch is not None and now - self._watch.armed_at >= STEADY_SECONDS:
            self._delay = 0.0
        self._watch = None
        self.due = now + self._delay
        self._delay = min(max(2 * self._delay, _FIRST_DELAY), _LAST_DELAY)

    def _arm_now(self, arm: Arm) -> _Armed:
        directory = open_directory(self._path)
        path = f"/proc/self/fd/{directory}"
        try:
            return _Armed(arm(path), identity_of(directory), path.encode())
        except Exception as error:  # whatever the notifier raises, it is refused
            fault = str(error) or type(error).__name__
            raise _Refused(fault.replace(path, self._display)) from error
        finally:
            os.close(directory)

    def _tell(self, watch: _Watch, heard: set[tuple[int, str]]) -> None:
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
        if names or itself:
            self._heard(names)


def _nobody(_names: set[bytes]) -> None:
    """Heed nothing."""


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
