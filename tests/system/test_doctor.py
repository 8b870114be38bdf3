"""discoveryctl doctor with real daemons, on the host as it is, as users that differ from theirs."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.system.dropping import GOOD, Host, Json, write
from tests.system.running import Daemon, environment, without

PROGRAM = (sys.executable, "-c", "from discoveryd.client.ctl.start import main; main()", "doctor")
DAEMONS, WORKERS = 65533, 65534
"""Users that the tests may be, as root."""

Start = Callable[..., Daemon]


def doctor(socket: Path, prefix: Sequence[str] = ()) -> tuple[int, list[Json]]:
    """Return the exit status of doctor and its findings."""
    done = subprocess.run(
        [*prefix, *PROGRAM, "--json", "--socket", str(socket)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def wrongs(findings: list[Json]) -> list[Json]:
    return [finding for finding in findings if finding["level"] == "wrong"]


def as_user(uid: int) -> list[str]:
    """Return a command that runs another as this user; skips the test where that may not be."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can be other users")
    return without("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups")


def test_a_daemon_that_is_well_is_found_well_and_nothing_is_written(host: Host) -> None:
    host.put("good", GOOD)
    before = host.cards.stat().st_mtime_ns, sorted(host.cards.iterdir())
    status, findings = doctor(host.daemon.socket)
    assert (status, wrongs(findings)) == (0, [])
    said = [finding["what"] for finding in findings]
    pid = host.daemon.process.pid
    assert any(what.startswith(f"the daemon's process {pid}, of ") for what in said)
    assert f"drop directory {host.cards}" in said
    assert f"ledger {host.daemon.root}/.s.ledger" in said
    assert (host.cards.stat().st_mtime_ns, sorted(host.cards.iterdir())) == before


def test_a_daemon_that_was_killed_leaves_a_socket_that_is_told(start: Start) -> None:
    daemon = start().wait_ready()
    daemon.send(signal.SIGKILL)
    daemon.wait_ended()
    status, findings = doctor(daemon.socket)
    assert status == 1
    (found,) = wrongs(findings)
    assert found["what"] == f"{daemon.socket} (as you said)"
    assert "killed" in found["why"]


def test_a_problem_of_the_daemons_comes_with_its_remedy(start: Start) -> None:
    daemon = start().wait_ready()
    shutil.rmtree(daemon.cards)
    with daemon.client() as client:
        client.sync()
    status, findings = doctor(daemon.socket)
    assert status == 1
    problem = next(each for each in wrongs(findings) if "daemon has a problem" in each["what"])
    assert problem["why"] == f"waiting for directory {daemon.cards}: it does not exist"
    assert problem["remedy"] == [f"sudo install -d -m 1777 {daemon.cards}"]


def test_another_directory_at_the_same_path_is_wrong(root: Path, start: Start) -> None:
    """As with PrivateTmp=, and in containers."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can mount")
    unshare = without("unshare", "--mount")
    cards = root / "cards"
    cards.mkdir()
    mounted = ("sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(cards))
    daemon = start(prefix=[*unshare, *mounted]).wait_ready()
    write(cards / "good.json", GOOD)
    status, findings = doctor(daemon.socket)
    assert status == 1
    (found,) = wrongs(findings)
    assert found["what"] == f"drop directory {cards}"
    assert found["why"].startswith("the daemon sees another directory there than you do")


class TestUsers:
    """The daemon's user and the one who asks are two, and neither is root."""

    @pytest.fixture
    def daemon(self, root: Path, start: Start) -> Daemon:
        prefix = as_user(DAEMONS)
        root.chmod(0o1777)
        cards = root / "cards"
        cards.mkdir()
        cards.chmod(0o1777)
        socket = root / "s"
        arguments = ["--cards", str(cards), "--socket", str(socket), "--socket-mode", "0666"]
        environ = environment(HOME=str(root))
        return start(arguments, prefix=prefix, environ=environ).wait_ready()

    def test_own_cards_that_the_daemon_cannot_read_are_named(self, daemon: Daemon) -> None:
        card = daemon.cards / "mine.json"
        write(card, GOOD)
        card.chmod(0o600)
        os.chown(card, WORKERS, WORKERS)
        status, findings = doctor(daemon.socket, as_user(WORKERS))
        assert status == 1
        (found,) = wrongs(findings)
        assert "cannot read 1 of your cards" in found["why"]
        assert found["remedy"] == [f"chmod 0644 {card}"]
        card.chmod(0o644)
        assert doctor(daemon.socket, as_user(WORKERS))[0] == 0

    def test_a_socket_that_is_closed_is_told_with_who_opens_it(self, daemon: Daemon) -> None:
        daemon.socket.chmod(0o600)
        status, findings = doctor(daemon.socket, as_user(WORKERS))
        assert status == 1
        (found,) = wrongs(findings)
        assert "you may not connect" in found["why"]
        assert "mode 0600" in found["why"]

    def test_a_directory_for_others_is_a_note_for_who_only_asks(self, daemon: Daemon) -> None:
        daemon.cards.chmod(0o755)
        status, findings = doctor(daemon.socket, as_user(WORKERS))
        assert status == 0
        assert any("you cannot put cards there" in finding["why"] for finding in findings)
