"""The methods for who looks after the daemon: how it is, and to read its configuration again.

Shapes and permissions; how a reload is made is reloading.py's business. No I/O, as in api.py.
"""

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from discoveryd import __version__, interface
from discoveryd.daemon.methods import replies
from discoveryd.daemon.methods.parameters import Nothing
from discoveryd.daemon.socket.answering import Peer
from discoveryd.daemon.writer import Writer
from discoveryd.varlink import PermissionDenied


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """How everything but the registry is."""

    uptime_seconds: float
    directories: tuple[interface.Directory, ...]
    watchers: int
    connections: int
    problems: tuple[str, ...] = ()

    @property
    def all_problems(self) -> tuple[str, ...]:
        """What is wrong, that of the directories first."""
        of_directories = (each.problem for each in self.directories)
        return (*(problem for problem in of_directories if problem is not None), *self.problems)


class Steward(Protocol):
    """What the methods need of the daemon as a whole."""

    def status(self) -> Surroundings:
        """Return how everything but the registry is."""
        ...

    def may_reload(self, uid: int) -> bool:
        """Whether a user may have the configuration read again."""
        ...

    async def reload(self) -> interface.ReloadReply:
        """Read the configuration again and look at everything; return what came of it."""
        ...


class Upkeep:
    """Answers GetStatus and Reload."""

    def __init__(self, writer: Writer, steward: Steward) -> None:
        self._writer = writer
        self._steward = steward

    async def get_status(self, *_: object) -> bytes:
        """Return how the daemon is."""
        around = self._steward.status()
        problems = around.all_problems
        async with self._writer.settled() as registry:
            return replies.encode(
                interface.Status(
                    version=__version__,
                    cursor=replies.cursor(self._writer.answers.cursor),
                    uptime_seconds=around.uptime_seconds,
                    directories=around.directories,
                    standings=self._writer.standings,
                    names=len(self._writer.answers),
                    idle_cohorts=tuple(registry.idle_cohorts()),
                    watchers=around.watchers,
                    connections=around.connections,
                    healthy=not problems
                    and all(d.watching or d.backend == "polling" for d in around.directories),
                    problems=problems,
                )
            )

    def reload(self, _asked: Nothing, peer: Peer, *_: object) -> Awaitable[bytes]:
        """Read the configuration again; return what is different now, and what is not."""
        if not self._steward.may_reload(peer.uid):
            raise PermissionDenied
        return self._reload()

    async def _reload(self) -> bytes:
        return replies.encode(await self._steward.reload())
