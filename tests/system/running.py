"""A real daemon for tests: a process on a directory of its own, started, asked, ended, examined.

What is dropped and asked is the tests' business. Every daemon that is ended here is held to the
promises of ending: exit 0 in time, no traceback, its socket gone.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from discoveryd.client import Client

REPOSITORY = Path(__file__).parent.parent.parent
START_SECONDS = END_SECONDS = 30.0
PROMPT_SECONDS = 20.0
"""How long to wait for what should happen within milliseconds, on a busy machine."""

MEMORY = Path("/dev/shm")  # noqa: S108  # everybody's, as /tmp is, and as safe with mkdtemp
"""Where Linux keeps files in memory, as in /run, where daemons usually have theirs."""
ROOM_BYTES = 512 << 20
"""What tests may need there; containers often give it less."""


def until(condition: Callable[[], bool], what: str, seconds: float = PROMPT_SECONDS) -> None:
    """Wait until the condition holds; fail where it does not in time."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        # A pause between two looks, not a wait for something to have happened.
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """Give a directory whose path leaves room for a socket's; in memory, where that can be had.

    A disk may stand still for seconds, and a daemon rightly says so and goes on without a ledger.
    Tests of that bring it about themselves.
    """
    memory = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
    if memory and (of := os.statvfs(memory)).f_bavail * of.f_frsize < ROOM_BYTES:
        memory = None
    directory = Path(tempfile.mkdtemp(prefix="dd-", dir=memory))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def without(*command: str) -> list[str]:
    """Return a command that takes privileges from a daemon, which only root's has; see `prefix`.

    Skips the test where this root may not run it.
    """
    if os.geteuid() != 0:
        return []
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: as root this needs {' '.join(command)}: {tried.stderr.strip()}")
    return list(command)


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a daemon that nobody has told anything."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DISCOVERYD_", "XDG_"))}
    return kept | changes


class Daemon:
    """One daemon process.

    It lives below `root`, where it has the directories `cards` and `store` and the socket `s`. With
    `arguments` it is told just these instead. `prefix` is a command that starts it, `at` the socket
    where it is not the usual one, `descriptors` what it inherits besides stdin, stdout and stderr.
    """

    def __init__(  # noqa: PLR0913  # one a choice of a test, all by keyword
        self,
        root: Path,
        arguments: Sequence[str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        at: Path | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self.root = root
        self.cards = root / "cards"
        self.store = root / "store"
        self.socket = root / "s" if at is None else at
        self._errors = root / "stderr"
        if arguments is None:
            arguments = self.usual_arguments()
            for directory in (self.cards, self.store / "v1/mdc", self.store / "v1/instances"):
                directory.mkdir(parents=True, exist_ok=True)
        command = [*prefix, sys.executable, "-m", "discoveryd", "serve", *arguments]
        environ = environment() if environ is None else environ
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=descriptors,
            )

    def usual_arguments(self) -> list[str]:
        """Return the arguments of a daemon that is told its three places."""
        places = {"--cards": self.cards, "--dynamo": self.store, "--socket": self.socket}
        return [part for flag, path in places.items() for part in (flag, str(path))]

    @property
    def log(self) -> str:
        """Everything that the process has written."""
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def wait_ready(self) -> "Daemon":
        """Return once the socket accepts; fail where the process ends first."""
        deadline = time.monotonic() + START_SECONDS
        while not self.accepts():
            assert self.process.poll() is None, f"the daemon has ended:\n{self.log}"
            assert time.monotonic() < deadline, f"the daemon does not come:\n{self.log}"
            time.sleep(0.005)  # between two looks
        return self

    def accepts(self) -> bool:
        """Whether somebody accepts connections at the socket now."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def client(self) -> Client:
        """Return a client of this daemon, for the caller to close."""
        return Client(str(self.socket))

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait_ended(self, seconds: float = END_SECONDS) -> int:
        """Return the exit status; fail, and kill it, where the process does not end in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the daemon does not end:\n{self.log}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, and hold it to the promises of ending. Again is harmless."""
        if self.process.returncode is None:
            self.send(number)
        status = self.wait_ended()
        assert "Traceback" not in self.log, self.log
        assert status == 0, f"exit status {status}:\n{self.log}"
        assert not self.socket.exists(), "the daemon left its socket"

    def kill(self) -> None:
        """End it without any promise, where a test has failed already."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
