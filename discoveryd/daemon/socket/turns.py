"""Turns: one at a time for each user, so that a user's many questions cost the others one at most.

A question that waits costs its connection's place and its bytes, both of which are bounded.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Turns:
    """Hands out turns, in the order in which they are asked for. Lives on the loop."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()

    @asynccontextmanager
    async def of(self, uid: int) -> AsyncGenerator[None]:
        """Wait until nobody else of this user has a turn, and have it."""
        lock = self._locks.get(uid)
        if lock is None:
            self._locks[uid] = lock = asyncio.Lock()
        async with lock:
            yield
