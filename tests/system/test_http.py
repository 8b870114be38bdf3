"""HTTP from a real daemon, asked by curl and OpenAI's client, and checked by promtool."""

import json
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from discoveryd.client import Client, NoSuchModel
from tests.system.conftest import Start
from tests.system.running import Daemon, environment, until

CARD = {"display_name": "acme/m", "aliases": ["chat"], "url": "http://127.0.0.1:1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def arguments(root: Path, http: str) -> list[str]:
    """Return what a daemon with one card is told."""
    cards = root / "cards"
    cards.mkdir()
    (cards / "m.json").write_text(json.dumps(CARD))
    return ["--cards", str(cards), "--socket", str(root / "s"), "--http", http]


def curl(where: Path, path: str) -> tuple[int, str]:
    """Ask over the socket; return the status, 0 where nobody answers, and the body."""
    command = ["curl", "--silent", "--unix-socket", str(where), "--max-time", "10"]
    asked = [*command, "--write-out", "\n%{http_code}", f"http://localhost{path}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


@pytest.fixture
def at(root: Path) -> Path:
    """Give the path where HTTP is answered."""
    if shutil.which("curl") is None:
        pytest.skip("NOT TESTED: there is no curl here")
    return root / "http"


@pytest.fixture
def daemon(start: Start, root: Path, at: Path) -> Daemon:
    """Give a daemon with one card, which answers HTTP at the path."""
    return start(arguments(root, str(at))).wait_ready()


def test_curl_is_answered_over_the_socket(daemon: Daemon, at: Path) -> None:
    status, body = curl(at, "/v1/models")
    assert (status, [each["id"] for each in json.loads(body)["data"]]) == (200, ["acme/m", "chat"])
    status, body = curl(at, "/v1/models/acme/m")
    assert (status, json.loads(body)["id"]) == (200, "acme/m")
    assert curl(at, "/healthz") == (200, '{"watching":true,"problems":[]}\n')
    assert curl(at, "/v1/models/none")[0] == 404
    assert stat.S_IMODE(at.stat().st_mode) == 0o600
    daemon.stop()
    assert not at.exists()


def test_what_changes_on_disk_is_seen_over_http(daemon: Daemon, at: Path, root: Path) -> None:
    (root / "cards/m.json").unlink()
    with daemon.client() as client:
        client.sync()
    assert json.loads(curl(at, "/v1/models")[1])["data"] == []


def test_a_directory_that_is_gone_is_no_health(daemon: Daemon, at: Path) -> None:
    shutil.rmtree(daemon.root / "cards")
    until(lambda: curl(at, "/healthz")[0] == 503, "a directory that is missed")
    problems = json.loads(curl(at, "/healthz")[1])["problems"]
    assert str(daemon.root / "cards") in problems[0]
    (daemon.root / "cards").mkdir()
    until(lambda: curl(at, "/healthz")[0] == 200, "a directory that is watched again")


def test_a_path_that_was_removed_is_there_again(daemon: Daemon, at: Path) -> None:
    at.unlink()
    until(lambda: at.exists() and curl(at, "/healthz")[0] == 200, "the socket made anew")
    assert f"{at} was gone or replaced" in daemon.log


def test_openais_client_lists_and_retrieves_models(start: Start, root: Path) -> None:
    port = free_port()
    start(arguments(root, f"127.0.0.1:{port}")).wait_ready()
    with openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key="none") as client:
        listed = client.models.list().data
        assert [model.id for model in listed] == ["acme/m", "chat"]
        assert {model.object for model in listed} == {"model"}
        assert all(model.created > 0 for model in listed)
        assert client.models.retrieve("acme/m") == listed[0]
        with pytest.raises(openai.NotFoundError, match="did you mean"):
            client.models.retrieve("Chat")


def test_calls_and_errors_are_counted(daemon: Daemon, at: Path) -> None:
    with Client(str(daemon.socket)) as client:
        for _ in range(3):
            client.resolve("chat")
        with pytest.raises(NoSuchModel):
            client.resolve("none")
        client.status()
    _, body = curl(at, "/metrics")
    told = dict(line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))
    assert float(told['discoveryd_calls_total{method="Resolve"}']) == 4
    assert float(told['discoveryd_calls_total{method="GetStatus"}']) == 1
    assert float(told['discoveryd_call_seconds_count{method="GetStatus"}']) == 1
    error = 'error="io.discoveryd.Models.NoSuchModel",method="Resolve"'
    assert float(told[f"discoveryd_call_errors_total{{{error}}}"]) == 1


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="NOT TESTED: there is no promtool here"
)
def test_promtool_has_nothing_to_say_against_the_metrics(daemon: Daemon, at: Path) -> None:
    with daemon.client() as client:
        client.resolve("chat")
    body = curl(at, "/metrics")[1]
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_port_in_use_is_told_before_anything_is_served(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = Daemon(root, arguments(root, where))
        assert daemon.wait_ended(20.0) == 1
    assert f"cannot listen at {where} for HTTP: Address already in use" in daemon.log
    assert "Traceback" not in daemon.log


def test_without_the_extra_it_is_said_what_to_install(root: Path) -> None:
    shim = root / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text("import sys\nsys.modules['h11'] = None\n")
    told = arguments(root, str(root / "http"))
    daemon = Daemon(root, told, environ=environment(PYTHONPATH=str(shim)))
    assert daemon.wait_ended(20.0) == 1
    assert "HTTP needs h11" in daemon.log
    assert "pip install 'discoveryd[http]'" in daemon.log
    assert not (root / "s").exists()


def test_a_daemon_without_http_imports_nothing_for_it() -> None:
    program = (
        "import sys, discoveryd.daemon.run, discoveryd.daemon.cli\n"
        "print({'h11', 'prometheus_client'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"set()\n"


def test_prometheus_discovery_is_a_list_of_targets(daemon: Daemon, at: Path) -> None:
    assert daemon.accepts()
    status, body = curl(at, "/sd/prometheus")
    assert (status, [each["targets"] for each in json.loads(body)]) == (200, [["127.0.0.1:1"]])
