"""The command that `discoveryctl run` runs: started, sent signals, ended, and how it ended.

Theory
======

**A session of its own.** A terminal sends Ctrl-C to every process of the foreground group at once,
and then the worker would stop while routers still send to it. So the command is started in a
session of its own, which has no terminal that could signal it: what is to reach it goes through
`discoveryctl run`, after draining. It still reads from the terminal and writes to it, since only
processes of the terminal's own session are stopped for that. It cannot open /dev/tty, and Ctrl-Z
stops `discoveryctl run` alone.

**Whom a signal reaches.** The process that was started, and nobody else, as with kill: a worker
that has processes of its own stops them in its own order. But what comes from a keyboard (SIGINT,
SIGQUIT) goes to the command's whole group, as it would from a terminal: a shell that waits for a
pipeline would not pass it on.

**Whose end counts.** That of the process that was started. What it leaves behind is not followed.

**Everything else is the caller's**: stdin, stdout, stderr and further descriptors are inherited,
and the environment too but for NOTIFY_SOCKET, since it is not the command that tells systemd of the
unit.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
_LAUNCH = str(Path(__file__).with_name("launch.py"))


class Command:
    """A running command; its words are as a shell has them. Whoever has one ends it, or waits.

    `ended` is up to date once SIGCHLD was received.
    """

    def __init__(self, words: Sequence[str]) -> None:
        environ = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        # Without the site's packages: it needs none, and starts faster.
        launch = [sys.executable, "-I", "-S", _LAUNCH, str(os.getpid())]
        self._process = subprocess.Popen(  # noqa: S603 - the command is the caller's
            [*launch, *words], env=environ, close_fds=False, start_new_session=True
        )

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self._process.poll() is not None

    @property
    def status(self) -> int:
        """The exit status of the command that has ended: its own, or 128 and a signal's number."""
        status = self._process.returncode
        return status if status >= 0 else 128 - status

    @property
    def how(self) -> str:
        """How the command has ended, in words that follow on what it is called."""
        status = self._process.returncode
        if status >= 0:
            return f"ended with status {status}"
        return f"was ended by signal {-status} ({signal.strsignal(-status) or 'unknown'})"

    def send(self, number: int) -> None:
        """Send the command a signal; after its end nothing happens."""
        if number in _KEYBOARD:
            self._send_group(number)
        else:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the command, and what it has started in its group."""
        self._send_group(signal.SIGKILL)

    def end(self, seconds: float) -> None:
        """Return when the command has ended: asked to, or, after so long, killed."""
        self.send(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _send_group(self, number: int) -> None:
        # Until it was waited for, its number is nobody else's.
        if not self.ended:
            os.killpg(self._process.pid, number)
