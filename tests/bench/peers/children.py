"""Programs of others that run for a while beside ours: begun, waited for, ended by their id."""

import contextlib
import http.client
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

READY_SECONDS = 60.0
LINE_SECONDS = 180.0
END_SECONDS = 5.0
POLL_SECONDS = 0.01


Child = subprocess.Popen[str]


class Missing(Exception):
    """A peer cannot be had here. The text says why, and what to do; it becomes a row's `missing`.

    Also what a peer does that was to be measured and failed: it takes no other row down.
    """


def program(name: str) -> str:
    """Return where a program is; raise Missing, which says how to get it."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"no {name} here; as root: python -m tests.bench --install-peers")
    return found


def free_port() -> int:
    """Return a TCP port of loopback that nobody listened on a moment ago."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


@contextlib.contextmanager
def child(
    command: Sequence[str | Path], log: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run a program meanwhile, its input and output being pipes of lines and its errors in `log`.

    It is killed in the end: nothing here outlives its measurement, nor does what it wrote.
    """
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=log.parent,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()
            process.wait(END_SECONDS)


def line(process: Child, log: Path, *, within: float = LINE_SECONDS) -> str:
    """Return the next line of a child's output.

    Raise Missing, with its last words, when it ends instead; one that is silent for too long is
    ended.
    """
    late = threading.Timer(within, process.kill)
    late.start()
    try:
        said = process.stdout.readline() if process.stdout else ""
    finally:
        late.cancel()
    if not said:
        raise Missing(f"{log.stem} has ended, or was silent for {within:g} s: {last_words(log)}")
    return said.strip()


def until(ready: Callable[[], bool], process: Child, log: Path) -> None:
    """Wait until a child is ready; raise Missing if it ends instead, or is not in a minute."""
    limit = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ready():
                return
        if process.poll() is not None or time.monotonic() > limit:
            raise Missing(f"{log.stem} did not come up: {last_words(log)}")
        time.sleep(POLL_SECONDS)


def last_words(log: Path) -> str:
    """Return the last line of a log, which mostly says what went wrong."""
    lines = log.read_text(errors="replace").split("\n")
    said = [each.strip() for each in lines if each.strip()]
    return said[-1][:200] if said else "it said nothing"
