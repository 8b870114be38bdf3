"""A daemon begins, is asked to end, and meets another one; whatever happens meanwhile."""

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from discoveryd.client import ConnectionLost
from tests.system.conftest import Start
from tests.system.dropping import GOOD, write
from tests.system.raw import Raw, call
from tests.system.running import REPOSITORY, environment, until

SIGNALS = [signal.SIGTERM, signal.SIGINT]

both_signals = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)


@pytest.fixture
def cards(root: Path) -> Path:
    """Give the drop directory before the daemon is there."""
    directory = root / "cards"
    directory.mkdir()
    return directory


def crowd(cards: Path, count: int) -> None:
    for number in range(count):
        (cards / f"{number}.json").write_text(f'{{"display_name": "model-{number}"}}')


# The end


@both_signals
def test_every_call_that_was_read_is_answered_before_the_end(
    cards: Path, start: Start, number: signal.Signals
) -> None:
    write(cards / "good.json", GOOD)
    daemon = start().wait_ready()
    with Raw(daemon.socket) as raw:
        pipelined = [call("Resolve", {"name": "good"}), call("Sync"), call("Check", {"card": GOOD})]
        pipelined += [call("Resolve", {"name": "good"})] * 40
        # One small send is one read on the other side; that it was read the first answer tells.
        raw.send(b"".join(pipelined) + call("Resolve")[:-9])
        replies = [raw.receive()]
        daemon.send(number)
        replies += raw.rest()
        assert len(replies) == len(pipelined)
        assert not [reply for reply in replies if reply is None or "error" in reply]
    daemon.stop(number)


@both_signals
def test_watches_end_with_the_daemon_after_a_whole_reply(
    cards: Path, start: Start, number: signal.Signals
) -> None:
    write(cards / "good.json", GOOD)
    daemon = start().wait_ready()
    with Raw(daemon.socket) as raw, daemon.client() as client:
        raw.send(call("Watch", more=True))
        first = raw.receive()
        assert first is not None
        assert first["continues"]
        watch = client.watch()
        next(watch)
        daemon.send(number)
        assert raw.rest() == []
        with pytest.raises(ConnectionLost):
            next(watch)
    daemon.stop()


def test_an_idle_connection_does_not_hold_the_end_up(start: Start) -> None:
    """B104."""
    daemon = start().wait_ready()
    with Raw(daemon.socket):
        daemon.stop()


def test_a_peer_that_reads_nothing_does_not_hold_the_end_up(cards: Path, start: Start) -> None:
    """B104."""
    crowd(cards, 2_000)
    daemon = start().wait_ready()
    with Raw(daemon.socket, timeout=0.2) as raw:
        with contextlib.suppress(TimeoutError):
            for _ in range(100):
                raw.send(call("List") * 50)
        assert daemon.process.poll() is None
        daemon.stop()


def test_the_end_comes_in_the_midst_of_a_burst_of_cards(cards: Path, start: Start) -> None:
    """B104."""
    daemon = start().wait_ready()
    over = threading.Event()

    def burst() -> None:
        number = 0
        while not over.is_set():
            write(cards / f"{number % 500}.json", {"display_name": f"model-{number}"})
            number += 1

    writer = threading.Thread(target=burst)
    writer.start()
    try:
        with daemon.client() as client:
            until(lambda: client.status().names > 50, "cards arrive")
        daemon.stop()
    finally:
        over.set()
        writer.join()


@both_signals
def test_the_end_comes_during_the_first_scan(
    cards: Path, root: Path, start: Start, number: signal.Signals
) -> None:
    """B104."""
    crowd(cards, 5_000)
    daemon = start()
    until((root / ".s.lock").exists, "the daemon has begun")
    assert not daemon.socket.exists()
    daemon.stop(number)
    assert not (root / ".s.lock").exists()


def test_two_signals_end_it_no_worse_than_one(start: Start) -> None:
    daemon = start().wait_ready()
    with Raw(daemon.socket):
        daemon.send(signal.SIGTERM)
        until(lambda: "ending" in daemon.log, "it has heard")
        with contextlib.suppress(ProcessLookupError):
            daemon.send(signal.SIGINT)
    daemon.stop()


# The beginning


def test_the_first_answer_is_complete(cards: Path, start: Start) -> None:
    """B107: a bad card does not hold it up."""
    crowd(cards, 5_000)
    (cards / "bad.json").write_bytes(b"{]")
    daemon = start().wait_ready()
    with daemon.client() as client:
        status = client.status()
    assert status.standings == {"serving": 5_000, "invalid": 1}
    assert status.names == 5_000
    assert sum(directory.files for directory in status.directories) == 5_001
    assert status.healthy


def refusal(arguments: list[str]) -> str:
    """Return what a daemon says that cannot start: one line, and exit status 1."""
    done = subprocess.run(
        [sys.executable, "-m", "discoveryd", "serve", *arguments],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_a_second_daemon_gives_up_and_harms_nothing(cards: Path, start: Start) -> None:
    write(cards / "good.json", GOOD)
    first = start().wait_ready()
    with Raw(first.socket) as raw:
        before = raw.ask("Resolve", {"name": "good"})
        line = refusal(first.usual_arguments())
        assert str(first.socket) in line
        assert str(first.process.pid) in line
        assert "--socket" in line
        assert raw.ask("Resolve", {"name": "good"}) == before
    with first.client() as client:
        assert client.resolve("good").workers


def test_what_lies_in_the_sockets_place_and_is_none_stays_there(root: Path) -> None:
    place = root / "s"
    place.write_text("mine")
    line = refusal(["--cards", str(root), "--socket", str(place)])
    assert str(place) in line
    assert place.read_text() == "mine"


def test_a_socket_path_that_is_too_long_is_refused(root: Path) -> None:
    line = refusal(["--cards", str(root), "--socket", str(root / ("s" * 120))])
    assert "107" in line


def test_the_socket_of_a_killed_daemon_is_taken_over(cards: Path, start: Start) -> None:
    write(cards / "good.json", GOOD)
    first = start().wait_ready()
    first.kill()
    assert first.socket.exists()
    first.socket.with_name("stderr").unlink()
    second = start().wait_ready()
    with second.client() as client:
        assert client.resolve("good").workers
    second.stop()


# Directories that are not there


@contextlib.contextmanager
def moved_away(path: Path) -> Iterator[None]:
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    yield
    elsewhere.rename(path)


def test_a_directory_that_goes_and_comes_back_is_followed_again(cards: Path, start: Start) -> None:
    write(cards / "good.json", GOOD)
    daemon = start().wait_ready()
    with daemon.client() as client:
        with moved_away(cards):
            assert client.sync().standings == {}
            status = client.status()
            assert not status.healthy
            assert str(cards) in status.problems[0]
        assert client.sync().standings == {"serving": 1}
        until(lambda: client.status().healthy, "the directory is watched again")
        shutil.rmtree(cards)
        until(lambda: client.status().names == 0, "the cards are gone")
        cards.mkdir()
        write(cards / "good.json", GOOD)
        until(lambda: client.status().names == 1, "the new directory is followed")
