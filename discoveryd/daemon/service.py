"""The daemon as a process: signals in, signs to the service manager out.

What the daemon does is run.py's; here is what happens to the process it runs in. SIGTERM and SIGINT
end it, in good order. SIGHUP reads the configuration again, at any time: one that comes before
anybody could act on it is held back by the kernel (`hangups_held`) and told once somebody can; one
that comes during a reload is followed by another reload; one that comes at the end is ignored.
Never does it end the process, which is what it would do by itself. So it is no signal of the
loop's: when a loop lets go of one, it ends the process again, in whatever thread it arrives.
"""

import asyncio
import importlib.util
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import NamedTuple

import anyio

from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.systemd.activation import Passed
from discoveryd.daemon.systemd.notify import Notifier
from discoveryd.daemon.systemd.watchdog import feed

STATUS_SECONDS = 1.0
"""How often the manager is told how the daemon is, at most."""

_log = logging.getLogger(__name__)


class Manager(NamedTuple):
    """Who started the process, as far as it matters: whom to tell, and what it gave.

    `watchdog_seconds` is how long the process may give no sign of life; None is for ever.
    """

    notifier: Notifier
    watchdog_seconds: float | None = None
    passed: Passed = Passed()


@contextmanager
def hangups_held() -> Generator[None]:
    """Hold SIGHUP back from the process; afterwards, when it is ending, ignore it.

    `serve` lets it through for as long as it runs.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(config: Config, reconfigure: Callable[[], Config], manager: Manager) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status. For the main thread.

    `reconfigure` reads the configuration again. The notifier and the sockets that were passed in
    are closed at the end. Raises StartError, maybe in a group, where the host does not let it
    start.
    """
    fast = importlib.util.find_spec("uvloop") is not None
    serving = partial(_serve, config, reconfigure, manager)
    try:
        return anyio.run(serving, backend_options={"use_uvloop": fast})
    finally:
        for passed in (*manager.passed.sockets, *manager.passed.http):
            passed.close()
        manager.notifier.close()


async def _serve(config: Config, reconfigure: Callable[[], Config], manager: Manager) -> int:
    # Late, so that usage errors do not wait for it.
    from discoveryd.daemon.run import Daemon  # noqa: PLC0415

    notifier, watchdog_seconds, passed = manager
    for warning in passed.warnings:
        _log.warning("%s", warning)
    daemon = Daemon(config, reconfigure=reconfigure, notifier=notifier, passed=passed)
    hangups = _Hangups(daemon.reload)
    received = anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
    with received as signals, _hangups_heard(hangups.ask):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_heed, signals, daemon.stop)
            tasks.start_soon(hangups.run)
            if watchdog_seconds is not None:
                tasks.start_soon(feed, notifier, watchdog_seconds, daemon.silent)
            if notifier.heard:
                tasks.start_soon(_tell_status, notifier, daemon.summary)
            await daemon.run()
            tasks.cancel_scope.cancel()
    return 0


@contextmanager
def _hangups_heard(hear: Callable[[], None]) -> Generator[None]:
    """Call `hear` on the running loop for each SIGHUP, also for one that came before.

    Afterwards they are ignored, in all threads.
    """
    loop = asyncio.get_running_loop()

    def received(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(hear)

    signal.signal(signal.SIGHUP, received)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


class _Hangups:
    """Reloads after each SIGHUP, one reload after the other."""

    def __init__(self, reload: Callable[[], Awaitable[object]]) -> None:
        self._reload = reload
        self._asked = anyio.Event()

    def ask(self) -> None:
        """Let a reload begin after this, at once or after the one that goes on."""
        _log.info("reading the configuration again on SIGHUP")
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever asked."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            await self._reload()


async def _heed(signals: AsyncIterator[signal.Signals], stop: Callable[[], None]) -> None:
    """Let the daemon end on the first signal; act on none any more."""
    async for received in signals:
        _log.info("ending on %s", signal.Signals(received).name)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop()
        return


async def _tell_status(notifier: Notifier, summary: Callable[[], str]) -> None:
    """Keep the status line true."""
    notifier.status("looking at all cards for the first time")
    while True:
        await anyio.sleep(STATUS_SECONDS)
        if notifier.told_ready:
            notifier.status(summary())
