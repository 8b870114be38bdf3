"""`discoveryctl run`: a worker's card is there while the worker is, whatever the worker does."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.dropping import Host
from tests.system.running import until
from tests.system.runs import Run, Worker, listens, lives, runner

LONG = "3600"
"""For --drain: longer than any test."""


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    with runner(tmp_path) as begin:
        yield begin


def llama(worker: Worker, *more: str) -> list[str]:
    return ["--name", "llama", "--source", "/m", "--url", worker.url, *more]


def serves(host: Host) -> bool:
    return bool(host.workers("llama"))


def drains(host: Host) -> bool:
    """Whether llama is there, but accepts nothing."""
    return host.workers("llama") == []


def wait_serving(host: Host, running: Run) -> None:
    """Return once it serves, and knows it."""
    until(lambda: serves(host), f"it serves: {running.output}")
    running.says("discoveryctl run: serving llama")


def files(host: Host) -> list[str]:
    return [path.name for path in host.cards.iterdir()]


def wait_none_left(host: Host) -> None:
    """Return once there is no card, on disk or served."""
    assert files(host) == []
    until(lambda: host.workers("llama") is None, "nobody serves")


# From the start to the end


def test_the_card_is_there_while_the_worker_is(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    more = ("--alias", "chat", "--alias", "l", "--endpoint", "ns/comp/ep", "--drain", "0")
    running = run(host, *llama(worker, *more), "--", *worker.command())
    wait_serving(host, running)
    (found,) = host.client.resolve("chat").workers
    assert (found.model, found.aliases, found.url) == ("llama", ("chat", "l"), worker.url)
    assert (found.source_path, found.key.split("/")[:3]) == ("/m", ["ns", "comp", "ep"])
    assert files(host) == [f"llama@127.0.0.1_{worker.port}.json"]
    running.send(signal.SIGTERM)
    assert running.status() == 128 + signal.SIGTERM
    wait_none_left(host)
    assert not listens(worker.port)
    assert running.output.splitlines() == [
        "started",
        "discoveryctl run: serving llama, chat, l",
        "discoveryctl run: draining for 0 s",
    ]
    past = host.client.history(f"llama@127.0.0.1_{worker.port}.json", limit=9)
    assert "expired" not in {event.standing for event in past.events}


def test_a_card_from_a_file_is_published_but_its_life_is_the_commands(
    host: Host, worker: Worker, run: Callable[..., Run], tmp_path: Path
) -> None:
    card = {"display_name": "llama", "url": worker.url, "context_length": 8192, "other": [1.5]}
    file = tmp_path / "card.json"
    file.write_text(json.dumps(card | {"liveness": {"lease_seconds": 1}}))
    running = run(host, "--card", str(file), "--drain", "0", "--", *worker.command())
    wait_serving(host, running)
    (path,) = host.cards.iterdir()
    written = json.loads(path.read_bytes())
    assert written.pop("publication")
    assert written == card | {"liveness": {"held": True}}
    running.send(signal.SIGINT)
    running.status()
    wait_none_left(host)
    assert file.exists()


def test_an_envelope_is_published_as_it_is(
    host: Host, worker: Worker, run: Callable[..., Run], tmp_path: Path
) -> None:
    place = {"namespace": "n", "component": "c", "endpoint": "e", "instance_id": 1}
    inner = {"type": "Model", **place, "card_json": {"display_name": "llama"}, "url": worker.url}
    file = tmp_path / "card.json"
    file.write_text(json.dumps(inner))
    running = run(host, "--card", str(file), "--", *worker.command())
    wait_serving(host, running)
    (found,) = host.client.resolve("llama").workers
    assert found.key == "n/c/e/1"


@pytest.mark.parametrize("status", [0, 1, 7, 125, 255])
def test_the_commands_exit_status_is_its_own(
    host: Host, worker: Worker, run: Callable[..., Run], status: int
) -> None:
    running = run(host, *llama(worker), "--", "sh", "-c", f"exit {status}")
    assert running.status() == status
    assert running.output == (
        f"discoveryctl run: the command ended with status {status}, before it was ready\n"
    )


def test_a_command_that_a_signal_ends_gives_128_and_its_number(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    running = run(host, *llama(worker), *worker.command())
    wait_serving(host, running)
    os.kill(running.command_pid(), signal.SIGKILL)
    assert running.status() == 128 + signal.SIGKILL
    wait_none_left(host)
    running.says("discoveryctl run: the command was ended by signal 9 (Killed)\n")


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("/nowhere/server", (127, "no such file or directory")),
        ("no-such-server", (127, "no such file or directory")),
        ("", (127, "no such file or directory")),
        ("/etc/passwd/server", (127, "not a directory")),
        ("/etc", (126, "permission denied")),
        ("/etc/passwd", (126, "permission denied")),
    ],
)
def test_a_command_that_cannot_be_started_is_told_as_by_env(
    host: Host, worker: Worker, run: Callable[..., Run], command: str, outcome: tuple[int, str]
) -> None:
    running = run(host, *llama(worker), "--", command)
    status, problem = outcome
    assert running.status() == status
    assert f"cannot start '{command}': {problem}" in running.output


def test_everything_but_the_notify_socket_is_inherited(
    host: Host, worker: Worker, run: Callable[..., Run], tmp_path: Path
) -> None:
    read, write = os.pipe()
    script = (
        f'echo "$A,${{NOTIFY_SOCKET-none}},$#,$2"; cat; echo error >&2; echo more >/dev/fd/{write}'
    )
    command = ("sh", "-c", script, "sh", "--name", "a b")
    with open(read, encoding="utf-8") as reader:  # noqa: PTH123  # it is a descriptor
        running = run(
            host,
            *llama(worker),
            *("--", *command),
            notify=tmp_path / "n",
            stdin=b"input\n",
            descriptors=(write,),
            A="x",
        )
        os.close(write)
        assert running.status() == 0
        assert reader.read() == "more\n"
    assert running.output.splitlines()[:3] == ["x,none,2,a b", "input", "error"]


# Readiness


def test_a_command_that_crashes_at_once_leaves_no_card(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    worker.plans("crash")
    running = run(host, *llama(worker), "--", *worker.command())
    assert running.status() == 3
    running.says("the command ended with status 3, before it was ready")
    wait_none_left(host)
    assert host.client.history(file=f"llama@127.0.0.1_{worker.port}.json").events == ()


def test_a_worker_that_is_never_ready_is_waited_for_and_told_to_end_at_once(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    worker.plans("failing")
    running = run(host, *llama(worker, "--drain", LONG), "--", *worker.command())
    worker.wait_asked("failing", 3)
    assert files(host) == []
    running.send(signal.SIGTERM)
    assert running.status() == 128 + signal.SIGTERM
    assert "draining" not in running.output
    assert files(host) == []


def test_a_worker_that_was_told_to_end_is_not_published_any_more(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    worker.plans("failing")
    running = run(host, *llama(worker), "--", *worker.command("--ignore-sigterm"))
    worker.wait_asked("failing")
    running.send(signal.SIGTERM)
    worker.plans("ok")
    running.send(signal.SIGINT)
    running.status()
    assert files(host) == []
    assert "serving" not in running.output


def test_a_worker_that_is_ready_late_serves_from_then_on(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    worker.plans("deaf")
    running = run(host, *llama(worker), "--", *worker.command())
    running.says("started")
    assert files(host) == []
    worker.plans("failing failing half silent")
    worker.wait_asked("half")
    assert files(host) == []
    worker.plans("ok")
    wait_serving(host, running)


@pytest.mark.parametrize("word", ["models", "key"])
def test_a_server_without_health_is_asked_for_its_models(
    host: Host, worker: Worker, run: Callable[..., Run], word: str
) -> None:
    worker.plans(f"failing missing missing {word}")
    running = run(host, *llama(worker), "--", *worker.command())
    wait_serving(host, running)
    worker.wait_asked(word, 3)
    assert [path.split()[1] for path in worker.asked()[:6]] == [
        *("/health", "/health", "/v1/models"),
        *("/health", "/v1/models", "/v1/models"),
    ]


def test_ready_says_what_is_asked(host: Host, worker: Worker, run: Callable[..., Run]) -> None:
    ready = f"{worker.url}/is/it?deep=1"
    worker.plans("missing missing ok")
    running = run(host, "--name", "llama", "--ready", ready, "--", *worker.command())
    wait_serving(host, running)
    worker.wait_asked("ok", 2)
    assert {line.split()[1] for line in worker.asked()} == {"/is/it?deep=1"}
    (found,) = host.client.resolve("llama").workers
    assert found.url is None


def test_whoever_answers_before_the_command_is_started_is_told_of(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    first = run(host, *llama(worker, "--drain", "0"), "--", *worker.command())
    wait_serving(host, first)
    second = run(host, *llama(worker), "--", "sh", "-c", "exit 1")
    second.status()
    second.says(f"before the command is started, something answers at {worker.url}/health")
    assert serves(host)
    first.send(signal.SIGTERM)
    first.status()
    wait_none_left(host)


# Following


def test_a_worker_that_misses_two_probes_stays(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    running = run(host, *llama(worker), "--", *worker.command())
    wait_serving(host, running)
    before = host.client.status().cursor
    worker.plans("failing half ok failing failing ok half half missing")
    worker.wait_asked("missing", 3)
    assert host.client.status().cursor == before


def test_a_worker_that_misses_three_drains_and_comes_back_with_one_answer(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    running = run(host, *llama(worker), "--", *worker.command())
    wait_serving(host, running)
    worker.plans("failing half failing")
    until(lambda: drains(host), "it drains")
    running.says("drained: 3 probes missed, the last one: it answers 503")
    worker.plans("missing")
    wait_serving(host, running)
    running.says("it answers again, and accepts")
    assert len(files(host)) == 1


def test_a_worker_that_does_not_listen_any_more_keeps_its_card(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    script = f"{' '.join(worker.command())} & sleep 1000"
    running = run(host, *llama(worker), "--", "sh", "-c", script)
    wait_serving(host, running)
    pid = running.command_pid()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(next(int(c) for c in children if b"stand_in" in _command_line(c)), signal.SIGKILL)
    until(lambda: drains(host), "it drains")
    running.says("the last one: the connection is refused")
    running.send(signal.SIGINT)
    running.status()
    wait_none_left(host)


def test_what_was_drained_by_hand_is_not_taken_back(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    running = run(host, *llama(worker), "--", *worker.command())
    wait_serving(host, running)
    (path,) = host.cards.iterdir()
    by_hand = json.loads(path.read_bytes()) | {"accepting": False}
    host.put(path.stem, by_hand)
    worker.plans("failing failing failing failing ok")
    worker.wait_asked("ok", 3)
    assert drains(host)
    host.put(path.stem, by_hand | {"accepting": True})
    assert serves(host)


def test_the_card_follows_the_command_and_not_what_it_has_started(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    running = run(host, *llama(worker), "--", *worker.command("--fork"))
    wait_serving(host, running)
    child = int(running.output.split("child ")[1].split()[0])
    try:
        os.kill(running.command_pid(), signal.SIGTERM)
        assert running.status() == 128 + signal.SIGTERM
        wait_none_left(host)
        assert listens(worker.port)
    finally:
        os.kill(child, signal.SIGKILL)


# Ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_first_and_a_second_signal_cuts_that_short(
    host: Host, worker: Worker, run: Callable[..., Run], number: signal.Signals
) -> None:
    running = run(host, *llama(worker, "--drain", LONG), "--", *worker.command())
    wait_serving(host, running)
    running.send(number)
    until(lambda: drains(host), "it drains")
    assert listens(worker.port)
    worker.plans("ok ok")
    running.send(signal.SIGTERM)
    assert running.status() == 128 + signal.SIGTERM
    wait_none_left(host)


def test_after_draining_the_signal_goes_on(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    running = run(host, *llama(worker, "--drain", "2"), "--", *worker.command())
    wait_serving(host, running)
    running.send(signal.SIGINT)
    until(lambda: drains(host), "it drains")
    # Python's own status for KeyboardInterrupt.
    assert running.status() == 128 + signal.SIGINT
    wait_none_left(host)


def test_a_command_that_ignores_sigterm_drains_until_it_ends(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    command = worker.command("--ignore-sigterm")
    running = run(host, *llama(worker, "--drain", "0"), "--", *command)
    wait_serving(host, running)
    running.send(signal.SIGTERM)
    until(lambda: drains(host), "it drains")
    worker.plans("ok ok")
    running.send(signal.SIGTERM)
    assert running.process.poll() is None
    assert drains(host)
    os.kill(running.command_pid(), signal.SIGKILL)
    assert running.status() == 128 + signal.SIGKILL
    wait_none_left(host)


def test_what_comes_from_a_keyboard_reaches_all_of_the_command(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    script = f"{' '.join(worker.command())} | cat; exit 9"
    running = run(host, *llama(worker, "--drain", "0"), "--", "sh", "-c", script)
    wait_serving(host, running)
    running.send(signal.SIGINT)
    assert running.status() in (9, 128 + signal.SIGINT)
    until(lambda: not listens(worker.port), "the worker has ended")
    wait_none_left(host)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_other_signals_go_on_at_once(
    host: Host, worker: Worker, run: Callable[..., Run], number: signal.Signals
) -> None:
    script = (
        f"trap 'echo caught; exit 5' {number.value}; echo trapped; while :; do sleep 0.01; done"
    )
    running = run(host, *llama(worker), "--", "sh", "-c", script)
    running.says("trapped")
    running.send(number)
    assert running.status() == 5
    assert "caught" in running.output


def test_a_hang_up_that_was_to_be_ignored_is(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        running = run(host, *llama(worker, "--drain", "0"), "--", *worker.command())
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_serving(host, running)
    running.send(signal.SIGHUP)
    os.kill(running.command_pid(), signal.SIGHUP)
    running.send(signal.SIGTERM)
    assert running.status() == 128 + signal.SIGTERM


def test_a_killed_run_takes_its_command_along_and_is_replaced_by_the_next(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    first = run(host, *llama(worker), "--", *worker.command())
    wait_serving(host, first)
    pid = first.command_pid()
    first.process.kill()
    first.process.wait()
    until(lambda: host.workers("llama") is None, "nobody serves")
    until(lambda: not lives(pid), "the command has ended")
    second = run(host, *llama(worker, "--drain", "0"), "--", *worker.command())
    wait_serving(host, second)
    second.send(signal.SIGTERM)
    second.status()
    wait_none_left(host)


def test_nobody_who_reads_what_it_says_is_no_trouble(
    host: Host, worker: Worker, run: Callable[..., Run]
) -> None:
    read, write = os.pipe()
    os.close(read)
    running = run(host, *llama(worker, "--drain", "0"), "--", *worker.command(), errors=write)
    os.close(write)
    until(lambda: serves(host), "it serves")
    running.send(signal.SIGTERM)
    assert running.status() == 128 + signal.SIGTERM
    wait_none_left(host)


def _command_line(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
