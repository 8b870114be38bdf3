"""Every call that the interface knows: its method, its parameters, and what is made of the replies.

Both clients send these and wait in their own way; nothing here waits, connects or keeps anything.

**Pieces.** The lists are called with `more`: the daemon answers in pieces, all of one revision, and
they are joined here. The streams (Watch, Hold) are called with `more` too, and each of their
replies is a value of its own.

**Again.** All calls that have one answer may be sent twice: they change nothing in the daemon, or,
as Reload does, nothing more the second time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

import msgspec

from discoveryd.client.errors import INTERFACE, BadReply, refusal
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
from discoveryd.varlink.errors import RemoteProtocolError
from discoveryd.varlink.messages import Reply

SILENCE_SECONDS = 60.0
"""A watched daemon says something every 20 seconds; after this long it is taken for stuck."""

T = TypeVar("T")


class Method(Generic[T]):
    """One method: its `name`, qualified, and the type of its replies.

    `more` is set on its calls where it answers in pieces, which `joined` makes one of, or streams.
    """

    __slots__ = ("_decoder", "_joined", "more", "name")

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        joined: Callable[[Sequence[T]], T] | None = None,
        stream: bool = False,
    ) -> None:
        self.name = f"{INTERFACE}.{name}"
        self.more = stream or joined is not None
        self._decoder = msgspec.json.Decoder(kind)
        self._joined = joined

    def read(self, reply: Reply) -> T:
        """Return what one reply says.

        Raises CallRefused for an error of the daemon's, BadReply for what the interface does not
        allow.
        """
        try:
            if reply.error is None:
                return self._decoder.decode(reply.parameters)
            failure = reply.failure()
        except (msgspec.DecodeError, RemoteProtocolError) as fault:
            raise BadReply(f"an answer is not as the interface says: {fault}") from None
        raise refusal(reply.error, failure.parameters if failure is not None else {})

    def read_all(self, replies: Sequence[Reply]) -> T:
        """Return what all replies to one call say together. Raises as `read` does."""
        if self._joined is None:
            return self.read(replies[-1])
        return self._joined([self.read(reply) for reply in replies])


class Call(msgspec.Struct, Generic[T], gc=False):
    """One call, to be sent: a method and its parameters."""

    method: Method[T]
    parameters: Mapping[str, object]


def _names(pieces: Sequence[NameList]) -> NameList:
    names = tuple(chain.from_iterable(piece.names for piece in pieces))
    return NameList(names=names, cursor=pieces[-1].cursor)


def _workers(pieces: Sequence[WorkerList]) -> WorkerList:
    workers = tuple(chain.from_iterable(piece.workers for piece in pieces))
    return WorkerList(workers=workers, cursor=pieces[-1].cursor)


def _verdicts(pieces: Sequence[Explanation]) -> Explanation:
    verdicts = tuple(chain.from_iterable(piece.verdicts for piece in pieces))
    return Explanation(verdicts=verdicts, cursor=pieces[-1].cursor)


_RESOLVE = Method("Resolve", Resolution)
_LIST = Method("List", NameList, joined=_names)
_LIST_WORKERS = Method("ListWorkers", WorkerList, joined=_workers)
_EXPLAIN = Method("Explain", Explanation, joined=_verdicts)
_CHECK = Method("Check", CheckReply)
_SYNC = Method("Sync", SyncReply)
_HISTORY = Method("History", HistoryReply)
_RELOAD = Method("Reload", ReloadReply)
_GET_STATUS = Method("GetStatus", Status)
_WATCH = Method("Watch", WatchReply, stream=True)
_HOLD = Method("Hold", HoldReply, stream=True)


def resolve(name: str) -> Call[Resolution]:
    """Return the call for the accepting workers that serve `name`."""
    return Call(_RESOLVE, {"name": name})


def list_names() -> Call[NameList]:
    """Return the call for every served name."""
    return Call(_LIST, {})


def list_workers(name: str | None, namespace: str | None) -> Call[WorkerList]:
    """Return the call for the served workers: all, or of a name or namespace."""
    return Call(_LIST_WORKERS, _given(name=name, namespace=namespace))


def explain(file: str | None, name: str | None) -> Call[Explanation]:
    """Return the call for verdicts: on a file, a name's cards, or all that wait."""
    return Call(_EXPLAIN, _given(file=file, name=name))


def check(card: Mapping[str, object] | msgspec.Raw, file: str | None) -> Call[CheckReply]:
    """Return the call for what a card would get."""
    return Call(_CHECK, {"card": card, **_given(file=file)})


def sync(files: Sequence[str]) -> Call[SyncReply]:
    """Return the call that is answered when these files, or with none all, have been applied."""
    return Call(_SYNC, _given(files=files or None))


def history(file: str | None, name: str | None, limit: int | None) -> Call[HistoryReply]:
    """Return the call for what became of cards."""
    return Call(_HISTORY, _given(file=file, name=name, limit=limit))


def reload() -> Call[ReloadReply]:
    """Return the call that makes the daemon read its configuration again."""
    return Call(_RELOAD, {})


def status() -> Call[Status]:
    """Return the call for how the daemon is."""
    return Call(_GET_STATUS, {})


def watch(since: Cursor | None, name: str | None) -> Call[WatchReply]:
    """Return the call for the stream of changes."""
    return Call(_WATCH, _given(since=since, name=name))


def hold(files: Sequence[str]) -> Call[HoldReply]:
    """Return the call for the stream of verdicts on files that it keeps alive."""
    return Call(_HOLD, {"files": files})


def _given(**parameters: Cursor | str | int | Iterable[str] | None) -> dict[str, object]:
    """Return the parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}
