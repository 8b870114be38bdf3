"""The live view: what is served, kept up to date by a watch, looked up without asking anybody.

    async with Models.follow() as models:
        workers = models.resolve("llama").workers

Theory
======

**Following.** One task watches the daemon and gives each reply to a `Mirror`, which answers the
lookups. When the watch ends, however it does, it watches again from the cursor that it has, so that
it is told what it missed; the daemon says `reset` where it cannot tell. It tries soon at first,
then less often, at most a second apart, each time a random part earlier, so that many views do not
come back as one. A daemon that accepts but says nothing for 60 seconds counts as gone.

**Staleness.** A view without its daemon goes on answering what was true last: workers live longer
than daemons, and a router that has an old answer is better off than one that has none. How old it
may be is always to be seen: `connected`, `stale_seconds`.

**Ends.** What goes wrong on the way to the daemon never ends a view that has begun, and never
reaches the lookups. Leaving the block ends the task. Exceptions of the block leave it as they are,
not in a group.
"""

import random
import time
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

from discoveryd.client.aio import AsyncClient
from discoveryd.client.asking.calls import SILENCE_SECONDS
from discoveryd.client.errors import (
    INTERFACE,
    BadReply,
    CallRefused,
    DiscoverydError,
    NoSuchModel,
    Timeout,
)
from discoveryd.client.mirror import Mirror
from discoveryd.interface import Cursor, Name, Resolution, WatchReply, Worker

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
"""Between two tries to find the daemon."""

FRESH_SECONDS = 25.0
"""Who has heard of the daemon within this time is up to date: it says something every 20."""


class Models:
    """What the daemon serves, as of `cursor`; made by `follow`, of use inside its block.

    It is entered once, and left in the task that entered it (a fixture of pytest-asyncio is two).
    Lookups wait for nothing. What they return stays as it was, whatever happens later.
    """

    def __init__(self, socket: str | None, timeout: float | None) -> None:
        self._client = AsyncClient(socket, timeout=SILENCE_SECONDS)
        self._timeout = timeout
        self._mirror = Mirror()
        self._moved = anyio.Event()
        self._heard = 0.0
        self._connected = False
        self._entered = self._left = False
        self._failure: DiscoverydError | None = None

    @classmethod
    def follow(cls, socket: str | None = None, *, timeout: float | None = 10.0) -> Self:
        """Return a view of the daemon at `socket`, or at the first default place that accepts.

        Entering it waits until everything is known, up to `timeout` seconds, for a daemon that is
        only starting, too; None waits for ever.
        """
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}, but must be more than 0 seconds")
        return cls(socket, timeout)

    async def __aenter__(self) -> Self:
        """Return once everything is known.

        Raises NoDaemon or Timeout where that is not in time; BadReply or CallRefused at once.
        """
        if self._entered:
            raise RuntimeError("this view has been entered before: follow once more")
        self._entered = True
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            with anyio.move_on_after(self._timeout):
                await tasks.start(self._follow)
            if self._mirror.whole:
                self._stack = stack.pop_all()
                return self
        # Only here, since a task group would have wrapped it.
        raise self._failure or Timeout("the daemon did not tell everything in time")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the watch."""
        self._left = True
        self._connected = False
        self._tell()
        # Told of no exception, since a task group would wrap it.
        await self._stack.aclose()

    @property
    def cursor(self) -> Cursor:
        """The revision that lookups speak of."""
        return self._mirror.cursor

    @property
    def connected(self) -> bool:
        """Whether changes arrive at the moment."""
        return self._connected

    @property
    def stale_seconds(self) -> float:
        """How long ago all this was known to be so; 0.0 while the daemon is heard of."""
        silent = time.monotonic() - self._heard
        return 0.0 if self._connected and silent < FRESH_SECONDS else silent

    def resolve(self, name: str) -> Resolution:
        """Return the accepting workers that serve `name`, as the daemon's Resolve does.

        They stand in the order of their admission. Raises NoSuchModel, which suggests nothing here.
        """
        found = self._mirror.resolve(name)
        if found is None:
            empty: dict[str, object] = {"similar": (), "waiting": (), "more_waiting": 0}
            raise NoSuchModel(f"{INTERFACE}.NoSuchModel", {"name": name, **empty})
        return found

    def names(self) -> tuple[Name, ...]:
        """Return every served name."""
        return tuple(self._mirror.names.values())

    def workers(self, name: str | None = None) -> tuple[Worker, ...]:
        """Return every served worker, draining ones included; or those of a name, maybe none."""
        mirror = self._mirror
        return tuple(mirror.workers.values()) if name is None else mirror.workers_of(name)

    async def changed(self, since: Cursor | None = None) -> Cursor:
        """Return the cursor once it is another than `since`, or than now where that is None.

        Nothing is missed by who looks things up, works, and then waits with the cursor that he saw:

            seen = models.cursor
            while True:
                ...
                seen = await models.changed(seen)

        A new cursor does not mean that something served has changed.
        """
        seen = self.cursor if since is None else since
        while self.cursor == seen:
            if self._left or not self._entered:
                raise RuntimeError("this view is not entered, or has been left")
            await self._moved.wait()
        return self.cursor

    async def _follow(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Watch, again and again. Says that it started once everything is known, or never will."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            known = self._mirror.cursor if self._mirror.whole else None
            try:
                async with aclosing(self._client.watch(known)) as replies:
                    async for reply in replies:
                        self._take(reply)
                        pause = FIRST_PAUSE_SECONDS
                        if known is None and self._mirror.whole:
                            known = self._mirror.cursor
                            task_status.started()
            except DiscoverydError as fault:
                self._failure = fault
                if known is None and isinstance(fault, BadReply | CallRefused):
                    task_status.started()
                    return
            self._connected = False
            self._mirror.forget_pieces()
            await anyio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _take(self, reply: WatchReply) -> None:
        moved = self._mirror.take(reply)
        if not reply.partial:
            self._heard = time.monotonic()
            self._connected = True
        if moved:
            self._tell()

    def _tell(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
