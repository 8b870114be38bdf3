"""Keeping the socket where clients look for it: what is lost is made again, within a second or so.

Nobody tells that a path was removed or its directory replaced, so it is looked at. That is done in
a thread, since a directory may hang. Those who are connected notice nothing.
"""

import logging
import socket
from typing import Protocol

import anyio.to_thread

from discoveryd.daemon.socket.listening import Listener

LOOK_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Accepting(Protocol):
    """Who accepts connections on listening sockets."""

    def serve(self, listening: socket.socket) -> None:
        """Accept on this socket, too."""
        ...

    def leave(self, listening: socket.socket) -> None:
        """Accept no more on this one."""
        ...


async def keep(listener: Listener, server: Accepting, every: float = LOOK_SECONDS) -> None:
    """Look at the listener's path for ever, and have `server` serve the sockets made anew there."""
    while True:
        await anyio.sleep(every)
        before = listener.problems()
        made = await anyio.to_thread.run_sync(listener.mend)
        if made is not None:
            old, new = made
            server.serve(new)
            server.leave(old)
            _log.warning("%s was gone or replaced: it is there again", listener.path)
        elif listener.problems() != before:
            for problem in listener.problems():
                _log.error("%s", problem)
