"""`discoveryctl run` and others: verdicts, a daemon that comes and goes, systemd, a terminal."""

import contextlib
import json
import os
import pty
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.conftest import Start
from tests.system.dropping import Host
from tests.system.running import PROMPT_SECONDS, until
from tests.system.runs import Run, Worker, lives, runner

FAILED = 125
SAYS = "discoveryctl run: "
DIFFERENCE = "context_length is 8192, the workers that serve have 32768"


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Worker:
    return Worker(tmp_path, "other")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    with runner(tmp_path) as begin:
        yield begin


@pytest.fixture
def own(start: Start) -> Iterator[Host]:
    """Give a daemon of the test's own, which it may end."""
    daemon = start().wait_ready()
    with daemon.client() as client:
        yield Host(daemon, client)


@pytest.fixture
def card(tmp_path: Path) -> Callable[[Worker, int], list[str]]:
    """Give a function that makes the options for llama with a context length."""

    def make(worker: Worker, context: int) -> list[str]:
        file = tmp_path / f"{worker.port}.json"
        members = {"display_name": "llama", "source_path": "/m", "url": worker.url}
        file.write_text(json.dumps(members | {"context_length": context}))
        return ["--card", str(file), "--drain", "0"]

    return make


Card = Callable[[Worker, int], list[str]]


def llama(worker: Worker) -> list[str]:
    return ["--name", "llama", "--source", "/m", "--url", worker.url, "--drain", "0"]


def urls(host: Host) -> list[str | None]:
    """Return where llama is served; nowhere where nobody serves it."""
    return [worker.url for worker in host.client.workers().workers if worker.model == "llama"]


def wait_serving(host: Host, running: Run) -> None:
    """Return once it serves, and knows it."""
    until(lambda: bool(urls(host)), f"it serves: {running.output}")
    running.says(f"{SAYS}serving llama")


# Verdicts


def test_a_second_worker_with_another_context_is_not_even_started(
    host: Host, worker: Worker, other: Worker, run: Callable[..., Run], card: Card
) -> None:
    first = run(host, *card(worker, 32768), "--", *worker.command())
    wait_serving(host, first)
    second = run(host, *card(other, 8192), "--", *other.command())
    assert second.status() == FAILED
    assert second.output.splitlines() == [
        f"{SAYS}not started: llama: standby: {DIFFERENCE}",
        f"{SAYS}With --standby the worker would run, and its card wait for that to pass.",
    ]
    assert urls(host) == [worker.url]


def test_a_worker_that_finds_another_context_once_it_has_loaded_is_ended(
    host: Host, worker: Worker, other: Worker, run: Callable[..., Run], card: Card
) -> None:
    other.plans("failing")
    second = run(host, *card(other, 8192), "--", *other.command())
    other.wait_asked("failing")
    first = run(host, *card(worker, 32768), "--", *worker.command())
    wait_serving(host, first)
    other.plans("ok")
    assert second.status() == FAILED
    second.says(f"{SAYS}llama: standby: {DIFFERENCE}")
    assert urls(host) == [worker.url]
    assert len(list(host.cards.iterdir())) == 1


def crash(first: Run) -> None:
    os.kill(first.command_pid(), signal.SIGKILL)


def end(first: Run) -> None:
    first.send(signal.SIGTERM)
    first.says(f"{SAYS}handing over to a worker that waits")


@pytest.mark.parametrize("leave", [crash, end], ids=["it-crashes", "it-is-asked-to-end"])
def test_with_standby_it_takes_over_without_a_gap_when_the_first_leaves(  # noqa: PLR0913, PLR0917 - fixtures
    host: Host,
    worker: Worker,
    other: Worker,
    run: Callable[..., Run],
    card: Card,
    leave: Callable[[Run], None],
) -> None:
    first = run(host, *card(worker, 32768), "--", *worker.command())
    wait_serving(host, first)
    second = run(host, *card(other, 8192), "--standby", "--", *other.command())
    second.says(f"{SAYS}as things are: llama: standby: {DIFFERENCE}")
    until(lambda: len(list(host.cards.iterdir())) == 2, "the second is published")
    gaps: list[int] = []
    looks = 0
    over = threading.Event()

    def look() -> None:
        nonlocal looks
        with host.daemon.client() as client:
            while not over.is_set():
                looks += 1
                if not client.resolve("llama").workers:
                    gaps.append(looks)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        until(lambda: looks > 0, "it is looked")
        leave(first)
        until(lambda: urls(host) == [other.url], "the second has taken over")
        first.status()
    finally:
        over.set()
        looking.join()
    assert gaps == []
    second.says("discoveryctl run: serving llama\n")


def test_a_command_that_does_not_end_for_its_cards_sake_is_killed(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    worker.plans("failing")
    running = run(host, *llama(worker), "--", *worker.command("--ignore-sigterm"))
    worker.wait_asked("failing")
    pid = running.command_pid()
    host.put("first", {"display_name": "other", "aliases": ["llama"], "source_path": "/o"})
    worker.plans("ok")
    assert running.status() == FAILED
    assert not lives(pid)
    running.says(f'{SAYS}llama: blocked: The name "llama" is taken')


@pytest.mark.parametrize("standby", [[], ["--standby"]])
def test_what_is_no_card_is_told_in_full_and_nothing_is_started(
    host: Host, worker: Worker, run: Callable[..., Run], tmp_path: Path, standby: list[str]
) -> None:
    file = tmp_path / "card.json"
    file.write_text(json.dumps({"display_name": "", "url": worker.url, "labels": 3}))
    running = run(host, "--card", str(file), *standby, "--", *worker.command())
    assert running.status() == FAILED
    assert "card.json is no card: $.display_name" in running.output
    assert "card.json is no card: $.labels" in running.output
    assert "started" not in running.output


def test_a_taken_name_is_told_before_anything_is_started(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    host.put("first", {"display_name": "other", "aliases": ["llama"], "source_path": "/o"})
    running = run(host, *llama(worker), "--", *worker.command())
    assert running.status() == FAILED
    assert 'not started: llama: blocked: The name "llama" is taken' in running.output


def test_an_adapter_may_load_while_its_base_does(
    host: Host, worker: Worker, run: Callable[..., Run], tmp_path: Path
) -> None:
    file = tmp_path / "adapter.json"
    adapter = {"display_name": "a", "lora": {}, "source_path": "/m", "url": worker.url}
    file.write_text(json.dumps(adapter))
    worker.plans("failing")
    running = run(host, "--card", str(file), "--", *worker.command())
    running.says("as things are: a: orphan: The base of adapter")
    worker.wait_asked("failing")
    host.put("base", {"display_name": "llama", "source_path": "/m", "url": worker.url})
    worker.plans("ok")
    until(lambda: bool(host.workers("a")), "the adapter serves")


def test_what_becomes_of_the_card_later_is_told_and_ends_nothing(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    running = run(host, *llama(worker), "--", *worker.command())
    wait_serving(host, running)
    (path,) = host.cards.iterdir()
    card = path.read_bytes()
    host.put(path.stem, b"nonsense")
    running.says("llama: invalid: ")
    host.put(path.stem, card)
    until(lambda: running.output.count("serving llama") == 2, "it serves again")


def test_the_place_of_a_worker_that_lives_is_not_taken(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    first = run(host, *llama(worker), "--", *worker.command())
    wait_serving(host, first)
    second = run(host, "--timeout", "2", *llama(worker), "--", "sleep", "1000")
    assert second.status() == FAILED
    second.says("is the card of another worker, which lives")
    assert urls(host) == [worker.url]
    first.send(signal.SIGTERM)
    first.status()


# The daemon comes and goes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_that_restarts_finds_the_worker_again(
    own: Host, start: Start, worker: Worker, run: Callable[..., Run], number: signal.Signals
) -> None:
    running = run(own, *llama(worker), "--", *worker.command())
    wait_serving(own, running)
    own.daemon.send(number)
    own.daemon.process.wait(PROMPT_SECONDS)
    running.says("the daemon is gone, and waited for")
    with start().wait_ready().client() as client:
        again = Host(own.daemon, client)
        wait_serving(again, running)
        until(lambda: running.output.count("run: serving llama") == 2, "it says so")
        running.send(signal.SIGTERM)
        assert running.status() == 128 + signal.SIGTERM
        until(lambda: urls(again) == [], "nobody serves")
        assert list(own.cards.iterdir()) == []


def test_without_a_daemon_the_worker_runs_and_is_served_when_one_comes(
    root: Path, start: Start, worker: Worker, run: Callable[..., Run]
) -> None:
    stopped = start().wait_ready()
    stopped.stop()
    with stopped.client() as client:
        host = Host(stopped, client)
        running = run(host, "--timeout", "0.2", *llama(worker), "--", *worker.command())
        running.says("no discoveryd answers yet: the card is published when one does")
        running.says("the worker is ready, but no discoveryd answers: waiting for it")
        assert list((root / "cards").iterdir()) == []
        start().wait_ready()
        wait_serving(host, running)
        running.send(signal.SIGTERM)
        running.status()
        assert list((root / "cards").iterdir()) == []


def test_without_a_daemon_the_worker_can_be_ended(
    start: Start, worker: Worker, run: Callable[..., Run]
) -> None:
    stopped = start().wait_ready()
    stopped.stop()
    with stopped.client() as client:
        running = run(Host(stopped, client), *llama(worker), "--", *worker.command())
        running.says("no discoveryd answers yet")
        worker.wait_asked("ok")
        running.send(signal.SIGTERM)
        assert running.status() == 128 + signal.SIGTERM


def test_nowhere_to_put_the_card_is_told_before_anything_is_started(
    host: Host, worker: Worker, run: Callable[..., Run], tmp_path: Path
) -> None:
    where = {"DISCOVERYD_CARDS": str(tmp_path / "nowhere")}
    running = run(host, *llama(worker), "--", *worker.command(), **where)
    assert running.status() == FAILED
    assert "there is no drop directory to write a card to; tried:" in running.output
    assert "nowhere: it is not there" in running.output
    assert "started" not in running.output


# Systemd


@contextlib.contextmanager
def systemd(directory: Path) -> Iterator[tuple[Path, socket.socket]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard_at:
        path = directory / "n"
        heard_at.bind(str(path))
        heard_at.settimeout(PROMPT_SECONDS)
        yield path, heard_at


def hear(heard_at: socket.socket, message: bytes) -> list[bytes]:
    """Return what is heard up to a message that begins like this."""
    heard = [b""]
    while not heard[-1].startswith(message):
        heard.append(heard_at.recv(4096))
    return heard[1:]


def test_systemd_is_told_when_it_serves_and_how_it_is(
    host: Host, worker: Worker, run: Callable[..., Run], tmp_path: Path
) -> None:
    worker.plans("failing")
    with systemd(tmp_path) as (path, heard_at):
        running = run(host, *llama(worker), "--", *worker.command(), notify=path)
        waiting = f"STATUS=waiting for {worker.url}/health: it answers 503"
        heard = hear(heard_at, waiting.encode())
        assert b"READY=1" not in heard
        worker.plans("ok")
        hear(heard_at, b"READY=1")
        # Ready means served: nothing is waited for here.
        assert urls(host) == [worker.url]
        assert hear(heard_at, b"STATUS=") == [b"STATUS=serving llama"]
        worker.plans("failing failing failing")
        hear(heard_at, b"STATUS=serving llama, drained: 3 probes missed")
        worker.plans("ok")
        hear(heard_at, b"STATUS=serving llama")
        running.send(signal.SIGTERM)
        assert hear(heard_at, b"STOPPING=1") == [b"STOPPING=1"]
        hear(heard_at, b"STATUS=draining before it stops")
        running.status()


def test_standing_by_is_ready_too(
    host: Host, worker: Worker, run: Callable[..., Run], card: Card, tmp_path: Path
) -> None:
    host.put("first", {"display_name": "llama", "source_path": "/m", "context_length": 1})
    with systemd(tmp_path) as (path, heard_at):
        options = [*card(worker, 8192), "--standby"]
        run(host, *options, "--", *worker.command(), notify=path)
        hear(heard_at, b"READY=1")
        (heard,) = hear(heard_at, b"STATUS=")
        assert heard.startswith(b"STATUS=llama: standby: context_length is 8192, the workers")


# A terminal


class Terminal:
    """A terminal of a program: what is on it, and its keyboard."""

    def __init__(self, screen: int) -> None:
        self._screen = screen
        self._shown = b""

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def shows(self, text: str) -> None:
        """Return once this has been written to it."""

        def is_there() -> bool:
            with contextlib.suppress(BlockingIOError):
                self._shown += os.read(self._screen, 4096)
            return text.encode() in self._shown

        until(is_there, f"{text!r} on the terminal")


@pytest.fixture
def terminal() -> Iterator[tuple[Terminal, int]]:
    """Give a terminal, and the descriptor that a program on it has."""
    screen, end = pty.openpty()
    os.set_blocking(screen, False)
    yield Terminal(screen), end
    os.close(screen)
    os.close(end)


def test_a_terminals_interrupt_drains_first(
    host: Host, worker: Worker, run: Callable[..., Run], terminal: tuple[Terminal, int]
) -> None:
    person, end = terminal
    worker.plans("failing")
    command = ("--drain", "3600", "--", *worker.command())
    running = run(host, *llama(worker), *command, terminal=end)
    trouble = f"not ready after 1 s, it answers 503: {worker.url}"
    person.shows(f"\r\x1b[Kdiscoveryctl run: {trouble}")
    worker.plans("ok")
    person.shows("\r\x1b[Kdiscoveryctl run: serving llama\r\n")
    person.type(b"\x03")
    until(lambda: host.workers("llama") == [], "it drains")
    worker.plans("ok ok")
    with socket.create_connection(("127.0.0.1", worker.port)) as asking:
        asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert asking.recv(12) == b"HTTP/1.0 200"
    person.type(b"\x03")
    assert running.status() == 128 + signal.SIGINT
    assert list(host.cards.iterdir()) == []


def test_the_command_reads_from_the_terminal(
    host: Host, worker: Worker, run: Callable[..., Run], terminal: tuple[Terminal, int]
) -> None:
    person, end = terminal
    script = 'echo ready; read line; echo "got $line"; exit 4'
    running = run(host, *llama(worker), "--", "sh", "-c", script, terminal=end)
    person.shows("ready")
    person.type(b"hello\n")
    person.shows("got hello")
    assert running.status() == 4
