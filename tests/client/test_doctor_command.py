"""discoveryctl doctor as a whole: what it says and how it ends, with a daemon of canned answers."""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from discoveryd import __version__
from discoveryd.client.ctl.session import NO
from discoveryd.client.doctor import visit
from discoveryd.client.doctor.sockets import Peer, Sight, look_at_sockets
from discoveryd.client.doctor.units import SERVICE, Units
from tests.client import fakes
from tests.client.ctl import EVIL, Ctl
from tests.client.fakes import FakeDaemon


@pytest.fixture
def cards(daemon: FakeDaemon, directory: Path) -> Path:
    """A drop directory that the daemon says it follows; everything is well."""
    path = directory / "cards"
    path.mkdir()
    place = {**fakes.status()["directories"][0], "path": str(path)}
    well = {"version": __version__, "standings": {"serving": 1}}
    daemon.answer("GetStatus", fakes.status(directories=[place], **well))
    return path


def test_where_all_is_well_it_says_what_it_looked_at(ctl: Ctl, cards: Path) -> None:
    found = ctl("doctor")
    assert (found.status, found.err) == (0, "")
    said = found.out.splitlines()
    assert said[0].startswith("ok     ")
    assert f"ok     drop directory {cards}: you can put cards there; 0 are there, 0 yours" in said
    assert any(line.startswith("ok     the daemon's process") for line in said)
    assert "wrong" not in said[-1]
    assert said[-1].endswith(" ok")


def test_what_is_wrong_is_told_and_makes_the_exit_status(
    daemon: FakeDaemon, ctl: Ctl, cards: Path
) -> None:
    problem = f"the ledger is not kept, {EVIL}"
    daemon.answer("GetStatus", fakes.status(problems=[problem]))
    found = ctl("doctor")
    assert found.status == NO
    assert "wrong  the daemon has a problem: the ledger is not kept, \\u001b[2J" in found.out
    assert "wrong  drop directory /cards: it is not there for you" in found.out
    assert all(line.isprintable() for line in found.out.splitlines())
    assert cards.exists()


@pytest.mark.usefixtures("cards")
def test_json_has_the_findings(ctl: Ctl) -> None:
    found = ctl("doctor", "--json").json()
    assert {key for finding in found for key in finding} == {"level", "what", "why", "remedy"}
    assert {finding["level"] for finding in found} <= {"ok", "note"}


def test_without_a_daemon_it_says_what_was_tried(ctl: Ctl, directory: Path) -> None:
    found = ctl("doctor", "--socket", str(directory / "none"), "--json")
    assert found.status == NO
    findings = json.loads(found.out)
    wrong = [finding["what"] for finding in findings if finding["level"] == "wrong"]
    assert wrong == ["no daemon answers"]
    what = f"{directory}/none (as you said)"
    assert any(finding["what"] == what for finding in findings)


def test_a_daemon_that_is_stuck_does_not_hang_it(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.scripts = [fakes.stay_silent]
    found = ctl("doctor", "--timeout", "0.1")
    assert found.status == NO
    assert "it accepts, but" in found.out


def test_a_directory_that_hangs_does_not_hang_it(
    ctl: Ctl, cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def hang(path: str, uid: int) -> None:
        del path, uid
        over.wait()

    monkeypatch.setattr(visit, "LOOK_SECONDS", 2.0)
    monkeypatch.setattr(visit, "look_at_directory", hang)
    try:
        found = ctl("doctor")
    finally:
        over.set()
    assert found.status == NO
    assert f"wrong  drop directory {cards}: looking at it hangs" in found.out


@pytest.mark.usefixtures("cards")
def test_what_cannot_be_looked_at_is_a_note(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    looks = ("look_at_inotify", "look_at_ledger", "look_at_process", "look_at_person")
    for look in looks:
        monkeypatch.setattr(visit, look, fail)
    found = ctl("doctor")
    assert found.status == 0
    assert found.out.count("it cannot be looked at: No such file or directory") == len(looks)


def test_a_directory_of_the_environment_that_no_daemon_follows_is_noted(
    ctl: Ctl, cards: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("DISCOVERYD_CARDS", os.pathsep.join((str(elsewhere), str(cards))))
    found = ctl("doctor")
    assert f"note   drop directory {elsewhere}: DISCOVERYD_CARDS names it" in found.out
    assert f"note   drop directory {cards}: DISCOVERYD_CARDS" not in found.out


def test_a_process_in_another_namespace_has_no_number_here(
    ctl: Ctl, cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def unseen(named: str | None, environ: Mapping[str, str], timeout: float) -> tuple[Sight, ...]:
        sights = look_at_sockets(named, environ, timeout)
        return tuple(sight._replace(peer=Peer(0, 65534, 65534)) for sight in sights)

    monkeypatch.setattr(visit, "look_at_sockets", unseen)
    found = ctl("doctor")
    assert "note   the daemon's process: it is in another PID namespace" in found.out
    assert cards.exists()


@pytest.mark.usefixtures("cards")
def test_a_socket_that_systemd_made_leads_to_the_units_process(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*, of_user: bool, seconds: float) -> Units:
        del seconds
        known = {SERVICE: {"Id": SERVICE, "LoadState": "loaded", "MainPID": str(os.getppid())}}
        return Units(of_user, known if of_user == (os.geteuid() != 0) else {})

    monkeypatch.setattr(visit, "_is_systemd", lambda _: True)
    monkeypatch.setattr(visit, "look_at_units", look)
    assert f"the daemon's process {os.getppid()}, of " in ctl("doctor").out
