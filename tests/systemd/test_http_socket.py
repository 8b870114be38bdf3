"""The socket unit for HTTP, which is not enabled: what it takes, and that the hardening stays."""

import json
import shlex
from collections.abc import Iterator

import pytest

from tests.systemd.conftest import WITHOUT_INDEX
from tests.systemd.host import ASKER, PATIENCE, Host

pytestmark = pytest.mark.timeout(PATIENCE)

UNIT = "discoveryd-http.socket"
PORT = 9475
PATH = "/run/discoveryd/http"
ASK = """
import http.client, socket, sys
at, path = sys.argv[1:]
asked = http.client.HTTPConnection("localhost", timeout=20)
asked.sock = socket.socket(socket.AF_UNIX if at.startswith("/") else socket.AF_INET)
asked.sock.connect(at if at.startswith("/") else ("127.0.0.1", int(at)))
asked.request("GET", path)
answer = asked.getresponse()
print(answer.status)
print(answer.read().decode(), end="")
"""


def get(host: Host, at: str, path: str) -> tuple[int, str]:
    """Ask as a user in no group; return the status and the body."""
    told = host.must(f"python3 -c {shlex.quote(ASK)} {at} {path}", user=ASKER)
    status, _, body = told.partition("\n")
    return int(status), body


@pytest.fixture
def listening(host: Host) -> Iterator[Host]:
    """Give the host with the extra installed, HTTP enabled as the unit says, and one card."""
    host.box.must(
        "rm -rf clone && cp -r /clone clone && cd clone"
        " && /opt/discoveryd/bin/pip install --upgrade '.[http]'",
        environ=WITHOUT_INDEX,
    )
    host.must(f"systemctl enable {UNIT} && systemctl restart discoveryd.service")
    host.put("m.json", display_name="acme/m", url="http://127.0.0.1:1")
    host.ask("sync m.json")
    yield host
    host.must(f"systemctl disable --now {UNIT} && systemctl restart discoveryd.service")


def test_systemd_has_nothing_to_say_against_it(host: Host) -> None:
    assert host.run(f"systemd-analyze verify --man=no {UNIT}") == (0, "", "")


def test_it_is_not_enabled_and_nobody_is_answered(host: Host) -> None:
    assert host.run(f"systemctl is-enabled {UNIT}").output == "disabled\n"
    assert host.run(f"python3 -c {shlex.quote(ASK)} {PORT} /healthz").status == 1


def test_http_is_answered_on_loopback_by_a_daemon_without_network(listening: Host) -> None:
    own, families, denied = listening.show(
        "PrivateNetwork", "RestrictAddressFamilies", "IPAddressDeny"
    )
    assert (own, families) == ("yes", "AF_UNIX")
    assert set(denied.split()) == {"0.0.0.0/0", "::/0"}
    status, body = get(listening, str(PORT), "/v1/models")
    assert (status, [model["id"] for model in json.loads(body)["data"]]) == (200, ["acme/m"])
    assert get(listening, str(PORT), "/healthz")[0] == 200
    status, body = get(listening, str(PORT), "/metrics")
    assert status == 200
    assert 'discoveryd_cards{standing="serving"} 1.0\n' in body
    assert listening.urls("acme/m") == ["http://127.0.0.1:1"]


def test_http_is_there_again_after_a_restart(listening: Host) -> None:
    listening.must("systemctl restart discoveryd.service")
    assert get(listening, str(PORT), "/v1/models/acme/m")[0] == 200


def test_a_drop_in_has_it_answered_at_a_path(listening: Host) -> None:
    listening.drop_in(UNIT, f"[Socket]\nListenStream=\nListenStream={PATH}\n")
    listening.must(f"systemctl stop {UNIT} && systemctl restart discoveryd.service")
    assert get(listening, PATH, "/healthz")[0] == 200
    assert listening.run(f"python3 -c {shlex.quote(ASK)} {PORT} /healthz").status == 1
