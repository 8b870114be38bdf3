"""The other end of a connected Unix socket: whether it is there, and takes what it is sent.

An event loop tells neither. It reads no further once the input has ended or is not wanted, and so
does not notice a peer that leaves then; and what it has written is off its hands once the kernel
has it, read or not. So the kernel is asked. Nothing is received here, and nothing waits.
"""

import asyncio
import fcntl
import select
import socket
import sys
import termios


class OtherEnd:
    """The peer of one transport, which stays the caller's. `now` is the loop's time throughout.

    All that is sent has to go through `write`, since what was taken is known by what is left.
    """

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._written = 0
        self._taken = (0, 0)
        self._taken_at = now

    def answer(self, replies: bytes) -> None:
        """Send this, which is not empty, in answer to what was read just now.

        A connection that is ending is not read any more, so nobody asks whether it is.
        """
        self._written += len(replies)
        self._transport.write(replies)

    def write(self, frames: bytes) -> None:
        """Send this, unless the connection is ending."""
        if frames and not self._transport.is_closing():
            self._written += len(frames)
            self._transport.write(frames)

    @property
    def waiting(self) -> int:
        """How many bytes of output wait for the peer to read."""
        return self._transport.get_write_buffer_size()

    def stalled_seconds(self, now: float) -> float:
        """Return for how long output has been waiting of which the peer took nothing.

        Measured from call to call, so call it often.
        """
        waiting = self.waiting
        taken = (self._written - waiting, self._untaken() if waiting else 0)
        if not waiting or taken != self._taken:
            self._taken, self._taken_at = taken, now
        return now - self._taken_at

    def has_left(self) -> bool:
        """Whether the peer has closed its end wholly. An end of input alone does not tell."""
        poll = select.poll()
        poll.register(self._socket, 0)
        return bool(poll.poll(0))

    def _untaken(self) -> int:
        """Return how much the kernel holds for the peer, which it may read in small bites."""
        return int.from_bytes(fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
