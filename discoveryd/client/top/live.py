"""The view that stays: what changes is drawn as it comes, until a key or a signal ends it.

Theory
======

**What is asked.** Names and workers come by themselves, with the live view of the client
(`Models`), which survives the daemon's restarts. What waits is in no stream: so the status is asked
for when something changed, and else once a second, and what waits only where the status has another
cursor than the last answer. Each is asked at most once a second, however much changes.

**What is drawn.** After each change, and once a second, since ages change by themselves. While the
daemon is away the last picture stays, and says how old it is.

**The terminal** is given back as it was, whatever ends the view: its other screen, its modes. So
signals are heard before the terminal is touched. One that is gone ends the view.
"""

import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress

import anyio
from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

from discoveryd.client.aio import AsyncClient
from discoveryd.client.errors import DiscoverydError
from discoveryd.client.top.drawing import console_on, draw
from discoveryd.client.top.picture import Picture, picture
from discoveryd.client.view import Models
from discoveryd.interface import Cursor, Status, Verdict

ASK_SECONDS = 1.0
"""At most so often is the daemon asked, and at least so often the picture drawn."""

DRAW_SECONDS = 0.1
"""At most so often is the picture drawn."""

_ENDING = frozenset((b"q", b"Q", b"\x03", b"\x04"))
"""Keys that end the view: q, Ctrl-C, Ctrl-D."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)

_USUAL = os.terminal_size((80, 24))
"""What a terminal is taken for that does not say its size."""

_LFLAG, _CC = 3, 6


class Top:
    """What is known at the moment: what `models` serves, and what `client` was told last."""

    def __init__(self, models: Models, client: AsyncClient) -> None:
        self._models = models
        self._client = client
        self._status: Status | None = None
        self._waiting: tuple[Verdict, ...] = ()
        self._asked_at: Cursor | None = None
        self._news = anyio.Event()

    def picture(self) -> Picture:
        """Return what is to be seen now."""
        models = self._models
        return picture(
            models.names(), models.workers(), self._waiting, self._status, models.stale_seconds
        )

    async def ask(self) -> None:
        """Ask how the daemon is, and, after a change, what waits. Raises DiscoverydError."""
        self._status = await self._client.status()
        if self._status.cursor != self._asked_at:
            explained = await self._client.explain()
            self._waiting, self._asked_at = explained.verdicts, explained.cursor
        self.poke()

    async def keep_asking(self) -> None:
        """Ask, again and again, until cancelled. A daemon that is away is tried again."""
        while True:
            with suppress(DiscoverydError):
                await self.ask()
            await anyio.sleep(ASK_SECONDS)

    async def keep_following(self) -> None:
        """See what `models` is told, until cancelled."""
        seen = self._models.cursor
        while True:
            seen = await self._models.changed(seen)
            self.poke()

    def poke(self) -> None:
        """Have the picture drawn soon."""
        self._news.set()

    async def news(self) -> None:
        """Return when there is something new to draw, or ages have changed."""
        with anyio.move_on_after(ASK_SECONDS):
            await self._news.wait()
        self._news = anyio.Event()


async def show_live(socket: str | None, patience: float) -> None:
    """Show what is served on the terminal until it is to end.

    Raises DiscoverydError where no daemon is there at first, within `patience` seconds.
    """
    following = Models.follow(socket, timeout=patience)
    async with following as models, AsyncClient(socket, timeout=patience) as client:
        top = Top(models, client)
        with suppress(DiscoverydError):
            await top.ask()
        heard = anyio.open_signal_receiver(*_SIGNALS)
        with heard as signals, suppress(OSError, termios.error), _keys_at_once():
            await _show(top, signals)


async def _show(top: Top, signals: AsyncIterator[signal.Signals]) -> None:
    console = console_on(sys.stdout)
    with Live(_drawn(top, console), console=console, screen=True, auto_refresh=False) as live:
        async with anyio.create_task_group() as tasks:
            end = tasks.cancel_scope.cancel
            tasks.start_soon(top.keep_asking)
            tasks.start_soon(top.keep_following)
            tasks.start_soon(_await_signal, signals, top, end)
            if sys.stdin.isatty():
                tasks.start_soon(_await_key, end)
            await _keep_drawing(top, live, end)


async def _keep_drawing(top: Top, live: Live, end: Callable[[], None]) -> None:
    """Draw until cancelled, or until the terminal is gone."""
    while True:
        await top.news()
        try:
            live.update(_drawn(top, live.console), refresh=True)
        except OSError:
            end()
        await anyio.sleep(DRAW_SECONDS)


def _drawn(top: Top, console: Console) -> RenderableType:
    """Return the picture as it fits the terminal now.

    The terminal itself is asked, since COLUMNS and LINES do not follow it.
    """
    width, height = os.get_terminal_size(console.file.fileno())
    console.size = ConsoleDimensions(width or _USUAL.columns, height or _USUAL.lines)
    return draw(top.picture(), console.width, console.height)


async def _await_signal(
    signals: AsyncIterator[signal.Signals], top: Top, end: Callable[[], None]
) -> None:
    """End at a signal that asks for it; draw anew where the terminal has another size."""
    async for number in signals:
        if number != signal.SIGWINCH:
            end()
        top.poke()


async def _await_key(end: Callable[[], None]) -> None:
    """End at a key that asks for it, or where there will be no more keys."""
    keyboard = sys.stdin.fileno()
    while True:
        await anyio.wait_readable(keyboard)
        try:
            pressed = os.read(keyboard, 64)
        except OSError:
            pressed = b""
        if not pressed or any(pressed[at : at + 1] in _ENDING for at in range(len(pressed))):
            end()
            return


@contextmanager
def _keys_at_once() -> Generator[None]:
    """Have keys read as they are pressed, and not shown; afterwards as it was.

    None of them is a signal: after Ctrl-Z the shell would come back on the wrong screen.
    """
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    modes = termios.tcgetattr(keyboard)
    modes[_LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    modes[_CC][termios.VMIN], modes[_CC][termios.VTIME] = 1, 0
    termios.tcsetattr(keyboard, termios.TCSADRAIN, modes)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
