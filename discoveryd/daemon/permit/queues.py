"""The quota's books: which of a user's cards count, and which wait for room, each in order.

Books only: what a card is, and what is said of one that waits, is permission.py's business. Cards
of root and of nobody in particular are in no queue, and count without being counted.
"""

from collections.abc import Iterable, Iterator
from itertools import islice


class _Queue:
    """One user's files: those that count, and those that wait."""

    __slots__ = ("counted", "waiting")

    def __init__(self) -> None:
        self.counted: dict[str, None] = {}
        self.waiting: dict[str, None] = {}


class Queues:
    """Every user's queue. `limit` is the most files of one user that count; None: all do."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._queues: dict[int, _Queue] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield every file, in each queue those that count first."""
        for queue in self._queues.values():
            yield from queue.counted
            yield from queue.waiting

    @property
    def users(self) -> Iterable[int]:
        """Who has a queue."""
        return self._queues

    def waiting(self) -> Iterator[str]:
        """Yield every file that waits."""
        for queue in self._queues.values():
            yield from queue.waiting

    def waits(self, user: int | None, file: str) -> bool:
        """Whether this user's file waits for room."""
        queue = None if user is None else self._queues.get(user)
        return queue is not None and file in queue.waiting

    def would_wait(self, user: int | None, file: str) -> bool:
        """Whether this user's file does not count, and would not if it came now."""
        queue = None if user is None else self._queues.get(user)
        if queue is None or file in queue.counted:
            return False
        return self.limit is not None and len(queue.counted) >= self.limit

    def enter(self, user: int | None, file: str) -> bool:
        """Let a file count, or wait at the end; one that is in keeps its place.

        Returns whether it has come to wait.
        """
        if not user:
            return False
        queue = self._queues.get(user)
        if queue is None:
            queue = self._queues[user] = _Queue()
        counted, limit = queue.counted, self.limit
        if file in counted:
            return False
        if not queue.waiting and (limit is None or len(counted) < limit):
            counted[file] = None
            return False
        queue.waiting.setdefault(file)
        return True

    def leave(self, user: int | None, file: str) -> bool:
        """Take a file out; return whether there may be room for another now."""
        queue = None if user is None else self._queues.get(user)
        if queue is None or user is None:
            return False
        queue.counted.pop(file, None)
        queue.waiting.pop(file, None)
        if not queue.counted and not queue.waiting:
            del self._queues[user]
        return True

    def let_in(self, user: int) -> list[str]:
        """Let in whoever there is room for, the first first, and return them."""
        queue = self._queues.get(user)
        if queue is None:
            return []
        limit = self.limit
        room = len(queue.waiting) if limit is None else max(0, limit - len(queue.counted))
        files = list(islice(queue.waiting, room))
        for file in files:
            queue.counted[file] = None
            del queue.waiting[file]
        return files
