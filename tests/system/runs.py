"""`discoveryctl run` as a process with a stand-in for its worker, for tests.

Its probes follow each other much faster than they would, and its patience is shorter.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.system.adopting import free_port
from tests.system.dropping import Host
from tests.system.running import PROMPT_SECONDS, REPOSITORY, environment, until

_FAST = """
from discoveryd.client.running import probing
probing.EVERY_SECONDS = 0.05
from discoveryd.client.running import supervising
supervising._GRACE_SECONDS = 0.5
from discoveryd.client.ctl.start import main
main()
"""
_ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
_STAND_IN = str(Path(__file__).with_name("stand_in.py"))


class Worker:
    """A stand-in that is to be run: its port and url, and how it is told to answer."""

    def __init__(self, directory: Path, name: str = "w") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._plan = directory / f"{name}.plan"
        self._asked = directory / f"{name}.asked"
        self._asked.touch()
        self.plans("ok")

    def command(self, *switches: str) -> list[str]:
        return [
            *(sys.executable, "-I", _STAND_IN, str(self.port)),
            *(str(self._plan), str(self._asked), *switches),
        ]

    def plans(self, words: str) -> None:
        """Let it answer like this from now on."""
        beside = self._plan.with_suffix(".new")
        beside.write_text(words)
        beside.rename(self._plan)

    def asked(self) -> list[str]:
        """Return what it has answered so far: words of plans and paths."""
        return self._asked.read_text().splitlines()

    def wait_asked(self, word: str, times: int = 1) -> None:
        """Return once it has answered in this way so often."""
        until(lambda: sum(a.split()[0] == word for a in self.asked()) >= times, f"asked: {word}")


class Run:
    """`discoveryctl run` with these arguments; what it and its command write is in `output`.

    Or it is on the `terminal`, which is then its own. `errors`: where what is said goes instead.
    """

    def __init__(  # noqa: PLR0913  # one a choice of a test, all by keyword
        self,
        output: Path,
        daemon_socket: Path,
        arguments: Sequence[str],
        *,
        notify: Path | None = None,
        errors: int | None = None,
        stdin: bytes = b"",
        descriptors: Sequence[int] = (),
        terminal: int | None = None,
        **environ: str,
    ) -> None:
        self._output = output
        if notify is not None:
            environ["NOTIFY_SOCKET"] = str(notify)
        command = [sys.executable, "-c", _FAST, "--socket", str(daemon_socket), "run", *arguments]
        if terminal is not None:
            command = [sys.executable, "-c", _ON_TERMINAL, *command]
        with output.open("wb") as written, tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment(**environ),
                stdin=given if terminal is None else terminal,
                stdout=written if terminal is None else terminal,
                stderr=next(fd for fd in (errors, terminal, written) if fd is not None),
                start_new_session=terminal is not None,
                pass_fds=descriptors,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def says(self, sentence: str) -> None:
        """Return once it has said this."""
        try:
            until(lambda: sentence in self.output, f"{sentence!r} is said")
        except AssertionError as late:
            raise AssertionError(f"{late}, only:\n{self.output}") from None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def status(self) -> int:
        """Return its exit status, once it has ended."""
        try:
            return self.process.wait(2 * PROMPT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.output}") from None

    def command_pid(self) -> int:
        """Return the pid of the command that it runs now."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) == 1, self.output
        return int(children[0])

    def kill(self) -> None:
        """Kill it and its command, if they live yet."""
        if self.process.poll() is None:
            with contextlib.suppress(AssertionError, OSError):
                os.killpg(self.command_pid(), signal.SIGKILL)
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def runner(directory: Path) -> Iterator[Callable[..., Run]]:
    """Give a function that runs commands for a host; those that live at the end are killed."""
    with contextlib.ExitStack() as ends:

        def begin(host: Host, *arguments: str, **choices: Any) -> Run:
            output = directory / f"output{len(begun)}"
            running = Run(output, host.daemon.socket, arguments, **choices)
            ends.callback(running.kill)
            begun.append(running)
            return running

        begun: list[Run] = []
        yield begin


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def lives(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
