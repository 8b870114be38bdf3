"""What the daemon's tests share: short places for sockets, and the loops the server runs on."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.daemon.living import Gate, telling
from tests.daemon.stage import Stage
from tests.system.running import short_directory


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the server's tests on both loops it may live on, all others on asyncio's."""
    del config
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]]
    factories = {"asyncio": asyncio.SelectorEventLoop}
    if item.path.stem.startswith("test_server"):
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
def socket_directory() -> Iterator[Path]:
    """Give a directory whose path is short enough for a socket's."""
    with short_directory() as directory:
        yield directory


@pytest.fixture
async def stage(socket_directory: Path) -> AsyncIterator[Stage]:
    """Give a toy's server, begun by the test, and ended here."""
    stage = Stage(socket_directory / "s")
    yield stage
    for client in stage.clients:
        await client.close()
    await stage.server.close(0.0)
    stage.listening.close()


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    """Give a liveness gate that tells of deaths; its clocks are the test's."""
    gate = Gate()
    async with telling(gate):
        yield gate


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that does nothing, which the test may kill."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()
