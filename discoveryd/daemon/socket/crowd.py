"""How many connections there may be: all, those of one user, and streams apart from the rest.

Streams, that is Watches and Holds, last for as long as their peers live, and every worker may have
one. So that they do not use up what short questions need, they are counted apart, up to as many
again. A stream beyond that goes on being counted with the rest: it need not be refused, and the sum
is bounded all the same. One user's share matters only where several users may connect.
"""

from collections import Counter


class Crowd:
    """Counts connections by user, streams apart.

    At most `limit` of each of both kinds, `user_limit` of them one user's; `total_limit` in all.
    """

    def __init__(self, *, limit: int, user_limit: int | None, total_limit: int) -> None:
        self._limit = limit
        self._user_limit = limit if user_limit is None else user_limit
        self._total_limit = total_limit
        self._asking: Counter[int] = Counter()
        self._apart: Counter[int] = Counter()

    def refusal(self, uid: int) -> str | None:
        """Say why one more connection of this user is too many; None where it is not."""
        asking = self._asking.total()
        if asking + self._apart.total() >= self._total_limit:
            return f"all {self._total_limit} connections that open files allow are taken"
        if asking >= self._limit:
            return f"all {self._limit} connections are taken"
        if self._asking[uid] >= self._user_limit:
            return f"user {uid} has all {self._user_limit} connections that one user may have"
        return None

    def enter(self, uid: int) -> None:
        """Count one more."""
        self._asking[uid] += 1

    def set_apart(self, uid: int) -> bool:
        """Count one as a stream from now on. Returns False, with nothing changed, without room."""
        if self._apart.total() >= self._limit or self._apart[uid] >= self._user_limit:
            return False
        _take(self._asking, uid)
        self._apart[uid] += 1
        return True

    def take_back(self, uid: int) -> None:
        """Count one that was set apart with the rest again."""
        _take(self._apart, uid)
        self._asking[uid] += 1

    def leave(self, uid: int, *, apart: bool) -> None:
        """Count one less."""
        _take(self._apart if apart else self._asking, uid)


def _take(counts: Counter[int], uid: int) -> None:
    counts[uid] -= 1
    if not counts[uid]:
        del counts[uid]
