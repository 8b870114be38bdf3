"""The watchdog is fed while the daemon does what it is there for, and only then."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from discoveryd.daemon.systemd.notify import Notifier
from discoveryd.daemon.systemd.watchdog import feed, interval_from_environment
from tests.daemon.disk import until
from tests.system.running import short_directory


class Dog:
    """Receives signs of life, and when they came."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.signs = 0

    def count(self) -> int:
        while True:
            try:
                assert self.socket.recv(100) == b"WATCHDOG=1"
            except BlockingIOError:
                return self.signs
            self.signs += 1


@pytest.fixture
def dog_and_notifier() -> Iterator[tuple[Dog, Notifier]]:
    with short_directory() as directory:
        dog = Dog(directory / "notify")
        notifier = Notifier(str(directory / "notify"))
        yield dog, notifier
        notifier.close()
        dog.socket.close()


@asynccontextmanager
async def feeding(notifier: Notifier, interval: float, silence: list[str]) -> Any:
    """Feed while the list of silences is empty."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed, notifier, interval, lambda: silence[0] if silence else None)
        yield
        tasks.cancel_scope.cancel()


def test_the_variables_tell_the_interval_and_are_removed() -> None:
    environ = {"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    assert interval_from_environment(environ) == 0.5
    assert environ == {"HOME": "/"}
    assert interval_from_environment({"WATCHDOG_USEC": "30000000"}) == 30.0


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "me"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-1"},
    ],
)
def test_nobody_watches_who_was_not_meant(environ: dict[str, str]) -> None:
    """B103: the variables are inherited by processes that are not watched."""
    assert interval_from_environment(environ) is None
    assert environ == {}


async def test_signs_come_at_least_three_times_in_an_interval(
    dog_and_notifier: tuple[Dog, Notifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    dog, notifier = dog_and_notifier
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr("discoveryd.daemon.systemd.watchdog.anyio.sleep", sleep)
    async with feeding(notifier, 30.0, []):
        with anyio.fail_after(10):
            while len(pauses) < 3:
                await anyio.lowlevel.checkpoint()
    assert set(pauses) == {10.0}
    assert dog.count() >= 3


async def test_a_blocked_loop_gives_no_sign(dog_and_notifier: tuple[Dog, Notifier]) -> None:
    """B103: no thread says that all is well."""
    dog, notifier = dog_and_notifier
    async with feeding(notifier, 0.5, []):
        await until(lambda: dog.count() >= 2)
        before = dog.count()
        time.sleep(1.0)  # noqa: ASYNC251  # the loop is blocked for twice the interval
        assert dog.count() == before
        await until(lambda: dog.count() > before)


async def test_what_has_stopped_stops_the_signs_and_is_logged_once(
    dog_and_notifier: tuple[Dog, Notifier], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dog, notifier = dog_and_notifier
    silence: list[str] = []
    asked = 0

    def silent() -> str | None:
        nonlocal asked
        asked += 1
        return silence[0] if silence else None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed, notifier, 0.03, silent)
        await until(lambda: dog.count() >= 1)
        silence.append("the watch of /c has not looked for news for 11 s")
        before, since = dog.count(), asked
        await until(lambda: asked >= since + 5)
        assert dog.count() == before
        silence[0] = "the watch of /c has not looked for news for 12 s"
        since = asked
        await until(lambda: asked >= since + 5)
        assert dog.count() == before
        silence.clear()
        await until(lambda: dog.count() > before)
        tasks.cancel_scope.cancel()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "the watchdog is not fed: the watch of /c has not looked for news for 11 s"),
        ("WARNING", "what had stopped goes on: the watchdog is fed again"),
    ]
