"""Three misses in a row drain, one answer takes back; and telling systemd."""

import socket
from pathlib import Path

import pytest

from discoveryd.client.notify import notify
from discoveryd.client.running.probing import Misses


def test_the_third_miss_in_a_row_drains_and_it_alone() -> None:
    misses = Misses()
    assert [misses.missed() for _ in range(5)] == [False, False, True, False, False]


def test_one_answer_takes_back_what_has_drained() -> None:
    misses = Misses()
    for _ in range(4):
        misses.missed()
    assert misses.answered()
    assert not misses.answered()


def test_an_answer_in_between_begins_the_count_anew() -> None:
    misses = Misses()
    for _ in range(3):
        assert not misses.missed()
        assert not misses.missed()
        assert not misses.answered()


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(monkeypatch: pytest.MonkeyPatch, directory: Path, abstract: bool) -> None:
    path = str(directory / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + path if abstract else path)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + path if abstract else path)
        notify("READY=1")
        assert systemd.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", [None, "", "/nowhere/n", "x" * 200, "\udcff"])
def test_nobody_to_tell_is_no_trouble(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
