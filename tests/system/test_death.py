"""Cards die with what keeps them alive, and with nothing else: processes, holds, leases."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from discoveryd.client import NoSuchModel
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, write
from tests.system.dying import (
    NOBODY,
    Hold,
    Holding,
    kept_touched,
    reasons,
    serves,
)
from tests.system.raw import Raw
from tests.system.running import Daemon, until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that does nothing, which the test may kill."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def hold(host: Host) -> Iterator[Hold]:
    """Give a function that holds files, until the end of the test at the latest."""
    with contextlib.ExitStack() as ends:

        def begin(*files: str) -> Holding:
            holding = Holding(host.daemon.socket, *files)
            ends.callback(holding.close)
            return holding

        yield begin


# Processes


def test_an_expired_card_holds_neither_its_key_nor_its_name(
    host: Host, sleeper: subprocess.Popen[bytes]
) -> None:
    members = {"display_name": "m", "url": "http://127.0.0.1:8001"}
    host.put("first", members | {"liveness": {"pid": sleeper.pid}})
    assert host.put("second", members).standing == "duplicate"
    sleeper.kill()
    until(lambda: serves(host, host.cards / "second.json"), "the second has the key")
    assert host.standings() == {"first.json": "expired", "second.json": "serving"}


def test_a_pid_of_an_unrelated_process_is_not_taken_for_the_worker(host: Host) -> None:
    """B52: a living process, and an older start time."""
    liveness = {"pid": os.getpid(), "pid_start": 1}
    verdict = host.put("a", {"display_name": "a", "liveness": liveness})
    assert (verdict.standing, reasons(verdict)) == ("expired", ["process_gone"])
    assert "has its number now" in verdict.reasons[0].message


def test_a_pid_of_another_namespace_is_unknown_not_gone(host: Host) -> None:
    """B52."""
    liveness = {"pid": 4_194_304, "pid_namespace": 1}
    verdict = host.put("a", {"display_name": "a", "liveness": liveness})
    assert verdict.standing == "serving"
    (warning,) = verdict.warnings
    assert "PID namespace" in warning
    assert "held" in warning


def test_many_workers_killed_at_once_leave_together_and_the_others_stay(host: Host) -> None:
    with contextlib.ExitStack() as ends:
        workers = [ends.enter_context(subprocess.Popen(["sleep", "600"])) for _ in range(40)]
        for number, worker in enumerate(workers):
            ends.callback(worker.kill)
            liveness = {"pid": worker.pid}
            host.put(f"w{number}", {"display_name": f"m{number}", "liveness": liveness})
        for worker in workers[:30]:
            worker.kill()
        expected = {f"m{number}" for number in range(30, 40)}
        until(
            lambda: {line.name for line in host.client.list().names} == expected,
            "the thirty are gone",
        )


# Holds


def test_a_hold_answers_the_verdicts_and_again_when_one_changes(host: Host, hold: Hold) -> None:
    a, b = host.cards / "a.json", host.cards / "b.json"
    held = {"liveness": {"held": True}}
    write(a, {"display_name": "a"} | held)
    write(b, {"display_name": "b"} | held)
    holding = hold(str(a), "b.json")
    first = holding.answer()
    assert first["continues"]
    verdicts = first["parameters"]["verdicts"]
    assert [v["file"] for v in verdicts] == [str(a), str(b)]
    assert [v["standing"] for v in verdicts] == ["serving", "serving"]
    assert first["parameters"]["cursor"]["revision"] > 0
    host.put("b", b"{")
    assert holding.standings() == ["serving", "invalid"]
    host.remove(b)
    assert holding.standings() == ["serving"]
    host.put("b", {"display_name": "b"} | held)
    assert holding.standings() == ["serving", "serving"]
    host.put("a", {"display_name": "a", "aliases": ["b"]} | held)
    assert holding.standings() == ["blocked", "serving"]


@pytest.mark.parametrize("end", [Holding.close, Holding.half_close], ids=["whole", "half"])
def test_a_hold_ends_with_its_connection_even_by_half(
    host: Host, hold: Hold, end: Callable[[Holding], None]
) -> None:
    host.put("a", {"display_name": "a", "liveness": {"held": True}})
    holding = hold("a.json")
    assert holding.standings() == ["serving"]
    end(holding)
    until(lambda: host.workers("a") is None, "the card has left with its hold")
    verdict = host.client.explain(file="a.json").verdicts[0]
    assert reasons(verdict) == ["not_held"]
    assert "call Hold" in verdict.reasons[0].message


def test_a_hold_by_half_gets_its_first_answer(host: Host, hold: Hold) -> None:
    host.put("a", {"display_name": "a", "liveness": {"held": True}})
    holding = hold("a.json")
    holding.half_close()
    answers = holding.rest()
    assert [v["standing"] for v in answers[0]["parameters"]["verdicts"]] == ["serving"]
    until(lambda: host.workers("a") is None, "the card has left with its hold")


def test_the_last_of_several_holders_ends_it(host: Host, hold: Hold) -> None:
    host.put("a", {"display_name": "a", "liveness": {"held": True}})
    one, two = (hold("a.json") for _ in range(2))
    assert one.standings() == two.standings() == ["serving"]
    one.close()
    host.client.sync()
    assert host.workers("a")
    two.close()
    until(lambda: host.workers("a") is None, "the card has left with its last hold")


def test_a_card_may_be_replaced_while_it_is_held(host: Host, hold: Hold) -> None:
    held = {"liveness": {"held": True}}
    host.put("a", {"display_name": "a"} | held)
    holding = hold("a.json")
    assert holding.standings() == ["serving"]
    assert host.put("a", {"display_name": "a", "aliases": ["b"]} | held).standing == "serving"
    host.remove(host.cards / "a.json")
    assert host.put("a", {"display_name": "a"} | held).standing == "serving"


def test_a_card_that_does_not_ask_to_be_held_outlives_its_hold(host: Host, hold: Hold) -> None:
    host.put("a", {"display_name": "a"})
    holding = hold("a.json")
    assert holding.standings() == ["serving"]
    holding.close()
    host.client.sync()
    assert host.workers("a")


def test_a_file_that_is_not_there_cannot_be_held(hold: Hold) -> None:
    answer = hold("none.json").answer()
    assert answer["error"] == "io.discoveryd.Models.NoSuchFile"
    assert answer["parameters"] == {"file": "none.json"}


@pytest.mark.parametrize(
    ("parameters", "more", "error"),
    [
        ({"files": []}, True, "InvalidParameter"),
        ({}, True, "InvalidParameter"),
        ({"files": ["a.json"]}, False, "ExpectedMore"),
    ],
)
def test_a_hold_needs_files_and_more(
    host: Host, parameters: Mapping[str, object], more: bool, error: str
) -> None:
    with Raw(host.daemon.socket) as peer:
        answer = peer.ask("Hold", parameters, more=more)
    assert answer["error"] == f"org.varlink.service.{error}"


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Be another user meanwhile, as far as the kernel tells whoever is connected to."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users: this proves nothing")
def test_only_the_owner_of_a_file_or_root_may_hold_it(start: Start, root: Path) -> None:
    daemon = start().wait_ready()
    root.chmod(0o755)
    daemon.socket.chmod(0o666)
    roots, nobodys = daemon.cards / "roots.json", daemon.cards / "nobodys.json"
    for path in (roots, nobodys):
        write(path, {"display_name": path.stem, "liveness": {"held": True}})
    os.chown(nobodys, NOBODY, NOBODY)
    with daemon.client() as client, contextlib.ExitStack() as ends:

        def hold(*files: Path) -> Holding:
            holding = Holding(daemon.socket, *map(str, files))
            ends.callback(holding.close)
            return holding

        with as_user(NOBODY):
            refused, granted = hold(nobodys, roots), hold(nobodys)
        assert refused.answer()["error"] == "org.varlink.service.PermissionDenied"
        assert granted.standings() == ["serving"]
        with pytest.raises(NoSuchModel):
            client.resolve("roots")

        os.chown(nobodys, 0, 0)
        (verdict,) = client.sync(str(nobodys)).verdicts
        assert reasons(verdict) == ["not_held"], "a hold that is not the new owner's counts no more"
        assert hold(nobodys, roots).standings() == ["serving", "serving"]


# Leases


def test_a_lease_lives_by_touches_and_ends_without(host: Host) -> None:
    """B51: and a late touch revives it, nothing of the daemon's having touched the file."""
    path = host.cards / "a.json"
    assert host.put("a", {"display_name": "a", "liveness": {"lease_seconds": 1}}).good
    with kept_touched(path):
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            assert host.workers("a")
    until(lambda: host.workers("a") is None, "the lease has lapsed")
    before = path.read_bytes()
    os.utime(path)
    until(lambda: bool(host.workers("a")), "a late touch revives the card")
    assert path.read_bytes() == before


@pytest.mark.parametrize("hours", [1, -87_600], ids=["an-hour-ahead", "ten-years-ago"])
def test_an_odd_mtime_neither_kills_nor_immortalises_whoever_is_touched(
    host: Host, hours: int
) -> None:
    """B53."""
    path = host.cards / "a.json"
    beside = host.cards / ".a"
    beside.write_bytes(b'{"display_name": "a", "liveness": {"lease_seconds": 1}}')
    at = time.time() + 3600 * hours
    os.utime(beside, (at, at))
    beside.rename(path)
    host.client.sync("a.json")
    assert (host.workers("a") is not None) == (hours > 0)
    for touch in range(1, 8):
        os.utime(path, (at + touch, at + touch))
        until(lambda: host.workers("a") is not None, "a touch keeps it, or revives it")
        threading.Event().wait(0.2)
    until(lambda: host.workers("a") is None, "nobody touches it any more")


@pytest.mark.parametrize("worker_too", [False, True], ids=["daemon", "daemon-and-worker"])
def test_a_daemon_that_stood_still_kills_nobody_who_lives(start: Start, worker_too: bool) -> None:
    daemon = start().wait_ready()
    host = Host(daemon, daemon.client())
    lease = {"liveness": {"lease_seconds": 1}}
    with host.client:
        host.put("alive", {"display_name": "alive"} | lease)
        with (
            kept_touched(host.cards / "alive.json") as worker,
            contextlib.closing(host.client.watch(name="alive")) as watched,
        ):
            assert next(watched).names
            if worker_too:
                worker.send_signal(signal.SIGSTOP)
            else:
                # Dies while nobody looks, and is to be missed afterwards.
                write(host.cards / "dead.json", {"display_name": "dead"} | lease)
                host.client.sync()
            daemon.send(signal.SIGSTOP)
            threading.Event().wait(3)
            daemon.send(signal.SIGCONT)
            worker.send_signal(signal.SIGCONT)
            until(lambda: host.workers("dead") is None, "the dead is missed")
            threading.Event().wait(1)
            assert host.workers("alive")
            write(
                host.cards / "alive.json", {"display_name": "alive", "labels": {"a": "b"}} | lease
            )
            changed = next(watched)
            assert (changed.removed, changed.gone) == ((), ())
            assert changed.changed[0].labels == {"a": "b"}


# Restarts


def end_by(number: signal.Signals, daemon: Daemon) -> None:
    daemon.send(number)
    daemon.wait_ended()


HELD: Json = {"liveness": {"held": True}}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_holders_who_come_back_after_a_restart_were_never_away(
    start: Start, number: signal.Signals
) -> None:
    daemon = start().wait_ready()
    with daemon.client() as client:
        host = Host(daemon, client)
        host.put("a", {"display_name": "a"} | HELD)
        holding = Holding(daemon.socket, "a.json")
        assert holding.standings() == ["serving"]
        with contextlib.closing(client.watch()) as watched:
            before = next(watched).cursor
    end_by(number, daemon)
    holding.close()

    again = start().wait_ready()
    with again.client() as client, contextlib.closing(client.watch(before)) as watched:
        reply = next(watched)
        assert (reply.reset, reply.removed, reply.gone) == (False, (), ())
        assert client.resolve("a").workers
        holding = Holding(again.socket, "a.json")
        assert holding.standings() == ["serving"]
        write(again.cards / "b.json", {"display_name": "b"})
        told = next(watched)
        assert (told.removed, [worker.model for worker in told.changed]) == ((), ["b"])
        holding.close()
        assert next(watched).gone == ("a",)


def test_holders_who_do_not_come_back_after_a_restart_have_five_seconds(start: Start) -> None:
    daemon = start().wait_ready()
    with daemon.client() as client:
        host = Host(daemon, client)
        host.put("a", {"display_name": "a"} | HELD)
        host.put("never", {"display_name": "never"} | HELD)
        holding = Holding(daemon.socket, "a.json")
        assert holding.standings() == ["serving"]
        end_by(signal.SIGKILL, daemon)
        holding.close()
    began = time.monotonic()
    again = start().wait_ready()
    with again.client() as client:
        host = Host(again, client)
        assert host.workers("a")
        assert host.workers("never") is None
        until(lambda: host.workers("a") is None, "nobody came back")
        assert time.monotonic() - began > 5
        (verdict,) = client.explain(file="a.json").verdicts
        assert reasons(verdict) == ["not_held"]


def test_who_dies_while_the_daemon_is_down_is_missed_from_the_start(
    start: Start, sleeper: subprocess.Popen[bytes]
) -> None:
    daemon = start().wait_ready()
    with daemon.client() as client:
        host = Host(daemon, client)
        host.put("dead", {"display_name": "dead", "liveness": {"pid": sleeper.pid}})
        host.put("alive", {"display_name": "alive", "liveness": {"pid": os.getpid()}})
        host.put("lapsed", {"display_name": "lapsed", "liveness": {"lease_seconds": 1}})
        assert {line.name for line in client.list().names} == {"dead", "alive", "lapsed"}
    end_by(signal.SIGKILL, daemon)
    sleeper.kill()
    sleeper.wait()
    lapsed = daemon.cards / "lapsed.json"
    until(lambda: time.time() - lapsed.stat().st_mtime > 1, "the lease has lapsed")
    again = start().wait_ready()
    with again.client() as client:
        assert {line.name for line in client.list().names} == {"alive"}
        assert Host(again, client).standings() == {
            "dead.json": "expired",
            "alive.json": "serving",
            "lapsed.json": "expired",
        }
