"""Who holds which files: the books of the hold condition.

A hold belongs to a file's name, not to its content, so a worker may replace its card while it holds
it. It counts while the file is the holder's own, or the holder is root. After a restart, files may
count as held for a time without a holder: their grace.
"""

from collections.abc import Collection, Iterable
from typing import Protocol


class Holder(Protocol):
    """Whoever holds files; told apart by identity."""

    @property
    def uid(self) -> int:
        """The user who does it."""
        ...


class Holders:
    """Who holds what. Times are running time in seconds."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._holders: dict[str, list[Holder]] = {}
        self._graced: set[str] = set()
        self._grace_ends = float("inf")

    def is_held(self, file: str, owner: int | None) -> bool:
        """Whether a file with that owner counts as held."""
        return file in self._graced or any(
            may_hold(holder.uid, owner) for holder in self._holders.get(file, ())
        )

    def add(self, holder: Holder, files: Iterable[str]) -> None:
        """Enter one who holds these files; to be done once for each holder."""
        for file in files:
            self._holders.setdefault(file, []).append(holder)

    def remove(self, holder: Holder, files: Iterable[str]) -> None:
        """Strike one out again."""
        for file in files:
            others = [other for other in self._holders.get(file, ()) if other is not holder]
            if others:
                self._holders[file] = others
            else:
                self._holders.pop(file, None)

    def grace(self, file: str) -> None:
        """Let a file that was held before the restart count as held for a while."""
        self._graced.add(file)

    @property
    def any_graced(self) -> bool:
        """Whether there is such a file."""
        return bool(self._graced)

    def listening(self, now: float) -> None:
        """Begin to count that while."""
        self._grace_ends = now + self._grace_seconds

    def end_grace(self, now: float) -> Collection[str]:
        """Return the files whose grace has ended by now, once."""
        if now < self._grace_ends or not self._graced:
            return ()
        ended, self._graced = self._graced, set()
        return ended


def may_hold(uid: int, owner: int | None) -> bool:
    """Whether a user may hold a file with that owner."""
    return uid in (0, owner)
