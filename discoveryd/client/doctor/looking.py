"""Looks at the host, each in a thread of its own and by a deadline: none keeps another waiting.

A file system or a directory service that does not answer hangs whoever asks it, and nothing ends
such a wait. So a look that is late is given up, its thread with it; the program ends without it.
"""

import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from discoveryd.client.doctor.findings import Finding, Level, note
from discoveryd.client.errors import DiscoverydError

T = TypeVar("T")

_FAILURES = (OSError, ValueError, LookupError, subprocess.SubprocessError, DiscoverydError)
"""What the host can be to blame for: what it forbids, has not, or tells in another form."""


class Look(Generic[T]):
    """One look, begun when it is made. `subject` says at what, `late` how bad it is to be late."""

    def __init__(self, subject: str, look: Callable[[], T], *, late: Level = "note") -> None:
        self._subject = subject
        self._late: Level = late
        self._seen: Future[T] = Future()
        threading.Thread(target=self._run, args=(look,), daemon=True).start()

    def _run(self, look: Callable[[], T]) -> None:
        try:
            self._seen.set_result(look())
        except BaseException as fault:  # noqa: BLE001 - whoever waits for it raises it
            self._seen.set_exception(fault)

    def seen(self, seconds: float, findings: list[Finding]) -> T | None:
        """Return what was seen; or None, and add to the findings that the look failed or is late.

        Waits for it up to `seconds`.
        """
        try:
            return self._seen.result(seconds)
        except TimeoutError as fault:
            if self._seen.done():
                findings.append(_failed(self._subject, fault))
            else:
                findings.append(
                    Finding(
                        self._late,
                        self._subject,
                        "looking at it hangs: see whether its file system still answers",
                        ("findmnt; dmesg | tail",),
                    )
                )
        except _FAILURES as fault:
            findings.append(_failed(self._subject, fault))
        return None


class Patience:
    """What is left of a time, for several waits."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """How many seconds are left, never less than none."""
        return max(self._until - time.monotonic(), 0.0)


def _failed(subject: str, fault: BaseException) -> Finding:
    why = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
    return note(subject, f"it cannot be looked at: {why or type(fault).__name__}")
