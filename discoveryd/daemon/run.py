"""The daemon: wires directories, gates, writer, methods and server together, and sees them through.

Life has four parts, each a few lines below: *begin* (claim the socket's path, unless sockets were
passed in), *appear* (arm and scan every directory, apply what was found to what the ledger
remembers, then listen, so that whoever can connect gets complete answers), *live* (follow the
directories and answer, until `stop`), and *end* (answer what was read, half-close, remove the
socket). What is watched, judged and answered is others' business, and so is what the process as
such is told by signals and tells its service manager (service.py).
"""

import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence

import anyio
import anyio.abc
import click
import msgspec

from discoveryd import interface
from discoveryd.core.batch import Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.text import path_bytes
from discoveryd.daemon import logs
from discoveryd.daemon.collecting import give_back, without_collecting
from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.directories import make_place
from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.followed import Course, Directory, Followed
from discoveryd.daemon.disk.following import Follower, Sink
from discoveryd.daemon.disk.store import DynamoStore
from discoveryd.daemon.disk.store_names import key_of
from discoveryd.daemon.gates import Gates
from discoveryd.daemon.http.opening import Http
from discoveryd.daemon.ledger.ledger import Ledger
from discoveryd.daemon.life.liveness import Liveness
from discoveryd.daemon.methods.api import Api
from discoveryd.daemon.methods.upkeep import Surroundings
from discoveryd.daemon.reloading import Reloading, directories_of
from discoveryd.daemon.socket.keeping import keep
from discoveryd.daemon.socket.listening import Listener, claim
from discoveryd.daemon.socket.server import USER_CONNECTIONS, Server
from discoveryd.daemon.systemd.activation import NOTHING, Passed
from discoveryd.daemon.systemd.notify import Notifier
from discoveryd.daemon.systemd.paths import PassedPaths
from discoveryd.daemon.writer import Writer

GRACE_SECONDS = 1.5
"""How long peers have to end their side when the daemon ends."""

_ROOT = 0

_log = logging.getLogger(__name__)


class Daemon:
    """One daemon, for one run.

    `reconfigure` reads the configuration again, for `reload`; it may block, and raises ConfigError.
    `passed` has listening, non-blocking sockets to serve instead of making one at `config.socket`,
    which is their path, and others to answer HTTP at; they stay the caller's.
    """

    def __init__(
        self,
        config: Config,
        *,
        reconfigure: Callable[[], Config],
        notifier: Notifier,
        passed: Passed = NOTHING,
    ) -> None:
        self._began = time.monotonic()
        self._notifier = notifier
        self._passed = passed.sockets
        self._passed_paths = PassedPaths((*passed.sockets, *passed.http))
        self._http = Http(config, passed.http)
        by_owner = config.by_owner
        self._ledger = Ledger(config.state, by_owner=by_owner)
        self._writer = Writer(uuid.uuid4().hex, config.aliases, self._ledger, by_owner=by_owner)
        self._liveness = Liveness(self._writer.apply)
        self._gates = Gates(self._writer, self._liveness, many_writers=self._many_writers)
        self._followed = Followed(self._follow, self._gates.pass_on, self._gates.files_in)
        self._reloading = Reloading(
            config,
            reconfigure=lambda: _with_place(reconfigure()),
            followed=self._followed,
            gates=self._gates,
            notifier=notifier,
            summary=self.summary,
        )
        self._listener: Listener | None = None
        self._server: Server | None = None
        self._stopping = anyio.Event()

    def stop(self) -> None:
        """Let `run` end in good order. May be called at any time, also before it."""
        self._stopping.set()

    async def run(self) -> None:
        """Begin, appear, live until `stop`, end.

        Raises StartError, maybe in a group, where the host does not let it start.
        """
        config = self._reloading.config
        if not self._passed:
            self._listener = claim(config.socket, config.socket_mode, config.socket_group)
        try:
            self._http.claim()
            async with anyio.create_task_group() as life:
                life.start_soon(self._end_when_asked, life.cancel_scope)
                with without_collecting():
                    courses = await self._appear(life)
                give_back()
                life.start_soon(self._ledger.run, self._writer.apply)
                life.start_soon(self._liveness.run)
                for course in courses:
                    course.begin()
                self._server = server = Server(
                    Api(self._writer, self, self._liveness).service(self._http.calls),
                    user_connection_limit=USER_CONNECTIONS if config.many_users else None,
                )
                self._http.serve(self._writer, self, life)
                self._serve(server, life)
                self._liveness.listening()
                self._greet()
                self._notifier.ready(self.summary())
                life.start_soon(self._writer.tell)
                life.start_soon(self._reloading.run, life)
        finally:
            if not self._stopping.is_set():
                self._notifier.stopping()
            self._reloading.close()
            with anyio.CancelScope(shield=True):
                await self._end_serving()
                await self._writer.tell()
                await self._ledger.close(self._writer.apply)
            if self._listener is not None:
                self._listener.close()
            self._http.close()

    async def _end_when_asked(self, life: anyio.CancelScope) -> None:
        """Answer what was read while the directories are still followed: a Sync needs them."""
        await self._stopping.wait()
        self._notifier.stopping()
        await self._end_serving()
        life.cancel()

    async def _appear(self, life: anyio.abc.TaskGroup) -> list[Course]:
        """Put back what the ledger remembers, then apply what lies on disk now as one batch.

        Returns the courses of the directories, for them to begin.
        """
        config = self._reloading.config
        self._writer.hold_back()
        known = await self._ledger.open()
        directories = directories_of(config)
        courses = self._followed.make(directories)
        self._followed.replace(directories, courses)
        strays = _expect(courses, known)
        await self._followed.join(life, courses)
        sightings = [seen for course in courses for seen in course.take()]
        cards = {seen.file: seen.found for seen in sightings if isinstance(seen.found, Card)}
        memory = await self._ledger.recall(known, cards)
        if memory is not None:
            self._writer.resume(memory)
        await self._gates.begin(config, self._followed.folders)
        sightings += (Sighting(file=file, found=None) for file in strays)
        await self._gates.pass_on(sightings, config.aliases)
        if memory is None:
            self._writer.answers.history.forget()  # nobody was told of anything before
        return courses

    def _serve(self, server: Server, life: anyio.abc.TaskGroup) -> None:
        for passed in self._passed:
            server.serve(passed)
        if self._listener is not None:
            server.serve(self._listener.listen())
            life.start_soon(keep, self._listener, server)

    def _follow(self, directory: Directory, sink: Sink) -> Follower:
        if directory.layout == "dynamo":
            running = self._liveness.ticking.shared()
            return DynamoStore(directory.path, sink, running=running, touched=self._gates.touched)
        return DropDirectory(
            directory.path,
            sink,
            follow_symlinks=directory.follow_symlinks,
            touched=self._gates.touched,
        )

    def _many_writers(self) -> bool:
        return any(follower.folder.many_writers for follower in self._followed)

    async def _end_serving(self) -> None:
        self._liveness.close()
        await self._http.end()
        if self._server is not None:
            server, self._server = self._server, None
            await server.close(GRACE_SECONDS)

    def _greet(self) -> None:
        config = self._reloading.config
        counts = ", ".join(f"{n} {standing}" for standing, n in self._writer.standings.items())
        _log.info("serving on %s; cards: %s", config.socket, counts or "none yet")
        if sys.stderr.isatty():
            line = next(self._writer.answers.lines(), None)
            text = logs.greeting(
                cards=config.cards,
                dynamo=config.dynamo,
                socket=config.socket,
                default_socket=config.default_socket,
                name=None if line is None else line.name,
            )
            click.echo(text, err=True)

    # What the methods ask of the disk

    def files_named(self, file: str) -> Sequence[str]:
        """Return the card files that a path or bare name may mean, present or not."""
        return self._followed.named(file)

    def key_of(self, file: str) -> Key | None:
        """Return the key that a file in a Dynamo store has by its name."""
        follower = self._followed.holding(file)
        if follower is None or follower.status.layout != "dynamo":
            return None
        key = key_of(path_bytes(file.rpartition("/")[2]))
        return key if isinstance(key, Key) else None

    async def permitted(self, sighting: Sighting) -> Sighting:
        """Return the sighting of a card as the permission gate would pass it on."""
        return await self._gates.forecast(sighting)

    async def sync(self, files: Sequence[str] | None) -> None:
        """Look at these files, or at everything; return when what was found has been applied."""
        if files is None:
            await self._followed.scan()
        else:
            await self._followed.look(files)

    # What is asked of the daemon as a whole

    async def reload(self) -> interface.ReloadReply:
        """Read the configuration again, go by it, and look at everything; return what came of it.

        Never raises. Each reload begins after it was asked for, and is shared by who asked before
        it began; the first waits until the daemon has appeared. It goes on if the caller leaves.
        """
        return await self._reloading.reload()

    def may_reload(self, uid: int) -> bool:
        """Whether a user may ask for a reload: root, and the daemon's own, if that can be told."""
        return uid in (_ROOT, os.geteuid()) and uid != self._gates.unmapped

    def status(self) -> Surroundings:
        """Return how everything but the registry is."""
        return Surroundings(
            uptime_seconds=time.monotonic() - self._began,
            directories=tuple(
                msgspec.convert(follower.status, interface.Directory, from_attributes=True)
                for follower in self._followed
            ),
            watchers=0 if self._server is None else self._server.watchers,
            connections=0 if self._server is None else self._server.connections,
            problems=(
                *self._reloading.problems(),
                *(() if self._listener is None else self._listener.problems()),
                *self._http.problems(),
                *self._passed_paths.problems(),
                *self._ledger.problems(),
                *self._gates.problems(),
            ),
        )

    def summary(self) -> str:
        """Return how it is in a line, such as `7 workers, 3 models, 1 refused, revision 42`.

        Models are the names that others stand for: primaries and adapters. What does not serve is
        counted by its standing, and so are problems, where there are any.
        """
        answers, standings = self._writer.answers, self._writer.standings
        problems = len(self.status().all_problems)
        parts = [
            _counted(len(answers.workers), "worker"),
            _counted(answers.models, "model"),
            *(f"{n} {standing}" for standing, n in standings.items() if standing != "serving"),
            *([_counted(problems, "problem")] if problems else []),
            f"revision {answers.cursor.revision}",
        ]
        return ", ".join(parts)

    def silent(self) -> str | None:
        """Say what has stopped that should never stop, for a watchdog; None while all goes on."""
        now = anyio.current_time()
        said = [word for each in self._followed if (word := each.silent(now)) is not None]
        return "; ".join(said) or None


def _with_place(config: Config) -> Config:
    """Make the default directories where the configuration needs them. Raises StartError."""
    if config.place is not None:
        make_place(config.place, os.geteuid())
    return config


def _expect(courses: Iterable[Course], known: Iterable[str]) -> list[str]:
    """Tell the courses which files they had; return those that lie in none of them."""
    files: dict[str, list[str]] = {course.follower.display: [] for course in courses}
    strays: list[str] = []
    for file in known:
        files.get(file.rpartition("/")[0], strays).append(file)
    for course in courses:
        course.expect(files[course.follower.display])
    return strays


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
