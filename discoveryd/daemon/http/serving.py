"""HTTP connections: accepted on listening sockets, so many at most, and their end.

What one connection may do is exchange.py's business. A connection beyond the limit is told so in
one line and closed. None of this touches the interface's own socket, which has limits of its own.
"""

import asyncio
import contextlib
import logging
import socket
from functools import partial

from discoveryd.daemon.http.exchange import HEAD_SECONDS, STALL_SECONDS, Exchange
from discoveryd.daemon.http.site import Site

CONNECTIONS = 64
"""How many there may be. Scrapers and dashboards are few, and each needs one."""

_PAUSE = 0.5
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)

_log = logging.getLogger(__name__)


class HttpServer:
    """Serves `site` on any number of listening sockets. Lives on the running loop.

    At most `connection_limit` connections; `head_seconds` and `stall_seconds` as in exchange.py.
    """

    def __init__(
        self,
        site: Site,
        *,
        connection_limit: int = CONNECTIONS,
        head_seconds: float = HEAD_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._site = site
        self._connection_limit = connection_limit
        self._head_seconds = head_seconds
        self._stall_seconds = stall_seconds
        self._loop = asyncio.get_running_loop()
        self._accepting: dict[socket.socket, asyncio.Task[None]] = {}
        self._open: dict[asyncio.Task[None], Exchange] = {}
        self._closing = False

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def serve(self, listening: socket.socket) -> None:
        """Accept on a listening, non-blocking socket, which stays the caller's.

        Over TCP, Host is checked. Once `close` was called nothing is accepted any more.
        """
        if not self._closing:
            self._accepting[listening] = self._loop.create_task(self._accept(listening))

    def leave(self, listening: socket.socket) -> None:
        """Accept no more at this socket; the caller may close it once the loop had a turn."""
        accepting = self._accepting.pop(listening, None)
        if accepting is not None:
            accepting.cancel()

    async def close(self, grace: float) -> None:
        """Accept no more; end the connections that wait, and the others after what they answer.

        What takes longer than `grace` seconds is cut off. Afterwards the server is used up.
        """
        self._closing = True
        accepting = list(self._accepting.values())
        for listening in tuple(self._accepting):
            self.leave(listening)
        for task, exchange in self._open.items():
            exchange.finish()
            if exchange.waiting:
                task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=grace)
        for task in self._open:
            task.cancel()
        ending = [*accepting, *self._open]
        if ending:
            await asyncio.wait(ending)

    async def _accept(self, listening: socket.socket) -> None:
        host_checked = listening.family != socket.AF_UNIX
        while True:
            try:
                connected, _ = await self._loop.sock_accept(listening)
            except OSError as error:
                # No descriptor is left, or this peer has left: neither lasts.
                _log.debug("cannot accept an HTTP connection for now: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._open) >= self._connection_limit:
                with contextlib.suppress(OSError):
                    connected.send(_BUSY)
                connected.close()
                continue
            self._begin(connected, host_checked=host_checked)

    def _begin(self, connected: socket.socket, *, host_checked: bool) -> None:
        exchange = Exchange(
            connected,
            self._site,
            host_checked=host_checked,
            head_seconds=self._head_seconds,
            stall_seconds=self._stall_seconds,
        )
        task = self._loop.create_task(exchange.run())
        self._open[task] = exchange
        task.add_done_callback(partial(self._ended, connected))

    def _ended(self, connected: socket.socket, task: asyncio.Task[None]) -> None:
        connected.close()
        del self._open[task]
