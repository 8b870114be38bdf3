"""What the tests of the whole share: daemons, started as rarely as can be."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.system.dropping import GOOD, Host
from tests.system.running import Daemon, short_directory

Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[Daemon]:
    """Give one daemon to all tests of a module; use `host`, which cleans up."""
    with short_directory() as root:
        daemon = Daemon(root)
        try:
            yield daemon.wait_ready()
            daemon.stop()
        finally:
            daemon.kill()


@pytest.fixture
def host(shared_daemon: Daemon) -> Iterator[Host]:
    """Give the shared daemon, with nothing dropped."""
    with shared_daemon.client() as client:
        host = Host(shared_daemon, client)
        try:
            yield host
        finally:
            host.clear()


@pytest.fixture
def served(host: Host) -> Iterator[Host]:
    """Give the host with one good card, which must look the same afterwards."""
    assert host.put("good", GOOD).standing == "serving"
    before = host.client.resolve("good").workers
    yield host
    assert host.client.resolve("good").workers == before
    assert [line.name for line in host.client.list().names] == ["good"]
    assert host.daemon.process.poll() is None
    assert "Traceback" not in host.daemon.log
    assert "Error" not in host.daemon.log


@pytest.fixture
def root() -> Iterator[Path]:
    """Give a directory for a daemon of the test's own."""
    with short_directory() as directory:
        yield directory


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    """Give a function that starts daemons below `root`; those that live at the end are stopped."""
    with contextlib.ExitStack() as ends:

        def begin(
            arguments: Sequence[str] | None = None,
            *,
            environ: Mapping[str, str] | None = None,
            prefix: Sequence[str] = (),
            at: Path | None = None,
        ) -> Daemon:
            daemon = Daemon(root, arguments, environ=environ, prefix=prefix, at=at)
            ends.callback(daemon.kill)
            daemons.append(daemon)
            return daemon

        daemons: list[Daemon] = []
        yield begin
        for daemon in daemons:
            if daemon.process.poll() is None:
                daemon.stop()
