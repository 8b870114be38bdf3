"""Reload on real processes: by signal and by method, under load, and what a restart makes of it."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from discoveryd.client import Client
from tests.system.conftest import Start
from tests.system.dropping import write
from tests.system.raw import Raw
from tests.system.running import Daemon, environment, until

ANN, BEN = 4711, 4712
NOBODY = 65534

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="NOT TESTED: only root can be another user"
)


class Reloaded:
    """A daemon with a configuration file, two directories, and a client."""

    def __init__(self, root: Path, start: Start) -> None:
        self.file = root / "config.toml"
        self.cards = root / "cards"
        self.other = root / "other"
        for directory in (self.cards, self.other):
            directory.mkdir()
            directory.chmod(0o1777)
        self.configure()
        self._start = start
        self.daemon = start(["--config", str(self.file)]).wait_ready()
        self.client = self.daemon.client()

    def kill_and_begin(self) -> None:
        """Kill the daemon, and begin another in its place."""
        self.client.close()
        self.daemon.kill()
        self.daemon = self._start(["--config", str(self.file)]).wait_ready()
        self.client = self.daemon.client()

    def configure(self, text: str = "", directories: tuple[str, ...] = ("cards",)) -> None:
        self.file.write_text(f'cards = {json.dumps(directories)}\nsocket = "s"\n{text}')

    def hang_up(self) -> None:
        self.daemon.send(signal.SIGHUP)

    def reload(self) -> tuple[list[str], list[str]]:
        """Reload by the method; return what changed, and the problems."""
        with Raw(self.daemon.socket) as raw:
            reply = raw.ask("Reload")["parameters"]
        return reply["changed"], reply["problems"]

    def names(self) -> set[str]:
        return {line.name for line in self.client.list().names}

    def standing(self, path: Path) -> tuple[str, str]:
        (verdict,) = self.client.explain(file=str(path)).verdicts
        return verdict.standing, "".join(reason.rule for reason in verdict.reasons)


@pytest.fixture
def host(root: Path, start: Start) -> Iterator[Reloaded]:
    root.chmod(0o755)
    host = Reloaded(root, start)
    yield host
    host.client.close()


def flat(name: str, **members: object) -> dict[str, Any]:
    return {"display_name": name, "instance": name, **members}


def drop(directory: Path, name: str, uid: int | None = None, **members: object) -> Path:
    """Put a card there by a rename, as that user where one is named."""
    path = directory / f"{name}.json"
    beside = directory / f".tmp_{name}"
    beside.write_text(json.dumps(flat(name) | members))
    if uid is not None:
        os.chown(beside, uid, uid)
    beside.rename(path)
    return path


# By signal


def test_a_hangup_reads_the_configuration_again_and_never_ends_the_daemon(host: Reloaded) -> None:
    """B105."""
    drop(host.cards, "a")
    host.configure('[aliases]\n"gpt" = "a"\n')
    host.hang_up()
    until(lambda: "gpt" in host.names(), "the operator's name is served")
    until(lambda: "reloaded: 1 changes, 0 problems" in host.daemon.log, "it is logged")
    assert 'aliases: "gpt" stands for "a" now' in host.daemon.log
    assert host.client.status().healthy


def test_of_hangups_that_come_at_once_none_is_lost(host: Reloaded) -> None:
    """B100."""
    for number in range(10):
        host.configure(f"quota = {number + 1}\n")
        host.hang_up()
    until(lambda: "quota is 10 now" in host.daemon.log, "the last one is taken over")
    assert host.reload() == ([], [])


def test_a_faulty_file_is_named_in_log_and_status_until_it_is_mended(host: Reloaded) -> None:
    """B100."""
    drop(host.cards, "a")
    until(lambda: "a" in host.names(), "the card serves")
    host.configure('alaises = "x"\n')
    host.hang_up()
    until(lambda: bool(host.client.status().problems), "the status says so")
    (problem,) = host.client.status().problems
    assert "the configuration was not taken over" in problem
    assert f"{host.file}: unknown key 'alaises'; did you mean 'aliases'?" in problem
    assert problem in host.daemon.log
    host.file.unlink()
    assert f"there is no configuration file {host.file}" in "".join(host.reload()[1])
    assert host.names() == {"a"}
    host.configure()
    host.hang_up()
    until(lambda: not host.client.status().problems, "all is well again")


# By method


def test_the_method_returns_what_changed_and_what_needs_a_restart(host: Reloaded) -> None:
    drop(host.other, "b")
    host.configure('state = "none"\n', ("cards", "other"))
    changed, problems = host.reload()
    assert changed == [f"cards: {host.other} is followed now"]
    assert problems == [
        f"state = none needs a restart: until then it stays {host.file.parent}/.s.ledger"
    ]
    assert host.names() == {"b"}


@needs_root
def test_only_root_and_the_daemons_own_user_may_reload(root: Path, start: Start) -> None:
    root.chmod(0o777)
    (root / "cards").mkdir()
    usual = ["--cards", str(root / "cards"), "--socket", str(root / "s"), "--socket-mode", "666"]
    daemon = start(usual).wait_ready()
    assert reload_as(daemon.socket, 0) == {}
    assert reload_as(daemon.socket, NOBODY) == "org.varlink.service.PermissionDenied"
    daemon.stop()
    own = ["setpriv", "--reuid", str(ANN), "--regid", str(ANN), "--clear-groups"]
    home = environment(HOME=str(root))
    daemon = start(usual, prefix=own, environ=home).wait_ready()
    assert reload_as(daemon.socket, 0) == {}
    assert reload_as(daemon.socket, ANN) == {}
    assert reload_as(daemon.socket, BEN) == "org.varlink.service.PermissionDenied"


def reload_as(place: Path, uid: int) -> object:
    """Return what that user gets, asked by a process of his: the error's name, {} for none."""
    read, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            with Raw(place) as raw:
                os.write(told, json.dumps(raw.ask("Reload").get("error", {})).encode())
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(read) as reply:
        said = reply.read()
    os.waitpid(child, 0)
    return json.loads(said)


# Users


@needs_root
def test_tenants_come_and_go_while_their_cards_serve(host: Reloaded) -> None:
    drop(host.cards, "ann", ANN)
    ben = drop(host.cards, "ben", BEN)
    until(lambda: host.names() == {"ann", "ben"}, "both serve")
    host.configure(f'[[allow]]\nuser = {ANN}\nnames = ["ann*"]\n')
    changed, _ = host.reload()
    assert changed == [f"[[allow]]: there is an entry for uid {ANN}; names ann* now"]
    assert host.names() == {"ann"}
    assert host.standing(ben) == ("forbidden", "not_allowed")
    host.configure(f"[[allow]]\nuser = {ANN}\n[[allow]]\nuser = {BEN}\n")
    host.reload()
    assert host.names() == {"ann", "ben"}


@needs_root
def test_owners_come_to_count_and_count_no_more(host: Reloaded) -> None:
    drop(host.cards, "first", ANN, display_name="m", component="c")
    until(lambda: "m" in host.names(), "the first serves")
    second = drop(host.cards, "second", BEN, display_name="m", component="c")
    until(lambda: len(host.client.resolve("m").workers) == 2, "both serve one name")
    revision = host.client.status().cursor.revision
    host.configure('owner = "uid"\n')
    assert host.reload()[0] == ['owner is "uid" now; it was left out']
    assert [worker.file for worker in host.client.resolve("m").workers] == [
        str(host.cards / "first.json")
    ]
    assert host.standing(second)[0] == "blocked"
    assert host.client.status().cursor.revision == revision + 1
    before = pictures(host.client)
    host.kill_and_begin()
    assert pictures(host.client) == before
    host.configure()
    host.reload()
    assert len(host.client.resolve("m").workers) == 2


@needs_root
def test_a_lower_quota_keeps_each_users_first(host: Reloaded) -> None:
    for number in range(3):
        drop(host.cards, f"ann{number}", ANN)
        until(lambda n=number: f"ann{n}" in host.names(), "it serves")  # type: ignore[misc]  # bound
    host.configure("quota = 2\n")
    host.reload()
    assert host.names() == {"ann0", "ann1"}
    (host.cards / "ann0.json").unlink()
    until(lambda: host.names() == {"ann1", "ann2"}, "who waited is let in")


# What a restart makes of it


def pictures(client: Client) -> object:
    """Everything that is answered: names, workers in order, what waits and since when, cursor."""
    names = client.list()
    verdicts = sorted(client.explain().verdicts, key=lambda each: each.file)
    return names, client.workers().workers, verdicts


def test_after_reloads_a_killed_daemon_comes_back_as_it_was(host: Reloaded) -> None:
    for name in ("a", "gpt", "b"):
        drop(host.cards, name)
        until(lambda n=name: n in host.names(), "it serves")  # type: ignore[misc]  # bound
    drop(host.other, "c", display_name="b", instance="c", component="elsewhere")
    host.configure('[aliases]\n"gpt" = "a"\n', ("cards", "other"))
    host.reload()
    host.configure('[aliases]\n"gpt" = "b"\n[[allow]]\nnames = ["b", "gpt"]\n', ("cards", "other"))
    host.reload()
    before = pictures(host.client)
    host.kill_and_begin()
    assert pictures(host.client) == before
    host.configure("", ("other",))
    host.reload()
    before = pictures(host.client)
    host.kill_and_begin()
    assert pictures(host.client) == before


# Directories


def test_after_a_switch_there_is_one_watch_and_the_old_directory_is_silent(host: Reloaded) -> None:
    """B55."""
    drop(host.cards, "a")
    until(lambda: "a" in host.names(), "it serves")
    watches = watches_of(host.daemon)
    for _ in range(3):
        for directory in ("other", "cards"):
            host.configure("", (directory,))
            assert len(host.reload()[0]) == 2
    host.configure("", ("other",))
    host.reload()
    until(lambda: watches_of(host.daemon) == watches, "as many watches as before")
    drop(host.cards, "late")
    drop(host.other, "b")
    until(lambda: host.names() == {"b"}, "only the new one is followed")
    host.client.sync()
    assert host.names() == {"b"}


def watches_of(daemon: Daemon) -> tuple[int, int]:
    """Return how many inotify instances a daemon has, and threads that read from one."""
    here = Path(f"/proc/{daemon.process.pid}")
    instances = sum("inotify" in os.readlink(each) for each in (here / "fd").iterdir())  # noqa: PTH115 - no path
    threads = [each.read_text() for each in here.glob("task/*/comm")]
    return instances, sum("notify" in name for name in threads)


# Under load

CONFIGURATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ('[aliases]\n"x" = "steady"\n', ("cards", "other")),
    ("follow_symlinks = true\n", ("cards", "other")),
    ('owner = "uid"\n[[allow]]\nnames = ["steady", "c*"]\n', ("cards",)),
    ('owner = "uid"\nquota = 100\n', ("cards", "other")),
    ("faulty = 1\n", ("cards",)),
    ("", ("other", "cards")),
)


def test_while_cards_come_and_go_what_serves_serves_on(host: Reloaded) -> None:
    """No answer in between is without the card that every configuration allows."""
    drop(host.cards, "steady")
    until(lambda: "steady" in host.names(), "it serves")
    with ExitStack() as stack:
        asking, syncing = (stack.enter_context(host.daemon.client()) for _ in range(2))
        load = Load()
        stack.enter_context(load)
        load.keep(lambda number: churn(host, number))
        load.keep(lambda _: load.expect(len(asking.resolve("steady").workers) == 1))
        load.keep(lambda _: load.expect(bool(syncing.sync().standings)))
        for text, directories in CONFIGURATIONS * 3:
            host.configure(text, directories)
            _, problems = host.reload()
            assert bool(problems) == ("faulty" in text), problems
    assert load.faults == []
    host.client.sync()
    serving = {Path(worker.file).name for worker in host.client.workers().workers}
    waiting = {Path(verdict.file).name for verdict in host.client.explain().verdicts}
    there = {path.name for path in (*host.cards.glob("*.json"), *host.other.glob("*.json"))}
    assert serving | waiting == there
    before = pictures(host.client)
    host.kill_and_begin()
    assert pictures(host.client) == before


def churn(host: Reloaded, number: int) -> None:
    """Put a card into each directory, or take one away."""
    for directory, letter in ((host.cards, "c"), (host.other, "o")):
        path = directory / f"{letter}{number % 7}.json"
        if number % 3:
            write(path, flat(f"{letter}{number % 5}", context_length=number + 1))
        else:
            path.unlink(missing_ok=True)


class Load:
    """Threads that work without a pause until the end; `faults` is what they came across."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def keep(self, work: Callable[[int], None]) -> None:
        """Do it again and again, given how often it was done."""
        thread = threading.Thread(target=self._on, args=(work,))
        self._threads.append(thread)
        thread.start()

    def expect(self, holds: bool) -> None:
        if not holds:
            self.faults.append("an answer is not as it must be")

    def _on(self, work: Callable[[int], None]) -> None:
        number = 0
        try:
            while not self._ended.is_set():
                work(number)
                number += 1
        except Exception as error:  # noqa: BLE001  # whatever it is, the test has failed
            self.faults.append(repr(error))
