"""The daemon as a service: what it tells the manager and when, and the sockets that it is given."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from discoveryd.client import Client
from tests.system.conftest import Start
from tests.system.dropping import GOOD, write
from tests.system.managing import Manager, identity
from tests.system.raw import Raw, call
from tests.system.running import Daemon, until


@pytest.fixture
def manager(root: Path) -> Iterator[Manager]:
    manager = Manager(root)
    try:
        yield manager
    finally:
        manager.close()


@pytest.fixture
def cards(root: Path) -> Path:
    directory = root / "cards"
    directory.mkdir()
    return directory


def crowd(cards: Path, count: int) -> None:
    for number in range(count):
        (cards / f"{number}.json").write_text(f'{{"display_name": "model-{number}"}}')


def resolves(path: Path, name: str) -> bool:
    with Client(str(path)) as client:
        return len(client.resolve(name).workers) == 1


# Ready


def test_ready_means_that_every_answer_is_complete(cards: Path, manager: Manager) -> None:
    """B107: neither too early, nor never because of one bad card."""
    crowd(cards, 1000)
    (cards / "bad.json").write_text("{")
    daemon = manager.start()
    message = manager.wait("READY=1")
    assert resolves(daemon.socket, "model-999")
    status = message.splitlines()[1]
    assert re.fullmatch(r"STATUS=1000 workers, 1000 models, 1 invalid, revision \d+", status)
    assert manager.told("STATUS=")[0] == "STATUS=looking at all cards for the first time"
    daemon.stop()


def test_nothing_is_ready_where_nothing_can_be_served(root: Path, manager: Manager) -> None:
    (root / "s").write_text("no socket")
    daemon = manager.start()
    assert daemon.wait_ended() == 1
    assert manager.told("READY=1") == []


# The status line


def test_the_status_line_is_kept_current(cards: Path, manager: Manager) -> None:
    daemon = manager.start()
    manager.wait("READY=1")
    write(cards / "good.json", GOOD)
    manager.wait("STATUS=1 worker, 1 model, revision")
    (cards / "bad.json").write_text("{")
    manager.wait("STATUS=1 worker, 1 model, 1 invalid, revision")
    (cards / "good.json").unlink()
    manager.wait("STATUS=0 workers, 0 models, 1 invalid, revision")
    lines = manager.told("STATUS=")
    assert all(one != another for one, another in itertools.pairwise(lines))
    daemon.stop()


def test_a_burst_of_changes_is_few_status_lines(cards: Path, manager: Manager) -> None:
    daemon = manager.start()
    manager.wait("READY=1")
    began = time.monotonic()
    with daemon.client() as client:
        for number in range(100):
            write(cards / "good.json", {**GOOD, "labels": {"n": str(number)}})
            client.sync()
    seconds = time.monotonic() - began
    assert len(manager.told("STATUS=")) <= 3 + seconds
    daemon.stop()


# Reload


def told_of_reloads(manager: Manager) -> list[str]:
    """Return what was told of reloads, a word each, without the first READY."""
    kinds = [message.split("=")[0] for message in manager.heard()]
    return [kind for kind in kinds if kind in ("RELOADING", "READY")][1:]


def test_a_hangup_is_a_reload_told_from_begin_to_end(
    cards: Path, root: Path, manager: Manager
) -> None:
    """B100, B105."""
    configuration = root / "config.toml"
    configuration.write_text(f'cards = ["{cards}"]\nsocket = "{root}/s"\n')
    write(cards / "good.json", GOOD)
    daemon = manager.start(["--config", str(configuration)])
    manager.wait("READY=1")
    configuration.write_text(configuration.read_text() + '[aliases]\nextra = "good"\n')
    before = time.monotonic_ns() // 1000
    daemon.send(signal.SIGHUP)
    manager.wait("READY=1", count=2)
    [message] = manager.told("RELOADING=1")
    found = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", message)
    assert found
    assert before <= int(found[1]) <= time.monotonic_ns() // 1000
    assert told_of_reloads(manager) == ["RELOADING", "READY"]
    assert resolves(daemon.socket, "extra")
    daemon.stop()


def test_a_reload_ends_also_where_the_new_configuration_is_bad(
    cards: Path, root: Path, manager: Manager
) -> None:
    """B100."""
    configuration = root / "config.toml"
    configuration.write_text(
        f'cards = ["{cards}"]\nsocket = "{root}/s"\n[aliases]\nextra = "good"\n'
    )
    write(cards / "good.json", GOOD)
    daemon = manager.start(["--config", str(configuration)])
    manager.wait("READY=1")
    configuration.write_text("nonsense")
    daemon.send(signal.SIGHUP)
    message = manager.wait("READY=1", count=2)
    assert "1 problem" in message
    assert told_of_reloads(manager) == ["RELOADING", "READY"]
    assert resolves(daemon.socket, "extra")
    daemon.stop()


def test_many_hangups_at_once_are_reloads_one_after_the_other(
    cards: Path, manager: Manager
) -> None:
    """B100: the last word is always READY."""
    crowd(cards, 200)
    daemon = manager.start()
    manager.wait("READY=1")
    for _ in range(2):
        daemon.send(signal.SIGHUP)
    manager.wait("READY=1", count=2)
    asked = 0
    for _ in range(5):
        time.sleep(0.01)  # spread over the reloads
        asked = time.monotonic_ns() // 1000
        daemon.send(signal.SIGHUP)

    def over(messages: list[str]) -> bool:
        times = [int(m.rsplit("=", 1)[1]) for m in messages if m.startswith("RELOADING")]
        return messages[-1].startswith("READY=1") and times[-1] >= asked

    manager.wait_that(over, "the end of the last reload")
    daemon.stop()
    told = told_of_reloads(manager)
    assert told == ["RELOADING", "READY"] * (len(told) // 2)


def test_a_hangup_from_before_the_daemon_was_there_is_not_lost(
    cards: Path, manager: Manager
) -> None:
    """B105: held back by whoever starts it, it comes once it can be acted on."""
    hold = (
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    assert cards.is_dir()
    daemon = manager.start(before=[sys.executable, "-c", hold])
    manager.wait("READY=1", count=2)
    assert told_of_reloads(manager) == ["RELOADING", "READY"]
    daemon.stop()


def test_a_hangup_during_the_first_scan_is_a_reload_after_it(cards: Path, manager: Manager) -> None:
    """B105: it neither kills nor is it lost."""
    crowd(cards, 3000)
    daemon = manager.start()
    manager.wait("STATUS=looking at all cards")
    daemon.send(signal.SIGHUP)
    manager.wait("READY=1", count=2)
    assert told_of_reloads(manager) == ["RELOADING", "READY"]
    assert resolves(daemon.socket, "model-2999")
    daemon.stop()


# The end


def test_the_end_is_told_when_it_begins(cards: Path, manager: Manager) -> None:
    write(cards / "good.json", GOOD)
    daemon = manager.start()
    manager.wait("READY=1")
    with Raw(daemon.socket) as raw:
        raw.send(call("Watch", more=True))
        assert raw.receive() is not None
        daemon.stop()
    assert manager.heard()[-1] == "STOPPING=1"
    assert manager.heard().count("STOPPING=1") == 1


@pytest.mark.parametrize("when", ["STATUS=looking at all cards", "RELOADING=1"])
def test_an_end_is_prompt_whatever_goes_on(cards: Path, manager: Manager, when: str) -> None:
    """B104."""
    crowd(cards, 2000)
    daemon = manager.start()
    if when == "RELOADING=1":
        manager.wait("READY=1")
        daemon.send(signal.SIGHUP)
    manager.wait(when)
    daemon.stop()
    assert "STOPPING=1" in manager.heard()


# The watchdog


def watchdog(**others: str) -> dict[str, str]:
    return {"WATCHDOG_USEC": "500000", **others}


def test_the_watchdog_is_fed_and_not_by_a_process_that_stands_still(
    cards: Path, manager: Manager
) -> None:
    """B103."""
    write(cards / "good.json", GOOD)
    daemon = manager.start(variables=watchdog())
    manager.wait("READY=1")
    manager.wait("WATCHDOG=1", count=5)
    daemon.send(signal.SIGSTOP)
    until(lambda: state_of(daemon) == "T", "the process stands still")
    before = len(manager.told("WATCHDOG=1"))
    time.sleep(1.0)  # twice the interval, in which nothing may come
    assert len(manager.told("WATCHDOG=1")) == before
    daemon.send(signal.SIGCONT)
    manager.wait("WATCHDOG=1", count=before + 3)
    daemon.stop()


def state_of(daemon: Daemon) -> str:
    stat = Path(f"/proc/{daemon.process.pid}/stat").read_text()
    return stat.rpartition(") ")[2][0]


SABOTAGE = {
    "the loop is blocked": """
from discoveryd.daemon import run

tell = run.Daemon.summary

def summary(self):
    if sabotaged():
        time.sleep(3600)
    return tell(self)

run.Daemon.summary = summary
""",
    "the watch's thread is stuck": """
from discoveryd.daemon.disk import following, hearing, watching

native = hearing.RustNotify

class Stuck:
    def __init__(self, *arguments, **limits):
        self.notifier = native(*arguments, **limits)
        self.close = self.notifier.close

    def watch(self, *limits):
        heard = self.notifier.watch(*limits)
        while sabotaged():
            time.sleep(0.1)
        return heard

hearing.RustNotify = Stuck
watching.SILENT_SECONDS = following.SILENT_SECONDS = 0.5
""",
    "nothing is scanned any more": """
import anyio
from discoveryd.daemon.disk import following, pulse

round_ = following.Follower._round

async def stuck(self, tasks):
    if sabotaged():
        await anyio.sleep(3600)
    await round_(self, tasks)

following.Follower._round = stuck
following.RESCAN_SECONDS = pulse.OVERDUE_SECONDS = 0.1
""",
}
"""What goes wrong in a daemon once there is a file `sabotage`; read by Python as it starts."""


@pytest.mark.parametrize("what", SABOTAGE)
def test_the_watchdog_is_not_fed_while(
    cards: Path, root: Path, manager: Manager, what: str
) -> None:
    """B103."""
    sign = root / "sabotage"
    head = f"import pathlib, time\nsabotaged = pathlib.Path({str(sign)!r}).exists\n"
    (root / "sitecustomize.py").write_text(head + SABOTAGE[what])
    path = f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    daemon = manager.start(variables=watchdog(PYTHONPATH=path))
    manager.wait("READY=1")
    manager.wait("WATCHDOG=1", count=5)
    assert "sitecustomize" not in daemon.log
    sign.touch()
    # Something for all of them to do.
    write(cards / "good.json", GOOD)

    def starving() -> bool:
        before = len(manager.told("WATCHDOG=1"))
        time.sleep(1.0)  # twice the interval
        return len(manager.told("WATCHDOG=1")) == before

    until(starving, "nothing is told for twice the interval", seconds=45.0)
    daemon.kill()


def test_the_watchdog_of_another_process_is_not_fed(cards: Path, manager: Manager) -> None:
    """B103."""
    daemon = manager.start(variables=watchdog(WATCHDOG_PID="1"))
    manager.wait("READY=1")
    for number in range(2):
        # Two changes of the status are two seconds.
        write(cards / f"{number}.json", {"display_name": f"m{number}"})
        manager.wait(f"STATUS={number + 1} worker")
    assert manager.told("WATCHDOG=1") == []
    daemon.stop()


def test_a_watchdog_is_fed_though_a_directory_is_missing(root: Path, manager: Manager) -> None:
    daemon = manager.start(
        ["--cards", str(root / "missing"), "--socket", str(root / "s")], variables=watchdog()
    )
    manager.wait("READY=1")
    manager.wait("WATCHDOG=1", count=8)
    daemon.stop()


# Sockets passed in


def test_whoever_waited_at_the_socket_is_answered(cards: Path, manager: Manager) -> None:
    write(cards / "good.json", GOOD)
    path = cards.parent / "passed"
    manager.listen(path)
    with Raw(path) as early:
        early.send(call("Resolve", {"name": "good"}))
        daemon = manager.start(["--cards", str(cards)])
        reply = early.receive()
        assert reply is not None
        assert len(reply["parameters"]["workers"]) == 1
    manager.wait("READY=1")
    manager.end(daemon)


def test_a_socket_that_was_passed_in_survives_and_the_next_daemon_answers_who_waits_there(
    cards: Path, manager: Manager
) -> None:
    """B96."""
    write(cards / "good.json", GOOD)
    path = cards.parent / "passed"
    listening = manager.listen(path, mode=0o640)
    before = identity(path)
    for count in (1, 2):
        daemon = manager.start(["--cards", str(cards)])
        manager.wait("READY=1", count=count)
        assert resolves(path, "good")
        manager.end(daemon)
        assert identity(path) == before
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    with Raw(path) as waiting:
        waiting.send(call("Resolve", {"name": "good"}))
        daemon = manager.start(["--cards", str(cards)])
        reply = waiting.receive()
        assert reply is not None
        assert "error" not in reply
    manager.end(daemon)
    names = {each.name for each in cards.parent.iterdir()}
    assert not {name for name in names if name.endswith((".lock", ".new"))}


def test_a_killed_daemon_leaves_the_socket_to_the_next_one(cards: Path, manager: Manager) -> None:
    write(cards / "good.json", GOOD)
    path = cards.parent / "passed"
    manager.listen(path)
    for count in range(1, 4):
        daemon = manager.start(["--cards", str(cards)])
        manager.wait("READY=1", count=count)
        daemon.kill()
    with Raw(path) as waiting:
        waiting.send(call("Resolve", {"name": "good"}))
        daemon = manager.start(["--cards", str(cards)])
        assert waiting.receive() is not None
    manager.end(daemon)


def test_the_default_drop_directory_is_beside_the_socket(cards: Path, manager: Manager) -> None:
    write(cards / "good.json", GOOD)
    path = cards.parent / "passed"
    manager.listen(path)
    daemon = manager.start([])
    manager.wait("READY=1")
    assert resolves(path, "good")
    manager.end(daemon)


def test_a_socket_whose_path_is_removed_is_a_problem_of_which_the_status_line_tells(
    cards: Path, manager: Manager
) -> None:
    """B99: it is not the daemon's to make again."""
    path = cards.parent / "passed"
    manager.listen(path)
    daemon = manager.start(["--cards", str(cards)])
    manager.wait("READY=1")
    with Client(str(path)) as client:
        assert client.status().healthy
        path.unlink()
        status = client.status()
    assert not status.healthy
    assert "Restart the socket unit" in status.problems[0]
    manager.wait("STATUS=0 workers, 0 models, 1 problem, revision")
    manager.end(daemon)
    assert not path.exists()


def test_several_sockets_are_served(cards: Path, manager: Manager) -> None:
    write(cards / "good.json", GOOD)
    paths = [cards.parent / name for name in ("one", "two")]
    for path in paths:
        manager.listen(path)
    daemon = manager.start(["--cards", str(cards)])
    manager.wait("READY=1")
    assert [resolves(path, "good") for path in paths] == [True, True]
    manager.end(daemon)


def test_sockets_that_were_passed_to_another_process_are_not_touched(
    cards: Path, manager: Manager
) -> None:
    """B97."""
    write(cards / "good.json", GOOD)
    manager.listen(cards.parent / "passed")
    daemon = manager.start(variables={"LISTEN_PID": str(os.getpid())})
    manager.wait("READY=1")
    assert resolves(daemon.socket, "good")
    assert "they are not used" in daemon.log
    daemon.stop()


def test_a_socket_of_another_name_is_refused_with_what_to_write(
    cards: Path, manager: Manager
) -> None:
    """B97."""
    manager.listen(cards.parent / "passed")
    daemon = manager.start(["--cards", str(cards)], names="discoveryd.socket")
    assert daemon.wait_ended() == 1
    [line] = daemon.log.splitlines()
    assert line.startswith("discoveryd: none of the sockets that were passed in is named varlink")
    assert "FileDescriptorName=varlink" in line
    assert (cards.parent / "passed").exists()


def test_a_socket_of_another_kind_is_refused_with_what_to_write(
    cards: Path, manager: Manager
) -> None:
    """B97."""
    with socket.socket(socket.AF_INET) as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        manager.passed.append(tcp)
        daemon = manager.start(["--cards", str(cards)])
        assert daemon.wait_ended() == 1
    assert "descriptor 3 is no Unix socket: let the socket unit say ListenStream=" in daemon.log


# A temporary directory of the service's own


def test_cards_where_nobody_else_can_put_them_are_a_problem_that_says_what_to_do(
    root: Path, start: Start
) -> None:
    """B101: mounted as systemd mounts it for PrivateTmp=."""
    hidden_store = "/var/tmp/store"  # noqa: S108  # nothing is put there
    own = root / "systemd-private-0-discoveryd.service-1" / "tmp"
    own.mkdir(parents=True)
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
    hide = [*unshare, "sh", "-c", 'mount --bind "$0" /var/tmp && exec "$@"', str(own)]
    tried = subprocess.run([*hide, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: nothing can be mounted here: {tried.stderr.strip()}")
    places = {"--cards": hidden_store, "--dynamo": root / "store", "--socket": root / "s"}
    arguments = [part for flag, path in places.items() for part in (flag, str(path))]
    daemon = start(arguments, prefix=hide).wait_ready()
    with daemon.client() as client:
        hidden, seen = client.status().directories
    assert f"into {hidden_store}. Choose" in (hidden.problem or "")
    assert "PrivateTmp=" not in (seen.problem or "")
    assert "PrivateTmp=" in daemon.log
    daemon.stop()


# The journal, and no manager at all


def test_every_line_for_the_journal_begins_with_its_priority(root: Path, manager: Manager) -> None:
    errors = root / "stderr"
    errors.touch()
    found = errors.stat()
    variables = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
    daemon = manager.start(variables=variables)
    manager.wait("READY=1")
    second = manager.start(variables=variables)
    assert second.wait_ended() == 1
    daemon.stop()
    lines = daemon.log.splitlines()
    assert all(re.match(r"<[2-7]>\S", line) for line in lines), lines
    assert [line for line in lines if line.startswith("<3>another discoveryd is serving")]
    assert [line for line in lines if line.startswith("<6>ending on SIGTERM")]


def test_a_manager_that_is_gone_harms_nobody(cards: Path, manager: Manager) -> None:
    write(cards / "good.json", GOOD)
    manager.address.unlink()
    daemon = manager.start(variables=watchdog()).wait_ready()
    assert resolves(daemon.socket, "good")
    daemon.send(signal.SIGHUP)
    until(lambda: "SIGHUP" in daemon.log, "the reload")
    daemon.stop()
    assert daemon.log.count("the service manager cannot be told") == 1


def test_hangups_without_end_do_not_end_it_and_do_not_keep_it_from_ending(start: Start) -> None:
    daemon = start().wait_ready()

    def hang_up() -> None:
        while daemon.process.returncode is None:
            daemon.send(signal.SIGHUP)
            time.sleep(0.0002)  # what a shell's loop takes

    hanging_up = threading.Thread(target=hang_up)
    hanging_up.start()
    try:
        until(lambda: daemon.log.count("SIGHUP") > 2, "some reloads")
        daemon.stop()
    finally:
        daemon.kill()
        hanging_up.join()


def test_without_a_manager_a_hangup_is_a_reload_too(cards: Path, start: Start) -> None:
    """B105."""
    write(cards / "good.json", GOOD)
    daemon = start().wait_ready()
    daemon.send(signal.SIGHUP)
    until(lambda: "SIGHUP" in daemon.log, "the reload")
    assert resolves(daemon.socket, "good")
    daemon.stop()
