"""A daemon of a test's own: a process, its directory, and what a test does with the two.

Everything here waits in the caller's thread and runs no loop, so that it is used alike from plain
tests and from coroutines of any framework. Those it keeps from running meanwhile: for microseconds
where the daemon is asked, for milliseconds where cards are dropped and daemons started.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, overload

from discoveryd.client.blocking import Client
from discoveryd.client.errors import ConnectionLost, NoDaemon, NoSuchFile
from discoveryd.client.testing.mother import DaemonFailed, Forked, Mother
from discoveryd.client.testing.toml import written
from discoveryd.client.workers.cardtext import file_name
from discoveryd.client.workers.publishing import ENVIRONMENT, publish, shown
from discoveryd.core.parsing.findings import is_object
from discoveryd.core.text import path_bytes
from discoveryd.interface import Explanation, Resolution, Status, SyncReply, Verdict, Worker

_START_SECONDS = 20.0
_LOOK_SECONDS = 0.001
_TRACEBACK = "\nTraceback (most recent call last):"
_WITHOUT_URL = "test"


class LocalDaemon:
    """A daemon that the fixtures have started, and that they end.

    `config` has the keys of the configuration file; relative paths in it start at `directory`,
    which is the daemon's own and short. `cards` is the directory into which cards are dropped, the
    first one where `config` names some; those must be made by who names them. `socket` is where the
    daemon listens. `client` is closed by the fixture.
    """

    def __init__(self, mother: Mother, config: Mapping[str, object]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="", dir=mother.directory))
        self.cards = self.directory / "cards"
        self.cards.mkdir()
        named = config.get("socket")
        usual = self.directory / "socket"
        # What is no path is for the daemon to refuse.
        told = self.directory / named if isinstance(named, str | os.PathLike) else usual
        self.socket = str(told)
        self.client = Client(self.socket)
        self._mother = mother
        self._process: Forked | None = None
        self._log = self.directory / "log"
        self._last_log: str | None = None
        self._config = self.directory / "config.toml"
        usually = {"cards": [self.cards], "socket": usual}
        self._config.write_text(written({**usually, **config}), encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def env(self) -> dict[str, str]:
        """The variables by which other processes find the daemon, to be added to theirs."""
        return {"DISCOVERYD_SOCKET": self.socket, ENVIRONMENT: str(self.cards)}

    @property
    def log(self) -> str:
        """Everything that the daemon has written, before it was started again too."""
        if self._last_log is not None:
            return self._last_log
        with suppress(FileNotFoundError):
            return self._log.read_text(encoding="utf-8", errors="replace")
        return ""

    @property
    def pid(self) -> int:
        """The process number. Raises RuntimeError where the daemon does not run."""
        if self._process is None:
            raise RuntimeError("the daemon was stopped, so it has no process: start() it")
        return self._process.pid

    @overload
    def drop(
        self,
        card: Mapping[str, object] | bytes,
        file: str | None = None,
        *,
        wait: Literal[True] = True,
    ) -> Verdict: ...

    @overload
    def drop(
        self, card: Mapping[str, object] | bytes, file: str | None = None, *, wait: Literal[False]
    ) -> None: ...

    def drop(
        self, card: Mapping[str, object] | bytes, file: str | None = None, *, wait: bool = True
    ) -> Verdict | None:
        """Put a card into the drop directory, whole and at once; return what becomes of it.

        Bytes are written as they are. Without a name, `file` is made of the model and the url, so
        that the same worker's next card replaces its last one. The card stays until it is removed,
        unless it says otherwise under `liveness`. Without `wait`, nobody is asked, and the daemon
        sees the card when it does: see `settle`.
        """
        name = _name_of(card) if file is None else file
        publish(card, name, str(self.cards))
        if not wait:
            return None
        (verdict,) = self.client.sync(shown(self.cards / name)).verdicts
        return verdict

    def remove(self, what: str | os.PathLike[str]) -> None:
        """Remove a card file, and return when it has left the answers.

        `what` is its name in the drop directory, its path, or its card's key. Raises
        FileNotFoundError where it is none of these.
        """
        path = self._lying(os.fspath(what))
        path.unlink()
        with suppress(NoSuchFile):  # as it should be
            self.client.sync(shown(path))

    def resolve(self, name: str) -> Resolution:
        """Return who serves the name. Raises NoSuchModel."""
        return self.client.resolve(name)

    def explain(self, what: str | None = None) -> Explanation:
        """Return the verdicts on a card file, or on the cards that ask for a name.

        What ends in .json or begins with a slash is a file. None: on every card that waits. Raises
        NoSuchFile and NoSuchModel.
        """
        if what is not None and (what.endswith(".json") or what.startswith("/")):
            return self.client.explain(file=what)
        return self.client.explain(name=what)

    def settle(self) -> SyncReply:
        """Return when everything that is on disk now has been applied: never sleep instead."""
        return self.client.sync()

    def start(self) -> None:
        """Start it again, after `stop` or `kill`, on what is on disk; return when it answers.

        Raises DaemonFailed, with its log, where it does not come.
        """
        if self._process is not None:
            raise RuntimeError("the daemon has not been stopped: use restart()")
        flags = ["--config", str(self._config)]
        self._process = process = self._mother.fork(flags, self._log)
        status = self._first_status(process)
        followed = [place.path for place in status.directories if place.layout == "cards"]
        if followed:
            self.cards = Path(os.fsdecode(path_bytes(followed[0])))

    def stop(self) -> None:
        """End it as a service manager does. What it remembers is there for `start`.

        One that does not run is let be. Raises DaemonFailed where it does not end in good order, or
        has ended by itself.
        """
        if self._process is None:
            return
        self.client.close()
        status = self._end(signal.SIGTERM)
        if status is None:
            raise self._failure("did not end within 10 s of SIGTERM, and was killed")
        if status != 0:
            raise self._failure(f"ended {_how(status)}")

    def restart(self) -> None:
        """Stop and start it."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it as a crash would. It stays away until `start`."""
        if self._process is not None:
            self.client.close()
            self._end(signal.SIGKILL)

    @property
    def closed(self) -> bool:
        """Whether it was stopped for good."""
        return self._last_log is not None

    def close(self) -> None:
        """Stop it for good, and remove its directory; `log` is kept. Again is harmless.

        The fixtures do it. Raises DaemonFailed as `stop` does, and where the log has a traceback:
        that is a bug in the daemon, which a test that passes shall not hide.
        """
        if self.closed:
            return
        try:
            self.stop()
        finally:
            self.kill()
            self.client.close()
            self._last_log = self.log
            shutil.rmtree(self.directory)
        if _TRACEBACK in f"\n{self._last_log}":
            raise self._failure("had an error of its own")

    def _first_status(self, process: Forked) -> Status:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return self.client.status()
            except (NoDaemon, ConnectionLost):
                if process.has_ended(_LOOK_SECONDS):
                    status = self._end(signal.SIGKILL)
                    raise self._failure(f"did not start: it ended {_how(status)}") from None
                if time.monotonic() > deadline:
                    self.kill()
                    raise self._failure(f"did not answer in {_START_SECONDS:.0f} s") from None

    def _end(self, number: signal.Signals) -> int | None:
        """Send the signal, and return how the process ended, as `Forked.wait` does."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send(number)
        return process.wait()

    def _failure(self, what: str) -> DaemonFailed:
        return DaemonFailed(f"the daemon {what}. Its log:\n{self.log or '(empty)'}")

    def _lying(self, named: str) -> Path:
        path = self.cards / named
        if os.path.lexists(path):
            return path
        waiting = self.client.explain().verdicts
        cards: list[Worker | Verdict] = [*self.client.workers().workers, *waiting]
        for card in cards:
            if card.key == named:
                return Path(os.fsdecode(path_bytes(card.file)))
        there = ", ".join(sorted(path.name for path in self.cards.glob("*.json"))) or "none"
        raise FileNotFoundError(f"{named} is no card file and no card's key; files: {there}")


def _name_of(card: Mapping[str, object] | bytes) -> str:
    if not isinstance(card, bytes):
        return file_name(card, _WITHOUT_URL)
    content: object = None
    with suppress(ValueError, RecursionError):
        content = json.loads(card)
    return file_name(content if is_object(content) else {}, _WITHOUT_URL)


def _how(status: int | None) -> str:
    """Say how a process ended."""
    if status is None or status < 0:
        return f"on {signal.Signals(-(status or -signal.SIGKILL)).name}"
    return f"with status {status}"
