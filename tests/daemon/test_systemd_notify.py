"""What the service manager is told, and that it never gets into the daemon's way."""

import logging
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discoveryd.daemon.systemd.notify import OWED_LIMIT, Notifier
from tests.system.running import short_directory


class Manager:
    """Stands in for the service manager: a datagram socket, read when asked."""

    def __init__(self, address: str | bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """Take all messages that are there."""
        messages: list[str] = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


Hear = Callable[[], list[str]]


@pytest.fixture
def path() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory / "notify"


@pytest.fixture
def hear(path: Path) -> Iterator[Hear]:
    manager = Manager(str(path))
    yield manager.heard
    manager.close()


@pytest.fixture
def notifier(path: Path) -> Iterator[Notifier]:
    notifier = Notifier(str(path))
    yield notifier
    notifier.close()


def tell_everything(notifier: Notifier) -> None:
    notifier.status("beginning")
    notifier.ready("ready")
    notifier.watchdog()
    notifier.reloading()
    notifier.stopping()


def test_ready_comes_with_its_status_in_one_message(hear: Hear, notifier: Notifier) -> None:
    assert not notifier.told_ready
    notifier.ready("7 workers, 3 models")
    assert notifier.told_ready
    assert hear() == ["READY=1\nSTATUS=7 workers, 3 models"]


def test_a_reload_is_told_with_its_time_in_one_message(hear: Hear, notifier: Notifier) -> None:
    """B100: systemd waits for a time after its own."""
    before = time.monotonic_ns() // 1000
    notifier.reloading()
    after = time.monotonic_ns() // 1000
    [message] = hear()
    found = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", message)
    assert found
    assert before <= int(found[1]) <= after


def test_the_other_signs_are_one_line_each(hear: Hear, notifier: Notifier) -> None:
    notifier.watchdog()
    notifier.stopping()
    assert hear() == ["WATCHDOG=1", "STOPPING=1"]


def test_a_status_is_told_only_where_it_is_another(hear: Hear, notifier: Notifier) -> None:
    notifier.ready("1 worker")
    for text in ("1 worker", "2 workers", "2 workers", "1 worker"):
        notifier.status(text)
    assert hear()[1:] == ["STATUS=2 workers", "STATUS=1 worker"]


def test_a_status_cannot_say_anything_else(hear: Hear, notifier: Notifier) -> None:
    notifier.status("a\nMAINPID=1\udcff")
    assert hear() == ["STATUS=a\\nMAINPID=1\\udcff"]


def test_the_variable_tells_the_address_and_is_removed(path: Path, hear: Hear) -> None:
    environ = {"NOTIFY_SOCKET": str(path), "HOME": "/"}
    notifier = Notifier.from_environment(environ)
    assert environ == {"HOME": "/"}
    assert notifier.heard
    notifier.watchdog()
    assert hear() == ["WATCHDOG=1"]
    notifier.close()


def test_an_address_may_be_in_the_abstract_namespace() -> None:
    name = f"discoveryd-{secrets.token_hex(8)}"
    manager = Manager(f"\0{name}")
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": f"@{name}"})
    notifier.watchdog()
    assert manager.heard() == ["WATCHDOG=1"]
    notifier.close()
    manager.close()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_a_manager_nothing_is_told_and_nothing_said(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    notifier = Notifier.from_environment(environ)
    tell_everything(notifier)
    assert not notifier.heard
    assert caplog.messages == []


@pytest.mark.parametrize("address", ["/nowhere/notify", "vsock:2:1234", "here", "/" + 200 * "x"])
def test_a_manager_that_cannot_be_reached_is_logged_once_and_harms_nobody(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = Notifier(address)
    tell_everything(notifier)
    tell_everything(notifier)
    notifier.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "service manager" in caplog.text


def fill(notifier: Notifier) -> None:
    """Send more than any queue has room for; that this returns is the promise."""
    for _ in range(5000):
        notifier.watchdog()


def test_what_the_manager_waits_for_is_sent_once_it_has_room(
    hear: Hear, notifier: Notifier, caplog: pytest.LogCaptureFixture
) -> None:
    fill(notifier)
    notifier.reloading()
    notifier.ready("1 worker")
    assert set(hear()) == {"WATCHDOG=1"}
    notifier.status("1 worker")
    first, second = hear()
    assert first.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert second == "READY=1\nSTATUS=1 worker"
    assert caplog.messages == []


def test_what_is_owed_comes_before_what_is_new(hear: Hear, notifier: Notifier) -> None:
    fill(notifier)
    notifier.ready("1 worker")
    hear()
    notifier.stopping()
    assert hear() == ["READY=1\nSTATUS=1 worker", "STOPPING=1"]


def test_a_status_for_which_there_was_no_room_is_told_later_if_it_is_still_true(
    hear: Hear, notifier: Notifier
) -> None:
    fill(notifier)
    notifier.status("1 worker")
    assert set(hear()) == {"WATCHDOG=1"}
    notifier.status("1 worker")
    assert hear() == ["STATUS=1 worker"]


def test_what_is_owed_does_not_grow_for_ever(hear: Hear, notifier: Notifier) -> None:
    fill(notifier)
    for _ in range(OWED_LIMIT):
        notifier.reloading()
        notifier.ready("again")
    hear()
    messages: list[str] = []
    while "WATCHDOG=1" not in messages:
        # The queue may have less room than what is owed.
        notifier.watchdog()
        messages += hear()
    assert len(messages) == OWED_LIMIT + 1
    assert messages[-2:] == ["READY=1\nSTATUS=again", "WATCHDOG=1"]


def test_who_is_stopping_is_neither_ready_nor_reloading_any_more(
    hear: Hear, notifier: Notifier
) -> None:
    notifier.ready("ready")
    notifier.reloading()
    notifier.stopping()
    hear()
    notifier.ready("7 workers")
    notifier.reloading()
    assert hear() == []


def test_a_closed_notifier_tells_nobody(hear: Hear, notifier: Notifier) -> None:
    notifier.ready("1 worker")
    notifier.close()
    notifier.close()
    tell_everything(notifier)
    assert len(hear()) == 1
