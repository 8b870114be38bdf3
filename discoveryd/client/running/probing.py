"""When a worker that does not answer drains, and when it accepts again.

A worker under load may well miss a probe: its event loop is busy, the answer comes late. So one
miss says nothing, and only some in a row drain. That costs little even where it is wrong, since a
draining worker keeps its names and what it is doing, so a single answer is enough to end it.

Counting only: who probes, and what counts as an answer, is decided elsewhere.
"""

from typing import Final

EVERY_SECONDS: Final = 5.0
"""How long after a probe the next one begins."""

ANSWER_SECONDS: Final = 10.0
"""How long a probe may take."""

MOST_MISSES: Final = 3
"""How many misses in a row drain."""


class Misses:
    """The misses in a row of one worker."""

    def __init__(self) -> None:
        self._count = 0

    def missed(self) -> bool:
        """Count a miss; return whether it is the one that drains."""
        self._count += 1
        return self._count == MOST_MISSES

    def answered(self) -> bool:
        """Forget the misses; return whether they had drained."""
        drained = self._count >= MOST_MISSES
        self._count = 0
        return drained
