"""The mother process: started once in a process of tests, asked for daemons, and ended.

What it is for and what is said to it is told in `discoveryd.daemon.mother`, which is started as a
program and never imported here. It is in a session of its own, so that Ctrl-C at pytest's terminal
does not end daemons before their tests.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from discoveryd.client.errors import DiscoverydError

_END_SECONDS = 10.0
_LONGEST_DIRECTORY = 80
"""Bytes that leave room for a socket's name below."""

_OTHERS = ("DISCOVERYD_", "NOTIFY_", "WATCHDOG_", "LISTEN_", "JOURNAL_STREAM")
"""Variables that tell a daemon something, beginning so: those of tests are told by their tests."""

_OF_UNITS = {"STATE_DIRECTORY", "CONFIGURATION_DIRECTORY"}


class DaemonFailed(DiscoverydError):
    """A test's daemon did not start, did not end, or ended as it should not. Holds its log."""


class Mother:
    """The process that forks daemons for this one, and `directory`, where they live.

    Its methods may be called from any thread, but not in a forked child.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="discoveryd-", dir=_short()))
        self._asking = threading.Lock()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - kept open until `close`
        environ = {name: value for name, value in os.environ.items() if not _tells(name)}
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of ours
            [sys.executable, "-P", "-m", "discoveryd.daemon.mother", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd="/",
            env=environ,
            start_new_session=True,
        )

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
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def fork(self, flags: Sequence[str], log: Path) -> "Forked":
        """Return a new process that runs `discoveryd serve` with `flags` and writes to `log`.

        It has just begun. Raises DaemonFailed.
        """
        answer = self._ask({"serve": list(flags), "log": str(log)})
        return Forked(self, answer["pid"])

    def reap(self, pid: int) -> int:
        """Return the exit status of a daemon that has ended, or minus the signal's number."""
        status: int = self._ask({"reap": pid})["status"]
        return status

    def close(self) -> None:
        """End it, and with it every daemon that is left, and remove the directory."""
        self._process.communicate()
        self._complaints.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _ask(self, request: dict[str, object]) -> Any:  # noqa: ANN401 - JSON is Any
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the pipes of the process that starts daemons were not made")
        with self._asking:
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
        if not line:
            self._complaints.seek(0)
            said = self._complaints.read().decode(errors="replace")
            raise DaemonFailed(f"the process that starts daemons for tests has ended:\n{said}")
        answer = json.loads(line)
        if "error" in answer:
            raise DaemonFailed(f"no process can be started for a daemon: {answer['error']}")
        return answer


class Forked:
    """One daemon's process, `pid`. It must be waited for."""

    def __init__(self, mother: Mother, pid: int) -> None:
        self.pid = pid
        self._mother = mother
        self._process = os.pidfd_open(pid)
        self._ends = select.poll()
        self._ends.register(self._process, select.POLLIN)

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, or does so within `seconds`."""
        return bool(self._ends.poll(seconds * 1000))

    def send(self, number: signal.Signals) -> None:
        """Send a signal; one that has ended, but was not waited for, ignores it."""
        signal.pidfd_send_signal(self._process, number)

    def wait(self) -> int | None:
        """Return its exit status, or minus the number of the signal that ended it.

        Where it does not end in 10 s it is killed, and None is returned. Not to be used afterwards.
        """
        in_time = self.has_ended(_END_SECONDS)
        if not in_time:
            self.send(signal.SIGKILL)
            self._ends.poll()
        os.close(self._process)
        status = self._mother.reap(self.pid)
        return status if in_time else None


def _short() -> str | None:
    """Return where temporary directories go if the usual place leaves no room for sockets."""
    too_long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_DIRECTORY
    return "/tmp" if too_long else None  # noqa: S108 - mkdtemp makes it private


def _tells(name: str) -> bool:
    return name.startswith(_OTHERS) or name in _OF_UNITS
