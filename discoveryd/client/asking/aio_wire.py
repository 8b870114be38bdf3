"""One connection of the async client: calls out, replies in, on asyncio and trio.

An `AsyncWire` serves one task at a time and keeps no time: who waits sets a cancel scope. Cancelled
or failed in the midst of a call, it is of no more use: its owner closes it.
"""

import os
import socket as sockets
from types import TracebackType
from typing import Self

import anyio

from discoveryd.client.asking.calls import Call, T
from discoveryd.client.asking.exchange import READ_BYTES, READ_BYTES_OF_MUCH, Exchange
from discoveryd.client.asking.locate import Busy, candidates, connect_now
from discoveryd.varlink.messages import Reply

_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.05


class AsyncWire:
    """Owns `connection`, a connected socket that does not block; `path` names it in errors."""

    __slots__ = ("_connection", "_exchange")

    def __init__(self, connection: sockets.socket, path: str) -> None:
        self._connection = connection
        self._exchange = Exchange(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, for which no task may be waiting; again is harmless."""
        self._connection.close()

    async def send(self, call: Call[T]) -> None:
        """Send a call. Raises Unanswered where the connection is over."""
        method = call.method
        sent = self._exchange.send_call(method.name, call.parameters, more=method.more)
        left = memoryview(sent)
        while left:
            try:
                left = left[self._connection.send(left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._connection)
            except OSError as fault:
                raise self._exchange.unanswered() from fault

    async def receive(self) -> Reply:
        """Return the next reply to the oldest call.

        Raises Unanswered or ConnectionLost where the connection ended; BadReply where the peer does
        not speak Varlink.
        """
        exchange = self._exchange
        size = READ_BYTES
        while (reply := exchange.take()) is None:
            # Waited for even where it is there already, so that a torrent leaves others their turn.
            await anyio.wait_readable(self._connection)
            try:
                received = self._connection.recv(size)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                # A daemon that closes with our call unread resets the connection: it has ended.
                received = b""
            exchange.receive_data(received)
            size = READ_BYTES_OF_MUCH
        return reply


async def open_wire(socket: str | None) -> AsyncWire:
    """Return a connection to the daemon at `socket`, or at the first default place that accepts.

    Waits while the daemon there has too many connections waiting. Raises NoDaemon.
    """
    places = candidates(socket, os.environ, os.getuid())
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return AsyncWire(*connect_now(places))
        except Busy:
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
