"""Events that are not in the ledger yet: told, and waiting to be written. In memory only."""

from collections import deque
from collections.abc import Sequence

from discoveryd.daemon.ledger.rows import Event


class Unwritten:
    """Events in the order in which they were told; the first of them may be being written."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._in_hand: Sequence[Event] = ()

    def __len__(self) -> int:
        """How many are still to be taken."""
        return len(self._events)

    def add(self, event: Event, most: int) -> None:
        """Add one; of more than `most` the oldest is dropped."""
        self._events.append(event)
        while len(self._events) > most:
            self._events.popleft()

    def take(self, most: int) -> Sequence[Event]:
        """Take the oldest, at most so many, to be written. `written` or `put_back` must follow."""
        count = min(len(self._events), most)
        self._in_hand = [self._events.popleft() for _ in range(count)]
        return self._in_hand

    def written(self) -> None:
        """Note that those which were taken are written."""
        self._in_hand = ()

    def put_back(self) -> None:
        """Put back what was taken and could not be written."""
        self._events.extendleft(reversed(self._in_hand))
        self._in_hand = ()

    def find(self, files: Sequence[str] | None, name: str | None, limit: int) -> list[Event]:
        """Return the latest of these files, of a name, or of all; newest first, at most `limit`."""
        found: list[Event] = []
        for event in reversed((*self._in_hand, *self._events)):
            if (files is None or event.file in files) and (name is None or name in event.names):
                found.append(event)
                if len(found) == limit:
                    break
        return found
