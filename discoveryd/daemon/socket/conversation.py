"""One peer's conversation: bytes from its connection, calls to the service, answers back.

What a method answers with is agreed in answering.py.

Backpressure
============

Iterators are advanced, and further calls handed out, only while what the transport still has to
write is below its high-water mark. So a peer that reads slowly costs one answer and the mark, and
a stream that says what has changed says it once for all that happened meanwhile. A peer that sends
faster than it is answered is not read once the read-ahead of its connection is full, or once all
peers together have sent too much (pressure.py). A turn of the loop answers at most `TURN` calls of
one peer, fewer where they take long: the others wait no longer than that.

While a peer is *quiet*, that is, nothing of it is unanswered and what is unsent is below the mark,
what it sends is first looked up as it is (varlink/recall.py). What is known there is answered at
once.

File descriptors that a peer sends are never received: the loop reads without ancillary data, and
the kernel drops them (UAPI.20 wants them refused; see also listening.py).
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Protocol, cast

from discoveryd.daemon.socket.answering import Answer, Lasting, Peer, Tied, close
from discoveryd.daemon.socket.connected import OtherEnd
from discoveryd.daemon.socket.pressure import Intake
from discoveryd.daemon.socket.reading import Reading
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
TURN_SECONDS = 0.002
_FLUSH_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


class Host(Protocol):
    """Who gave a conversation its connection."""

    intake: Intake

    def stream_began(self, conversation: "Conversation") -> None:
        """The conversation has become a stream."""
        ...

    def stream_ended(self, conversation: "Conversation") -> None:
        """The stream is over, and the connection may be used on."""
        ...

    def ended(self, conversation: "Conversation") -> None:
        """The connection is gone. Said once; only the end of a stream may still follow."""
        ...


class Conversation(asyncio.Protocol):
    """Serves one connection."""

    def __init__(
        self, service: Service, connection: ServerConnection, peer: Peer, host: Host
    ) -> None:
        self.peer = peer
        self.begun = False
        self.heard = False
        self.streaming = False
        self.task: asyncio.Task[None] | None = None
        self._service = service
        self._connection = connection
        self._host = host
        self._recall = service.recall
        self._transport: asyncio.Transport
        self._other_end: OtherEnd
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self.reading = Reading(self, connection, host.intake)
        self._quiet = True
        self._tied = False
        self._spoken = False
        self._scheduled = False
        self._finishing = False
        self._said_all = False
        self._peer_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._other_end = OtherEnd(self._transport, self._loop.time())
        self.reading.begin(self._transport)
        self.begun = True

    def data_received(self, data: bytes) -> None:
        """Answer what can be answered at once; called by the loop."""
        self.heard = True
        if self._quiet:
            replies = self._recall.replies(data)
            if replies is not None:
                self._other_end.answer(replies)
                return
        self._quiet = False
        if not self._finishing:
            self._connection.receive_data(data)
            self._go_on()

    def eof_received(self) -> bool:
        """Go on answering a peer that has only stopped sending; called by the loop."""
        self._peer_ended = True
        self._quiet = False
        self._connection.receive_data(b"")
        if self._said_all:
            return False
        self._go_on()
        if self.task is not None and self._other_end.has_left():
            self._transport.abort()
        elif self._tied and self._spoken and self.task is not None:
            self.task.cancel()
            self._transport.close()
        return True

    def pause_writing(self) -> None:
        """Stop answering until the peer has read; called by the loop."""
        self._writable.clear()
        self._quiet = False

    def resume_writing(self) -> None:
        """Go on answering; called by the loop."""
        self._writable.set()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up what is pending; called by the loop."""
        del exc  # a peer that leaves is nothing to report
        if self.task is not None:
            self.task.cancel()
        self.reading.end()
        self._host.ended(self)

    def finish(self) -> None:
        """Answer every whole call that was read, end the streams, then half-close.

        The connection is gone once the peer ends its side too, or by `abort`.
        """
        self._finishing = True
        self._quiet = False
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
        if (self._peer_ended or not self.reading.on) and self._other_end.has_left():
            self._transport.abort()
        return self._other_end.stalled_seconds(now)

    @property
    def answering(self) -> bool:
        """Whether an answer takes time that will come to an end by itself."""
        return self.task is not None and not self.streaming

    @property
    def waiting(self) -> int:
        """How many bytes of output wait for the peer to read."""
        return self._other_end.waiting

    def _go_on(self) -> None:
        """Hand out calls until one takes time, the peer does not read, or none is left."""
        if self._said_all or self._transport.is_closing():
            return
        if self._scheduled:
            self._read_on()
            return
        replies: list[bytes] = []
        size = turn = 0
        until = 0.0
        while self.task is None and self._writable.is_set():
            if turn:
                # Not the loop's time, which stands still during a turn.
                now = time.monotonic()
                until = until or now + TURN_SECONDS
                if turn == TURN or now > until:
                    self._scheduled = True
                    self._loop.call_soon(self._take_turn)
                    break
            turn += 1
            try:
                event = self._connection.next_event()
                if isinstance(event, Signal):
                    self._other_end.write(b"".join(replies))
                    self._rest(event)
                    return
                reply = self._answer(event)
            except RemoteProtocolError as error:
                _log.debug("closing the connection of process %d: %s", self.peer.pid, error)
                self._other_end.write(b"".join(replies))
                self._transport.close()
                return
            replies.append(reply)
            size += len(reply)
            if size >= _FLUSH_BYTES:
                self._other_end.write(b"".join(replies))
                replies.clear()
                size = 0
        self._other_end.write(b"".join(replies))
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
            if type(answer) is Lasting:
                return self._answer_lastingly(answer)
        except CallError as error:
            return self._refuse(call.method, error)
        except Exception:  # noqa: BLE001 - whatever it is, it must not reach the others
            self._fail(call.method)
            return b""
        self._tied = isinstance(answer, Tied)
        if isinstance(answer, Tied):
            answer = answer.stream
        self.streaming, self._spoken = isinstance(answer, AsyncIterator), False
        if self.streaming:
            self._host.stream_began(self)
        self.task = self._loop.create_task(self._work(call.method, cast("Answer", answer)))
        return b""

    def _answer_lastingly(self, answer: Lasting) -> bytes:
        call = self._connection.frame
        reply = self._connection.reply_encoded(answer.head + self._recall.tail)
        if reply:
            self._recall.learn(call, answer.subject)
        return reply

    async def _work(self, method: str, answer: Answer) -> None:
        """See an answer through that takes time, then go on with the next call."""
        try:
            last = await self._last_reply(answer)
        except CallError as error:
            last = self._refuse(method, error)
        except Exception:  # noqa: BLE001 - whatever it is, it must not reach the others
            self._fail(method)
            return
        finally:
            self.task = None
            if self.streaming:
                self.streaming = False
                self._host.stream_ended(self)
        self._other_end.write(last)
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
                    self._other_end.write(reply(item, continues=True))
                    self._spoken = True
                    if self._finishing or (self._tied and self._peer_ended):
                        break
                    await self._writable.wait()
            finally:
                await close(answer)
            return b""
        if not isinstance(answer, Iterator):
            raise TypeError(f"a method answered with {type(answer).__name__}")
        held = next(answer)
        for piece in answer:
            self._other_end.write(reply(held, continues=True))
            held = piece
            await asyncio.sleep(0)  # a turn for the others
            await self._writable.wait()
        return reply(held)

    def _refuse(self, method: str, error: CallError) -> bytes:
        if self._service.refused is not None:
            self._service.refused(method, error.name)
        call = self._connection.frame
        reply = self._connection.error(error.name, error.parameters)
        if error.lasting and reply:
            self._recall.learn_refusal(call, reply)
        return reply

    def _fail(self, method: str) -> None:
        _log.exception("answering %s failed: this is a bug; the connection is closed", method)
        # Not at once: the replies before it are still to be written.
        self._loop.call_soon(self._transport.close)

    def _half_close(self) -> None:
        """Say that nothing more comes, and listen for the peer to do the same."""
        self._said_all = True
        if self._peer_ended:
            self._transport.close()
        if self._transport.is_closing():
            return
        self._transport.write_eof()
        self.reading.wait_for_the_end()

    def _read_on(self) -> None:
        settled = self.reading.go_on() and self._writable.is_set()
        self._quiet = settled and not (self._finishing or self._peer_ended)
