"""Which users the host knows: the groups they are in, and whether they have numbers here.

The host's user database may be far away and slow, so it is asked in a thread, and its answers are
kept for a short time. Where it does not answer, what it said last still holds.
"""

import contextlib
import os
import pwd
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import anyio
import anyio.to_thread

KEPT_SECONDS = 10.0
"""For how long an answer is believed."""

PATIENCE_SECONDS = 5.0
"""How long an answer is waited for."""


_ALL_UIDS = (1 << 32) - 1


def groups_of(uid: int) -> frozenset[int]:
    """Return the groups of a user; none for one whom the database does not know. May block."""
    try:
        user = pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        return frozenset()
    return frozenset(os.getgrouplist(user.pw_name, user.pw_gid))


def unmapped_uid() -> int | None:
    """Return as whom all users appear who have no number in this process's user namespace.

    None where every user has one.
    """
    with contextlib.suppress(OSError, ValueError):
        lengths = [int(line.split()[2]) for line in _lines("/proc/self/uid_map")]
        if sum(lengths) < _ALL_UIDS:
            return int(_lines("/proc/sys/kernel/overflowuid")[0])
    return None


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="ascii").splitlines()


class Membership:
    """The groups of those users who were looked up. All methods are the loop's."""

    def __init__(
        self,
        ask: Callable[[int], frozenset[int]] = groups_of,
        *,
        kept_seconds: float = KEPT_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._ask = ask
        self._kept_seconds = kept_seconds
        self._patience_seconds = patience_seconds
        self._groups: dict[int, frozenset[int]] = {}
        self._until: dict[int, float] = {}
        self._silent = False

    def of(self, uid: int | None) -> Collection[int]:
        """Return the groups of a user who was looked up; none for others."""
        return () if uid is None else self._groups.get(uid, ())

    async def look_up(self, uids: Iterable[int]) -> None:
        """Look these users up, but for those of whom there is a fresh answer."""
        now = anyio.current_time()
        asked = [uid for uid in uids if self._until.get(uid, now) <= now]
        if not asked:
            return
        answers: dict[int, frozenset[int]] = {}
        with anyio.move_on_after(self._patience_seconds) as patience:
            answers = await anyio.to_thread.run_sync(self._ask_all, asked, abandon_on_cancel=True)
        self._silent = patience.cancelled_caught
        self._groups.update(answers)
        until = anyio.current_time() + self._kept_seconds
        self._until.update(dict.fromkeys(asked, until))

    def forget(self) -> None:
        """Believe no answer any longer; but where none comes, what was said last still holds."""
        self._until.clear()

    def problems(self) -> list[str]:
        """Say that the database does not answer."""
        if not self._silent:
            return []
        problem = (
            "the host's user database did not say in time which groups users are in, so [[allow]]"
            " entries with a group may not cover who they should. See whether `id USER` answers"
        )
        return [problem]

    def _ask_all(self, uids: Iterable[int]) -> dict[int, frozenset[int]]:
        return {uid: self._ask(uid) for uid in uids}
