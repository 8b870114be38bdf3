"""Changes that a scan found, and whether an event will still name them.

A scan may be quicker than the event, so a change that it found counts as unannounced only if no
event names the file in time.
"""

from collections import Counter

LATE_SECONDS = 1.0
"""A change that a scan found counts as unannounced if no event named it for so long."""

File = tuple[int, bytes]
"""The number of the folder, and the name in it."""


class Unannounced:
    """Counts the unannounced changes of some folders. Times are of one clock."""

    def __init__(self) -> None:
        self.total = 0
        self._suspects: dict[File, list[float]] = {}

    def found(self, file: File, now: float) -> None:
        """Take note that a scan found a change of a file that no event had named."""
        self._suspects.setdefault(file, []).append(now)

    def named(self, file: File) -> None:
        """Take note that an event named the file."""
        self._suspects.pop(file, None)

    def convict(self, now: float) -> Counter[int]:
        """Return how many changes of each folder have turned out to be unannounced since last."""
        convicted: Counter[int] = Counter()
        for file, times in tuple(self._suspects.items()):
            late = sum(now - found >= LATE_SECONDS for found in times)
            if late:
                convicted[file[0]] += late
                del times[:late]
                if not times:
                    del self._suspects[file]
        self.total += convicted.total()
        return convicted
