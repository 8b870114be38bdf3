"""Feeding the service manager's watchdog, for as long as the daemon does what it is there for.

Theory
======

**Who is fed.** The manager kills a service that gives no sign of life for WATCHDOG_USEC, and starts
it again. A sign that a thread gives says nothing of the loop, and one that the loop gives says
nothing of what should be going on beside it: so the loop gives it, and asks first what has stopped
ticking. A third of the interval lies between two, so that one may come late.

**What counts as stopped**: a blocked loop; a watch whose thread does not ask any more whether to
stop; a round that is overdue while nobody looks at the disk. These are bugs or lost threads, and a
new daemon is free of them.

**What does not**: a directory that is not there or is only polled, since it has no watch to tick;
and a look that hangs in the file system. That is told as a problem. A process with a thread in such
a wait cannot even be killed, a new one would hang at the same place before it is ready, and until
then nobody would answer for all other directories.

The manager begins to count when the service is ready. Signs given before are ignored.
"""

import logging
import os
from collections.abc import Callable, MutableMapping

import anyio

from discoveryd.daemon.systemd.notify import Notifier

_SHARE = 1 / 3

_log = logging.getLogger(__name__)


def interval_from_environment(environ: MutableMapping[str, str]) -> float | None:
    """Return after how many seconds without a sign of life this process will be killed.

    None where nobody watches it. Removes the variables that tell of it.
    """
    microseconds = environ.pop("WATCHDOG_USEC", "")
    pid = environ.pop("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return None
    if not microseconds.isdecimal() or not int(microseconds):
        return None
    return int(microseconds) / 1e6


async def feed(notifier: Notifier, interval: float, silent: Callable[[], str | None]) -> None:
    """Give signs of life often enough for `interval` seconds, while `silent` returns None.

    What it returns instead is logged. Never returns.
    """
    said: str | None = None
    while True:
        silence = silent()
        if silence is None:
            notifier.watchdog()
        if (silence is None) != (said is None):
            if silence is None:
                _log.warning("what had stopped goes on: the watchdog is fed again")
            else:
                _log.error("the watchdog is not fed: %s", silence)
        said = silence
        await anyio.sleep(interval * _SHARE)
