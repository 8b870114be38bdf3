"""The daemon: wires directories, writer, methods and server together, and sees them through life.

Life has four parts, each a few lines below: *begin* (claim the socket's path), *appear* (arm and
scan every directory, apply what was found to what the ledger remembers, then listen, so that
whoever can connect gets complete answers), *live* (follow the directories and answer, until a
signal), and *end* (answer what was read, half-close, remove the socket). What is watched, judged
and answered is others' business.
"""

import gc
import logging
import signal
import sys
import time
import uuid
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

import anyio
import click
import msgspec

from discoveryd import interface
from discoveryd.core.batch import Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.text import path_bytes
from discoveryd.daemon import logs
from discoveryd.daemon.api import Api, Surroundings
from discoveryd.daemon.config import Config
from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.disk.following import Follower
from discoveryd.daemon.disk.store import DynamoStore
from discoveryd.daemon.disk.store_names import key_of
from discoveryd.daemon.ledger.ledger import Ledger
from discoveryd.daemon.life.liveness import Liveness
from discoveryd.daemon.permit.membership import unmapped_uid
from discoveryd.daemon.permit.permission import Permission
from discoveryd.daemon.socket.keeping import keep
from discoveryd.daemon.socket.listening import Listener, claim
from discoveryd.daemon.socket.server import USER_CONNECTIONS, Server
from discoveryd.daemon.writer import Writer

GRACE_SECONDS = 1.5
"""How long peers have to end their side when the daemon ends."""

_log = logging.getLogger(__name__)


async def serve(config: Config) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status.

    Raises StartError where the host does not let it start.
    """
    daemon = Daemon(config)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(daemon.run)
            async for received in signals:
                _log.info("ending on %s", signal.Signals(received).name)
                daemon.stop()
                break
    return 0


class Daemon:
    """One daemon, for one run."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._began = time.monotonic()
        by_owner = config.by_owner
        self._ledger = Ledger(config.state, by_owner=by_owner)
        self._writer = Writer(uuid.uuid4().hex, config.aliases, self._ledger, by_owner=by_owner)
        self._liveness = liveness = Liveness(self._writer.apply)
        self._directories: list[Follower] = [
            *(
                DropDirectory(
                    path,
                    self._pass_on,
                    follow_symlinks=config.follow_symlinks,
                    touched=self._touched,
                )
                for path in config.cards
            ),
            *(
                DynamoStore(path, self._pass_on, running=liveness.running, touched=self._touched)
                for path in config.dynamo
            ),
        ]
        self._permission = Permission(
            config.allow,
            by_owner=by_owner,
            quota=config.quota,
            unmapped=unmapped_uid(),
            many_writers=lambda: any(each.folder.many_writers for each in self._directories),
            folders=dict(
                zip(
                    (each.display for each in self._directories),
                    (*config.cards, *config.dynamo),
                    strict=True,
                )
            ),
        )
        self._listener: Listener | None = None
        self._server: Server | None = None
        self._stopping = anyio.Event()

    def stop(self) -> None:
        """Let `run` end in good order. May be called at any time, also before it."""
        self._stopping.set()

    async def run(self) -> None:
        """Begin, appear, live until `stop`, end."""
        config = self._config
        listener = claim(config.socket, config.socket_mode, config.socket_group)
        self._listener = listener
        try:
            async with anyio.create_task_group() as life:
                life.start_soon(self._end_when_asked, life.cancel_scope)
                with _without_collecting():
                    await self._appear()
                life.start_soon(self._ledger.run, self._writer.apply)
                life.start_soon(self._liveness.run)
                for directory in self._directories:
                    life.start_soon(directory.run)
                self._server = Server(
                    Api(self._writer, self, self._liveness).service(),
                    user_connection_limit=USER_CONNECTIONS if config.many_users else None,
                )
                self._server.serve(listener.listen())
                self._liveness.listening()
                life.start_soon(keep, listener, self._server)
                self._greet()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end_serving()
                await self._ledger.close(self._writer.apply)
            listener.close()

    async def _end_when_asked(self, life: anyio.CancelScope) -> None:
        """Answer what was read while the directories are still followed: a Sync needs them."""
        await self._stopping.wait()
        await self._end_serving()
        life.cancel()

    async def _appear(self) -> None:
        """Put back what the ledger remembers, then apply what lies on disk now as one batch."""
        known = await self._ledger.open()
        strays = self._expect(known)
        sightings = await self._first_sight()
        cards = {seen.file: seen.found for seen in sightings if isinstance(seen.found, Card)}
        memory = await self._ledger.recall(known, cards)
        if memory is not None:
            self._writer.resume(memory)
            self._permission.restore(self._writer.registry)
            self._liveness.restore(self._writer.registry.files)
        sightings += (Sighting(file=file, found=None) for file in strays)
        await self._pass_on(sightings, self._config.aliases)

    def _expect(self, known: Iterable[str]) -> list[str]:
        """Tell the directories which files they had; return those that lie in none of them."""
        names: dict[str, list[bytes]] = {each.display: [] for each in self._directories}
        strays: list[str] = []
        for file in known:
            folder, _, name = file.rpartition("/")
            if folder in names:
                names[folder].append(path_bytes(name))
            else:
                strays.append(file)
        for directory in self._directories:
            directory.expect(names[directory.display])
        return strays

    async def _pass_on(
        self, sightings: Sequence[Sighting], operator_aliases: Mapping[str, str] | None = None
    ) -> None:
        """Let what a directory saw through the gates that need more than the cards."""
        await self._permission.look_up(seen.owner for seen in sightings)
        permitted = self._permission.judge(sightings)
        await self._writer.apply(self._liveness.judge(permitted), operator_aliases)

    def _touched(self, touches: Collection[Touch]) -> None:
        self._permission.touched(touches)
        self._liveness.touched(touches)

    async def _end_serving(self) -> None:
        self._liveness.close()
        if self._server is not None:
            server, self._server = self._server, None
            await server.close(GRACE_SECONDS)

    async def _first_sight(self) -> list[Sighting]:
        """Watch and scan every directory, so that their cards arrive as one batch."""
        found: list[list[Sighting]] = [[] for _ in self._directories]

        async def scan(number: int, directory: Follower) -> None:
            found[number] = await directory.first_scan()

        async with anyio.create_task_group() as scans:
            for number, directory in enumerate(self._directories):
                scans.start_soon(scan, number, directory)
        return [sighting for sightings in found for sighting in sightings]

    def _greet(self) -> None:
        counts = ", ".join(f"{n} {standing}" for standing, n in self._writer.standings.items())
        _log.info("serving on %s; cards: %s", self._config.socket, counts or "none yet")
        if sys.stderr.isatty():
            line = next(self._writer.answers.lines(), None)
            text = logs.greeting(
                cards=self._config.cards,
                dynamo=self._config.dynamo,
                socket=self._config.socket,
                default_socket=self._config.default_socket,
                name=None if line is None else line.name,
            )
            click.echo(text, err=True)

    # What the methods ask of the disk

    def files_named(self, file: str) -> Sequence[str]:
        """Return the card files that a path or bare name may mean, present or not."""
        if "/" not in file:
            return [f"{directory.display}/{file}" for directory in self._directories]
        folder = file.rpartition("/")[0]
        return [file for directory in self._directories if directory.display == folder][:1]

    def key_of(self, file: str) -> Key | None:
        """Return the key that a file in a Dynamo store has by its name."""
        folder, _, name = file.rpartition("/")
        for directory in self._directories:
            if directory.display == folder and directory.status.layout == "dynamo":
                key = key_of(path_bytes(name))
                return key if isinstance(key, Key) else None
        return None

    async def permitted(self, sighting: Sighting) -> Sighting:
        """Return the sighting of a card as the permission gate would pass it on."""
        await self._permission.look_up((sighting.owner,))
        return self._permission.forecast(sighting)

    async def sync(self, files: Sequence[str] | None) -> None:
        """Look at these files, or at everything; return when what was found has been applied."""
        async with anyio.create_task_group() as looks:
            for directory in self._directories:
                if files is None:
                    looks.start_soon(directory.scan)
                    continue
                folder = f"{directory.display}/"
                names = [
                    path_bytes(known.removeprefix(folder))
                    for file in files
                    for known in self.files_named(file)
                    if known.startswith(folder)
                ]
                if names:
                    looks.start_soon(directory.look, names)

    def status(self) -> Surroundings:
        """Return how everything but the registry is."""
        return Surroundings(
            uptime_seconds=time.monotonic() - self._began,
            directories=tuple(
                msgspec.convert(directory.status, interface.Directory, from_attributes=True)
                for directory in self._directories
            ),
            watchers=0 if self._server is None else self._server.watchers,
            connections=0 if self._server is None else self._server.connections,
            problems=(
                *(() if self._listener is None else self._listener.problems()),
                *self._ledger.problems(),
                *self._permission.problems(),
                *self._liveness.problems(),
            ),
        )


@contextmanager
def _without_collecting() -> Generator[None]:
    """Make many objects that stay: nothing of them is garbage, now or at any later collection."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
