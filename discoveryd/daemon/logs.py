"""What the daemon says to people: log lines on stderr, and a greeting on a terminal.

A record is one line, whatever a card, a path or a peer put into it. Only a traceback, which is a
bug of ours, has several.
"""

import logging
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from discoveryd import __version__
from discoveryd.core.text import printable


def set_up(
    level: str, *, stream: TextIO | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Send every record of at least `level` to `stream` (stderr); replaces what was set up before.

    Lines carry the time, except where the journal reads them.
    """
    environ = os.environ if environ is None else environ
    lines = logging.StreamHandler(stream or sys.stderr)
    when = "" if "JOURNAL_STREAM" in environ else "%(asctime)s "
    lines.setFormatter(logging.Formatter(f"%(levelname)-7s {when}%(message)s"))
    lines.addFilter(_escape)
    logging.basicConfig(level=level.upper(), handlers=[lines], force=True)


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
