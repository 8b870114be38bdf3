"""The interface's methods: parameters in, questions to the answers and the registry, replies out.

No I/O, so that it is tested without sockets or files: what reaches the disk is asked of `Disk`.
What a method may return is agreed in answering.py.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from itertools import chain
from typing import Protocol

from discoveryd import __version__, interface
from discoveryd.core.answer import Answer
from discoveryd.core.batch import Invalid, Sighting
from discoveryd.core.card import Card, InvalidCard, Key
from discoveryd.core.history import Cursor
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.registry import Registry
from discoveryd.core.text import path_bytes
from discoveryd.core.verdict import Verdict
from discoveryd.daemon.http.calls import Calls, Tally
from discoveryd.daemon.life.holds import Holds, Keeper
from discoveryd.daemon.methods import replies
from discoveryd.daemon.methods.lists import WHOLE_BYTES, Lists, gather
from discoveryd.daemon.methods.parameters import (
    Check,
    Explain,
    History,
    Hold,
    ListWorkers,
    Nothing,
    Resolve,
    Sync,
    Watch,
)
from discoveryd.daemon.methods.upkeep import Steward, Upkeep
from discoveryd.daemon.methods.watch import watch
from discoveryd.daemon.socket.answering import Lasting, Peer, Tied
from discoveryd.daemon.socket.turns import Turns
from discoveryd.daemon.writer import Writer
from discoveryd.varlink import CallError, InvalidParameter, Method, Service
from discoveryd.varlink.messages import REPLY_HEAD

NAME = "io.discoveryd.Models"

_RESOLVE = f"{NAME}.Resolve"

MOST_WAITING = 10
"""How many verdicts a NoSuchModel carries."""

UNNAMED = "-"
"""What a card that is checked without a file is called."""

USUAL_EVENTS = 100
MOST_EVENTS = 10_000
"""How many events of the history are told, by default and at most."""


class Disk(Steward, Protocol):
    """What the methods need of the world outside."""

    def files_named(self, file: str) -> Sequence[str]:
        """Return the card files that a path or bare name may mean, present or not."""
        ...

    def key_of(self, file: str) -> Key | None:
        """Return the key that a file has by its name, where names have keys: in a Dynamo store."""
        ...

    async def permitted(self, sighting: Sighting) -> Sighting:
        """Return the sighting of a card as the gates before the registry would pass it on."""
        ...

    async def sync(self, files: Sequence[str] | None) -> None:
        """Look at these files, or at everything; return when what was found has been applied."""
        ...


class Api:
    """Answers calls from a writer's answers and registry; `keeper` keeps held cards alive."""

    def __init__(self, writer: Writer, disk: Disk, keeper: Keeper) -> None:
        self._writer = writer
        self._disk = disk
        self._turns = Turns()
        self._resolved = Tally(timed=False)
        writer.recall.count = self._resolved
        self._holds = Holds(writer, keeper, disk, WHOLE_BYTES)
        self._lists = Lists(writer)
        self._upkeep = Upkeep(writer, disk)

    def service(self, calls: Calls | None = None) -> Service:
        """Return the methods as a Varlink service, whose calls are counted by `calls`, if any."""
        methods = {
            "Resolve": Method(Resolve, self.resolve),
            "List": Method(Nothing, self._lists.names, more="optional"),
            "ListWorkers": Method(ListWorkers, self._lists.workers, more="optional"),
            "Explain": Method(Explain, self.explain, more="optional"),
            "Check": Method(Check, self.check),
            "Sync": Method(Sync, self.sync),
            "Hold": Method(Hold, self.hold, more="required"),
            "Watch": Method(Watch, self.watch, more="required"),
            "History": Method(History, self.history),
            "Reload": Method(Nothing, self._upkeep.reload),
            "GetStatus": Method(Nothing, self._upkeep.get_status),
        }
        named = {f"{NAME}.{name}": method for name, method in methods.items()}
        if calls is not None:
            self._writer.recall.refused = partial(calls.refused, _RESOLVE, replies.NO_SUCH_MODEL)
        return Service(
            vendor="discoveryd",
            product="discoveryd",
            version=__version__,
            url="",  # there is no site yet, and an invented one would mislead
            interfaces={NAME: description()},
            methods=named if calls is None else calls.counted(named, {_RESOLVE: self._resolved}),
            refused=None if calls is None else calls.refused,
            recall=self._writer.recall,
        )

    # Resolve

    def resolve(self, asked: Resolve, *_: object) -> Lasting | Awaitable[bytes]:
        """Return who serves the name; rendered once after each change of it."""
        self._resolved.calls += 1
        recall = self._writer.recall
        head = recall.head(asked.name)
        if head is None:
            found = self._writer.answers.resolve(asked.name)
            if found is None:
                return self._miss(asked.name)
            head = _rendered(asked.name, *found)
            recall.keep(asked.name, head)
        return Lasting(asked.name, head)

    def _miss(self, name: str) -> Awaitable[bytes]:
        if self._writer.busy:
            return self._miss_later(name)
        refusal = self._no_such_model(self._writer.registry, name)
        refusal.lasting = True
        raise refusal

    async def _miss_later(self, name: str) -> bytes:
        """Wait for the batch that is being applied, since the registry must say who waits."""
        async with self._writer.settled() as registry:
            raise self._no_such_model(registry, name)

    def _no_such_model(self, registry: Registry, name: str) -> CallError:
        waiting = registry.waiting_for(name)
        verdicts = [registry.verdict(file) for file in waiting[:MOST_WAITING]]
        return replies.no_such_model(
            interface.NoSuchModel(
                name=name,
                similar=tuple(self._writer.answers.similar(name)),
                waiting=tuple(replies.verdict(said) for said in verdicts if said is not None),
                more_waiting=max(0, len(waiting) - MOST_WAITING),
            )
        )

    # Verdicts

    async def explain(self, asked: Explain, _peer: Peer, more: bool) -> bytes | Iterator[bytes]:
        """Return the verdicts of a file, of all who ask for a name, or of all that wait."""
        if asked.file is not None and asked.name is not None:
            raise InvalidParameter("name")
        async with self._writer.settled() as registry:
            if asked.file is not None:
                verdicts = self._of_files(registry, asked.file)
            elif asked.name is not None:
                verdicts = await gather(self._of_name(registry, asked.name))
            else:
                verdicts = await gather(registry.unsettled())
            return self._lists.whole("verdicts", verdicts, more=more)

    def _of_files(self, registry: Registry, file: str) -> list[interface.Verdict]:
        found = [registry.verdict(known) for known in self._disk.files_named(file)]
        verdicts = [replies.verdict(said) for said in found if said is not None]
        if not verdicts:
            raise replies.no_such_file(file)
        return verdicts

    def _of_name(self, registry: Registry, name: str) -> Iterator[Verdict]:
        """Return the verdicts of who asks for the name, or for what the operator made of it."""
        asking = registry.verdicts_for(self._writer.answers.target(name))
        first = next(asking, None)
        if first is None:
            raise self._no_such_model(registry, name)
        return chain((first,), asking)

    # The disk

    async def check(self, asked: Check, peer: Peer, *_: object) -> bytes:
        """Return what a card would get as the next content of a file, or as that of a new one."""
        content = bytes(asked.card)
        if not content.lstrip().startswith(b"{"):
            raise InvalidParameter("card")
        named = (UNNAMED,) if asked.file is None else self._disk.files_named(asked.file)
        if not named:
            raise replies.no_such_file(asked.file or UNNAMED)
        file = named[0]
        found: Card | Invalid
        try:
            found = parse_card(content, stem=_stem(file), key=self._disk.key_of(file))
        except InvalidCard as error:
            found = Invalid(error.reasons, error.warnings)
        sighting = Sighting(file=file, found=found, owner=peer.uid)
        sighting = await self._disk.permitted(sighting)
        async with self._turns.of(peer.uid), self._writer.settled() as registry:
            verdict, displaced = registry.check(sighting, time.time())
            return replies.encode(
                interface.CheckReply(
                    verdict=replies.verdict(verdict),
                    would_displace=displaced,
                    cursor=replies.cursor(self._writer.answers.cursor),
                )
            )

    async def sync(self, asked: Sync, peer: Peer, *_: object) -> bytes:
        """Return when what is on disk has been applied, with the verdicts of the files named."""
        if asked.files is None:
            # A user's turn would have to come before a scan that all who wait may share.
            await self._disk.sync(None)
        else:
            async with self._turns.of(peer.uid):
                await self._disk.sync(asked.files)
        async with self._writer.settled() as registry:
            verdicts = [
                verdict
                for file in dict.fromkeys(asked.files or ())
                for verdict in self._of_files(registry, file)
            ]
            return replies.encode(
                interface.SyncReply(
                    verdicts=tuple(verdicts),
                    standings=self._writer.standings,
                    cursor=replies.cursor(self._writer.answers.cursor),
                )
            )

    def hold(self, asked: Hold, peer: Peer, *_: object) -> Tied:
        """Return the stream that keeps these files' cards alive."""
        if not asked.files:
            raise InvalidParameter("files")
        return Tied(self._holds.hold(asked.files, peer.uid))

    # What changes

    def watch(self, asked: Watch, *_: object) -> AsyncIterator[bytes]:
        """Return the stream of what changes."""
        since = None if asked.since is None else Cursor(asked.since.epoch, asked.since.revision)
        return watch(self._writer, since, asked.name)

    async def history(self, asked: History, *_: object) -> bytes:
        """Return what became of a file, of all who asked for a name, or of all."""
        limit = USUAL_EVENTS if asked.limit is None else asked.limit
        if not 0 < limit <= MOST_EVENTS:
            raise InvalidParameter("limit")
        if asked.file is not None and asked.name is not None:
            raise InvalidParameter("name")
        files = None if asked.file is None else self._disk.files_named(asked.file) or [asked.file]
        name = None if asked.name is None else self._writer.answers.target(asked.name)
        events = await self._writer.ledger.history(files, name, limit)
        told = interface.HistoryReply(events=tuple(map(replies.event, events)))
        reply = replies.encode(told)
        if len(reply) > WHOLE_BYTES:
            raise replies.too_large(len(reply), WHOLE_BYTES)
        return reply


def description() -> str:
    """Return the interface's definition, which is shipped beside the package's modules."""
    return files("discoveryd").joinpath(f"{NAME}.varlink").read_text(encoding="utf-8")


def _rendered(name: str, answer: Answer, kind: str) -> bytes:
    """Return the reply to Resolve up to its cursor."""
    resolution = {
        "name": name,
        "kind": kind,
        "model": answer.model,
        "ready": answer.ready,
        "workers": [replies.worker(served) for served in answer.workers],
    }
    rendered = replies.encode(resolution)[:-1]
    if len(rendered) > WHOLE_BYTES:
        raise replies.too_large(len(rendered), WHOLE_BYTES)
    return REPLY_HEAD + rendered


def _stem(file: str) -> str:
    name = path_bytes(file.rpartition("/")[2]).decode("utf-8", "surrogateescape")
    return name.removesuffix(".json")
