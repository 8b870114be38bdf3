"""Many peers, slow, flooding, silent and broken ones: bounded memory, and the others are answered.

Memory is the daemon's, asked of the kernel. Time is never asserted, but that answers come at all.
"""

import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import Start
from tests.system.dropping import GOOD, write
from tests.system.raw import Raw, call
from tests.system.running import Daemon, until

MIB = 1 << 20
MANY = 5_000
CONNECTIONS = 4_096


@pytest.fixture
def daemon(root: Path, start: Start) -> Daemon:
    cards = root / "cards"
    cards.mkdir()
    write(cards / "good.json", GOOD)
    for number in range(2_000):
        (cards / f"{number}.json").write_text(
            f'{{"display_name": "model-{number}", "url": "http://127.0.0.1:{number + 2}"}}'
        )
    # Without a ledger: what its file system is up to is no peer's doing.
    arguments = ["--cards", str(cards), "--socket", str(root / "s"), "--state", "none"]
    return start(arguments).wait_ready()


@pytest.fixture
def bystander(daemon: Daemon) -> Iterator[Raw]:
    """Give a connection that was there before."""
    with Raw(daemon.socket) as raw:
        yield raw


@pytest.fixture
def open_files() -> Iterator[None]:
    """Let this process open thousands of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MANY + 500:
        pytest.skip(f"FIVE THOUSAND CONNECTIONS ARE NOT TESTED: the hard limit is {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Peers(contextlib.ExitStack):
    """Connections of one test, that do not block."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        self._daemon = daemon

    def connect(self) -> socket.socket:
        peer = self.enter_context(socket.socket(socket.AF_UNIX))
        peer.connect(str(self._daemon.socket))
        peer.setblocking(False)
        return peer

    def send(self, peer: socket.socket, frames: bytes) -> int:
        """Send what the kernel and the daemon take at once; return how much that was."""
        sent = 0
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while sent < len(frames):
                sent += peer.send(frames[sent : sent + MIB])
        return sent


def resident(daemon: Daemon) -> int:
    pages = Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(daemon: Daemon) -> float:
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


def answered(raw: Raw) -> None:
    assert raw.ask("Resolve", {"name": "good"})["parameters"]["workers"]


def newcomer_answered(daemon: Daemon) -> None:
    with Raw(daemon.socket) as raw:
        answered(raw)


def test_slow_readers_cost_what_was_made_for_them_once(daemon: Daemon, bystander: Raw) -> None:
    """B93: a hundred ask for the list ten thousand times each, and read nothing."""
    answer = len(str(bystander.ask("List")))
    before = resident(daemon)
    with Peers(daemon) as peers:
        for _ in range(100):
            peers.send(peers.connect(), call("List") * 10_000)
            answered(bystander)
        for _ in range(20):
            newcomer_answered(daemon)
        # One answer each, and what was read ahead of the calls for more.
        assert resident(daemon) - before < 100 * (2 * answer + MIB) + 32 * MIB
    until(lambda: descriptors(daemon) < 60, "all are gone")
    answered(bystander)


def test_floods_of_unfinished_calls_are_bounded(daemon: Daemon, bystander: Raw) -> None:
    half = call("Check", {"card": {"display_name": "x" * MIB}})[: MIB - 10]
    before = resident(daemon)
    with Peers(daemon) as peers:
        flood = [(peers.connect(), 0) for _ in range(250)]
        for _ in range(20):
            flood = [
                (peer, sent + peers.send(peer, half[sent : sent + 200_000])) for peer, sent in flood
            ]
            answered(bystander)
        newcomer_answered(daemon)
        assert sum(sent for _, sent in flood) > 64 * MIB
        # 64 MiB, what a bytearray grows ahead, and the allocator's own.
        assert resident(daemon) - before < 160 * MIB
        with Raw(daemon.socket) as raw:
            card = {"display_name": "large", "url": "http://h:1", "x": "y" * (MIB // 2)}
            assert (
                raw.ask("Check", {"card": card})["parameters"]["verdict"]["standing"] == "serving"
            )
    until(lambda: descriptors(daemon) < 60, "all are gone")


def test_the_largest_card_can_be_checked_and_one_byte_more_is_judged_too(daemon: Daemon) -> None:
    frame = '{"method":"io.discoveryd.Models.Check","parameters":{"card":%s,"file":"large.json"}}\0'
    for size, standing in ((MIB, "serving"), (MIB + 1, "invalid")):
        card = '{"display_name":"large","url":"http://h:1","x":"'
        card += "y" * (size - len(card) - 2) + '"}'
        with Raw(daemon.socket) as raw:
            raw.send((frame % card).encode())
            reply = raw.receive()
            assert reply is not None
            assert reply["parameters"]["verdict"]["standing"] == standing


def test_whoever_asks_all_the_time_leaves_turns_to_the_others(
    daemon: Daemon, bystander: Raw
) -> None:
    with Peers(daemon) as peers:
        flood = [peers.connect() for _ in range(30)]
        for _ in range(30):
            for peer in flood:
                peers.send(peer, call("Resolve", {"name": "good"}) * 500)
                with contextlib.suppress(BlockingIOError):
                    peer.recv(MIB)
            answered(bystander)


@pytest.mark.usefixtures("open_files")
def test_of_five_thousand_connections_those_within_the_limit_are_answered(
    daemon: Daemon, bystander: Raw
) -> None:
    """B94: the others are closed at once, and a place that comes free can be had."""
    before = resident(daemon)
    with Peers(daemon) as peers:
        crowd = []
        for number in range(MANY):
            crowd.append(peers.connect())
            if number % 500 == 0:
                answered(bystander)
        answered(bystander)
        with bystander_status(bystander) as connections:
            assert connections == CONNECTIONS
        assert resident(daemon) - before < CONNECTIONS * 16 * 1024 + 16 * MIB
        first, last = crowd[0], crowd[-1]
        until(lambda: is_closed(last), "the last is closed")
        first.send(call("Resolve", {"name": "good"}))
        until(lambda: is_readable(first), "the first is answered")
        first.close()
        until(lambda: connections_of(bystander) < CONNECTIONS, "its place is free")
        newcomer_answered(daemon)
    until(lambda: connections_of(bystander) == 1, "all are gone")


@contextlib.contextmanager
def bystander_status(raw: Raw) -> Iterator[int]:
    until(lambda: connections_of(raw) >= CONNECTIONS, "all were accepted")
    yield connections_of(raw)


def connections_of(raw: Raw) -> int:
    connections: int = raw.ask("GetStatus")["parameters"]["connections"]
    return connections


def is_readable(peer: socket.socket) -> bool:
    try:
        return peer.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return False


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def test_a_thousand_idle_connections_cost_nobody_anything(daemon: Daemon, bystander: Raw) -> None:
    """B94."""
    with Peers(daemon) as peers:
        for _ in range(700):
            peers.connect()
        for _ in range(300):
            peers.send(peers.connect(), call("Resolve", {"name": "good"})[:-1])
        until(lambda: connections_of(bystander) == 1001, "all were accepted")
        answered(bystander)
        newcomer_answered(daemon)


def test_a_burst_of_connections_while_the_daemon_is_busy_is_lost_to_nobody(daemon: Daemon) -> None:
    """B94: four hundred that do not wait, while nothing is accepted at all."""
    daemon.send(signal.SIGSTOP)
    try:
        with Peers(daemon) as peers:
            burst = []
            for _ in range(400):
                peer = peers.enter_context(socket.socket(socket.AF_UNIX))
                peer.setblocking(False)
                assert peer.connect_ex(str(daemon.socket)) == 0
                assert peers.send(peer, call("Resolve", {"name": "good"})) > 0
                burst.append(peer)
            daemon.send(signal.SIGCONT)
            until(lambda: all(is_readable(peer) for peer in burst), "all are answered")
    finally:
        daemon.send(signal.SIGCONT)


def test_without_descriptors_nothing_spins_and_nobody_is_lost(root: Path, start: Start) -> None:
    """B94: accepting pauses, at a small cost, and goes on when there are some again."""
    (root / "cards").mkdir()
    write(root / "cards/good.json", GOOD)
    daemon = start(prefix=["sh", "-c", 'ulimit -n 40; exec "$@"', "sh"]).wait_ready()
    with Raw(daemon.socket) as early, Peers(daemon) as peers:
        answered(early)
        spare = int(resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[0])
        used = descriptors(daemon)
        # So that it is the kernel that refuses, not the daemon's own count.
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (used + 3, spare))
        waiting = [peers.connect() for _ in range(8)]
        until(lambda: "Too many open files" in daemon.log, "descriptors have run out")
        began = processor_seconds(daemon)
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            answered(early)
            time.sleep(0.05)  # the length of the experiment
        assert processor_seconds(daemon) - began < 0.6
        assert daemon.log.count("Too many open files") == 1
        for peer in waiting[:4]:
            peer.close()
        for peer in waiting[4:]:
            peers.send(peer, call("Resolve", {"name": "good"}))
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (spare, spare))
        until(lambda: all(is_readable(peer) for peer in waiting[4:]), "the others are answered")


def test_broken_peers_leave_no_trace(daemon: Daemon, bystander: Raw) -> None:
    """B95, B98."""
    answered(bystander)
    lines, files = daemon.log, descriptors(daemon)
    broken = [
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0\0\0",
        b"\n\n",
        os.urandom(4096),
        call("Resolve", {"name": "good"})[:-7],
        call("List") * 20,
        call("Watch", more=True),
        call("Sync"),
        b"",
    ]
    for number in range(900):
        with Peers(daemon) as peers:
            peers.send(peers.connect(), broken[number % len(broken)])
        if number % 50 == 0:
            answered(bystander)
    until(lambda: descriptors(daemon) <= files, "all are gone")
    assert daemon.log == lines
    newcomer_answered(daemon)


def test_http_is_closed_at_once_though_it_never_ends_a_call(daemon: Daemon) -> None:
    """B95."""
    with Raw(daemon.socket) as raw:
        raw.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert raw.rest() == []


def test_calls_may_come_in_any_pieces(daemon: Daemon) -> None:
    """B95: one byte a packet, and two calls in one."""
    with Raw(daemon.socket) as raw:
        for byte in call("Resolve", {"name": "good"}):
            raw.send(bytes([byte]))
        raw.send(call("Resolve", {"name": "good"}) * 2)
        for _ in range(3):
            reply = raw.receive()
            assert reply is not None
            assert reply["parameters"]["name"] == "good"


def test_a_watch_whose_peer_has_gone_after_half_closing_is_noticed(
    daemon: Daemon, bystander: Raw
) -> None:
    with Raw(daemon.socket) as watcher:
        watcher.send(call("Watch", more=True))
        watcher.socket.shutdown(socket.SHUT_WR)
        assert watcher.receive() is not None
        assert bystander.ask("GetStatus")["parameters"]["watchers"] == 1
    until(
        lambda: bystander.ask("GetStatus")["parameters"]["watchers"] == 0, "nobody watches any more"
    )
