"""What keeps cards alive in tests, and ends: processes, holds, touches."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from discoveryd.interface import Verdict
from tests.system.dropping import Host
from tests.system.raw import Raw, call
from tests.system.running import until

SOURCE = "/models/tiny"
NOBODY = 65534

KEEP_TOUCHING = """
import os, sys, time
while True:
    for path in sys.argv[1:]:
        os.utime(path)
    time.sleep(0.2)
"""

HOLD_UNTIL_KILLED = """
import socket, sys, time
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(sys.argv[2].encode() + b"\\0")
while True:
    time.sleep(60)
"""


def python(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def kept_touched(*paths: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Let a worker touch these files every fifth of a second, as it has when the body begins."""
    before = [path.stat().st_mtime_ns for path in paths]
    with python(KEEP_TOUCHING, *paths) as worker:
        try:
            until(lambda: [path.stat().st_mtime_ns for path in paths] != before, "it touches them")
            yield worker
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.kill()


class Holding:
    """A connection that holds files."""

    def __init__(self, path: Path, *files: str) -> None:
        self._peer = Raw(path)
        self._peer.send(call("Hold", {"files": files}, more=True))

    def answer(self) -> dict[str, Any]:
        answer = self._peer.receive()
        assert answer is not None, "the hold was ended"
        return answer

    def standings(self) -> list[str]:
        """Return the standings in the next answer."""
        return [verdict["standing"] for verdict in self.answer()["parameters"]["verdicts"]]

    def half_close(self) -> None:
        self._peer.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._peer.socket.close()

    def rest(self) -> list[dict[str, Any]]:
        return self._peer.rest()


Hold = Callable[..., Holding]


def reasons(verdict: Verdict) -> list[str]:
    return [reason.rule for reason in verdict.reasons]


def serves(host: Host, path: Path) -> bool:
    return host.client.explain(file=str(path)).verdicts[0].serves == "current"
