"""One blocking connection to the daemon: calls out, replies in, each with a deadline.

A `Wire` speaks Varlink and knows no method. It serves one thread. Deadlines are points of
`time.monotonic()`, None for none. After an exception it is of no more use: its owner closes it.
"""

import socket as sockets
import time
from types import TracebackType
from typing import Self

from discoveryd.client.errors import BadReply, ConnectionLost, Timeout
from discoveryd.client.locate import limit_waiting
from discoveryd.varlink.connection import CLOSED, NEED_DATA, ClientConnection
from discoveryd.varlink.errors import RemoteProtocolError
from discoveryd.varlink.messages import Parameters, Reply

_READ_BYTES = 64 * 1024
_READ_BYTES_OF_MUCH = 1024 * 1024


class Unanswered(ConnectionLost):
    """The connection ended before anything of the answer came, so the call may be sent again."""


class Wire:
    """Owns `connection`, a connected blocking socket; `path` names it in errors.

    `timeout`: the seconds that sending a call may take, and, where no deadline says less, waiting.
    """

    __slots__ = (
        "_connection",
        "_ended",
        "_first_read",
        "_path",
        "_period_is_full",
        "_protocol",
        "_timeout",
    )

    def __init__(self, connection: sockets.socket, path: str, timeout: float | None) -> None:
        self._connection = connection
        self._path = path
        self._timeout = timeout
        self._protocol = ClientConnection()
        self._period_is_full = False
        self._first_read = True
        self._ended = False

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

    def send(self, method: str, parameters: Parameters, *, more: bool = False) -> None:
        """Send a call.

        Raises Timeout where the daemon takes nothing, Unanswered where the connection is over.
        """
        if not self._period_is_full:
            limit_waiting(self._connection, self._timeout)
            self._period_is_full = True
        self._first_read = True
        call = self._protocol.send_call(method, parameters, more=more)
        try:
            self._connection.sendall(call)
        except BlockingIOError:
            raise self._late() from None
        except OSError as fault:
            raise self._unanswered() from fault

    def receive(self, deadline: float | None) -> Reply:
        """Return the next reply to the oldest call.

        Raises Timeout; Unanswered or ConnectionLost where the connection ended; BadReply where the
        peer does not speak Varlink.
        """
        protocol = self._protocol
        try:
            while (event := protocol.next_event()) is NEED_DATA:
                protocol.receive_data(self._read(deadline))
        except RemoteProtocolError as fault:
            if self._ended:
                raise ConnectionLost(f"{self._path}: {fault}") from None
            raise BadReply(
                f"what listens at {self._path} does not speak Varlink: {fault}"
            ) from None
        if event is CLOSED:
            if protocol.midway:
                raise ConnectionLost(f"{self._path}: the daemon ended the connection")
            raise self._unanswered()
        return event

    def _read(self, deadline: float | None) -> bytes:
        """Return what came, b"" for the end, by `deadline`."""
        # The first read after a call may use the whole period, so it needs no look at the clock.
        if not self._first_read and deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._late()
            limit_waiting(self._connection, left)
            self._period_is_full = False
        size = _READ_BYTES if self._first_read else _READ_BYTES_OF_MUCH
        self._first_read = False
        try:
            received = self._connection.recv(size)
        except BlockingIOError:
            raise self._late() from None
        except ConnectionResetError:
            # A daemon that closes with our call unread resets the connection: it has ended.
            received = b""
        self._ended = not received
        return received

    def _late(self) -> Timeout:
        return Timeout(f"{self._path} did not answer in time")

    def _unanswered(self) -> Unanswered:
        return Unanswered(f"{self._path}: the daemon ended the connection without an answer")
