"""discoveryctl wait: it returns when the name is served, and says why not as long as it is not."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.dropping import Host, Json, write
from tests.system.running import Daemon, environment, until

DEADLINE = 30
PROGRAM = (sys.executable, "-c", "from discoveryd.client.ctl.start import main; main()", "wait")
LLAMA: Json = {"display_name": "llama", "source_path": "/m", "url": "http://127.0.0.1:8001"}
SECOND = LLAMA | {"url": "http://127.0.0.1:8002"}
REFUSED = LLAMA | {"display_name": "next", "aliases": ["llama"], "url": "http://127.0.0.1:8003"}


class Waiting:
    """One discoveryctl wait, and what it has said so far."""

    def __init__(self, directory: Path, socket: Path, *args: str) -> None:
        self._said = directory / "said"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*PROGRAM, *args],
                env=environment(DISCOVERYD_SOCKET=str(socket)),
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def said(self) -> list[str]:
        return self._said.read_text().splitlines()

    def until_said(self, beginning: str) -> None:
        until(lambda: any(line.startswith(beginning) for line in self.said()), beginning)

    def ended(self) -> tuple[int, str]:
        """Return its exit status and what it printed, once it has ended."""
        out, _ = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out


Begin = Callable[..., Waiting]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Give a function that waits for a name, asking a daemon."""
    with contextlib.ExitStack() as ends:

        def waiting(socket: Path, *args: str) -> Waiting:
            begun = Waiting(tmp_path, socket, *args)
            ends.enter_context(begun.process)
            ends.callback(begun.process.kill)
            return begun

        yield waiting


def test_a_name_that_is_served_is_not_waited_for(host: Host, begin: Begin) -> None:
    host.put("llama", LLAMA)
    waiting = begin(host.daemon.socket, "llama")
    status, out = waiting.ended()
    assert (status, waiting.said()) == (0, [])
    assert out.startswith("llama: 1 worker\n")
    assert "http://127.0.0.1:8001" in out


def test_it_ends_when_the_card_comes(host: Host, begin: Begin) -> None:
    waiting = begin(host.daemon.socket, "llama", "--json")
    waiting.until_said("waiting for llama: no card asks for it")
    host.put("llama", LLAMA)
    status, out = waiting.ended()
    assert (status, len(waiting.said())) == (0, 1)
    assert [worker["url"] for worker in json.loads(out)["workers"]] == [LLAMA["url"]]


def test_a_card_that_does_not_serve_is_told_with_its_reason(host: Host, begin: Begin) -> None:
    host.put("other", LLAMA | {"display_name": "other", "aliases": ["x"]})
    waiting = begin(host.daemon.socket, "next")
    waiting.until_said("waiting for next: no card asks for it")
    host.put("next", REFUSED | {"aliases": ["x"]})
    waiting.until_said('waiting for next: next.json is refused: "next"')
    write(host.cards / "next.json", b"{")
    host.put("next", REFUSED)
    assert waiting.ended()[0] == 0


def test_workers_are_counted(host: Host, begin: Begin) -> None:
    waiting = begin(host.daemon.socket, "llama", "--workers", "2")
    waiting.until_said("waiting for llama: no card asks for it")
    host.put("1", LLAMA)
    waiting.until_said("waiting for llama: 1 of 2 workers")
    host.put("2", SECOND | {"accepting": False})
    assert waiting.process.poll() is None, "one that drains does not count"
    host.put("2", SECOND)
    status, out = waiting.ended()
    assert status == 0
    assert out.startswith("llama: 2 workers\n")


def test_a_name_that_is_not_ready_is_waited_for(host: Host, begin: Begin) -> None:
    host.put("1", LLAMA | {"worker_type": "prefill", "needs": [["decode"]]})
    waiting = begin(host.daemon.socket, "llama")
    waiting.until_said("waiting for llama: its workers are incomplete; missing: decode")
    host.put("2", SECOND | {"worker_type": "decode", "needs": [["prefill"]]})
    assert waiting.ended()[0] == 0


def test_after_the_timeout_the_last_reason_is_told(host: Host, begin: Begin) -> None:
    host.put("llama", LLAMA)
    host.put("next", REFUSED)
    waiting = begin(host.daemon.socket, "next", "--timeout", "2")
    status, out = waiting.ended()
    assert (status, out) == (4, "")
    assert waiting.said()[-1].startswith(
        'discoveryctl: next is not there after 2 s: next.json is refused: "next"'
    )


def test_a_daemon_is_waited_for_and_survives_its_restarts(
    root: Path, start: Callable[..., Daemon], begin: Begin
) -> None:
    waiting = begin(root / "s", "llama")
    waiting.until_said(f"waiting for llama: no discoveryd answers ({root}/s: there is no such")
    first = start().wait_ready()
    waiting.until_said("waiting for llama: no card asks for it")
    first.stop()
    until(lambda: len(waiting.said()) > 2, "that the daemon has gone")
    second = start().wait_ready()
    write(second.cards / "llama.json", LLAMA)
    status, out = waiting.ended()
    assert status == 0
    assert "http://127.0.0.1:8001" in out


def test_a_socket_that_may_not_be_used_is_told(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    waiting = begin(tmp_path / "file", "llama", "--timeout", "0.5")
    assert waiting.ended()[0] == 4
    assert "nobody listens there" in waiting.said()[-1]


def test_an_interrupt_ends_it_quietly(host: Host, begin: Begin) -> None:
    waiting = begin(host.daemon.socket, "llama")
    waiting.until_said("waiting for llama")
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.ended() == (130, "")
    assert [line for line in waiting.said()[1:] if line] == []


def test_on_a_terminal_there_is_one_line_that_is_gone_at_the_end(host: Host) -> None:
    ours, its = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with subprocess.Popen(
            [*PROGRAM, "llama"],
            env=environment(DISCOVERYD_SOCKET=str(host.daemon.socket)),
            stdout=subprocess.PIPE,
            stderr=its,
            text=True,
        ) as waiting:
            os.close(its)
            shown = b""
            while b"no card asks for it" not in shown:
                shown += screen.read(65536)
            host.put("llama", LLAMA)
            out, _ = waiting.communicate(timeout=DEADLINE)
        with contextlib.suppress(OSError):  # how Linux says that nobody holds the other end
            while data := screen.read(65536):
                shown += data
    assert (waiting.returncode, out.startswith("llama: 1 worker\n")) == (0, True)
    assert b"\n" not in shown
    assert shown.endswith(b"\r\x1b[K")
    assert re.sub(rb"\r\x1b\[K", b"", shown) == b"waiting for llama: no card asks for it"
