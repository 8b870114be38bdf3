"""One blocking connection to the daemon: calls out, replies in, each by a deadline.

A `Wire` serves one thread. Deadlines are points of `time.monotonic()`, None for none. After an
exception it is of no more use: its owner closes it.

The kernel keeps the time (see `limit_waiting`). Telling it costs system calls, so it is told again
only where what is left of a deadline is less than the limit that it has, or shorter by more than
`SLACK_SECONDS`; as long as calls are answered promptly one limit serves them all.
"""

import socket as sockets
import time
from types import TracebackType
from typing import Self

from discoveryd.client.asking.calls import Call, T
from discoveryd.client.asking.exchange import READ_BYTES, READ_BYTES_OF_MUCH, Exchange
from discoveryd.client.asking.locate import limit_waiting
from discoveryd.varlink.messages import Reply

SLACK_SECONDS = 0.01
"""How late a deadline may be noticed."""

_SENT_BYTES = 32 * 1024
"""What is sent at once: the kernel waits anew for each part that it takes."""


class Wire:
    """Owns `connection`, a connected blocking socket; `path` names it in errors."""

    __slots__ = ("_asked", "_connection", "_exchange", "_limit")

    def __init__(self, connection: sockets.socket, path: str) -> None:
        self._connection = connection
        self._exchange = Exchange(path)
        self._limit: float | None = -1.0
        self._asked = False

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
        """Close the connection; again is harmless."""
        self._connection.close()

    def send(self, call: Call[T], deadline: float | None) -> None:
        """Send a call.

        Raises Timeout where the daemon takes nothing, Unanswered where the connection is over.
        """
        method = call.method
        sent = self._exchange.send_call(method.name, call.parameters, more=method.more)
        taken = self._send(sent, sockets.MSG_DONTWAIT)
        if taken < len(sent):
            left = memoryview(sent)[taken:]
            while left:
                self._keep(deadline)
                left = left[self._send(left[:_SENT_BYTES]) :]
        self._asked = True

    def _send(self, part: bytes | memoryview, flags: int = 0) -> int:
        """Return how much of it the kernel took in its time."""
        try:
            return self._connection.send(part, flags)
        except BlockingIOError:
            return 0
        except OSError as fault:
            raise self._exchange.unanswered() from fault

    def receive(self, deadline: float | None) -> Reply:
        """Return the next reply to the oldest call.

        Raises Timeout; Unanswered or ConnectionLost where the connection ended; BadReply where the
        peer does not speak Varlink.
        """
        exchange = self._exchange
        size = READ_BYTES
        # Right after a call there is nothing to take yet.
        reply = None if self._asked else exchange.take()
        self._asked = False
        while reply is None:
            self._keep(deadline)
            try:
                received = self._connection.recv(size)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                # A daemon that closes with our call unread resets the connection: it has ended.
                received = b""
            exchange.receive_data(received)
            reply = exchange.take()
            size = READ_BYTES_OF_MUCH
        return reply

    def _keep(self, deadline: float | None) -> None:
        """Let the kernel wait no longer than until the deadline. Raises Timeout once it is over."""
        limit = self._limit
        if deadline is None:
            if limit is not None:
                limit_waiting(self._connection, None)
                self._limit = None
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._exchange.late()
        if limit is None or not left <= limit <= left + SLACK_SECONDS:
            # A little more than is left serves the next calls as well, which have a little more.
            self._limit = left + SLACK_SECONDS / 2
            limit_waiting(self._connection, self._limit)
