"""What every command of discoveryctl shares: its options, its daemon, its ways of printing.

The options are taken before and after the command's name; the later one counts. Everything that
goes to a person or a program leaves through here, so here is where output is made safe. What only
asking or JSON needs is imported with the first of either, since `--help` is to be fast.
"""

import math
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from discoveryd.core.text import printable

if TYPE_CHECKING:
    from discoveryd.client.blocking import Client

PROGRAM = "discoveryctl"

NO: Final = 1
NO_DAEMON: Final = 3
TIMED_OUT: Final = 4
INTERRUPTED: Final = 130

_Command = TypeVar("_Command", bound=Callable[..., Any])
_BMP_END = 0xFFFF
_TIMEOUT_SECONDS = 10.0


class Session:
    """One run of discoveryctl.

    `given_timeout` is what --timeout says, in seconds; None where nobody said it.
    """

    def __init__(self) -> None:
        self.socket: str | None = None
        self.json = False
        self.given_timeout: float | None = None

    @property
    def timeout(self) -> float:
        """How long one answer may take, in seconds."""
        return _TIMEOUT_SECONDS if self.given_timeout is None else self.given_timeout

    def client(self) -> "Client":
        """Return a client for the daemon that the options name."""
        from discoveryd.client.blocking import Client  # noqa: PLC0415 - --help has no use for it

        return Client(self.socket, timeout=self.timeout)

    def limit(self) -> int | None:
        """Return the width of the terminal, or None if the output goes elsewhere."""
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or None
        except (OSError, ValueError):
            return None

    def show(self, lines: Iterable[str]) -> None:
        """Print lines that are printable already."""
        _write("".join(f"{line}\n" for line in lines))

    def show_json(self, value: object) -> None:
        """Print a value as one line of JSON."""
        _write(json_line(value) + "\n")


pass_session = click.make_pass_decorator(Session, ensure=True)


def complain(sentence: str, *more: str) -> None:
    """Say on stderr what is wrong, in one line that names the program; `more` lines follow."""
    lines = [f"{PROGRAM}: {sentence}", *more]
    click.echo("\n".join(map(printable, lines)), err=True)


def json_line(value: object) -> str:
    """Return JSON without a line break, and without characters that could steer a terminal."""
    import msgspec  # noqa: PLC0415 - --help has no use for it

    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    # Outside its strings JSON is printable, and inside an escape means the same.
    return "".join(char if char.isprintable() else _json_escape(char) for char in text)


class Seconds(click.FloatRange):
    """A length of time. NaN is none: it is within every range, since it compares with nothing."""

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds; raises click.BadParameter for what is no length of time."""
        seconds = float(super().convert(value, param, ctx))  # type: ignore[arg-type]  # text, too
        if math.isnan(seconds):
            self.fail(f"{value!r} is no length of time.", param, ctx)
        return seconds


def shared_options(command: _Command) -> _Command:
    """Give a command the options that all of them take."""
    return options_but_timeout(_TIMEOUT(command))


def options_but_timeout(command: _Command) -> _Command:
    """Give a command that has a timeout of its own the other options that all of them take."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Keep what was given, here or before the command's name, for the session."""
    session = context.ensure_object(Session)
    if value is not None:
        setattr(session, parameter.name, value)


_OPTIONS = (
    click.option(
        "--socket",
        metavar="PATH",
        type=click.Path(readable=False),
        expose_value=False,
        callback=_remember,
        help="The daemon's socket.  [default: $DISCOVERYD_SOCKET, else yours, else the system's]",
    ),
    click.option(
        "--json",
        is_flag=True,
        default=None,
        expose_value=False,
        callback=_remember,
        help="Print JSON: one value, or one a line for a stream.",
    ),
)
_TIMEOUT = click.option(
    "--timeout",
    "given_timeout",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    expose_value=False,
    callback=_remember,
    help="How long to wait for the daemon.  [default: 10]",
)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. What is still buffered must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None


def _json_escape(char: str) -> str:
    code = ord(char)
    if code <= _BMP_END:
        return f"\\u{code:04x}"
    high, low = divmod(code - _BMP_END - 1, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
