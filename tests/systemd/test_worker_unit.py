"""The example unit of a worker, as it is, with a stand-in for llama-server."""

from collections.abc import Iterator

import pytest

from tests.system.running import until
from tests.systemd.host import CARDS, PATIENCE, Host

pytestmark = pytest.mark.timeout(PATIENCE)

UNIT = "llama.service"
URL = "http://127.0.0.1:8001"
SERVER = "/usr/local/bin/llama-server"
STATIC = "[Service]\nDynamicUser=no\nUser=llama\n"
COMES_BACK_SECONDS = 60.0


@pytest.fixture(params=["a dynamic user", "a static user"])
def worker(host: Host, request: pytest.FixtureRequest) -> Iterator[Host]:
    """Give the host with the worker's unit started."""
    host.must(
        f"printf '#!/bin/sh\\nexec python3 /inside/llama_server.py \"$@\"\\n' > {SERVER}"
        f" && chmod +x {SERVER} && cp /clone/systemd/examples/{UNIT} /etc/systemd/system"
        " && systemctl daemon-reload"
    )
    if request.param == "a static user":
        host.run("useradd --system llama")
        host.drop_in(UNIT, STATIC)
    host.must(f"systemctl start {UNIT}")
    yield host
    host.must(f"systemctl stop {UNIT}")
    host.run("userdel llama")


def test_a_worker_that_is_started_is_resolved(worker: Host) -> None:
    assert worker.urls("llama-3.1-8b") == [URL]
    assert worker.urls("llama") == [URL]
    dynamic = worker.show("DynamicUser", unit=UNIT) == ["yes"]
    (owner,) = worker.must(f"stat -c %u {CARDS}/*.json").split()
    assert dynamic == (int(owner) >= 61184)  # where systemd's dynamic users begin
    worker.must(f"systemctl stop {UNIT}")
    assert worker.show("ActiveState", "Result", unit=UNIT) == ["inactive", "success"]
    assert worker.urls("llama") == []
    assert worker.must(f"ls {CARDS}") == ""


@pytest.mark.parametrize("victim", ["the server", "discoveryctl run"])
def test_a_worker_that_crashes_takes_its_card_with_it_and_comes_back(
    worker: Host, victim: str
) -> None:
    (main,) = worker.show("MainPID", unit=UNIT)
    pid = (
        main
        if victim == "discoveryctl run"
        else worker.must("pgrep -f '[l]lama_server.py'").strip()
    )
    worker.must(f"kill -9 {pid}")
    until(lambda: worker.urls("llama") == [], "the card goes with its worker")
    until(lambda: worker.must(f"ls {CARDS}") == "", "its file goes, too")
    until(lambda: worker.urls("llama") == [URL], "the worker comes back", COMES_BACK_SECONDS)
    assert worker.show("NRestarts", unit=UNIT) == ["1"]
