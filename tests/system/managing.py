"""A stand-in for the service manager: it starts daemons, passes sockets to them, and listens.

What is to be told is the tests' business. The sockets stay open here whatever a daemon does, as
they do in systemd.
"""

import contextlib
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.system.running import Daemon, environment, until

LAUNCH = """
import fcntl, os, sys
names, command = sys.argv[1], sys.argv[2:]
passed = [int(number) for number in os.environ.pop("PASSED").split()]
copies = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 100) for number in passed]
for place, copy in enumerate(copies, 3):
    os.dup2(copy, place, inheritable=True)
for name in ("LISTEN_PID", "WATCHDOG_PID"):
    os.environ.setdefault(name, str(os.getpid()))
os.environ.update(LISTEN_FDS=str(len(passed)), LISTEN_FDNAMES=names)
os.execv(command[0], command)
"""
"""Becomes the daemon with sockets from 3 on, as systemd does after it has forked."""


class Manager:
    """Starts daemons below `root`, and hears what they tell."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.address = root / "notify"
        self.messages: list[str] = []
        """All that was told, in order."""
        self.passed: list[socket.socket] = []
        self._ends = contextlib.ExitStack()
        self._socket = self._opened(socket.SOCK_DGRAM, self.address)
        self._socket.setblocking(False)

    def listen(self, path: Path, mode: int = 0o666) -> socket.socket:
        """Make a socket that is passed to the daemons started from now on."""
        listening = self._opened(socket.SOCK_STREAM, path)
        listening.listen()
        path.chmod(mode)
        self.passed.append(listening)
        return listening

    def start(
        self,
        arguments: Sequence[str] | None = None,
        *,
        names: str | None = None,
        variables: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> Daemon:
        """Start a daemon, told its places by default, with these variables besides.

        `names` are the names of the sockets. `before` is a command that becomes the launcher.
        """
        numbers = [each.fileno() for each in self.passed]
        told = {"NOTIFY_SOCKET": str(self.address), "PASSED": " ".join(map(str, numbers))}
        names = ":".join(["varlink"] * len(numbers)) if names is None else names
        daemon = Daemon(
            self.root,
            arguments,
            environ=environment(**told, **(variables or {})),
            prefix=[*before, sys.executable, "-c", LAUNCH, names],
            descriptors=numbers,
        )
        self._ends.callback(daemon.kill)
        return daemon

    def heard(self) -> list[str]:
        """Return all that was told up to now."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.messages.append(self._socket.recv(8192).decode())
        return self.messages

    def wait(self, what: str, count: int = 1) -> str:
        """Wait for so many messages with a line that begins so; return the last of them."""

        def found() -> bool:
            return len(self.told(what)) >= count

        until(found, f"{count} times {what} in {self.messages}", seconds=20.0)
        return self.told(what)[-1]

    def told(self, what: str) -> list[str]:
        """Return the messages with a line that begins so."""
        return [
            message
            for message in self.heard()
            if any(line.startswith(what) for line in message.splitlines())
        ]

    def wait_that(self, holds: Callable[[list[str]], bool], what: str) -> None:
        """Wait until it holds of all that was told."""
        until(lambda: holds(self.heard()), what, seconds=20.0)

    def end(self, daemon: Daemon) -> None:
        """End a daemon that has no socket of its own, and hold it to the promises of ending."""
        daemon.send(signal.SIGTERM)
        assert daemon.wait_ended() == 0, daemon.log
        assert "Traceback" not in daemon.log, daemon.log

    def close(self) -> None:
        """End everything."""
        self._ends.close()

    def _opened(self, kind: socket.SocketKind, path: Path) -> socket.socket:
        made = self._ends.enter_context(socket.socket(socket.AF_UNIX, kind))
        made.bind(str(path))
        return made


def identity(path: Path) -> tuple[int, int, int, int, int]:
    """Return what a path leads to, whose it is, and who may use it."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)
