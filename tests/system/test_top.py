"""discoveryctl top on a terminal, with a real daemon: it follows, survives restarts, and ends."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.dropping import GOOD, Host, write
from tests.system.running import Daemon, environment, until

_SIGNALLED_EARLY = """
import os, signal
from discoveryd.client.top import live
drawn = live._drawn
def draw_late(*arguments):
    os.kill(os.getpid(), signal.SIGHUP)
    return drawn(*arguments)
live._drawn = draw_late
from discoveryd.client.ctl.start import main
main()
"""
PROGRAM = (sys.executable, "-c", "from discoveryd.client.ctl.start import main; main()", "top")
DEADLINE = 20
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Screen:
    """One discoveryctl top on a terminal of its own, and what it has drawn so far."""

    def __init__(self, socket: Path, *options: str, columns: int = 100, lines: int = 24) -> None:
        self.terminal, inside = pty.openpty()
        self.resize(columns, lines)
        self._modes = termios.tcgetattr(inside)
        self._inside = inside
        self._drawn = bytearray()
        self.process = subprocess.Popen(
            [*PROGRAM, "--socket", str(socket), *options],
            env=environment(TERM="xterm", COLUMNS="77", LINES="7"),
            stdin=inside,
            stdout=inside,
            stderr=inside,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while part := os.read(self.terminal, 65536):
                self._drawn += part

    @property
    def output(self) -> str:
        return bytes(self._drawn).decode(errors="replace")

    def picture(self) -> str:
        """Return the text of the last picture, of which the end may still be missing."""
        return _ESCAPES.sub("", self.output.rpartition("\x1b[H")[2])

    def until_shown(self, text: str) -> None:
        until(lambda: text in self.picture(), f"{text!r} is shown", DEADLINE)

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)

    def press(self, key: bytes) -> None:
        os.write(self.terminal, key)

    def ended(self) -> int:
        """Return its exit status, having seen that it gave the terminal back as it was."""
        status = self.process.wait(DEADLINE)
        until(lambda: "\x1b[?1049l" in self.output, "the usual screen is back")
        assert self.output.rindex("\x1b[?25h") > self.output.rindex("\x1b[?25l")
        assert termios.tcgetattr(self._inside) == self._modes
        assert "Traceback" not in self.output
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._inside)
        self._reader.join(DEADLINE)
        os.close(self.terminal)


Show = Callable[..., Screen]


@pytest.fixture
def show() -> Iterator[Show]:
    """Give a function that shows what a daemon serves on a terminal."""
    with contextlib.ExitStack() as ends:

        def shown(socket: Path, *options: str, **size: int) -> Screen:
            screen = Screen(socket, *options, **size)
            ends.callback(screen.close)
            return screen

        yield shown


def test_it_follows_what_is_served_and_what_waits(host: Host, show: Show) -> None:
    host.put("good", GOOD)
    screen = show(host.daemon.socket)
    screen.until_shown("good   yes    1")
    host.put("other", GOOD | {"display_name": "other", "url": "http://127.0.0.1:8002"})
    screen.until_shown("other")
    host.put("clash", GOOD)
    screen.until_shown("duplicate")
    host.remove(host.cards / "clash.json")
    until(lambda: "WAITING" not in screen.picture(), "nothing waits any more", DEADLINE)
    screen.press(b"q")
    assert screen.ended() == 0
    assert screen.output.startswith("\x1b[?1049h"), "it has a screen of its own"


@pytest.mark.parametrize("key", [b"q", b"\x03", b"\x04"], ids=["q", "Ctrl-C", "Ctrl-D"])
def test_a_key_ends_it(host: Host, show: Show, key: bytes) -> None:
    screen = show(host.daemon.socket)
    screen.until_shown("no name is served")
    screen.press(b"x")
    screen.press(key)
    assert screen.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(host: Host, show: Show, number: signal.Signals) -> None:
    screen = show(host.daemon.socket)
    screen.until_shown("no name is served")
    screen.process.send_signal(number)
    assert screen.ended() == 0


def test_a_signal_before_the_first_picture_ends_it_too(
    host: Host, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (sys.executable, "-c", _SIGNALLED_EARLY, "top")
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", program)
    assert show(host.daemon.socket).ended() == 0


def test_it_survives_the_daemons_restart_and_says_how_old_the_picture_is(
    start: Callable[..., Daemon], show: Show
) -> None:
    first = start().wait_ready()
    write(first.cards / "good.json", GOOD)
    screen = show(first.socket)
    screen.until_shown("good   yes    1")
    first.stop()
    screen.until_shown("no daemon: this is as of ")
    assert "good" in screen.picture()
    second = start().wait_ready()
    until(lambda: "no daemon" not in screen.picture(), "it follows the new one", DEADLINE)
    write(second.cards / "more.json", GOOD | {"display_name": "more", "url": "http://127.0.0.1:9"})
    screen.until_shown("more")
    screen.press(b"q")
    assert screen.ended() == 0


def test_another_size_of_the_terminal_is_taken_over(host: Host, show: Show) -> None:
    for number in range(20):
        write(
            host.cards / f"{number}.json",
            GOOD | {"display_name": f"m{number}", "url": f"http://h{number}:1"},
        )
    host.client.sync()
    screen = show(host.daemon.socket, columns=100, lines=30)
    screen.until_shown("m19")
    screen.resize(60, 10)
    screen.process.send_signal(signal.SIGWINCH)
    screen.until_shown("more models: discoveryctl list")
    assert "ALSO" not in screen.picture()
    screen.press(b"q")
    assert screen.ended() == 0


def test_a_terminal_that_is_gone_ends_it(host: Host) -> None:
    terminal, inside = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "--socket", str(host.daemon.socket)],
        env=environment(TERM="xterm"),
        stdin=inside,
        stdout=inside,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(inside)
        drawn = b""
        while b"no name is served" not in drawn:
            drawn += os.read(terminal, 65536)
        os.close(terminal)
        _, errors = process.communicate(timeout=DEADLINE)
        assert (process.returncode, errors) == (0, b"")


def test_without_a_daemon_the_terminal_is_left_alone(root: Path, show: Show) -> None:
    screen = show(root / "nobody", "--timeout", "0.5")
    assert screen.process.wait(DEADLINE) == 3
    until(lambda: "no discoveryd answers" in screen.output, "why it ended")
    assert "\x1b[?1049h" not in screen.output


def test_a_terminal_that_does_not_say_its_size_is_taken_for_a_usual_one(
    host: Host, show: Show
) -> None:
    host.put("good", GOOD)
    screen = show(host.daemon.socket, columns=0, lines=0)
    screen.until_shown("MODEL  READY  WORKERS  ALSO  AT")
    screen.press(b"q")
    assert screen.ended() == 0
