"""The server: connections accepted on listening Unix sockets, each one conversation, and their end.

Sockets are accepted here rather than by the loop's own server, which would remove the socket's path
when it closes (Python 3.13), and spin where no descriptor is left. How a peer is answered is
conversation.py's business; what is answered is the service's.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import struct

from discoveryd.daemon.conversation import Conversation, Peer
from discoveryd.varlink import ServerConnection, Service

_ACCEPTS_PER_TURN = 64
_ACCEPT_PAUSE = 0.5
_WIND_UP = 0.2
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CREDENTIALS = struct.Struct("iII")

_log = logging.getLogger(__name__)


class Server:
    """Serves `service` on any number of listening sockets. Lives on the running loop.

    Limits: `frame_limit` bytes a call; `read_ahead_calls` and `read_ahead_bytes` of calls that wait
    for the one before them; `connection_limit` connections, further ones are closed at once; a
    peer that takes no output for `stall_seconds` while some is waiting loses its connection.
    """

    def __init__(  # noqa: PLR0913 - one a limit, all by keyword
        self,
        service: Service,
        *,
        frame_limit: int = 1024 * 1024,
        read_ahead_calls: int = 64,
        read_ahead_bytes: int = 256 * 1024,
        connection_limit: int = 4096,
        stall_seconds: float = 30.0,
    ) -> None:
        self._service = service
        self._frame_limit = frame_limit
        self._read_ahead_calls = read_ahead_calls
        self._read_ahead_bytes = read_ahead_bytes
        self._connection_limit = connection_limit
        self._stall_seconds = stall_seconds
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._arriving: set[asyncio.Task[None]] = set()
        self._conversations: set[Conversation] = set()
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._full = False
        self._tick = self._loop.call_later(stall_seconds / 10, self._look_after)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._conversations)

    @property
    def watchers(self) -> int:
        """How many of them are being sent a stream."""
        return sum(conversation.streaming for conversation in self._conversations)

    def serve(self, listening: socket.socket) -> None:
        """Accept on a listening, non-blocking Unix socket, which stays the caller's."""
        self._listening.append(listening)
        self._loop.add_reader(listening, self._accept, listening)

    async def close(self, grace: float) -> None:
        """Accept no more, answer every whole call that was read, end the streams, and half-close.

        Returns when all peers have ended their side too, or after `grace` seconds, when those that
        did not, and answers that took longer, are cut off. Afterwards the server is used up.
        """
        self._tick.cancel()
        for listening in self._listening:
            self._loop.remove_reader(listening)
        self._listening.clear()
        if self._arriving:
            await asyncio.wait(self._arriving)
        for conversation in tuple(self._conversations):
            conversation.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._nobody.wait()
        cut_off = [c.task for c in self._conversations if c.task is not None]
        for conversation in tuple(self._conversations):
            conversation.abort()
        await self._nobody.wait()
        if cut_off:
            await asyncio.wait(cut_off, timeout=_WIND_UP)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                connected, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause_accepting(listening, error)
                    return
                continue  # this peer left before it was accepted; the next may be there
            if len(self._conversations) >= self._connection_limit:
                connected.close()
                if not self._full:
                    _log.warning("all %d connections are taken", self._connection_limit)
                self._full = True
                continue
            self._full = False
            task = self._loop.create_task(self._begin(self._converse(connected), connected))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    def _pause_accepting(self, listening: socket.socket, error: OSError) -> None:
        """Leave those who knock waiting for a moment: the socket stays readable all the while."""
        _log.warning("cannot accept connections for now: %s", error.strerror)
        self._loop.remove_reader(listening)
        self._loop.call_later(_ACCEPT_PAUSE, self._resume_accepting, listening)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _converse(self, connected: socket.socket) -> Conversation:
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, gid = _CREDENTIALS.unpack(credentials)
        connection = ServerConnection(
            frame_limit=self._frame_limit,
            read_ahead_calls=self._read_ahead_calls,
            read_ahead_bytes=self._read_ahead_bytes,
        )
        conversation = Conversation(self._service, connection, Peer(uid, gid, pid), self._end)
        self._conversations.add(conversation)
        self._nobody.clear()
        return conversation

    async def _begin(self, conversation: Conversation, connected: socket.socket) -> None:
        connected.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(lambda: conversation, connected)
        except OSError as error:
            _log.debug("lost a connection before it began: %s", error)
            connected.close()
            self._end(conversation)

    def _end(self, conversation: Conversation) -> None:
        self._conversations.discard(conversation)
        if not self._conversations:
            self._nobody.set()

    def _look_after(self) -> None:
        now = self._loop.time()
        for conversation in tuple(self._conversations):
            if conversation.begun and conversation.look_after(now) >= self._stall_seconds:
                _log.warning(
                    "process %d (user %d) has read nothing for %.0f s: its connection is closed",
                    conversation.peer.pid,
                    conversation.peer.uid,
                    self._stall_seconds,
                )
                conversation.abort()
        self._tick = self._loop.call_later(self._stall_seconds / 10, self._look_after)
