"""One peer's conversation: bytes from its connection, calls to the service, answers back.

Answers
=======

A method's `answer(parameters, peer, more)` is called on the loop, must not block, and returns

- `bytes`: the reply's parameters, encoded. Written at once, together with the other replies to
  the bytes that just arrived: the hot path;
- an awaitable of `bytes` or of an iterator: the same, later;
- an iterator of `bytes`, at least one: pieces of one answer, for a call that set `more`. All but
  the last are sent with `continues`;
- an async iterator of `bytes`: a stream that goes on until the peer leaves, for a call that set
  `more`. Each item is sent with `continues` as soon as it comes. Where the stream ends by itself
  the connection is closed.

Either may raise `CallError` at any time: the error reply, which ends the answer. Any other
exception is a bug of ours: logged, and the connection is closed. What an iterator and an awaitable
hold they must release when closed or cancelled, which happens as soon as the peer is gone.

Backpressure
============

Iterators are advanced, and further calls handed out, only while what the transport still has to
write is below its high-water mark. So a peer that reads slowly costs one answer and the mark, and
a stream that says what has changed says it once for all that happened meanwhile. A peer that sends
faster than it is answered is not read once the read-ahead of its connection is full. A turn of the
loop answers at most `TURN` calls of one peer: the others wait no longer than that.

File descriptors that a peer sends are never received: the loop reads without ancillary data, and
the kernel drops them (UAPI.20 wants them refused; see also listening.py).
"""

import asyncio
import fcntl
import logging
import select
import socket
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple, cast

from discoveryd.varlink import (
    CLOSED,
    Call,
    CallError,
    RemoteProtocolError,
    ServerConnection,
    Service,
    Signal,
)

TURN = 64
_FLUSH_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """Who opened a connection, as the kernel knows it."""

    uid: int
    gid: int
    pid: int


Answer = bytes | Awaitable[bytes | Iterator[bytes]] | Iterator[bytes] | AsyncIterator[bytes]
"""What a method's `answer` returns: see above."""


class Conversation(asyncio.Protocol):
    """Serves one connection. `ended` is called once, when the connection is gone."""

    def __init__(
        self,
        service: Service,
        connection: ServerConnection,
        peer: Peer,
        ended: Callable[["Conversation"], None],
    ) -> None:
        self.peer = peer
        self.begun = False
        self.streaming = False
        self.task: asyncio.Task[None] | None = None
        self._service = service
        self._connection = connection
        self._ended = ended
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._scheduled = False
        self._finishing = False
        self._said_all = False
        self._peer_ended = False
        self._written = 0
        self._taken = (0, 0)
        self._taken_at = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self.begun = True

    def data_received(self, data: bytes) -> None:
        """Answer what can be answered at once; called by the loop."""
        if not self._finishing:
            self._connection.receive_data(data)
            self._go_on()

    def eof_received(self) -> bool:
        """Go on answering a peer that has only stopped sending; called by the loop."""
        self._peer_ended = True
        self._connection.receive_data(b"")
        if self._said_all:
            return False
        self._go_on()
        if self.task is not None and self._is_gone():
            self._transport.abort()
        return True

    def pause_writing(self) -> None:
        """Stop answering until the peer has read; called by the loop."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Go on answering; called by the loop."""
        self._writable.set()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up what is pending; called by the loop."""
        del exc  # a peer that leaves is nothing to report
        if self.task is not None:
            self.task.cancel()
        self._ended(self)

    def finish(self) -> None:
        """Answer every whole call that was read, end the streams, then half-close.

        The connection is gone once the peer ends its side too, or by `abort`.
        """
        self._finishing = True
        if self.streaming and self.task is not None:
            self.task.cancel()
            self._half_close()
        else:
            self._go_on()

    def abort(self) -> None:
        """End the connection now, whatever is unsaid."""
        self._transport.abort()

    def look_after(self, now: float) -> float:
        """Return for how many seconds output has been waiting of which the peer took nothing.

        Measured from call to call, so call it often; `now` is the loop's time. It also ends the
        conversation if the peer has left while nobody was reading, and so nobody noticed.
        """
        if (self._peer_ended or not self._reading) and self._is_gone():
            self._transport.abort()
        waiting = self._transport.get_write_buffer_size()
        taken = (self._written - waiting, self._unread() if waiting else 0)
        if not waiting or taken != self._taken:
            self._taken, self._taken_at = taken, now
        return now - self._taken_at

    def _is_gone(self) -> bool:
        """Whether the peer has closed its side wholly. An end of input alone does not tell."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), 0)
        return bool(poll.poll(0))

    def _unread(self) -> int:
        """Return how much the kernel holds for the peer, which it may read in small bites."""
        connected: socket.socket = self._transport.get_extra_info("socket")
        return int.from_bytes(fcntl.ioctl(connected, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def _go_on(self) -> None:
        """Hand out calls until one takes time, the peer does not read, or none is left."""
        if self._said_all or self._transport.is_closing():
            return
        if self._scheduled:
            self._read_on()
            return
        replies: list[bytes] = []
        size = turn = 0
        while self.task is None and self._writable.is_set():
            if turn == TURN:
                self._scheduled = True
                self._loop.call_soon(self._take_turn)
                break
            turn += 1
            try:
                event = self._connection.next_event()
                if isinstance(event, Signal):
                    self._write(b"".join(replies))
                    self._rest(event)
                    return
                reply = self._answer(event)
            except RemoteProtocolError as error:
                _log.debug("closing the connection of process %d: %s", self.peer.pid, error)
                self._write(b"".join(replies))
                self._transport.close()
                return
            replies.append(reply)
            size += len(reply)
            if size >= _FLUSH_BYTES:
                self._write(b"".join(replies))
                replies.clear()
                size = 0
        self._write(b"".join(replies))
        self._read_on()

    def _take_turn(self) -> None:
        self._scheduled = False
        self._go_on()

    def _rest(self, why: Signal) -> None:
        """All that was received is answered: wait for more, or end."""
        if why is CLOSED:
            self._transport.close()
        elif self._finishing:
            self._half_close()
        else:
            self._read_on()

    def _answer(self, call: Call) -> bytes:
        """Return what to send now; where the answer takes time, begin it and return nothing."""
        try:
            prepared = self._service.prepare(call)
            answer = prepared.method.answer(prepared.parameters, self.peer, call.more)
            if type(answer) is bytes:
                return self._connection.reply(answer)
        except CallError as error:
            return self._connection.error(error.name, error.parameters)
        except Exception:  # noqa: BLE001 - whatever it is, it must not reach the others
            self._fail(call.method)
            return b""
        self.streaming = isinstance(answer, AsyncIterator)
        self.task = self._loop.create_task(self._work(call.method, cast("Answer", answer)))
        return b""

    async def _work(self, method: str, answer: Answer) -> None:
        """See an answer through that takes time, then go on with the next call."""
        try:
            last = await self._last_reply(answer)
        except CallError as error:
            last = self._connection.error(error.name, error.parameters)
        except Exception:  # noqa: BLE001 - whatever it is, it must not reach the others
            self._fail(method)
            return
        finally:
            self.task = None
            self.streaming = False
        self._write(last)
        if self._connection.busy:
            self._transport.close()
        else:
            self._go_on()

    async def _last_reply(self, answer: Answer) -> bytes:
        """Send all replies but the last and return that; nothing where a stream has ended."""
        reply = self._connection.reply
        if isinstance(answer, Awaitable):
            answer = await answer
            if isinstance(answer, bytes):
                return reply(answer)
        if isinstance(answer, AsyncIterator):
            try:
                async for item in answer:
                    self._write(reply(item, continues=True))
                    await self._writable.wait()
            finally:
                await _close(answer)
            return b""
        if not isinstance(answer, Iterator):
            raise TypeError(f"a method answered with {type(answer).__name__}")
        held = next(answer)
        for piece in answer:
            self._write(reply(held, continues=True))
            held = piece
            await self._writable.wait()
        return reply(held)

    def _fail(self, method: str) -> None:
        _log.exception("answering %s failed: this is a bug; the connection is closed", method)
        # Not at once: the replies before it are still to be written.
        self._loop.call_soon(self._transport.close)

    def _write(self, frames: bytes) -> None:
        if frames and not self._transport.is_closing():
            self._written += len(frames)
            self._transport.write(frames)

    def _half_close(self) -> None:
        """Say that nothing more comes, and listen for the peer to do the same."""
        self._said_all = True
        if self._peer_ended:
            self._transport.close()
        if self._transport.is_closing():
            return
        self._transport.write_eof()
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _read_on(self) -> None:
        """Read as long as there is room for what is read."""
        wanted = self._connection.want_data
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


async def _close(stream: AsyncIterator[bytes]) -> None:
    """Close an async generator now: left alone it would hold what it holds until collected."""
    close: Callable[[], Awaitable[Any]] | None = getattr(stream, "aclose", None)
    if close is not None:
        await close()
