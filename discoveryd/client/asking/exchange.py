"""What both wires have in common: the protocol of one connection, and whose doing its end is.

No input and output: a wire sends the bytes of a call, gives what it received to `receive_data`, and
takes replies until there is none. After an exception an exchange is of no more use.
"""

from discoveryd.client.errors import BadReply, ConnectionLost, Timeout, Unanswered
from discoveryd.varlink.connection import CLOSED, NEED_DATA, ClientConnection
from discoveryd.varlink.errors import RemoteProtocolError
from discoveryd.varlink.messages import Reply

READ_BYTES = 64 * 1024
READ_BYTES_OF_MUCH = 1024 * 1024
"""How much to read at once: at first, and where the answer turned out to be longer."""


class Exchange(ClientConnection):
    """Calls and replies over one connection; `path` names it in errors."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def take(self) -> Reply | None:
        """Return the next reply to the oldest call, or None where more has to come first.

        Raises Unanswered or ConnectionLost where the connection ended; BadReply where the peer does
        not speak Varlink.
        """
        try:
            event = self.next_event()
        except RemoteProtocolError as fault:
            if self._ended:
                raise ConnectionLost(f"{self.path}: {fault}") from None
            raise BadReply(f"what listens at {self.path} does not speak Varlink: {fault}") from None
        if event is NEED_DATA:
            return None
        if event is CLOSED:
            if self.midway:
                raise ConnectionLost(f"{self.path}: the daemon ended the connection")
            raise self.unanswered()
        return event

    def late(self) -> Timeout:
        """Return the error for an answer that did not come in time."""
        return Timeout(f"{self.path} did not answer in time")

    def unanswered(self) -> Unanswered:
        """Return the error for a connection that ended before anything of the answer came."""
        return Unanswered(f"{self.path}: the daemon ended the connection without an answer")
