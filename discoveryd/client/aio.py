"""The async client: the blocking one's methods, awaited, on asyncio and trio.

Theory
======

**Turns.** An `AsyncClient` keeps one connection, as the blocking client does, and any number of
tasks may use it at once: their calls take turns, in the order in which they were made. The daemon
answers one call of a connection after another anyway, so sending ahead would save only the way
between; and a call in flight that belongs to nobody any more, because its task was cancelled, would
have to be waited for by somebody else. So a call that is cancelled on its turn closes the
connection, and the next call opens another; one that is cancelled before costs nothing. Who wants
answers without waiting for those of others has several clients, or the live view (`view.py`).

**One deadline**, set when the call is made: waiting for its turn is part of it, like connecting and
sending again. What may be sent again, and when, is as in the blocking client.

**Streams** have a connection each, closed with the generator. Close it: `aclosing(client.watch())`;
one that is merely dropped is closed when the loop gets round to it. Cancel scopes are never open
across a `yield`.
"""

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import anyio
import msgspec

from discoveryd.client.asking import calls
from discoveryd.client.asking.aio_wire import AsyncWire, open_wire
from discoveryd.client.asking.calls import SILENCE_SECONDS, Call, T
from discoveryd.client.errors import ConnectionLost, Timeout, Unanswered
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

_Result = TypeVar("_Result")


class AsyncClient:
    """Asks the discoveryd at `socket`, or at the first default place that accepts.

    `timeout` bounds each call, in seconds, waiting for its turn and connecting included; None waits
    for ever. The methods promise what those of `Client` do, and raise the same.
    """

    def __init__(self, socket: str | None = None, *, timeout: float | None = 10.0) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}, but must be more than 0 seconds")
        self._socket = socket
        self._timeout = timeout
        self._wire: AsyncWire | None = None
        self._turn = anyio.Lock(fast_acquire=True)
        self._closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; at the end of the call that another task is making, if one is.

        The next call opens another.
        """
        if self._turn.locked():
            self._closing = True
        else:
            self._drop()

    async def resolve(self, name: str) -> Resolution:
        """Return the accepting workers that serve `name`. Raises NoSuchModel."""
        return await self._ask(calls.resolve(name))

    async def list(self) -> NameList:
        """Return every served name."""
        return await self._ask(calls.list_names())

    async def workers(self, name: str | None = None, namespace: str | None = None) -> WorkerList:
        """Return every served worker, draining ones included; or those of a name or namespace."""
        return await self._ask(calls.list_workers(name, namespace))

    async def explain(self, file: str | None = None, name: str | None = None) -> Explanation:
        """Return the verdict on a file, or on all cards that ask for a name.

        Without arguments: on every card that is not serving its present content. Raises NoSuchFile,
        and NoSuchModel where no card asks for the name.
        """
        return await self._ask(calls.explain(file, name))

    async def check(
        self, card: Mapping[str, object] | msgspec.Raw, file: str | None = None
    ) -> CheckReply:
        """Return what `card` would get as the next content of `file`, or of a new file.

        Nothing changes. A card that is Raw is a JSON object as text. Raises NoSuchFile.
        """
        return await self._ask(calls.check(card, file))

    async def sync(self, *files: str) -> SyncReply:
        """Return when what is on disk now has been applied: of these files, or everything.

        Raises NoSuchFile.
        """
        return await self._ask(calls.sync(files))

    async def history(
        self, file: str | None = None, name: str | None = None, limit: int | None = None
    ) -> HistoryReply:
        """Return what became of a file, of all cards that asked for a name, or of all cards.

        The latest comes first; at most `limit` events, 100 where that is None.
        """
        return await self._ask(calls.history(file, name, limit))

    async def reload(self) -> ReloadReply:
        """Let the daemon read its configuration again; return what that changed.

        CallRefused with PermissionDenied, unless the caller is root or the daemon's own user.
        """
        return await self._ask(calls.reload())

    async def status(self) -> Status:
        """Return how the daemon is."""
        return await self._ask(calls.status())

    def watch(
        self, since: Cursor | None = None, name: str | None = None
    ) -> AsyncGenerator[WatchReply, None]:
        """Yield the difference since the cursor, or the whole present state; then every change.

        Heartbeats are yielded too. It has a connection of its own, from the first reply until the
        generator is closed. It ends by an exception only: ConnectionLost where the daemon stops,
        from where another watch may go on with the last cursor; Timeout where it falls silent.
        """
        silence = None if self._timeout is None else max(self._timeout, SILENCE_SECONDS)
        return self._stream(calls.watch(since, name), silence)

    def hold(self, *files: str) -> AsyncGenerator[HoldReply, None]:
        """Keep card files alive, and yield the verdicts on them: at once, then at every change.

        The files are held from the first reply until the generator is closed. It has a connection
        of its own, and ends by an exception only: ConnectionLost where the daemon stops, which
        leaves 5 seconds from its next start to hold them again. CallRefused with PermissionDenied
        for files of others.
        """
        return self._stream(calls.hold(files), None)

    async def _stream(self, call: Call[T], silence: float | None) -> AsyncGenerator[T, None]:
        """Yield replies; the first within the timeout, each other within `silence` seconds."""
        wire, reply = await self._within(self._timeout, self._begin(call))
        with wire:
            while True:
                yield call.method.read(reply)
                if not reply.continues:
                    raise ConnectionLost("the daemon ended the stream")
                reply = await self._within(silence, wire.receive())

    async def _begin(self, call: Call[T]) -> tuple[AsyncWire, Reply]:
        """Return a connection on which a stream has begun, and its first reply."""
        wire = await open_wire(self._socket)
        try:
            await wire.send(call)
            return wire, await wire.receive()
        except BaseException:
            wire.close()
            raise

    async def _ask(self, call: Call[T]) -> T:
        """Return the answer to a call, which is sent again where nothing of it came."""
        replies = await self._within(self._timeout, self._ask_in_turn(call))
        return call.method.read_all(replies)

    async def _ask_in_turn(self, call: Call[T]) -> Sequence[Reply]:
        async with self._turn:
            try:
                try:
                    return await self._ask_once(call)
                except Unanswered:
                    self._drop()
                    return await self._ask_once(call)
            except BaseException:
                # What is left of the answer must not be taken for the next one's.
                self._closing = True
                raise
            finally:
                if self._closing:
                    self._drop()

    async def _ask_once(self, call: Call[T]) -> Sequence[Reply]:
        wire = self._wire
        if wire is None:
            wire = self._wire = await open_wire(self._socket)
        await wire.send(call)
        replies = [await wire.receive()]
        while replies[-1].continues:
            replies.append(await wire.receive())
        return replies

    def _drop(self) -> None:
        self._closing = False
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def _within(self, seconds: float | None, waiting: Awaitable[_Result]) -> _Result:
        """Return what is waited for. Raises Timeout where it does not come in time."""
        with anyio.move_on_after(seconds):
            return await waiting
        place = self._socket or "the daemon"
        raise Timeout(f"{place} did not answer in time")
