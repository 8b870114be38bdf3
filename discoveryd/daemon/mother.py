"""A process that has imported everything, and forks a daemon whenever it is asked for one.

For tests, which want a daemon each: `client/testing` starts it, and holds the other end of its
pipes. Nothing here is used by a daemon that serves.

Theory
======

**Why.** Nine tenths of a daemon's start are imports. A thread of the test's process would not need
them either, but would be no daemon: nobody could kill it. So one process imports once, does nothing
else, and forks; what it forks is a process with a log, signals and descriptors of its own, and runs
the command `discoveryd serve` from its first line. It has one thread, since a fork copies one.

**What is said.** A JSON object a line on standard input, each answered by one on standard output:

    {"serve": ["--config", "/x/config.toml"], "log": "/x/log"}    {"pid": 4711}
    {"reap": 4711}                                                {"status": 0}

`serve` returns at once, with the daemon's flags to come and its output going to `log`. `reap` is
asked of a daemon that has ended, and only then; until then its number is nobody else's, so that the
asker may open a pidfd of it in peace. `status` is the exit status, or minus the number of the
signal that ended it. A request that cannot be met is answered by {"error": "why"}.

**Nobody is left behind.** The mother ends when its input does, or when the process that started it
is gone, however that went. Then it kills its daemons, and removes the directory that it was given,
in which they live. Where it is killed itself, the kernel kills its daemons.
"""

import ctypes
import gc
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import anyio

from discoveryd.daemon import cli

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_READ_BYTES = 1 << 16


def main(directory: str) -> None:
    """Fork daemons as asked on standard input, until nobody can ask any more.

    What they have made below `directory` is removed at the end, with the directory.
    """
    import_module("discoveryd.daemon.run")
    anyio.run(_turn_once, backend_options={"use_uvloop": True})
    gc.collect()
    gc.freeze()  # what stays is not looked at, and so not copied, in every daemon
    daemons: set[int] = set()
    starter = os.pidfd_open(os.getppid())
    try:
        for request in _requests(starter):
            try:
                answer = _answer(request, starter, daemons)
            except OSError as fault:
                answer = {"error": fault.strerror or str(fault)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    except BrokenPipeError:
        pass
    finally:
        for pid in daemons:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        shutil.rmtree(directory, ignore_errors=True)


async def _turn_once() -> None:
    """Do nothing in a loop: it imports whatever a loop needs, and leaves nothing else behind."""


def _requests(starter: int) -> Iterator[Any]:
    """Yield what is asked, until the input ends or the process of the pidfd `starter` has."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(starter, select.POLLIN)
    unread = b""
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if starter in ready or not (piece := os.read(0, _READ_BYTES)):
            return
        *lines, unread = (unread + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _answer(request: Any, starter: int, daemons: set[int]) -> dict[str, object]:  # noqa: ANN401 - JSON
    if "reap" in request:
        _, status = os.waitpid(request["reap"], 0)
        daemons.discard(request["reap"])
        return {"status": os.waitstatus_to_exitcode(status)}
    mother = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_daemon(request["serve"], request["log"], mother, starter)
    daemons.add(pid)
    return {"pid": pid}


def _become_daemon(flags: list[str], log: str, mother: int, starter: int) -> NoReturn:
    """Run a daemon in this process, which was forked for it, and end the process with it."""
    status = 1
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != mother:
            os._exit(status)
        os.close(starter)
        _redirect(log)
        status = cli.main(["serve", *flags])
    except BaseException as error:  # noqa: BLE001 - told as the interpreter would tell it
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        # Not by leaving the mother's frames, whose end is to kill all daemons.
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _redirect(log: str) -> None:
    """Let standard input be empty, and everything that is written go to the log."""
    empty = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, meant in ((empty, 0), (written, 1), (written, 2)):
        os.dup2(descriptor, meant)
    os.close(empty)
    os.close(written)


if __name__ == "__main__":
    main(sys.argv[1])
