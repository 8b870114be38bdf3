"""Keeps a file up to date with what is served, and runs a command after each change of it.

What the file says is the formats' business.

Theory
======

**The file** is replaced by a rename, so its readers see the old text or the new one. Where the text
is what it was, nothing is written and nothing run: whoever starts this anew disturbs nobody. A link
is followed, and what it leads to is replaced.

**Changes** are taken together: after each look at the view there is a pause, and what changed in it
is one write. While the daemon is away the view says what was true last, and so does the file.

**The command** is run on its own, and a write does not wait for it. It never runs twice at once;
any number of writes while it runs lead to one more run, which sees the last of them.

**Failures** after the first write end nothing: they are told, and the next look tries again.
"""

import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio

from discoveryd.client.exporting.served import Served
from discoveryd.client.view import Models
from discoveryd.client.workers import publishing
from discoveryd.client.workers.publishing import CannotWrite, shown
from discoveryd.core.text import printable, shortened

Format = Callable[[Served], str]
Tell = Callable[[str], None]
"""Tells people a sentence."""

PAUSE_SECONDS = 1.0
"""Between two writes at least."""

RETRY_SECONDS = 10.0
"""Until a write that failed is tried again, whether or not something has changed."""

GRACE_SECONDS = 5.0
"""For a command that runs at the end; it is killed then."""

_LONGEST_COMMAND = 120
"""Characters of a command that are shown."""


def put(output: str, text: str) -> bool:
    """Let the file hold the text; return whether it did not before.

    It keeps its mode and its owner; a new one is readable for all. Raises CannotWrite, and then
    changes nothing.
    """
    path = os.path.realpath(output)
    content = text.encode()
    try:
        like = Path(path).stat()
    except FileNotFoundError:
        like = None
    except OSError as fault:
        raise CannotWrite(f"cannot write {shown(path)}: {fault.strerror}") from None
    if like is not None and not stat.S_ISREG(like.st_mode):
        raise CannotWrite(f"cannot write {shown(path)}: it is no regular file")
    if like is not None and like.st_size == len(content) and _read(path) == content:
        return False
    publishing.write(path, content, like)
    return True


class Keeping:
    """One file, what it is written in, and the shell command to run after each change, if any."""

    def __init__(self, output: str, form: Format, command: str | None, tell: Tell) -> None:
        self._output = output
        self._form = form
        self._command = command
        self._tell = tell
        self._due = anyio.Event()

    def write(self, models: Models) -> None:
        """Write what is served now, and let the command run if that is news. Raises CannotWrite."""
        served = Served.of(models.names(), models.workers())
        if put(self._output, self._form(served)):
            self._due.set()

    async def keep(self, models: Models) -> None:
        """Write whenever something changed, and run the command; until cancelled.

        `write` should have been called before, so that a place where nothing can be written is told
        by an exception.
        """
        async with anyio.create_task_group() as tasks:
            if self._command is not None:
                tasks.start_soon(self._run_when_due, self._command)
            told: str | None = None
            while True:
                await anyio.sleep(PAUSE_SECONDS)
                seen = models.cursor
                try:
                    self.write(models)
                except CannotWrite as fault:
                    if str(fault) != told:
                        told = str(fault)
                        self._tell(told)
                else:
                    told = None
                patience = None if told is None else RETRY_SECONDS
                with anyio.move_on_after(patience):
                    await models.changed(seen)

    async def _run_when_due(self, command: str) -> None:
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            await self._run(command)

    async def _run(self, command: str) -> None:
        """Run the command to its end. When cancelled, it has some time for that."""
        try:
            process = await anyio.open_process(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=None,
            )
        except OSError as fault:
            self._tell(f"cannot run {_named(command)}: {fault.strerror}")
            return
        async with process:
            try:
                status = await process.wait()
            except anyio.get_cancelled_exc_class():
                with anyio.move_on_after(GRACE_SECONDS, shield=True):
                    await process.wait()
                raise
        if status < 0:
            self._tell(f"{_named(command)} was ended by {_signal(-status)}")
        elif status > 0:
            self._tell(f"{_named(command)} failed: exit status {status}")


def _read(path: str) -> bytes | None:
    """Return what the file holds; None where that cannot be told."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _named(command: str) -> str:
    return f"'{printable(shortened(command, _LONGEST_COMMAND))}'"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
