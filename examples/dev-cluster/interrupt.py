"""Ctrl-C and SIGTERM: neither they nor what was started may be lost.

Python raises KeyboardInterrupt wherever it happens to be. That may be in a finaliser or in a
callback of a weak reference, of which an import makes many: there an exception is printed and
forgotten, and the program would go on. So it is kept in mind, too, and `check` raises it again.
"""

# ruff: noqa: INP001  # no package: cluster.py finds it beside itself

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupt:
    """Whether somebody wants this to end: `came` says so, from then on."""

    def __init__(self) -> None:
        self.came = False
        self._held = False

    def hear(self) -> None:
        """Hear the signals from now on; for the main thread, as is all of this."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def check(self) -> None:
        """Raise KeyboardInterrupt if one came."""
        if self.came and not self._held:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the body come to its end first."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _come(self, *_: object) -> None:
        self.came = True
        self.check()
