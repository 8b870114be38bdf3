"""Restarts, crashes and hangs, as those see them who ask meanwhile."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.system.running import until
from tests.systemd.host import ASKER, BESIDE, CARDS, OTHER_WORKER, PATIENCE, WORKER, Host

pytestmark = pytest.mark.timeout(PATIENCE)

RESTARTS = 8
CRASHES = 20
COMES_BACK_SECONDS = 60.0
URL = "http://127.0.0.1:1"


@pytest.fixture
def served(host: Host) -> Host:
    """Give the host with a worker of `m`, and one that waits for the name."""
    host.put("m.json", user=WORKER, display_name="m", url=URL)
    host.ask("sync m.json")
    host.put("n.json", user=OTHER_WORKER, display_name="n", aliases=["m"])
    (verdict,) = host.ask("sync n.json")["verdicts"]
    assert verdict["standing"] == "blocked"
    return host


@contextmanager
def asked(host: Host, how: str) -> Iterator[dict[str, Any]]:
    """Ask for `m` all the time while the block runs; what was seen is there afterwards."""
    seen: dict[str, Any] = {}
    with host.box.beside(f"{BESIDE} {how}", user=ASKER) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        assert asking.stdout.readline() == "asking\n"
        yield seen
        asking.stdin.close()
        seen |= json.loads(asking.stdout.read())


def restart(host: Host) -> None:
    """Restart it some times, each time once somebody has had an answer."""
    for _ in range(RESTARTS):
        before = host.pid()
        host.must("systemctl restart discoveryd.service")
        assert host.pid() not in (0, before)
        assert host.urls("m") == [URL]


def wait_for_another(host: Host, pid: int) -> None:
    """Wait until systemd has started another process, ready or not."""
    until(lambda: host.pid() not in (0, pid), "another process", COMES_BACK_SECONDS)


def test_restarts_are_not_seen_by_those_who_come_and_go(served: Host) -> None:
    with asked(served, "varlinkctl") as seen:
        restart(served)
    assert seen["faults"] == []
    assert seen["answers"] > RESTARTS


def test_restarts_are_not_seen_through_our_client_on_one_connection(served: Host) -> None:
    with asked(served, "kept") as seen:
        restart(served)
    assert seen["faults"] == []
    assert seen["answers"] > RESTARTS


def test_a_restart_is_at_most_one_clean_end_of_a_connection(served: Host) -> None:
    with asked(served, "raw") as seen:
        restart(served)
    assert seen["faults"] == []
    assert 0 < seen["ends"] <= RESTARTS


def test_many_crashes_at_short_intervals_change_no_answer(served: Host) -> None:
    def verdicts() -> list[Any]:
        return [served.ask(f"explain {file}")["verdicts"] for file in ("m.json", "n.json")]

    before = verdicts()
    for _ in range(CRASHES):
        pid = served.pid()
        served.must(f"kill -9 {pid}")
        wait_for_another(served, pid)
    assert served.urls("m") == [URL]
    assert verdicts() == before
    assert served.show("ActiveState", unit="discoveryd.socket") == ["active"]


def test_a_loop_that_is_blocked_is_killed_and_comes_back(served: Host) -> None:
    blocking = "[Service]\nWatchdogSec=3s\nEnvironment=PYTHONPATH=/inside/blocking\n"
    served.drop_in("discoveryd.service", blocking)
    served.must("systemctl restart discoveryd.service")
    pid = served.pid()
    served.must(f"kill -USR1 {pid}")
    wait_for_another(served, pid)
    assert served.urls("m") == [URL]
    assert "watchdog" in served.log().lower()


def test_a_daemon_that_is_asked_to_end_by_a_signal_comes_back(served: Host) -> None:
    pid = served.pid()
    served.must(f"kill {pid}")
    wait_for_another(served, pid)
    assert served.urls("m") == [URL]
    assert served.must(f"ls {CARDS}").split() == ["m.json", "n.json"]
