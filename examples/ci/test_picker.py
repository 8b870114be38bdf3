"""Tests with a daemon each: `pip install discoveryd pytest`, and the fixtures are there."""

import os
import subprocess
import sys

import picker
import pytest

from discoveryd.client import NoDaemon, NoSuchModel
from discoveryd.client.testing import Factory, LocalDaemon

LLAMA = {
    "display_name": "llama-3.1-8b",
    "aliases": ["llama"],
    "source_path": "/models/llama-3.1-8b",
    "url": "http://127.0.0.1:8001",
}


@pytest.fixture(autouse=True)
def _found(discoveryd: LocalDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the code under test find the test's own daemon."""
    for name, value in discoveryd.env.items():
        monkeypatch.setenv(name, value)


def test_a_worker_is_found_by_any_of_its_names(discoveryd: LocalDaemon) -> None:
    assert discoveryd.drop(LLAMA).good
    assert picker.pick("llama") == picker.pick("llama-3.1-8b") == "http://127.0.0.1:8001"


def test_a_worker_that_drains_is_not_picked(discoveryd: LocalDaemon) -> None:
    discoveryd.drop(LLAMA)
    discoveryd.drop(LLAMA | {"url": "http://127.0.0.1:8002"})
    discoveryd.drop(LLAMA | {"accepting": False})  # the same model and url, so the first card again
    assert {picker.pick("llama") for _ in range(20)} == {"http://127.0.0.1:8002"}


def test_a_worker_that_leaves_is_forgotten(discoveryd: LocalDaemon) -> None:
    key = discoveryd.drop(LLAMA).key
    assert key is not None
    discoveryd.remove(key)
    with pytest.raises(NoSuchModel):
        picker.pick("llama")


def test_the_operators_names_do_as_well(
    discoveryd_factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = discoveryd_factory(aliases={"gpt-4o": "llama-3.1-8b"})
    monkeypatch.setenv("DISCOVERYD_SOCKET", daemon.socket)
    daemon.drop(LLAMA)
    assert picker.pick("gpt-4o") == "http://127.0.0.1:8001"


def test_many_workers_are_written_first_and_waited_for_once(discoveryd: LocalDaemon) -> None:
    for port in range(8001, 8101):
        discoveryd.drop(LLAMA | {"url": f"http://127.0.0.1:{port}"}, wait=False)
    assert discoveryd.settle().standings == {"serving": 100}
    assert picker.pick("llama").startswith("http://127.0.0.1:8")


def test_a_daemon_that_is_gone_is_told_and_one_that_is_back_is_asked(
    discoveryd: LocalDaemon,
) -> None:
    discoveryd.drop(LLAMA)
    discoveryd.kill()
    with pytest.raises(NoDaemon):
        picker.pick("llama")
    discoveryd.start()
    assert picker.pick("llama") == "http://127.0.0.1:8001"


def test_the_command_says_why_nobody_serves_a_name(discoveryd: LocalDaemon) -> None:
    discoveryd.drop(LLAMA)
    discoveryd.drop({"display_name": "other", "aliases": ["llama"], "url": "http://127.0.0.1:8003"})
    done = subprocess.run(
        [sys.executable, picker.__file__, "other"],
        env={**os.environ, **discoveryd.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert '"llama"' in done.stderr
