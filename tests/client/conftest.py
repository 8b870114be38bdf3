"""Fixtures for tests of the client."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.ctl import Ctl, caller
from tests.client.fakes import FakeDaemon


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose path is short enough for sockets."""
    path = tempfile.mkdtemp(prefix="dc")
    yield Path(path)
    shutil.rmtree(path)


@pytest.fixture
def daemon(directory: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(str(directory / "socket"))
    yield fake
    fake.close()


@pytest.fixture(autouse=True)
def _nobody_elses_daemon(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    for variable in ("DISCOVERYD_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TMPDIR", str(directory))


@pytest.fixture
def ctl(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ctl:
    """discoveryctl, which asks the fake daemon."""
    monkeypatch.setenv("DISCOVERYD_SOCKET", daemon.path)
    return caller(capsys)
