"""Long answers: what is listed, made in slices.

Theory
======

A list of 100,000 names takes a quarter of a second to make, and everybody else would wait so long.
So what is more than a slice is made slice by slice, with a turn of the loop for the others in
between. But a list is that of one revision, the one its cursor names: where another is published
meanwhile, what was made is thrown away. After so many attempts the list is made in one go, since
whoever asks must get an answer also where something changes all the time.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice

import anyio.lowlevel
import msgspec

from discoveryd import interface
from discoveryd.core.batch import Served
from discoveryd.core.verdict import Verdict
from discoveryd.daemon.methods import replies
from discoveryd.daemon.methods.parameters import ListWorkers, Nothing
from discoveryd.daemon.socket.answering import Peer
from discoveryd.daemon.writer import Writer

WHOLE_BYTES = 16 * 1024 * 1024
"""The most that an answer to a call without `more` may hold."""

SLICE = 256
ATTEMPTS = 3

Whole = bytes | Iterator[bytes]


class Lists:
    """Lists what a writer's answers say."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def names(self, _asked: Nothing, _peer: Peer, more: bool) -> Whole | Awaitable[Whole]:
        """Return every served name."""
        return self._listed("names", self._lines, more=more)

    def workers(self, asked: ListWorkers, _peer: Peer, more: bool) -> Whole | Awaitable[Whole]:
        """Return the served workers; of one name or namespace where asked, maybe none."""
        return self._listed("workers", lambda: self._members(asked), more=more)

    def whole(self, member: str, items: Sequence[msgspec.Struct], *, more: bool) -> Whole:
        """Return all items, of the present revision, in one reply or in several."""
        at = self._writer.answers.cursor
        if more:
            return replies.pieces(member, items, at)
        return replies.whole(member, items, at, WHOLE_BYTES)

    def _lines(self) -> Iterator[msgspec.Struct]:
        return map(replies.name, self._writer.answers.lines())

    def _members(self, asked: ListWorkers) -> Iterator[msgspec.Struct]:
        answers = self._writer.answers
        members: Iterable[Served] = answers.workers.values()
        if asked.name is not None:
            found = answers.resolve(asked.name)
            members = () if found is None else found[0].members.values()
        for served in members:
            if asked.namespace in (None, served.card.key.namespace):
                yield replies.worker(served)

    def _listed(
        self, member: str, made: Callable[[], Iterator[msgspec.Struct]], *, more: bool
    ) -> Whole | Awaitable[Whole]:
        """Return what `made` yields at one revision: at once, unless it is more than a slice."""
        items = list(islice(made(), SLICE))
        if len(items) < SLICE:
            return self.whole(member, items, more=more)
        return self._listed_later(member, made, more=more)

    async def _listed_later(
        self, member: str, made: Callable[[], Iterator[msgspec.Struct]], *, more: bool
    ) -> Whole:
        answers = self._writer.answers
        for _ in range(ATTEMPTS):
            at, items = answers.cursor, made()
            listed: list[msgspec.Struct] = []
            while answers.cursor == at:
                part = list(islice(items, SLICE))
                listed += part
                if len(part) < SLICE:
                    return self.whole(member, listed, more=more)
                await anyio.lowlevel.checkpoint()
        return self.whole(member, list(made()), more=more)


async def gather(verdicts: Iterator[Verdict]) -> list[interface.Verdict]:
    """Work out many verdicts without keeping the loop from everything else."""
    gathered: list[interface.Verdict] = []
    for verdict in verdicts:
        gathered.append(replies.verdict(verdict))
        if len(gathered) % SLICE == 0:
            await anyio.lowlevel.checkpoint()
    return gathered
