"""What `discoveryctl run` says: to people in short lines on stderr, to systemd as its status.

The terminal is the command's, and what is said there is said in between. Whether anybody reads it
must not matter to a worker: a terminal or pipe that is gone is no reason for anything.
"""

import sys
from contextlib import suppress

from discoveryd.client.ctl.progress import ProgressLine
from discoveryd.client.notify import notify
from discoveryd.core.text import printable

_PREFIX = "discoveryctl run: "
_TERMINAL_SECONDS = 1.0
_ELSEWHERE_SECONDS = 30.0


class Voice:
    """Says things; what was said last is not said again.

    `every`: how often to say what is waited for, in seconds.
    """

    def __init__(self) -> None:
        self._progress = ProgressLine()
        self.every = _TERMINAL_SECONDS if sys.stderr.isatty() else _ELSEWHERE_SECONDS
        self._said = self._state = ""

    def say(self, sentences: str) -> None:
        """Say something; each of its lines is one."""
        if sentences == self._said:
            return
        self._said = sentences
        with suppress(OSError):
            self._progress.close()
            for line in sentences.splitlines():
                sys.stderr.write(f"{_PREFIX}{printable(line)}\n")
            sys.stderr.flush()

    def wait(self, what: str) -> None:
        """Say what is waited for; a terminal shows it until something else is said."""
        with suppress(OSError):
            self._progress.say(_PREFIX + what)

    def state(self, state: str) -> None:
        """Tell systemd how things are, in words."""
        if state != self._state:
            self._state = state
            notify(f"STATUS={printable(state)}")

    def ready(self) -> None:
        """Tell systemd that the unit is up."""
        notify("READY=1")

    def stopping(self) -> None:
        """Tell systemd that the unit is about to stop."""
        notify("STOPPING=1")
