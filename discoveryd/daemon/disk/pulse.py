"""Whether a directory's rounds go on: what is slow and why, and what has stopped for good.

Two things look alike from outside, a round that waits for a file system that does not answer, and
one that will never come. The first is told as a problem and is no silence: a daemon that were
killed for it could not even die, nor do better when started again, and all other directories would
be lost with it. The second is a bug or a lost thread, which a new daemon has not.
"""

from collections.abc import Generator
from contextlib import contextmanager

import anyio

SLOW_SECONDS = 5.0
"""How long a look may take before it is a problem."""

OVERDUE_SECONDS = 30.0
"""How long a round may be overdue, with no look under way, before it is said not to come."""


class Pulse:
    """When the directory at `path` was looked at. All times are the loop's.

    `beating_since` is None until `begin`.
    """

    def __init__(self, path: str) -> None:
        self.beating_since: float | None = None
        self._path = path
        self._looking_since: float | None = None
        self._looked_at = float("-inf")

    def begin(self) -> None:
        """From now on looks are expected."""
        self.beating_since = self._looked_at = anyio.current_time()

    @contextmanager
    def looking(self) -> Generator[None]:
        """Take note of how long the file system lets somebody wait."""
        self._looking_since = anyio.current_time()
        try:
            yield
        finally:
            self._looking_since = None
            self._looked_at = anyio.current_time()

    def slow(self, now: float) -> str | None:
        """Say that the look under way takes too long, for people."""
        if self._looking_since is None or now - self._looking_since <= SLOW_SECONDS:
            return None
        seconds = now - self._looking_since
        return (
            f"a look at {self._path} has taken {seconds:.0f} s so far: nothing that changed"
            " since is known. See whether its file system still answers"
        )

    def silent(self, now: float, every: float) -> str | None:
        """Say that the next look, due `every` so many seconds, does not come."""
        if self.beating_since is None or self._looking_since is not None:
            return None
        overdue = now - self._looked_at - every
        if overdue <= OVERDUE_SECONDS:
            return None
        return f"{self._path} should have been looked at {overdue:.0f} s ago"
