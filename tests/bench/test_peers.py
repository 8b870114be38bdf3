"""Peers run beside ours, are gone after, and where one cannot be had it is said why."""

import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.beside.turns import Once, Peer, Turns, beside
from tests.bench.peers import children, dynamo, etcd, installing, redis
from tests.bench.peers.children import Missing


def test_a_child_is_gone_when_its_block_ends(tmp_path: Path) -> None:
    with children.child(["sleep", "600"], tmp_path / "sleep.log") as process:
        assert process.poll() is None
    assert process.poll() is not None


def test_a_child_that_ends_instead_of_being_ready_is_missing_with_its_last_words(
    tmp_path: Path,
) -> None:
    log = tmp_path / "server.log"
    dying = [sys.executable, "-c", "raise SystemExit('no room here')"]
    with (
        children.child(dying, log) as process,
        pytest.raises(Missing, match="server did not come up: no room here"),
    ):
        children.until(lambda: False, process, log)


def test_a_child_that_ends_instead_of_answering_is_missing_with_its_last_words(
    tmp_path: Path,
) -> None:
    log = tmp_path / "side.log"
    dying = [sys.executable, "-c", "print('up', flush=True); raise SystemExit('no module')"]
    with children.child(dying, log) as process:
        assert children.line(process, log) == "up"
        with pytest.raises(Missing, match=r"side has ended, .*: no module"):
            children.line(process, log)


def test_a_child_that_is_silent_for_too_long_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "mute.log"
    with children.child(["sleep", "600"], log) as process:
        with pytest.raises(Missing, match=r"silent for 0\.1 s: it said nothing"):
            children.line(process, log, within=0.1)
        assert process.wait(10) != 0


def test_a_program_that_is_not_here_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Missing, match=r"no etcd here; .*--install-peers"):
        children.program("etcd")


def test_dynamo_that_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    absent = dynamo.Dynamo(tmp_path / "peers", tmp_path / "place")
    with pytest.raises(Missing, match="--install-peers"), absent.worker("one"):
        raise AssertionError
    assert dynamo.version(tmp_path / "peers") is None


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here")
def test_redis_answers_on_its_socket_what_it_was_filled_with(tmp_path: Path) -> None:
    with redis.running(tmp_path) as server_socket, socket.socket(socket.AF_UNIX) as connection:
        redis.fill(server_socket, {f"name-{number}": b"value" for number in range(2_500)})
        connection.connect(str(server_socket))
        connection.sendall(redis.command(b"GET", b"name-2499"))
        assert connection.recv(64) == b"$5\r\nvalue\r\n"


@pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd here")
def test_etcd_tells_a_watcher_of_a_put(tmp_path: Path) -> None:
    with etcd.running(tmp_path) as server:
        assert 0 < server.until_watched(1, b"value") < etcd.DEADLINE_SECONDS


# Turns


class Turned:
    """Ours and a peer that say when it is their turn."""

    def __init__(self, *, missing_at: int | None = None) -> None:
        self.turns: list[str] = []
        self._missing_at = missing_at

    def ours(self, number: int) -> float:
        self.turns.append(f"ours {number}")
        return float(number)

    @contextlib.contextmanager
    def running(self) -> Iterator[Once]:
        self._perhaps_missing(-1)
        yield self._theirs

    def _theirs(self, number: int) -> float:
        self._perhaps_missing(number)
        self.turns.append(f"theirs {number}")
        return 10.0 * (number + 1)

    def _perhaps_missing(self, number: int) -> None:
        if number == self._missing_at:
            raise Missing("it broke")


def test_ours_and_the_peers_are_measured_in_turns_and_the_first_is_thrown_away() -> None:
    turned = Turned()
    row = beside("part", "what", turned.ours, Peer("a peer", turned.running), Turns(2))
    assert turned.turns == ["ours 0", "theirs 0", "ours 1", "theirs 1", "ours 2", "theirs 2"]
    assert row.ours is not None
    assert row.theirs is not None
    assert (row.ours.median, row.ours.runs) == (1.5, 2)
    assert (row.theirs.median, row.met, row.missing) == (25.0, True, None)


@pytest.mark.parametrize("missing_at", [-1, 1])
def test_ours_is_measured_whenever_the_peer_goes_missing(missing_at: int) -> None:
    turned = Turned(missing_at=missing_at)
    row = beside("part", "what", turned.ours, Peer("a peer", turned.running), Turns(2))
    assert [turn for turn in turned.turns if "ours" in turn] == ["ours 0", "ours 1", "ours 2"]
    assert row.ours is not None
    assert (row.ours.runs, row.theirs, row.met, row.missing) == (2, None, None, "it broke")


def test_a_peer_that_stops_answering_is_missing_and_ours_failing_is_not_taken_for_it() -> None:
    def refused(number: int) -> float:
        raise ConnectionRefusedError(f"turn {number}")

    peer = Peer("a peer", lambda: contextlib.nullcontext(refused))
    row = beside("part", "what", float, peer, Turns(1))
    assert row.missing == "it failed in turn 1: ConnectionRefusedError('turn 0')"
    with pytest.raises(ConnectionRefusedError):
        beside("part", "what", refused, peer, Turns(1))


# Installing


def test_what_is_installed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for environment, wheel in (
        (dynamo.RUNTIME, "ai_dynamo_runtime"),
        (dynamo.FRONTEND, "ai_dynamo"),
    ):
        packages = tmp_path / environment / "lib" / "python3.11" / "site-packages"
        (packages / f"{wheel}-{installing.VERSION}.dist-info").mkdir(parents=True)
    monkeypatch.setattr(installing, "PACKAGES", {"sh": "no-such-package"})
    said: list[str] = []
    assert installing.install(tmp_path, said.append) == []
    assert said == []
    assert dynamo.version(tmp_path) == installing.VERSION


def test_what_cannot_be_installed_is_said_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(installing, "PACKAGES", {"no-such-program": "package"})
    monkeypatch.setattr(installing, "ENVIRONMENTS", {"broken": [["wheel==1"]]})
    monkeypatch.setattr(sys, "executable", "false")
    by_apt, by_pip = installing.install(tmp_path, lambda _: None)
    assert by_apt == "package: it takes root; or: apt-get install package"
    assert by_pip == "broken: false ended with status 1"
