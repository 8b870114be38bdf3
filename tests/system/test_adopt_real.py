"""Adopting a server that nobody wrote for these tests: llama.cpp's own, loaded with real weights.

It is the package xllamacpp, from PyPI, installed here or for the Python that the environment
variable DISCOVERYD_TEST_LLAMACPP names.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.adopting import Adopting, free_port
from tests.system.dropping import Host
from tests.system.llamacpp import CONTEXT, write_weights
from tests.system.running import until

SCRIPT = Path(__file__).parent / "llamacpp.py"
LOAD_SECONDS = 30.0


def python() -> str:
    """Return the Python that has the server; skip where there is none."""
    named = os.environ.get("DISCOVERYD_TEST_LLAMACPP")
    if named is None and importlib.util.find_spec("xllamacpp") is None:
        pytest.skip(
            "NOT TESTED: there is no real server to adopt; install xllamacpp, or name in "
            "DISCOVERYD_TEST_LLAMACPP a Python that has it"
        )
    return named or sys.executable


class LlamaCpp:
    """llama.cpp's server on tiny weights, at `url`."""

    def __init__(self, weights: Path, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        command = [python(), str(SCRIPT), str(weights), str(port), "tiny", "small"]
        with log.open("ab") as written:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=written, stderr=written
            )

    def answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text(errors="replace")
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:  # noqa: S310  # to the server of this test
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    python()
    path = tmp_path / "tiny.gguf"
    write_weights(path)
    return path


@pytest.fixture
def server(weights: Path, tmp_path: Path) -> Iterator[LlamaCpp]:
    server = LlamaCpp(weights, free_port(), tmp_path / "server")
    try:
        until(server.answers, "llama.cpp answers", LOAD_SECONDS)
        yield server
    finally:
        server.kill()


def test_a_real_llamacpp_is_adopted_answers_by_its_name_and_is_withdrawn_with_its_end(
    host: Host, server: LlamaCpp, weights: Path, tmp_path: Path
) -> None:
    adopting = Adopting(host.daemon, tmp_path / "output", [server.url], {})
    try:
        until(lambda: {n.name for n in host.client.list().names} == {"tiny", "small"}, "adoption")
        (worker,) = host.client.resolve("tiny").workers
        assert (worker.url, worker.source_path) == (server.url, str(weights))
        assert worker.context_length == CONTEXT
        assert worker.labels == {"adopted": "llama.cpp"}

        # Whoever resolved the name reaches the model by it.
        request = urllib.request.Request(  # noqa: S310  # to the server of this test
            f"{worker.url}/v1/completions",
            json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 2}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LOAD_SECONDS) as answer:  # noqa: S310  # the same
            assert json.load(answer)["usage"]["completion_tokens"] == 2

        server.kill()
        until(lambda: host.client.list().names == (), "the withdrawal", 2 * LOAD_SECONDS)
        assert list(host.cards.iterdir()) == []
        assert adopting.end(signal.SIGTERM) == 0
    finally:
        adopting.kill()
    assert "withdrew" in adopting.output
    assert "Traceback" not in adopting.output
