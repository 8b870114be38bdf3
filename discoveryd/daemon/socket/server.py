"""The server: connections accepted on listening Unix sockets, each one conversation, and their end.

Sockets are accepted here rather than by the loop's own server, which would remove the socket's path
when it closes (Python 3.13), and spin where no descriptor is left. How a peer is answered is
conversation.py's business; what is answered is the service's.

All limits end here. Who exceeds one of its own only suffers itself; where all peers together exceed
one, those suffer who contribute most and move least (crowd.py: how many; pressure.py: what they
send). What waits for them to read has no gate, since an answer's size is known only once it is
made; it is looked at every few seconds, and if it is too much, connections of which nothing is read
are ended then instead of after `stall_seconds`, the longest stalled first.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import struct

from discoveryd.core.parsing.document import MAX_BYTES
from discoveryd.daemon.socket.answering import Peer
from discoveryd.daemon.socket.conversation import Conversation
from discoveryd.daemon.socket.crowd import Crowd
from discoveryd.daemon.socket.pressure import Intake
from discoveryd.daemon.socket.reading import Reading
from discoveryd.varlink import ServerConnection, Service

FRAME_LIMIT = MAX_BYTES + 64 * 1024
"""The largest card in a call of Check: its envelope and its file's name are the rest."""

USER_CONNECTIONS = 1024
"""How many connections one user may have where several users may connect."""

_ACCEPTS_PER_TURN = 64
_ACCEPT_PAUSE = 0.5
_WIND_UP = 0.2
_FIRST_WORD = 0.1
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CREDENTIALS = struct.Struct("iII")
_LOOKS = 10
_RESERVED_FILES = 256
_SAID_AGAIN = 60.0
_NAMED_AT_ONCE = 5

_log = logging.getLogger(__name__)


class Server:
    """Serves `service` on any number of listening sockets. Lives on the running loop.

    Limits of one connection: `frame_limit` bytes a call; `read_ahead_calls` and `read_ahead_bytes`
    of calls that wait for the one before them; a peer that takes no output for `stall_seconds`
    while some is waiting loses its connection.

    Limits of all together: `connection_limit` connections, as many streams again, and of both
    together what the process may open less a reserve, further ones are closed at once;
    `user_connection_limit` of each kind of one user, where it is given; `input_limit` bytes of
    calls that are not answered, those who hold most are not read beyond; `output_limit` bytes that
    wait for peers to read.
    """

    def __init__(  # noqa: PLR0913 - one a limit, all by keyword
        self,
        service: Service,
        *,
        frame_limit: int = FRAME_LIMIT,
        read_ahead_calls: int = 64,
        read_ahead_bytes: int = 256 * 1024,
        connection_limit: int = 4096,
        user_connection_limit: int | None = None,
        input_limit: int = 64 * 1024 * 1024,
        output_limit: int = 256 * 1024 * 1024,
        stall_seconds: float = 30.0,
    ) -> None:
        self.intake = Intake(
            limit=input_limit, share=input_limit // connection_limit, squeeze=self._squeeze
        )
        self._service = service
        self._frame_limit = frame_limit
        self._read_ahead_calls = read_ahead_calls
        self._read_ahead_bytes = read_ahead_bytes
        self._output_limit = output_limit
        self._stall_seconds = stall_seconds
        self._crowd = Crowd(
            limit=connection_limit,
            user_limit=user_connection_limit,
            total_limit=min(2 * connection_limit, _files_to_spare()),
        )
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._arriving: set[asyncio.Task[None]] = set()
        self._conversations: set[Conversation] = set()
        self._apart: set[Conversation] = set()
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._closing = False
        self._said: dict[str, float] = {}
        self._tick = self._loop.call_later(stall_seconds / _LOOKS, self._look_after)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._conversations)

    @property
    def watchers(self) -> int:
        """How many of them are being sent a stream."""
        return sum(conversation.streaming for conversation in self._conversations)

    def serve(self, listening: socket.socket) -> None:
        """Accept on a listening, non-blocking Unix socket, which stays the caller's.

        Once `close` was called nothing is accepted any more, here neither.
        """
        if not self._closing:
            self._listening.append(listening)
            self._loop.add_reader(listening, self._accept, listening)

    def leave(self, listening: socket.socket) -> None:
        """Accept who has knocked at this socket already, and no more; the caller may close it."""
        if listening in self._listening:
            while self._accept_one(listening):
                pass
            self._listening.remove(listening)
            self._loop.remove_reader(listening)

    async def close(self, grace: float) -> None:
        """Accept no more, answer every whole call that was read, end the streams, and half-close.

        Who has connected and said nothing yet has a moment to ask before that.
        Returns when all peers have ended their side too, or after `grace` seconds, when those that
        did not, and answers that took longer, are cut off. Afterwards the server is used up.
        """
        self._closing = True
        self._tick.cancel()
        for listening in self._listening:
            self._loop.remove_reader(listening)
        self._listening.clear()
        if self._arriving:
            await asyncio.wait(self._arriving)
        if not all(conversation.heard for conversation in self._conversations):
            # Who connects to ask once asks at once, and would take an end for a refusal.
            await asyncio.sleep(min(_FIRST_WORD, grace))
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

    # What the conversations tell

    def stream_began(self, conversation: Conversation) -> None:
        """Count it apart, if there is room."""
        if self._crowd.set_apart(conversation.peer.uid):
            self._apart.add(conversation)

    def stream_ended(self, conversation: Conversation) -> None:
        """Count it with the rest again."""
        if conversation in self._apart:
            self._apart.remove(conversation)
            self._crowd.take_back(conversation.peer.uid)

    def ended(self, conversation: Conversation) -> None:
        """Count it no more."""
        self._crowd.leave(conversation.peer.uid, apart=conversation in self._apart)
        self._apart.discard(conversation)
        self._conversations.discard(conversation)
        if not self._conversations:
            self._nobody.set()

    # Arrivals

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._accept_one(listening):
                return

    def _accept_one(self, listening: socket.socket) -> bool:
        """Accept one connection, or refuse it; return False if there is none to accept."""
        try:
            connected, _ = listening.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._pause_accepting(listening, error)
                return False
            return True  # this peer left before it was accepted; the next may be there
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, gid = _CREDENTIALS.unpack(credentials)
        refusal = self._crowd.refusal(uid)
        if refusal is not None:
            connected.close()
            self._say_seldom("refusal", "connections are closed at once: %s", refusal)
            return True
        conversation = self._converse(Peer(uid, gid, pid))
        task = self._loop.create_task(self._begin(conversation, connected))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)
        return True

    def _pause_accepting(self, listening: socket.socket, error: OSError) -> None:
        """Leave those who knock waiting for a moment: the socket stays readable all the while."""
        fault = error.strerror or str(error)
        self._say_seldom("exhausted", "cannot accept connections for now: %s", fault)
        self._loop.remove_reader(listening)
        self._loop.call_later(_ACCEPT_PAUSE, self._resume_accepting, listening)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _converse(self, peer: Peer) -> Conversation:
        connection = ServerConnection(
            frame_limit=self._frame_limit,
            read_ahead_calls=self._read_ahead_calls,
            read_ahead_bytes=self._read_ahead_bytes,
        )
        conversation = Conversation(self._service, connection, peer, self)
        self._crowd.enter(peer.uid)
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
            self.ended(conversation)

    # The slow

    def _squeeze(self, tight: bool) -> None:
        for conversation in self._conversations:
            conversation.reading.squeeze(tight=tight)

    def _look_after(self) -> None:
        now = self._loop.time()
        stalled: list[tuple[float, int, Conversation]] = []
        waiting = 0
        for conversation in tuple(self._conversations):
            if conversation.begun:
                seconds = conversation.look_after(now)
                waiting += conversation.waiting
                if seconds:
                    stalled.append((seconds, conversation.waiting, conversation))
        stalled.sort(key=lambda entry: entry[:2], reverse=True)
        ended: list[Conversation] = []
        for seconds, size, conversation in stalled:
            if seconds >= self._stall_seconds or waiting > self._output_limit:
                waiting -= size
                ended.append(conversation)
        self._end(ended, "has read nothing for too long")
        late = [
            conversation
            for conversation in self._conversations.intersection(
                source.protocol
                for source in self.intake.overdue(now, self._stall_seconds)
                if isinstance(source, Reading)
            )
            # Who waits for an answer is not in the way: it is coming.
            if not conversation.answering
        ]
        self._end(late, "keeps too much unfinished")
        self._tick = self._loop.call_later(self._stall_seconds / _LOOKS, self._look_after)

    def _end(self, conversations: list[Conversation], why: str) -> None:
        for conversation in conversations:
            conversation.abort()
        for conversation in conversations[:_NAMED_AT_ONCE]:
            peer = conversation.peer
            _log.warning(
                "process %d (user %d) %s: its connection is closed", peer.pid, peer.uid, why
            )
        if len(conversations) > _NAMED_AT_ONCE:
            _log.warning("%d connections more, likewise", len(conversations) - _NAMED_AT_ONCE)

    def _say_seldom(self, kind: str, message: str, what: str) -> None:
        """Log what may happen a thousand times a second, at most once a minute."""
        now = self._loop.time()
        if now - self._said.get(kind, -_SAID_AGAIN) >= _SAID_AGAIN:
            self._said[kind] = now
            _log.warning(message, what)


def _files_to_spare() -> int:
    """Return how many descriptors connections may use: the rest has files to watch and read."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(soft - _RESERVED_FILES, soft // 2)
