"""The Hold stream: cards that live as long as a connection, and their verdicts.

A hold is entered with the liveness gate before its files are looked at, so that a card that was
dropped a moment ago is held when it is first seen, instead of dying and coming back; who may not
hold a file does not keep it alive meanwhile, since its owner decides that. It is struck out when
the stream ends, however that happens. Between, the verdicts of all its files are said again
whenever one of them has changed since they were said last. A slow reader is told less often, of the
present only, like a watcher.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from itertools import chain
from typing import Protocol

import anyio

from discoveryd.core.batch import Change
from discoveryd.core.registry import Registry
from discoveryd.daemon.life.holders import Holder, may_hold
from discoveryd.daemon.methods import replies
from discoveryd.daemon.writer import Writer
from discoveryd.varlink import PermissionDenied


class Keeper(Protocol):
    """Who keeps held cards alive."""

    async def hold(self, holder: Holder, files: Collection[str]) -> None:
        """Let these files be held by one more; return when what that changed has been applied."""
        ...

    def release(self, holder: Holder, files: Collection[str]) -> None:
        """Let them be held by this one no more."""
        ...


class Disk(Protocol):
    """Where the files lie."""

    def files_named(self, file: str) -> Sequence[str]:
        """Return the card files that a path or bare name may mean, present or not."""
        ...

    async def sync(self, files: Sequence[str] | None) -> None:
        """Look at these files; return when what was found has been applied."""
        ...


class _Hold:
    """One connection's hold."""

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.changed = anyio.Event()


class Holds:
    """All holds. An answer may hold `limit` bytes, else it is TooLarge."""

    def __init__(self, writer: Writer, keeper: Keeper, disk: Disk, limit: int) -> None:
        self._writer = writer
        self._keeper = keeper
        self._disk = disk
        self._limit = limit
        self._attending: dict[str, list[_Hold]] = {}
        writer.listeners.append(self._note)

    async def hold(self, named: Sequence[str], uid: int) -> AsyncGenerator[bytes]:
        """Hold the files of these names until closed; yield their verdicts, again at each change.

        Raises NoSuchFile, and PermissionDenied where a file is not that user's.
        """
        hold = _Hold(uid)
        entered = set(chain.from_iterable(map(self._disk.files_named, named)))
        attended: list[str] = []
        try:
            await self._keeper.hold(hold, entered)
            await self._disk.sync(named)
            async with self._writer.settled() as registry:
                files = self._known(registry, named)
                self._check_owners(registry, files, uid)
            late = set(files) - entered  # of a directory that a reload brought meanwhile
            self._keeper.release(hold, entered.difference(files))
            entered = set(files)
            if late:
                await self._keeper.hold(hold, late)
            for file in files:
                self._attending.setdefault(file, []).append(hold)
            attended = files
            while True:
                hold.changed = anyio.Event()
                async with self._writer.settled() as registry:
                    said = self._say(registry, files)
                yield said
                await hold.changed.wait()
        finally:
            self._keeper.release(hold, entered)
            for file in attended:
                self._attending[file].remove(hold)
                if not self._attending[file]:
                    del self._attending[file]

    def _check_owners(self, registry: Registry, files: Iterable[str], uid: int) -> None:
        for file in files:
            verdict = registry.verdict(file)
            if verdict is not None and not may_hold(uid, verdict.owner_uid):
                raise PermissionDenied

    def _known(self, registry: Registry, named: Sequence[str]) -> list[str]:
        files: dict[str, None] = {}
        for name in named:
            known = [file for file in self._disk.files_named(name) if registry.files.get(file)]
            if not known:
                raise replies.no_such_file(name)
            files.update(dict.fromkeys(known))
        return list(files)

    def _say(self, registry: Registry, files: Sequence[str]) -> bytes:
        verdicts = [said for file in files if (said := registry.verdict(file)) is not None]
        return replies.whole(
            "verdicts", map(replies.verdict, verdicts), self._writer.answers.cursor, self._limit
        )

    def _note(self, change: Change) -> None:
        if self._attending:
            for file in (*change.judged, *change.forgotten):
                for hold in self._attending.get(file, ()):
                    hold.changed.set()
