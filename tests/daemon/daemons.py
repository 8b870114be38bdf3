"""A daemon in the test's own loop, with a configuration and a notifier that are the test's."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from discoveryd.core.verdict import Verdict
from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.disk import folder, reading, watching
from discoveryd.daemon.errors import ConfigError, StartError
from discoveryd.daemon.run import Daemon
from discoveryd.daemon.systemd.notify import Notifier
from tests.daemon.disk import until


class Messages(Notifier):
    """A notifier that keeps what the service manager would be told, statuses apart."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[str] = []
        self.statuses: list[str] = []

    def ready(self, status: str) -> None:
        self.told.append("ready")
        self.statuses.append(status)

    def reloading(self) -> None:
        self.told.append("reloading")

    def stopping(self) -> None:
        self.told.append("stopping")


class Host:
    """A daemon and its configuration: `config` is what it will read at the next reload.

    It reads `fault` instead, where that is set.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.fault: ConfigError | StartError | None = None
        self.messages = Messages()
        self.reads = 0
        self.daemon = Daemon(config, reconfigure=self.read, notifier=self.messages)

    def read(self) -> Config:
        self.reads += 1
        if self.fault is not None:
            raise self.fault
        return self.config

    async def reload(self, **settings: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Have these settings changed and read; return what changed, and the problems."""
        self.config = msgspec.structs.replace(self.config, **settings)
        reply = await self.daemon.reload()
        return reply.changed, reply.problems

    @property
    def revision(self) -> int:
        return self.daemon._writer.answers.cursor.revision

    @property
    def problems(self) -> tuple[str, ...]:
        return self.daemon.status().all_problems

    def workers(self, name: str) -> list[str] | None:
        """Return the files of the cards that serve the name, by bare name; None where none do."""
        found = self.daemon._writer.answers.resolve(name)
        if found is None:
            return None
        return [Path(served.file).stem for served in found[0].workers]

    def verdict(self, file: Path) -> Verdict:
        verdict = self.daemon._writer.registry.verdict(str(file))
        assert verdict is not None, f"{file} is not known"
        return verdict

    def standings(self) -> dict[str, str]:
        """Return the standing of every file that is known, by its path."""
        registry = self.daemon._writer.registry
        return {each.file: self.verdict(Path(each.file)).standing.value for each in registry.files}

    async def until_served(self, name: str) -> None:
        await until(lambda: bool(self.workers(name)))


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Host]:
    """Give a daemon that has appeared, and end it."""
    host = Host(config)
    life = asyncio.create_task(host.daemon.run())
    try:
        await until(lambda: "ready" in host.messages.told or life.done())
        yield host
    finally:
        host.daemon.stop()
        await life


def drop(path: Path, **card: object) -> Path:
    """Put a card there, by a rename; by default one that is called as its file."""
    beside = path.parent / f".tmp_{path.name}"
    beside.write_text(json.dumps({"display_name": path.stem, "instance": path.stem} | card))
    beside.rename(path)
    return path


class Hanging:
    """Directories whose file system does not answer, until let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._paths: dict[bytes, threading.Event] = {}
        self._stuck: set[bytes] = set()
        real: Callable[[bytes], int] = reading.open_directory

        def open_directory(path: bytes) -> int:
            free = self._paths.get(path)
            if free is not None:
                self._stuck.add(path)
                free.wait()
            return real(path)

        monkeypatch.setattr(folder, "open_directory", open_directory)
        monkeypatch.setattr(watching, "open_directory", open_directory)

    def hang(self, path: Path) -> None:
        self._paths[bytes(path)] = threading.Event()

    def is_met(self, path: Path) -> bool:
        """Whether a thread has run into it."""
        return bytes(path) in self._stuck

    def let_go(self) -> None:
        paths, self._paths = self._paths, {}
        for free in paths.values():
            free.set()
