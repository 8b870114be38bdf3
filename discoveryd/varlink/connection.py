"""Connections without input and output: bytes in, events out, bytes out, in h11's manner.

The owner of a socket feeds what it received to `receive_data` (b"" once the peer has sent its
last byte), takes events from `next_event` until there is nothing left to do, and sends the
bytes that the other methods return. Nothing here waits, and nothing is called back.

**Order.** Varlink has no sequence numbers: replies come in the order of their calls, and a oneway
call has none. So each side is a queue. The server hands out one call at a time:

    next_event -> Call          reply, error (final, or the call was oneway)
    idle ---------------> busy ----------------------------------------------> idle
                           | ^
                           +-+ reply(continues=True), if the call set `more`

While busy, `next_event` says `PAUSED`: calls that arrived meanwhile wait, up to the read-ahead;
beyond it `want_data` is False and the owner stops reading, so that the kernel slows the peer.
The client keeps one entry for each call that is still owed a reply; a reply without `continues`
settles the oldest.

**Ends.** A peer that has sent its last byte may still read. Calls that arrived whole are
handed out first, then the server sees `CLOSED`; half a call at the end is dropped. The client
sees `CLOSED` when the end came between two replies; `outstanding` and `midway` then tell what was
lost. An end inside a reply is a violation.

**Violations** surface as `RemoteProtocolError` from `next_event` when their turn comes, that is,
after everything before them was handed out and settled; and again each time after. What the
peer sends later is dropped. A message that cannot become an object, by its first byte, is one
before its end has come: whoever speaks another protocol here never sends a NUL.
"""

from collections import deque
from enum import Enum
from typing import Final, Literal, NoReturn

from discoveryd.varlink.errors import LocalProtocolError, RemoteProtocolError
from discoveryd.varlink.frames import Framer
from discoveryd.varlink.messages import (
    Call,
    Parameters,
    Reply,
    encode_call,
    encode_error,
    encode_reply,
    parse_call,
    parse_reply,
)


class Signal(Enum):
    """The events that carry nothing."""

    NEED_DATA = "need data"
    PAUSED = "paused"
    CLOSED = "closed"


NEED_DATA: Final = Signal.NEED_DATA
"""Nothing whole is left of what was received."""

PAUSED: Final = Signal.PAUSED
"""The present call has to be answered first."""

CLOSED: Final = Signal.CLOSED
"""The peer has sent its last byte, and nothing whole is left."""


FRAME_BYTES: Final = 64
"""What holding a frame costs beside its bytes: the smallest frames cost most of all."""

_OPENINGS: Final = b"{ \t\r\n"


class _Connection:
    """The receiving half that both sides share."""

    __slots__ = ("_ended", "_fault", "_framer", "_frames", "_frames_bytes")

    def __init__(self, frame_limit: int) -> None:
        self._framer = Framer(frame_limit)
        self._frames: deque[bytes] = deque()
        self._frames_bytes = 0
        self._ended = False
        self._fault: str | None = None

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream, or b"" for its end.

        Raises `LocalProtocolError` for data after the end. The peer's faults are raised later, by
        `next_event`.
        """
        if not data:
            self._ended = True
            return
        if self._ended:
            raise LocalProtocolError("data after the end of the stream")
        if self._fault is None:
            frames = self._framer.feed(data)
            self._frames.extend(frames)
            self._frames_bytes += sum(map(len, frames))

    def _take(self) -> bytes | None:
        """Return the next whole frame, if there is one. Raises the fault if that comes first."""
        if self._fault is not None:
            raise RemoteProtocolError(self._fault)
        if self._frames:
            frame = self._frames.popleft()
            self._frames_bytes -= len(frame)
            return frame
        if self._framer.overrun:
            self._fail("a message is larger than the limit")
        first = self._framer.first
        if first is not None and first not in _OPENINGS:
            self._fail("a message does not begin as a JSON object")
        return None

    def _fail(self, fault: str) -> NoReturn:
        """Enter the state from which there is no way back."""
        self._fault = fault
        self._frames.clear()
        self._frames_bytes = 0
        raise RemoteProtocolError(fault)


class ServerConnection(_Connection):
    """The server's side of one connection.

    `frame_limit` bounds one call in bytes. `read_ahead_calls` and `read_ahead_bytes` bound what is
    held of calls that wait for the present one, give or take one `receive_data`.
    """

    __slots__ = ("_call", "_read_ahead_bytes", "_read_ahead_calls", "frame")

    def __init__(
        self,
        *,
        frame_limit: int = 1024 * 1024,
        read_ahead_calls: int = 64,
        read_ahead_bytes: int = 256 * 1024,
    ) -> None:
        super().__init__(frame_limit)
        self._read_ahead_calls = read_ahead_calls
        self._read_ahead_bytes = read_ahead_bytes
        self._call: Call | None = None
        self.frame = b""
        """The present call as it came, without its NUL; empty where there is none."""

    @property
    def busy(self) -> bool:
        """Whether a call was handed out and is not settled yet."""
        return self._call is not None

    @property
    def waiting(self) -> int:
        """How many whole calls were received and not handed out yet."""
        return len(self._frames)

    @property
    def held(self) -> int:
        """How many bytes are held of calls that are not settled: the present one and all after."""
        waiting = self._frames_bytes + len(self._frames) * FRAME_BYTES
        present = 0 if self._call is None else len(self.frame) + FRAME_BYTES
        return present + waiting + self._framer.pending

    @property
    def want_data(self) -> bool:
        """Whether reading on is welcome: False once the read-ahead is full, and after the end."""
        if self._ended or self._fault is not None or self._framer.overrun:
            return False
        if self._call is None and not self._frames:
            return True
        return (
            len(self._frames) < self._read_ahead_calls
            and self._frames_bytes + self._framer.pending < self._read_ahead_bytes
        )

    def next_event(
        self,
    ) -> Call | Literal[Signal.NEED_DATA, Signal.PAUSED, Signal.CLOSED]:
        """Return the next call, which is then the present one, or why there is none.

        Raises `RemoteProtocolError` once all that came before the peer's fault is settled.
        """
        if self._call is not None:
            return PAUSED
        frame = self._take()
        if frame is None:
            return CLOSED if self._ended else NEED_DATA
        try:
            call = parse_call(frame)
        except RemoteProtocolError as error:
            self._fail(str(error))
        self._call = call
        self.frame = frame
        return call

    def reply(self, parameters: Parameters = None, *, continues: bool = False) -> bytes:
        """Answer the present call; return what to send, b"" if the call was oneway.

        It is settled by this, unless `continues`. Raises `LocalProtocolError` if there is no
        present call, or if `continues` is set and the call did not ask for more.
        """
        call = self._present()
        if continues and not call.more:
            raise LocalProtocolError(f"{call.method} was called without more: it gets one reply")
        sent = b"" if call.oneway else encode_reply(parameters, continues=continues)
        if not continues:
            self._settle()
        return sent

    def reply_encoded(self, reply: bytes) -> bytes:
        """Answer the present call with a whole reply, NUL included, that is not looked at.

        Returns what to send, as `reply` does. Raises `LocalProtocolError` without a present call.
        """
        call = self._present()
        self._settle()
        return b"" if call.oneway else reply

    def error(self, name: str, parameters: Parameters = None) -> bytes:
        """Fail the present call, which settles it; return what to send, b"" if it was oneway.

        Raises `LocalProtocolError` if there is no present call.
        """
        call = self._present()
        sent = b"" if call.oneway else encode_error(name, parameters)
        self._settle()
        return sent

    def _settle(self) -> None:
        self._call = None
        self.frame = b""

    def _present(self) -> Call:
        if self._call is None:
            raise LocalProtocolError("there is no call to answer")
        return self._call


class ClientConnection(_Connection):
    """The client's side of one connection. `frame_limit` bounds one reply in bytes."""

    __slots__ = ("_midway", "_owed")

    def __init__(self, *, frame_limit: int = 64 * 1024 * 1024) -> None:
        super().__init__(frame_limit)
        self._owed: deque[bool] = deque()
        self._midway = False

    @property
    def outstanding(self) -> int:
        """How many calls are still owed their final reply."""
        return len(self._owed)

    @property
    def midway(self) -> bool:
        """Whether the oldest of them has got some of its replies already.

        After `CLOSED`, False means that nothing at all came in answer to the outstanding calls.
        """
        return self._midway

    def send_call(
        self,
        method: str,
        parameters: Parameters = None,
        *,
        more: bool = False,
        oneway: bool = False,
    ) -> bytes:
        """Return the bytes of a call, which need not wait for the replies to earlier ones.

        Raises `LocalProtocolError` for both flags at once, or when the connection is over.
        """
        if more and oneway:
            raise LocalProtocolError("a call is either oneway or wants more")
        if self._ended or self._fault is not None:
            raise LocalProtocolError("the connection is over: open another")
        sent = encode_call(method, parameters, more=more, oneway=oneway)
        if not oneway:
            self._owed.append(more)
        return sent

    def next_event(self) -> Reply | Literal[Signal.NEED_DATA, Signal.CLOSED]:
        """Return the next reply, always to the oldest outstanding call, or why there is none.

        Raises `RemoteProtocolError` where the peer's fault comes first.
        """
        frame = self._take()
        if frame is None:
            if not self._ended:
                return NEED_DATA
            if self._framer.pending:
                self._fail("the connection ended inside a reply")
            return CLOSED
        try:
            reply = parse_reply(frame)
        except RemoteProtocolError as error:
            self._fail(str(error))
        if not self._owed:
            self._fail("a reply came that no call asked for")
        if not reply.continues:
            self._owed.popleft()
        elif not self._owed[0]:
            self._fail("a reply continues, but its call did not ask for more")
        self._midway = reply.continues
        return reply
