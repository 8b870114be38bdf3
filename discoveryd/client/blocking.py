"""The blocking client: one method for each of the interface's, typed values back.

Theory
======

**One call at a time.** A connection is opened at the first call and kept for the next ones. A call
takes it out of those that are kept and puts it back when it has its whole answer, so threads may
share a `Client`: who finds none opens another, and nobody reads another's answer. A call that is
interrupted (an exception, a signal) closes its connection, since the rest of its answer would be
taken for the next one's. Processes have clients of their own: make them after forking.

**Ends.** A daemon that restarts ends the connection. Every method asked here may be asked twice
(see `calls.py`), so a call that got nothing of its answer is sent once more, over a new connection.
An end in the midst of an answer is `ConnectionLost`: what came before it may be of another daemon.

**One deadline.** What the caller waits for is the answer, however it comes about: the deadline is
set when the call is made, and connecting, sending, and all of that once more have to be done by it.

**Latency.** A resolve is one send and one receive on a plain blocking socket, whose timeouts are
the kernel's; see `wire.py`.
"""

import os
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from discoveryd.client.asking import calls
from discoveryd.client.asking.calls import SILENCE_SECONDS, Call, T
from discoveryd.client.asking.locate import candidates, connect
from discoveryd.client.asking.wire import Wire
from discoveryd.client.errors import ConnectionLost, Unanswered
from discoveryd.interface import (
    CheckReply,
    Cursor,
    Explanation,
    HistoryReply,
    HoldReply,
    NameList,
    ReloadReply,
    Resolution,
    Status,
    SyncReply,
    WatchReply,
    WorkerList,
)
from discoveryd.varlink.messages import Reply


class Client:
    """Asks the discoveryd at `socket`, or at the first default place that accepts.

    `timeout` bounds each call, in seconds, connecting included; None waits for ever. Threads may
    share it: there are as many connections as there were calls at once.

    Every method may raise NoDaemon, Timeout, ConnectionLost, BadReply, and CallRefused for an
    error that the daemon answers; those that it is likely to answer are named at the method.
    """

    def __init__(self, socket: str | None = None, *, timeout: float | None = 10.0) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}, but must be more than 0 seconds")
        self._socket = socket
        self._timeout = timeout
        self._kept: deque[Wire] = deque()

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
        """Close what no call is using at the moment. The next call opens a connection again."""
        with suppress(IndexError):
            while True:
                self._kept.pop().close()

    def resolve(self, name: str) -> Resolution:
        """Return the accepting workers that serve `name`. Raises NoSuchModel."""
        return self._ask(calls.resolve(name))

    def list(self) -> NameList:
        """Return every served name."""
        return self._ask(calls.list_names())

    def workers(self, name: str | None = None, namespace: str | None = None) -> WorkerList:
        """Return every served worker, draining ones included; or those of a name or namespace."""
        return self._ask(calls.list_workers(name, namespace))

    def explain(self, file: str | None = None, name: str | None = None) -> Explanation:
        """Return the verdict on a file, or on all cards that ask for a name.

        Without arguments: on every card that is not serving its present content. Raises NoSuchFile,
        and NoSuchModel where no card asks for the name.
        """
        return self._ask(calls.explain(file, name))

    def check(
        self, card: Mapping[str, object] | msgspec.Raw, file: str | None = None
    ) -> CheckReply:
        """Return what `card` would get as the next content of `file`, or of a new file.

        Nothing changes. A card that is Raw is a JSON object as text. Raises NoSuchFile.
        """
        return self._ask(calls.check(card, file))

    def sync(self, *files: str) -> SyncReply:
        """Return when what is on disk now has been applied: of these files, or everything.

        Raises NoSuchFile.
        """
        return self._ask(calls.sync(files))

    def history(
        self, file: str | None = None, name: str | None = None, limit: int | None = None
    ) -> HistoryReply:
        """Return what became of a file, of all cards that asked for a name, or of all cards.

        The latest comes first; at most `limit` events, 100 where that is None.
        """
        return self._ask(calls.history(file, name, limit))

    def reload(self) -> ReloadReply:
        """Let the daemon read its configuration again; return what that changed.

        CallRefused with PermissionDenied, unless the caller is root or the daemon's own user.
        """
        return self._ask(calls.reload())

    def status(self) -> Status:
        """Return how the daemon is."""
        return self._ask(calls.status())

    def watch(
        self, since: Cursor | None = None, name: str | None = None
    ) -> Generator[WatchReply, None, None]:
        """Yield the difference since the cursor, or the whole present state; then every change.

        Heartbeats are yielded too. It has a connection of its own, from the first `next` until the
        generator is closed. It ends by an exception only: ConnectionLost where the daemon stops,
        from where another watch may go on with the last cursor; Timeout where it falls silent.
        """
        silence = None if self._timeout is None else max(self._timeout, SILENCE_SECONDS)
        return self._stream(calls.watch(since, name), silence)

    def hold(self, *files: str) -> Generator[HoldReply, None, None]:
        """Keep card files alive, and yield the verdicts on them: at once, then at every change.

        The files are held from the first `next` until the generator is closed. It has a connection
        of its own, and ends by an exception only: ConnectionLost where the daemon stops, which
        leaves 5 seconds from its next start to hold them again. CallRefused with PermissionDenied
        for files of others.
        """
        return self._stream(calls.hold(files), None)

    def _stream(self, call: Call[T], silence: float | None) -> Generator[T, None, None]:
        """Yield replies; the first by the deadline, each other within `silence` seconds."""
        deadline = _deadline(self._timeout)
        with self._open(deadline) as wire:
            wire.send(call, deadline)
            while True:
                reply = wire.receive(deadline)
                yield call.method.read(reply)
                if not reply.continues:
                    raise ConnectionLost("the daemon ended the stream")
                deadline = _deadline(silence)

    def _ask(self, call: Call[T]) -> T:
        """Return the answer to a call, which is sent again where nothing of it came."""
        deadline = _deadline(self._timeout)
        try:
            replies = self._ask_over(self._kept_or_new(deadline), call, deadline)
        except Unanswered:
            # The others that are kept are of the daemon that has ended, too.
            self.close()
            replies = self._ask_over(self._open(deadline), call, deadline)
        return call.method.read_all(replies)

    def _ask_over(self, wire: Wire, call: Call[T], deadline: float | None) -> Sequence[Reply]:
        try:
            wire.send(call, deadline)
            replies = [wire.receive(deadline)]
            while replies[-1].continues:
                replies.append(wire.receive(deadline))
        except BaseException:
            # What is left of the answer must not be taken for the next one's.
            wire.close()
            raise
        self._kept.append(wire)
        return replies

    def _kept_or_new(self, deadline: float | None) -> Wire:
        # Asking first whether there is one would be two steps, between which a thread may take it.
        try:
            return self._kept.pop()
        except IndexError:
            return self._open(deadline)

    def _open(self, deadline: float | None) -> Wire:
        places = candidates(self._socket, os.environ, os.getuid())
        left = None if deadline is None else deadline - time.monotonic()
        return Wire(*connect(places, left))


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds
