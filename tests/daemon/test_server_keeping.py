"""The socket's path is lost while the daemon runs: clients find it again, connections go on."""

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from discoveryd.daemon.socket.keeping import keep
from discoveryd.daemon.socket.listening import Listener, claim
from discoveryd.daemon.socket.server import Server
from tests.daemon.stage import DEADLINE, Asking, Toy, call, until

LOOK = 0.01


class Kept:
    """A server whose listener is kept."""

    def __init__(self, listener: Listener, server: Server) -> None:
        self.listener = listener
        self.server = server
        self.path = Path(listener.path)

    async def answers(self, client: Asking) -> bool:
        client.send(call("Echo", "hello"))
        return await client.words(1) == ["hello"]

    def connects(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.path)) == 0


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


@asynccontextmanager
async def kept(path: Path) -> AsyncIterator[Kept]:
    listener = claim(str(path))
    server = Server(Toy().service)
    server.serve(listener.listen())
    keeping = asyncio.create_task(keep(listener, server, LOOK))
    try:
        yield Kept(listener, server)
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await server.close(0.0)
        listener.close()


async def test_a_removed_path_is_there_again_and_connections_go_on(
    socket_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(socket_directory / "s") as house:
        before = await Asking.open(str(house.path))
        assert await house.answers(before)
        house.path.unlink()
        await until(house.connects)
        after = await Asking.open(str(house.path))
        assert await house.answers(after)
        assert await house.answers(before)
        assert "is there again" in caplog.text
        for client in (before, after):
            await client.close()
    assert left_in(socket_directory) == []


async def test_a_replaced_directory_gets_socket_and_lock(socket_directory: Path) -> None:
    place = socket_directory / "place"
    place.mkdir()
    async with kept(place / "s") as house:
        shutil.rmtree(place)
        await until(lambda: house.listener.problems() != [])
        [problem] = house.listener.problems()
        assert f"no directory {place}" in problem
        place.mkdir()
        await until(house.connects)
        await until(lambda: house.listener.problems() == [])
        assert (place / ".s.lock").exists()
    assert left_in(place) == []


async def test_who_knocked_at_the_old_socket_is_let_in(socket_directory: Path) -> None:
    path = socket_directory / "s"
    listener = claim(str(path))
    server = Server(Toy().service)
    old = listener.listen()
    early = await Asking.open(str(path))
    path.unlink()
    made = listener.mend()
    assert made is not None
    assert made[0] is old
    server.serve(old)
    server.serve(made[1])
    server.leave(old)
    assert listener.mend() is None
    assert old.fileno() == -1
    early.send(call("Echo", "early"))
    async with asyncio.timeout(DEADLINE):
        assert await early.words(1) == ["early"]
    await early.close()
    await server.close(0.0)
    listener.close()


async def test_a_server_that_is_closing_takes_no_new_socket(socket_directory: Path) -> None:
    listener = claim(str(socket_directory / "s"))
    server = Server(Toy().service)
    await server.close(0.0)
    server.serve(listener.listen())
    client = await Asking.open(listener.path)
    client.send(call("Echo", "late"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert server.connections == 0
    listener.close()
    await client.close()
