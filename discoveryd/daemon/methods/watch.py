"""The Watch stream: what changed since a revision, said whenever the reader can take it.

Theory
======

A watcher holds a revision, not a queue. When its connection can be written, it is told the
difference between the revision it was told last and the present one, however many lie between; so a
slow reader is told less often, never the wrong thing, and costs nothing meanwhile. The difference
comes from the history and is made of present values only.

Who goes from the same revision to the same one is told the same. Most watchers of everything do, so
the bytes are made once and kept until the next revision (the writer has them).

A watcher of one name holds the keys it was told of besides, because whether a worker answers the
name is not in the history: what it was told and does not answer any more is removed.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain, islice

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Served
from discoveryd.core.card import Key
from discoveryd.core.history import Cursor
from discoveryd.daemon.methods import replies
from discoveryd.daemon.writer import Writer
from discoveryd.interface import Name

HEARTBEAT_SECONDS = 20.0

KEPT_BYTES = 64 * 1024
"""The largest reply that is kept for others."""

MOST_KEPT = 32
"""How many are kept: from how many revisions watchers come to the present one."""


async def watch(
    writer: Writer, since: Cursor | None, name: str | None, heartbeat: float = HEARTBEAT_SECONDS
) -> AsyncIterator[bytes]:
    """Yield replies for ever: the difference since the cursor, then what changes.

    With `name`, only of that name and its workers. An empty reply is sent after `heartbeat`
    seconds of silence.
    """
    teller = _Everything(writer) if name is None else _OneName(writer.answers, name)
    at = since
    first = True
    while True:
        now = writer.answers.cursor
        if first or at != now:
            for piece in teller.tell(at, first=first):
                yield piece
            first, at = False, now
            if writer.answers.cursor != now:
                continue
        if not await writer.wait_published(heartbeat):
            yield _reply(writer.answers.cursor)


class _Everything:
    """Tells of all workers and names."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._answers = writer.answers

    def tell(self, since: Cursor | None, *, first: bool) -> Iterator[bytes]:
        if first:
            return self._difference(since, first=True)
        kept, way = self._writer.differences, (since, self._answers.cursor)
        known = kept.get(way)
        if known is not None:
            return iter(known)
        pieces = self._difference(since, first=False)
        begun = list(islice(pieces, 2))
        if len(begun) < 2 and sum(map(len, begun)) <= KEPT_BYTES and len(kept) < MOST_KEPT:  # noqa: PLR2004  # the whole
            kept[way] = begun
        return chain(begun, pieces)

    def _difference(self, since: Cursor | None, *, first: bool) -> Iterator[bytes]:
        answers = self._answers
        difference = answers.history.since(since)
        if difference.reset:
            yield from _pieces(
                answers.cursor,
                reset=True,
                changed=list(answers.workers.values()),
                removed=(),
                names=[replies.name(line) for line in answers.lines()],
                gone=(),
            )
            return
        if not (first or difference.keys or difference.names):
            return
        changed = [answers.workers[key] for key in difference.keys if key in answers.workers]
        lines = [(name, answers.line(name)) for name in difference.names]
        yield from _pieces(
            answers.cursor,
            reset=False,
            changed=sorted(changed, key=lambda served: served.admission),
            removed=[str(key) for key in difference.keys if key not in answers.workers],
            names=[replies.name(line) for _, line in lines if line is not None],
            gone=[name for name, line in lines if line is None],
        )


class _OneName:
    """Tells of one name and the workers that answer it."""

    def __init__(self, answers: Answers, name: str) -> None:
        self._answers = answers
        self._name = name
        self._told: set[Key] = set()

    def tell(self, since: Cursor | None, *, first: bool) -> Iterator[bytes]:
        answers = self._answers
        difference = answers.history.since(since)
        found = answers.resolve(self._name)
        members = {} if found is None else found[0].members
        touched = members.keys() if difference.reset else set(difference.keys)
        news = (touched | (members.keys() - self._told)) if not first else touched
        changed = [served for key, served in members.items() if key in news]
        left = (touched if first and not difference.reset else self._told) - members.keys()
        line = answers.line(self._name)
        spoken = difference.reset or self._name in difference.names
        self._told = set(members)
        if not (first or changed or left or spoken):
            return
        yield from _pieces(
            answers.cursor,
            reset=difference.reset,
            changed=changed,
            removed=sorted(map(str, left)),
            names=[replies.name(line)] if spoken and line is not None else [],
            gone=[self._name] if spoken and line is None and not difference.reset else [],
        )


def _pieces(  # noqa: PLR0913  # one a member of the reply
    at: Cursor,
    *,
    reset: bool,
    changed: Iterable[Served],
    removed: Iterable[str],
    names: Iterable[Name],
    gone: Iterable[str],
) -> Iterator[bytes]:
    """Yield one difference as replies of about `PIECE_BYTES` at most, all but the last partial."""
    held: dict[str, list[bytes]] = {}
    size = 0
    items = (
        *(("changed", replies.encode(replies.worker(served))) for served in changed),
        *(("removed", replies.encode(key)) for key in removed),
        *(("names", replies.encode(name)) for name in names),
        *(("gone", replies.encode(name)) for name in gone),
    )
    for member, encoded in items:
        if held and size + len(encoded) > replies.PIECE_BYTES:
            yield _reply(at, reset=reset, partial=True, held=held)
            held, size, reset = {}, 0, False
        held.setdefault(member, []).append(encoded)
        size += len(encoded) + 1
    yield _reply(at, reset=reset, held=held)


def _reply(
    at: Cursor,
    *,
    reset: bool = False,
    partial: bool = False,
    held: dict[str, list[bytes]] | None = None,
) -> bytes:
    lists = b"".join(
        b',"' + member.encode() + b'":[' + b",".join((held or {}).get(member, ())) + b"]"
        for member in ("changed", "removed", "names", "gone")
    )
    flags = b'{"reset":' + replies.encode(reset) + b',"partial":' + replies.encode(partial)
    return flags + lists + replies.tail(at)
