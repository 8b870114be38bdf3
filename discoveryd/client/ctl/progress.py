"""What a person is told while something takes time: one line on stderr, kept up to date.

Where stderr is no terminal, each thing that is said is a line of its own.
"""

import os
import sys

from discoveryd.client.ctl.tables import columns
from discoveryd.core.text import printable

_ELLIPSIS = "\u2026"
_REWRITE = "\r\x1b[K"
"""Back to the beginning of the line, and nothing left on it."""


class ProgressLine:
    """Says what is waited for. `close` it before anything else is printed."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._open = False

    def say(self, text: str) -> None:
        """Show this in the place of what was said before."""
        shown = printable(text)
        if self._terminal:
            self._write(_REWRITE + _beginning(shown, _width() - 1))
            self._open = True
        else:
            self._write(shown + "\n")

    def close(self) -> None:
        """Leave a terminal's line empty; again is harmless."""
        if self._open:
            self._write(_REWRITE)
            self._open = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _beginning(text: str, width: int) -> str:
    """Return the text, or as much of its beginning as fits before an ellipsis."""
    if columns(text) <= width:
        return text
    end = min(len(text), width)
    while columns(text[:end]) > width - 1:
        end -= 1
    return text[:end] + _ELLIPSIS
