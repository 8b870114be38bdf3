"""Replies that are given again: to calls that come in the same bytes as an earlier one.

Theory
======

A question that is asked again and again mostly comes in the same bytes, and what it is answered
changes seldom. So for calls of one method whole calls are looked up, byte by byte, before anything
is made of them; where they are known nothing is decoded, looked for or encoded.

A reply has a *head*, which belongs to a *subject*, such as a name, and a *tail* that all have in
common, such as the point in time they speak of. What changes is told by `revise`: heads of subjects
that changed are forgotten, the tail is another, and everything else is as good as before. All
spellings of a call share their subject's head. Refusals have no tail and no subject, and are
forgotten at each revision.

Bounds
======

Who asks chooses the bytes, and must be able neither to fill the memory nor to push out what others
ask. A subject is one that there is, so their number is not the asker's choice; each is known by at
most `SPELLINGS` calls, the latest, of `LARGEST_CALL` bytes. All heads and calls together have
`limit_bytes`, counted with what an entry costs besides; refusals a sixty-fourth of it. Where
either is full only one in `RELUCTANCE` newcomers is let in, in the place of the oldest. So
sweeping over more than there is room for costs little, and to push out one takes several calls,
each of which costs the asker more than the one that was pushed out costs its owner.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

SPELLINGS = 4
LARGEST_CALL = 1024
LARGEST_REPLY = 64 * 1024
"""What is not looked up: longer calls and replies cost the same either way."""

MOST_AT_ONCE = 64
"""How many calls are answered at once, if their replies together are no more than the largest."""

LARGEST_REFUSAL = 4 * 1024

RELUCTANCE = 8

_ENTRY_BYTES = 256


class Count(Protocol):
    """Where calls are counted."""

    calls: int


class Counted:
    """A count that somebody may read."""

    def __init__(self) -> None:
        self.calls = 0


class _Known:
    """One subject: the head of its reply, and by which calls it is known."""

    __slots__ = ("calls", "head")

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.calls: list[bytes] = []

    @property
    def size(self) -> int:
        return len(self.head) + _ENTRY_BYTES + sum(map(_size, self.calls))


class Recall:
    """The replies to one method's calls, as far as they are worth keeping.

    `tail` is the end of each reply that is no error, NUL included. Calls are given and kept without
    their NUL. `count` counts the calls that were answered from here, `refused` is told how many of
    them got their error.
    """

    def __init__(self, tail: bytes, *, limit_bytes: int = 128 * 1024 * 1024) -> None:
        self.tail = tail
        self.count: Count = Counted()
        self.refused: Callable[[int], None] | None = None
        self._limit = limit_bytes
        self._size = self._refusals_size = 0
        self._turned_away = 0
        self._heads: dict[bytes, bytes] = {}
        self._subjects: OrderedDict[str, _Known] = OrderedDict()
        self._refusals: OrderedDict[bytes, bytes] = OrderedDict()

    def replies(self, received: bytes) -> bytes | None:
        """Return what these bytes are answered; None where not all of it is known here.

        `received` is all that came and is not answered, and is not empty.
        """
        if received[-1]:
            return None
        calls = received[:-1]
        head = self._heads.get(calls)
        if head is not None:
            self.count.calls += 1
            return head + self.tail
        return self._several(calls.split(b"\0"))

    def _several(self, calls: list[bytes]) -> bytes | None:
        if len(calls) > MOST_AT_ONCE:
            return None
        heads = [head for head in map(self._heads.get, calls) if head is not None]
        if len(heads) < len(calls):
            return self._some_refused(calls, len(calls) - len(heads))
        heads.append(b"")
        return self._counted(self.tail.join(heads), len(calls))

    def _some_refused(self, calls: list[bytes], refused: int) -> bytes | None:
        replies: list[bytes] = []
        for call in calls:
            head = self._heads.get(call)
            reply = self._refusals.get(call) if head is None else head + self.tail
            if reply is None:
                return None
            replies.append(reply)
        answered = self._counted(b"".join(replies), len(calls))
        if answered is not None and self.refused is not None:
            self.refused(refused)
        return answered

    def _counted(self, replies: bytes, calls: int) -> bytes | None:
        if len(replies) > LARGEST_REPLY:
            return None
        self.count.calls += calls
        return replies

    def head(self, subject: str) -> bytes | None:
        """Return what was kept of a subject's reply since the subject last changed."""
        known = self._subjects.get(subject)
        return None if known is None else known.head

    def keep(self, subject: str, head: bytes) -> None:
        """Keep the head of a subject's reply, if there is room."""
        known = _Known(head)
        if self._has_room(known.size):
            self._forget(subject)
            self._subjects[subject] = known
            self._size += known.size

    def learn(self, call: bytes, subject: str) -> None:
        """Answer this call as the subject is answered, if that is kept, from now on."""
        known = self._subjects.get(subject)
        if (
            known is None
            or len(call) > LARGEST_CALL
            or len(known.head) + len(self.tail) > LARGEST_REPLY
            or call in self._heads
        ):
            return
        if len(known.calls) == SPELLINGS:
            oldest = known.calls.pop(0)
            del self._heads[oldest]
            self._size -= _size(oldest)
        if not self._has_room(_size(call)) or self._subjects.get(subject) is not known:
            return
        known.calls.append(call)
        self._heads[call] = known.head
        self._size += _size(call)

    def learn_refusal(self, call: bytes, reply: bytes) -> None:
        """Answer this call with this error, NUL included, until the next revision."""
        size, limit = _size(call) + len(reply), self._limit // 64
        if len(call) > LARGEST_CALL or len(reply) > LARGEST_REFUSAL or call in self._refusals:
            return
        if self._refusals_size + size > limit and (size > limit or self._turns_away()):
            return
        while self._refusals_size + size > limit:
            oldest, its_reply = self._refusals.popitem(last=False)
            self._refusals_size -= _size(oldest) + len(its_reply)
        self._refusals[call] = reply
        self._refusals_size += size

    def revise(self, subjects: Iterable[str], tail: bytes) -> None:
        """Forget these subjects' replies and every error, and end the others with this tail."""
        for subject in subjects:
            self._forget(subject)
        self._refusals = OrderedDict()
        self._refusals_size = 0
        self.tail = tail

    def _has_room(self, size: int) -> bool:
        """Whether so much more may be kept; where that is too much the oldest may have to go."""
        if self._size + size <= self._limit:
            return True
        if size > self._limit // RELUCTANCE or self._turns_away():
            return False
        while self._size + size > self._limit:
            self._forget(next(iter(self._subjects)))
        return True

    def _turns_away(self) -> bool:
        self._turned_away += 1
        return bool(self._turned_away % RELUCTANCE)

    def _forget(self, subject: str) -> None:
        known = self._subjects.pop(subject, None)
        if known is not None:
            self._size -= known.size
            for call in known.calls:
                del self._heads[call]


def _size(call: bytes) -> int:
    return len(call) + _ENTRY_BYTES
