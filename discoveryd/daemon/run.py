"""The daemon: wires directories, writer, methods and server together, and sees them through life.

Life has four parts, each a few lines below: *begin* (claim the socket's path, arm and scan every
directory), *appear* (apply the first batch, then listen, so that whoever can connect gets complete
answers), *live* (follow the directories and answer, until a signal), and *end* (answer what was
read, half-close, remove the socket). What is watched, judged and answered is others' business.
"""

import gc
import logging
import signal
import sys
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio
import click
import msgspec

from discoveryd import interface
from discoveryd.core.batch import Sighting
from discoveryd.core.card import Key
from discoveryd.core.text import path_bytes
from discoveryd.daemon import logs
from discoveryd.daemon.api import Api, Surroundings
from discoveryd.daemon.config import Config
from discoveryd.daemon.dropdir import DropDirectory
from discoveryd.daemon.following import Follower
from discoveryd.daemon.listening import claim
from discoveryd.daemon.server import Server
from discoveryd.daemon.store import DynamoStore, key_of
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
        self._writer = Writer(uuid.uuid4().hex, config.aliases)
        self._directories: list[Follower] = [
            *(DropDirectory(path, self._writer.apply) for path in config.cards),
            *(DynamoStore(path, self._writer.apply) for path in config.dynamo),
        ]
        self._server: Server | None = None
        self._stopping = anyio.Event()

    def stop(self) -> None:
        """Let `run` end in good order. May be called at any time, also before it."""
        self._stopping.set()

    async def run(self) -> None:
        """Begin, appear, live until `stop`, end."""
        listener = claim(self._config.socket)
        try:
            async with anyio.create_task_group() as life:
                life.start_soon(self._end_when_asked, life.cancel_scope)
                with _without_collecting():
                    await self._writer.apply(await self._first_sight())
                for directory in self._directories:
                    life.start_soon(directory.run)
                self._server = Server(Api(self._writer, self).service())
                self._server.serve(listener.listen())
                self._greet()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end_serving()
            listener.close()

    async def _end_when_asked(self, life: anyio.CancelScope) -> None:
        """Answer what was read while the directories are still followed: a Sync needs them."""
        await self._stopping.wait()
        await self._end_serving()
        life.cancel()

    async def _end_serving(self) -> None:
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
            if directory.status.layout == "dynamo" and directory.display == folder:
                key = key_of(path_bytes(name))
                return key if isinstance(key, Key) else None
        return None

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
