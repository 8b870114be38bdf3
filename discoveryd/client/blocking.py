"""The blocking client: one method for each of the interface's, typed values back.

Theory
======

**One call at a time.** A `Client` keeps one connection, opened at the first call and kept for the
next ones. It is for one thread; threads have clients of their own. A call that is interrupted
(an exception, a signal) closes the connection, since its answer would be taken for the next one's.

**Ends.** A daemon that restarts ends the connection. Every method asked here changes nothing in the
daemon, so a call that got nothing of its answer is sent once more, over a new connection. An end in
the midst of an answer is `ConnectionLost`: what came before it may be of another daemon.

**Pieces.** The lists are called with `more`: the daemon answers in pieces, all of one revision, and
they are joined here.

**Latency.** A resolve is one send and one receive on a plain blocking socket, whose timeouts are
the kernel's; see `wire.py`.
"""

import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from discoveryd.client.errors import INTERFACE, BadReply, ConnectionLost, refusal
from discoveryd.client.locate import candidates, connect
from discoveryd.client.wire import Unanswered, Wire
from discoveryd.interface import (
    CheckReply,
    Cursor,
    Explanation,
    HistoryReply,
    NameList,
    Resolution,
    Status,
    SyncReply,
    WatchReply,
    WorkerList,
)
from discoveryd.varlink.errors import RemoteProtocolError
from discoveryd.varlink.messages import Reply

_RESOLVE = f"{INTERFACE}.Resolve"
_SILENCE_SECONDS = 60.0
"""A watched daemon says something every 20 seconds; after this long it is taken for stuck."""

_T = TypeVar("_T")
_resolution = msgspec.json.Decoder(Resolution)


class Client:
    """Asks the discoveryd at `socket`, or at the first default place that accepts.

    `timeout` bounds, in seconds, connecting and then each whole answer; None waits for ever.

    Every method may raise NoDaemon, Timeout, ConnectionLost, BadReply, and CallRefused for an
    error that the daemon answers; those that it is likely to answer are named at the method.
    """

    def __init__(self, socket: str | None = None, *, timeout: float | None = 10.0) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}, but must be more than 0 seconds")
        self._socket = socket
        self._timeout = timeout
        self._wire: Wire | None = None

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
        """Close the connection. The next call opens another."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def resolve(self, name: str) -> Resolution:
        """Return the accepting workers that serve `name`. Raises NoSuchModel."""
        (reply,) = self._ask(_RESOLVE, {"name": name})
        return _read(reply, _resolution)

    def list(self) -> NameList:
        """Return every served name."""
        pieces = self._ask_in_pieces("List", {}, NameList)
        names = tuple(name for piece in pieces for name in piece.names)
        return NameList(names=names, cursor=pieces[-1].cursor)

    def workers(self, name: str | None = None, namespace: str | None = None) -> WorkerList:
        """Return every served worker, draining ones included; or those of a name or namespace."""
        asked = _given(name=name, namespace=namespace)
        pieces = self._ask_in_pieces("ListWorkers", asked, WorkerList)
        workers = tuple(worker for piece in pieces for worker in piece.workers)
        return WorkerList(workers=workers, cursor=pieces[-1].cursor)

    def explain(self, file: str | None = None, name: str | None = None) -> Explanation:
        """Return the verdict on a file, or on all cards that ask for a name.

        Without arguments: on every card that is not serving its present content. Raises NoSuchFile.
        """
        pieces = self._ask_in_pieces("Explain", _given(file=file, name=name), Explanation)
        verdicts = tuple(verdict for piece in pieces for verdict in piece.verdicts)
        return Explanation(verdicts=verdicts, cursor=pieces[-1].cursor)

    def check(
        self, card: Mapping[str, object] | msgspec.Raw, file: str | None = None
    ) -> CheckReply:
        """Return what `card` would get as the next content of `file`, or of a new file.

        Nothing changes. A card that is Raw is a JSON object as text. Raises NoSuchFile.
        """
        asked: dict[str, object] = {"card": card, **_given(file=file)}
        (reply,) = self._ask(f"{INTERFACE}.Check", asked)
        return _read(reply, msgspec.json.Decoder(CheckReply))

    def sync(self, *files: str) -> SyncReply:
        """Return when what is on disk now has been applied: of these files, or everything.

        Raises NoSuchFile.
        """
        (reply,) = self._ask(f"{INTERFACE}.Sync", _given(files=files or None))
        return _read(reply, msgspec.json.Decoder(SyncReply))

    def history(
        self, file: str | None = None, name: str | None = None, limit: int | None = None
    ) -> HistoryReply:
        """Return what became of a file, of all cards that asked for a name, or of all cards.

        The latest comes first; at most `limit` events, 100 where that is None.
        """
        (reply,) = self._ask(f"{INTERFACE}.History", _given(file=file, name=name, limit=limit))
        return _read(reply, msgspec.json.Decoder(HistoryReply))

    def status(self) -> Status:
        """Return how the daemon is."""
        (reply,) = self._ask(f"{INTERFACE}.GetStatus", {})
        return _read(reply, msgspec.json.Decoder(Status))

    def watch(
        self, since: Cursor | None = None, name: str | None = None
    ) -> Generator[WatchReply, None, None]:
        """Yield the difference since the cursor, or the whole present state; then every change.

        Heartbeats are yielded too. It has a connection of its own, from the first `next` until the
        generator is closed. It ends by an exception only: ConnectionLost where the daemon stops,
        from where another watch may go on with the last cursor; Timeout where it falls silent.
        """
        with self._open() as wire:
            wire.send(f"{INTERFACE}.Watch", _given(since=since, name=name), more=True)
            patience = self._timeout
            decoder = msgspec.json.Decoder(WatchReply)
            while True:
                reply = wire.receive(_deadline(patience))
                yield _read(reply, decoder)
                if not reply.continues:
                    raise ConnectionLost("the daemon ended the watch")
                patience = None if patience is None else max(patience, _SILENCE_SECONDS)

    def _ask_in_pieces(
        self, method: str, parameters: Mapping[str, object], kind: type[_T]
    ) -> Sequence[_T]:
        decoder = msgspec.json.Decoder(kind)
        replies = self._ask(f"{INTERFACE}.{method}", parameters, more=True)
        return [_read(reply, decoder) for reply in replies]

    def _ask(
        self, method: str, parameters: Mapping[str, object], *, more: bool = False
    ) -> Sequence[Reply]:
        """Return all replies to a call, which is sent again where nothing of them came."""
        try:
            try:
                return self._ask_once(method, parameters, more)
            except Unanswered:
                self.close()
                return self._ask_once(method, parameters, more)
        except BaseException:
            # What is left of the answer must not be taken for the next one's.
            self.close()
            raise

    def _ask_once(
        self, method: str, parameters: Mapping[str, object], more: bool
    ) -> Sequence[Reply]:
        wire = self._wire
        if wire is None:
            wire = self._wire = self._open()
        wire.send(method, parameters, more=more)
        deadline = _deadline(self._timeout)
        replies = [wire.receive(deadline)]
        while replies[-1].continues:
            replies.append(wire.receive(deadline))
        return replies

    def _open(self) -> Wire:
        places = candidates(self._socket, os.environ, os.getuid())
        connection, path = connect(places, self._timeout)
        return Wire(connection, path, self._timeout)


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _given(**parameters: Cursor | str | int | Iterable[str] | None) -> dict[str, object]:
    """Return the parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}


def _read(reply: Reply, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Return the reply's members as a value, or raise the error that it is."""
    try:
        if reply.error is None:
            return decoder.decode(reply.parameters)
        failure = reply.failure()
    except (msgspec.DecodeError, RemoteProtocolError) as fault:
        raise BadReply(f"an answer is not as the interface says: {fault}") from None
    raise refusal(reply.error, failure.parameters if failure is not None else {})
