"""Being told that something may have changed in one folder, and staying so.

Here live the notifier's thread and the rule by which a dead or refused watch is set up again.
What is heard are hints: names to look at. What they are worth is told in dropdir.py.
"""

import os
import stat
import threading
from collections.abc import Callable
from typing import Literal, Protocol

import anyio
import anyio.from_thread
import anyio.to_thread
from watchfiles import Change

# watchfiles documents this class as the backend to build on.
from watchfiles._rust_notify import RustNotify

from discoveryd.daemon.folder import Folder, Identity, identity_of

MISSING_SECONDS = 0.5
"""How often a directory that is not there is looked for."""

STEADY_SECONDS = 10.0
"""How long a watch must live for the death of the one before to be forgotten."""

_FIRST_DELAY = 0.1
_LAST_DELAY = 5.0


class Notifier(Protocol):
    """What watchfiles' `RustNotify` does, as far as it is used here; armed once constructed."""

    def watch(
        self, debounce_ms: int, step_ms: int, timeout_ms: int, stop_event: threading.Event, /
    ) -> set[tuple[int, str]] | Literal["signal", "stop", "timeout"]:
        """Block until something changed or the event is set. May raise anything."""
        ...

    def close(self) -> None:
        """Let go of the directory, once or more often. Not while `watch` runs."""
        ...


Arm = Callable[[str], Notifier]
"""Begins to watch a directory, without its subdirectories. Raises where it is refused."""


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


class _Watch:
    """One armed notifier, until it dies or is stopped.

    `identity` is what it lies on, or what the path led to just before: if that is another
    directory, a look finds out. `heard` is whether its thread has begun.
    """

    def __init__(self, notifier: Notifier, identity: Identity, armed_at: float) -> None:
        self.identity = identity
        self.armed_at = armed_at
        self._notifier = notifier
        self._stop = threading.Event()
        self.heard = False

    async def hear(self, tell: Callable[[set[tuple[int, str]]], None], step_ms: int) -> str | None:
        """Call `tell` on the loop with what changed, until stopped; return what it died of."""
        self.heard = True
        try:
            return await anyio.to_thread.run_sync(
                self._drain, tell, step_ms, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            # Cancelled before its thread began, a watch is closed by nobody else.
            self._notifier.close()

    def stop(self) -> None:
        """Let the thread end within a step."""
        self._stop.set()
        if not self.heard:
            self._notifier.close()

    def _drain(self, tell: Callable[[set[tuple[int, str]]], None], step_ms: int) -> str | None:
        try:
            while not self._stop.is_set():
                heard = self._notifier.watch(5 * step_ms, step_ms, 0, self._stop)
                if isinstance(heard, set):
                    anyio.from_thread.run_sync(tell, heard)
        except Exception as error:  # noqa: BLE001  # whatever ends a watch, it is set up again
            return str(error) or type(error).__name__
        return None


class Lookout:
    """Keeps a folder watched; all methods are the loop's.

    `heard` is called with the names to look at: of files that count there, and without names
    where the directory itself changed or the watch ended. `identity` is of the directory that is
    watched, None while none is. `due` is the time (of the loop's clock) to call `arm` again.
    """

    def __init__(
        self, folder: Folder, heard: Callable[[set[bytes]], None], *, arm: Arm, step_ms: int
    ) -> None:
        self.due = 0.0
        self._path = folder.path
        self._display = folder.display
        self._accepts = folder.accepts
        self._heard = heard
        self._arm = arm
        self._step_ms = step_ms
        self._watch: _Watch | None = None
        self._ended: str | None = None
        self._delay = 0.0

    @property
    def identity(self) -> Identity | None:
        """The directory that is watched."""
        return None if self._watch is None else self._watch.identity

    def problem(self, now: float) -> str | None:
        """Say what is wrong with the watch, for people."""
        if self._ended is None:
            return None
        if self._watch is None:
            return (
                f"{self._display} is not watched ({self._ended}): changes are found by scans only,"
                " until the watch can be set up again"
            )
        if now - self._watch.armed_at < STEADY_SECONDS:
            return f"the watch of {self._display} ended ({self._ended}) and was set up again"
        return None

    async def arm(self) -> bool:
        """Try to watch; return whether a scan is due, since the directory is watched from now on.

        Where it fails, `due` says when to try again.
        """
        try:
            notifier, identity = await anyio.to_thread.run_sync(self._arm_now)
        except (FileNotFoundError, NotADirectoryError):
            self._ended = None
            self.due = anyio.current_time() + MISSING_SECONDS
            return False
        except Exception as error:  # noqa: BLE001  # the notifier raises RuntimeError for no watches left
            self._ended = str(error) or type(error).__name__
            self._postpone()
            return False
        self._watch = _Watch(notifier, identity, anyio.current_time())
        self.due = float("inf")
        return True

    async def hear(self) -> None:
        """Pass on what the present watch hears, until it dies or is dropped."""
        watch = self._watch
        if watch is None or watch.heard:
            return
        ended = await watch.hear(self._tell, self._step_ms)
        if watch is self._watch and ended is not None:
            self._ended = ended
            self._postpone()
            self._heard(set())

    def drop(self) -> None:
        """Stop watching a directory that is not the right one any more."""
        if self._watch is not None:
            self._watch.stop()
        self._ended = None
        self._postpone()

    def stop(self) -> None:
        """Stop watching, for good."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _postpone(self) -> None:
        """Be without a watch until `due`: at once at first, then ever later."""
        now = anyio.current_time()
        if self._watch is not None and now - self._watch.armed_at >= STEADY_SECONDS:
            self._delay = 0.0
        self._watch = None
        self.due = now + self._delay
        self._delay = min(max(2 * self._delay, _FIRST_DELAY), _LAST_DELAY)

    def _arm_now(self) -> tuple[Notifier, Identity]:
        status = os.stat(self._path)  # noqa: PTH116  # a path in bytes
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(self._path)
        try:
            path = self._path.decode()
        except UnicodeDecodeError as error:
            raise ValueError("its path is not UTF-8") from error
        return self._arm(path), identity_of(status)

    def _tell(self, heard: set[tuple[int, str]]) -> None:
        if self._watch is None:
            return
        names: set[bytes] = set()
        itself = False
        for kind, path in heard:
            changed = path.encode()
            if changed == self._path:
                itself = True
                if kind == Change.deleted:
                    # A new directory may have the inode of the old one: identity would not tell.
                    self.drop()
            elif self._accepts(name := changed[len(self._path) + 1 :]):
                names.add(name)
        if names or itself:
            self._heard(names)
