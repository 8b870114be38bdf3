"""discoveryctl doctor where the daemon is a service in a sandbox, and systemd made its socket."""

import json
from typing import Any

import pytest

from tests.systemd.host import ASKER, CARDS, PATIENCE, SOCKET, WORKER, Host

pytestmark = pytest.mark.timeout(PATIENCE)


def doctor(host: Host, user: str | None = None) -> tuple[int, list[dict[str, Any]]]:
    done = host.run("discoveryctl doctor --json", user=user)
    assert done.errors == ""
    return done.status, json.loads(done.output)


def test_a_fresh_install_is_found_well_by_everybody(host: Host) -> None:
    host.put("m.json", user=WORKER, display_name="m", url="http://127.0.0.1:1")
    host.ask("sync m.json")
    pid = host.must("systemctl show -P MainPID discoveryd.service").strip()
    for user in (None, WORKER, ASKER):
        status, found = doctor(host, user)
        assert status == 0, found
        said = {finding["what"]: finding for finding in found}
        assert f"{SOCKET} (the system's)" in said
        assert said["unit discoveryd.service"]["level"] == "ok"
        assert said["unit discoveryd.socket"]["level"] == "ok"
        process = said[f"the daemon's process {pid}, of discoveryd"]
        # The daemon has file systems of its own, and the same drop directory on them.
        assert process["level"] == ("ok" if user is None else "note")
        assert said[f"drop directory {CARDS}"]["level"] == ("note" if user == ASKER else "ok")


def test_a_card_that_the_daemon_cannot_read_is_told_to_its_owner(host: Host) -> None:
    host.must(f'umask 077 && echo \'{{"display_name": "n"}}\' > {CARDS}/n.json', user=WORKER)
    host.ask("sync n.json")
    status, found = doctor(host, WORKER)
    assert status == 1
    (wrong,) = [finding for finding in found if finding["level"] == "wrong"]
    assert wrong["remedy"] == [f"chmod 0644 {CARDS}/n.json"]
