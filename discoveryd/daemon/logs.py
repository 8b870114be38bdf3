"""What the daemon says to people: log lines on stderr, and a greeting on a terminal.

A record is one line, whatever a card, a path or a peer put into it. Only a traceback, which is a
bug of ours, has several.

Where the journal reads stderr, each line begins with its priority, as sd-daemon(3) has it, and says
neither level nor time, since the journal keeps both. JOURNAL_STREAM tells which file the journal
reads, not that stderr is that: it is inherited by whoever is started with stderr elsewhere.
"""

import logging
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

import click

from discoveryd import __version__
from discoveryd.core.text import printable

_log = logging.getLogger(__name__)


_PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG = 7


def set_up(
    level: str, *, stream: TextIO | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Send every record of at least `level` to `stream` (stderr); replaces what was set up before.

    Lines carry the level and the time, or their priority where the journal reads them.
    """
    written = sys.stderr if stream is None else stream
    lines = logging.StreamHandler(written)
    if is_journal(written, os.environ if environ is None else environ):
        lines.setFormatter(_Prioritised("%(message)s"))
    else:
        lines.setFormatter(logging.Formatter("%(levelname)-7s %(asctime)s %(message)s"))
    lines.addFilter(_escape)
    logging.basicConfig(level=level.upper(), handlers=[lines], force=True)


def is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether what is written to the stream goes to the journal, and to nothing else."""
    told = environ.get("JOURNAL_STREAM")
    if not told:
        return False
    try:
        file = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return told == f"{file.st_dev}:{file.st_ino}"


def complain(sentence: str) -> None:
    """Write to stderr why the command fails, where nothing may be logged yet."""
    if is_journal(sys.stderr, os.environ):
        priority, text = f"<{_priority(logging.ERROR)}>", sentence
    else:
        priority, text = "", f"discoveryd: {sentence}"
    click.echo(priority + printable(text), err=True)


def crashed(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Log what nobody caught, a bug of ours, as any other record; for `sys.excepthook`."""
    _log.critical("discoveryd ends on an error of its own", exc_info=(kind, error, traceback))


class _Prioritised(logging.Formatter):
    """Begins each line of a record with its priority: the journal takes it from every line."""

    def format(self, record: logging.LogRecord) -> str:
        priority = f"<{_priority(record.levelno)}>"
        return "\n".join(priority + line for line in super().format(record).splitlines())


def _priority(level: int) -> int:
    """Return what syslog calls a level."""
    return next((priority for least, priority in _PRIORITIES if level >= least), _DEBUG)


def _escape(record: logging.LogRecord) -> bool:
    """Make the record's message one line, and its traceback, if any, harmless ones."""
    record.msg, record.args = printable(record.getMessage()), None
    if record.exc_info:
        # The formatter takes a text that is there already.
        text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = "\n".join(map(printable, text.splitlines()))
    return True


def greeting(
    *,
    cards: Sequence[str],
    dynamo: Sequence[str],
    socket: str,
    default_socket: bool,
    name: str | None = None,
) -> str:
    """Return what to tell a person at a terminal once the daemon serves: where, and what to try.

    `default_socket`: clients find it by themselves. `name`: a served name to try.
    """
    places = [("Drop cards into", path) for path in cards]
    places += [("Dynamo store", path) for path in dynamo]
    places += [("Listening on", socket)]
    ctl = _control_command()
    if not default_socket:
        ctl += f" --socket {shlex.quote(socket)}"
    attempts = ["list", f"resolve {shlex.quote(name) if name else 'NAME'}", "explain"]
    lines = [
        f"discoveryd {__version__} is serving. Ctrl-C ends it.",
        "",
        *(f"  {what:<16} {path}" for what, path in places),
        "",
        "Try in another terminal:",
        "",
        *(f"  {ctl} {attempt}" for attempt in attempts),
        "",
    ]
    return "\n".join(map(printable, lines))


def _control_command() -> str:
    """Return how another terminal calls this installation's discoveryctl."""
    installed = Path(sys.executable).with_name("discoveryctl")
    found = shutil.which("discoveryctl")
    if not installed.exists() or (found and Path(found).samefile(installed)):
        return "discoveryctl"
    return shlex.quote(str(installed))
