"""Hearing what changes in one directory, in a thread: when to ask the notifier, and for how long.

Here live the notifier, what it must be able to do, and the pace at which it is asked. What is heard
are hints: names to look at. What they are worth is told in dropdir.py; what becomes of a watch that
dies or hears nothing, in watching.py.

**The very directory that is looked at is watched**: it is opened, identified, and watched through
its descriptor's name in /proc, so that no renaming in between can part the two, and a path that is
not UTF-8 is as good as any.

**Pace.** The notifier looks for news at each step, and returns them only when another step brought
no more. So it is given steps of no length, and is held up in the question that it asks at each,
whether to stop: before every second one. There the thread sleeps until the bell rings (bell.py).
Then it waits for a moment, so that what is written or comes together is told together, silences the
bell, and lets the notifier look. While the bell goes on ringing the moments grow, up to a step: a
first change is told at once, and a burst costs no more than one look a step.

The notifier has a thread of its own, which may be later than the bell. So after each ring it is
asked a few times more, ever later, whether it had something else to tell. Only then, and now and
then for a sign of life, does the thread sleep for as long as nothing happens.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from typing import Literal, NamedTuple, Protocol

import anyio
import anyio.to_thread

# watchfiles documents this class as the backend to build on.
from watchfiles._rust_notify import RustNotify

from discoveryd.daemon.disk.bell import Bell
from discoveryd.daemon.disk.folder import Identity

MOMENT_SECONDS = 0.0003
"""How long after a ring, if the bell was silent before, the notifier is asked for news.

Long enough for a small file that is written in place to be whole when it is looked at."""

QUIET_SECONDS = 0.01
"""How long the bell must be silent for the next ring to be a first one."""

AGAIN_SECONDS = (0.002, 0.01, 0.05)
"""How long the notifier is left alone, after each ring, before it is asked for late news."""

Heard = Callable[[set[tuple[int, str]], bool], None]
"""Is told what changed, as the notifier says it, and whether more did that is lost."""


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


class Pace(threading.Event):
    """An event to stop by that takes its time to answer, every second time it is asked.

    `step_seconds` is the longest moment; `beat_seconds` how long it sleeps at most. `asked_at` is
    when it was asked last, on the loop's clock.
    """

    def __init__(self, bell: Bell, step_seconds: float, beat_seconds: float) -> None:
        super().__init__()
        self.asked_at = time.monotonic()
        self._bell = bell
        self._step_seconds = step_seconds
        self._beat_seconds = beat_seconds
        self._moment = self._rang_at = 0.0
        self._again = 0
        self._lost = False
        self.is_set = self._answer().__next__  # type: ignore[method-assign]  # as meant

    def set(self) -> None:
        """Stop: whoever waits is answered at once."""
        super().set()
        self._bell.wake()

    def lost(self) -> bool:
        """Return whether news were lost since this was asked last."""
        lost, self._lost = self._lost, False
        return lost

    def _answer(self) -> Generator[bool]:
        stopped = super().is_set
        while True:
            self._wait()
            self.asked_at = time.monotonic()
            yield stopped()
            yield False

    def _wait(self) -> None:
        late = self._again < len(AGAIN_SECONDS)
        if not self._bell.wait(AGAIN_SECONDS[self._again] if late else self._beat_seconds):
            self._again += 1
            return
        first = time.monotonic() - self._rang_at > QUIET_SECONDS
        self._moment = min(MOMENT_SECONDS if first else 2 * self._moment, self._step_seconds)
        self._bell.pause(self._moment)
        self._lost |= self._bell.silence()
        self._rang_at = time.monotonic()
        self._again = 0


class Armed(NamedTuple):
    """A notifier and its bell, the directory that they were armed on, and how its path begins."""

    notifier: Notifier
    bell: Bell
    identity: Identity
    path: bytes


class Watch:
    """One armed notifier, until it dies or is stopped. The methods are the loop's.

    `identity` is of the directory it lies on; `path` begins what it hears; `heard` is whether its
    thread has begun. `step_seconds` and `beat_seconds` are as for `Pace`.
    """

    def __init__(
        self, armed: Armed, armed_at: float, *, step_seconds: float, beat_seconds: float
    ) -> None:
        self._notifier, self._bell, self.identity, self.path = armed
        self.armed_at = armed_at
        self._debounce_ms = round(5e3 * step_seconds)
        self._stop = Pace(self._bell, step_seconds, beat_seconds)
        self.heard = False

    @property
    def asked_at(self) -> float:
        """When the notifier asked last whether to stop."""
        return self._stop.asked_at

    async def hear(self, tell: Heard) -> str | None:
        """Call `tell` on the loop with what changed, until stopped; return what it died of."""
        self.heard = True
        loop = asyncio.get_running_loop()

        def pass_on(heard: set[tuple[int, str]], lost: bool) -> None:
            # Not waited for: the thread would be woken only to go to sleep.
            loop.call_soon_threadsafe(tell, heard, lost)

        try:
            return await anyio.to_thread.run_sync(
                self._drain, pass_on, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            # Cancelled before its thread began, a watch is closed by nobody else.
            self._close()

    def stop(self) -> None:
        """Let the thread end at once."""
        self._stop.set()
        if not self.heard:
            self._close()

    def _close(self) -> None:
        self._notifier.close()
        self._bell.close()

    def _drain(self, tell: Heard) -> str | None:
        try:
            while (heard := self._notifier.watch(self._debounce_ms, 0, 0, self._stop)) != "stop":
                if isinstance(heard, set):
                    tell(heard, self._stop.lost())
        except Exception as error:  # noqa: BLE001  # whatever ends a watch, it is set up again
            return str(error) or type(error).__name__
        return None
