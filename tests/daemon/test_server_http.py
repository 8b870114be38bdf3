"""HTTP connections: what peers may do, what they may not, and their end. On both loops."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from discoveryd.core.card import Card
from discoveryd.daemon.http.exchange import HEAD_BYTES
from discoveryd.daemon.http.serving import HttpServer
from discoveryd.daemon.http.site import SLICE, Long, Site
from tests.core.cards import card
from tests.daemon.sites import Place
from tests.daemon.stage import DEADLINE, until

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Reply:
    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split(" ")[1])
        pairs = (line.partition(": ") for line in lines if line)
        self.headers = {name.lower(): value for name, _, value in pairs}
        self.body = body


class Peer:
    """One connection, which says what it is told to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self, *, bare: bool = False) -> Reply:
        """Return the next answer, whose body has a length or is chunked; `bare`: has none."""
        async with asyncio.timeout(DEADLINE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            reply = Reply(head, b"")
            if bare:
                return reply
            if "content-length" in reply.headers:
                reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
                return reply
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                reply.body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
            return reply

    async def ask(self, data: bytes) -> Reply:
        self.send(data)
        return await self.receive()

    async def ended(self) -> bytes:
        """Return what comes until the other side has ended."""
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Scene:
    """A server at a path and at an address of loopback, and peers of it."""

    def __init__(self, path: Path) -> None:
        self.place = Place()
        self.server: HttpServer
        self.peers: list[Peer] = []
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(path))
        self.tcp = socket.socket(socket.AF_INET)
        self.tcp.bind(("127.0.0.1", 0))
        for listening in (self.unix, self.tcp):
            listening.setblocking(False)
            listening.listen()

    def begin(self, site: Site | None = None, **limits: Any) -> HttpServer:
        self.server = HttpServer(self.place.site if site is None else site, **limits)
        self.server.serve(self.unix)
        self.server.serve(self.tcp)
        return self.server

    async def peer(self, *, tcp: bool = False) -> Peer:
        if tcp:
            opened = asyncio.open_connection(*self.tcp.getsockname())
        else:
            opened = asyncio.open_unix_connection(self.unix.getsockname())
        peer = Peer(*await opened)
        self.peers.append(peer)
        return peer

    async def drop(self, *cards: Card) -> None:
        await self.place.drop(*cards)


@pytest.fixture
async def scene(socket_directory: Path) -> AsyncIterator[Scene]:
    scene = Scene(socket_directory / "s")
    yield scene
    for peer in scene.peers:
        await peer.close()
    await scene.server.close(0.0)
    assert scene.server.connections == 0
    scene.unix.close()
    scene.tcp.close()


# Requests


async def test_a_connection_is_kept_for_further_requests(scene: Scene) -> None:
    scene.begin()
    peer = await scene.peer()
    for _ in range(3):
        reply = await peer.ask(GET)
        assert (reply.status, json.loads(reply.body)["watching"]) == (200, True)
        assert reply.headers["content-type"] == "application/json"
        assert "access-control-allow-origin" not in reply.headers


async def test_pipelined_requests_are_answered_in_order(scene: Scene) -> None:
    scene.begin()
    await scene.drop(card("m"))
    peer = await scene.peer()
    paths = [b"/healthz", b"/v1/models", b"/x", b"/v1/models/m"] * 20
    peer.send(b"".join(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path for path in paths))
    replies = [await peer.receive() for _ in paths]
    assert [reply.status for reply in replies] == [200, 200, 404, 200] * 20
    assert json.loads(replies[-1].body)["id"] == "m"


async def test_a_request_may_come_byte_by_byte(scene: Scene) -> None:
    scene.begin()
    peer = await scene.peer()
    for byte in GET:
        peer.send(bytes([byte]))
        await peer.writer.drain()
    assert (await peer.receive()).status == 200


@pytest.mark.parametrize("path", [b"/healthz", b"/v1/models", b"/metrics", b"/none"])
async def test_head_has_the_head_of_get_and_no_body(scene: Scene, path: bytes) -> None:
    scene.begin()
    peer = await scene.peer()
    rest = b" %b HTTP/1.1\r\nHost: h\r\n\r\n" % path
    got = await peer.ask(b"GET" + rest)
    peer.send(b"HEAD" + rest)
    asked = await peer.receive(bare=True)
    assert (asked.status, asked.headers) == (got.status, got.headers)
    assert (await peer.ask(GET)).status == 200


async def test_an_old_client_gets_a_body_that_ends_with_the_connection(scene: Scene) -> None:
    scene.begin()
    await scene.drop(card("m"))
    peer = await scene.peer()
    peer.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
    _, _, body = (await peer.ended()).partition(b"\r\n\r\n")
    assert [model["id"] for model in json.loads(body)["data"]] == ["m"]


async def test_who_ends_his_side_after_asking_is_answered(scene: Scene) -> None:
    scene.begin()
    peer = await scene.peer()
    peer.send(GET)
    peer.writer.write_eof()
    assert (await peer.receive()).status == 200
    assert await peer.ended() == b""


# What is refused


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"BREW"])
async def test_other_methods_are_told_which_there_are(scene: Scene, method: bytes) -> None:
    scene.begin()
    peer = await scene.peer()
    reply = await peer.ask(method + GET.removeprefix(b"GET"))
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
    assert "error" in json.loads(reply.body)


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nhello",
        b"Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nno length\r\n",
    ],
)
@pytest.mark.parametrize(("method", "status"), [(b"GET", 413), (b"POST", 405)])
async def test_a_body_is_refused_and_the_connection_ends(
    scene: Scene, method: bytes, status: int, body: bytes
) -> None:
    scene.begin()
    peer = await scene.peer()
    reply = await peer.ask(method + b" /healthz HTTP/1.1\r\nHost: h\r\n" + body)
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert await peer.ended() == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET http://h/healthz HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /" + b"a" * HEAD_BYTES * 2 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * HEAD_BYTES, 431),
    ],
    ids=range(7),
)
async def test_what_is_no_request_or_a_long_one_is_refused(
    scene: Scene, data: bytes, status: int
) -> None:
    scene.begin()
    peer = await scene.peer()
    assert (await peer.ask(data)).status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:80", 200),
        ("127.9.9.9", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("10.0.0.1", 421),
        ("[::2]", 421),
        ("localhost:80:80", 421),
        ("", 421),
    ],
)
async def test_over_tcp_only_names_of_loopback_are_answered(
    scene: Scene, host: str, status: int
) -> None:
    scene.begin()
    request = GET.replace(b"localhost", host.encode())
    assert (await (await scene.peer(tcp=True)).ask(request)).status == status
    assert (await (await scene.peer()).ask(request)).status == 200


# Limits


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", GET + b"GET"])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(
    scene: Scene, sent: bytes
) -> None:
    server = scene.begin(head_seconds=0.05)
    peer = await scene.peer()
    peer.send(sent)
    said = await peer.ended()
    assert said.count(b"HTTP/1.1 200") == sent.count(GET)
    assert said.count(b"HTTP/1.1 408") == (sent != b"")
    await peer.close()
    await until(lambda: server.connections == 0)


async def test_a_trickle_does_not_put_the_end_off(scene: Scene) -> None:
    scene.begin(head_seconds=0.2)
    peer = await scene.peer()

    async def trickle() -> None:
        while True:
            peer.send(b"a")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    assert (await peer.receive()).status == 408
    trickling.cancel()


async def test_who_takes_nothing_of_his_answer_loses_his_connection(scene: Scene) -> None:
    server = scene.begin(stall_seconds=0.1)
    await scene.drop(*(card(f"m{n}", at=f"ns/c{n}/e/1") for n in range(8 * SLICE)))
    with socket.socket(socket.AF_UNIX) as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(scene.unix.getsockname())
        idle.sendall(GET.replace(b"/healthz", b"/v1/models") * 50)
        await until(lambda: server.connections == 1)
        await until(lambda: server.connections == 0)


async def test_one_connection_too_many_is_told_so(scene: Scene) -> None:
    server = scene.begin(connection_limit=2)
    kept = [await scene.peer() for _ in range(2)]
    await until(lambda: server.connections == 2)
    assert (await (await scene.peer()).ended()).startswith(b"HTTP/1.1 503 ")
    await kept.pop().close()
    await until(lambda: server.connections == 1)
    assert (await (await scene.peer()).ask(GET)).status == 200


async def test_others_are_answered_while_a_long_list_is_made(scene: Scene) -> None:
    scene.begin()
    await scene.drop(*(card(f"m{n}", at=f"ns/c{n}/e/1") for n in range(10 * SLICE)))
    long, short = await scene.peer(), await scene.peer()
    long.send(GET.replace(b"/healthz", b"/v1/models"))
    await long.reader.readuntil(b"\r\n\r\n")
    assert (await short.ask(GET)).status == 200


# Bugs and the end


class Broken(Site):
    """A site with a bug, at once or on the way."""

    async def get(self, target: str) -> Long:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b"begun"
            raise ZeroDivisionError

        if target == "/later":
            return Long(pieces())
        raise ZeroDivisionError


@pytest.mark.parametrize("path", [b"/at-once", b"/later"])
async def test_a_bug_ends_one_connection_and_is_logged(
    scene: Scene, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    place = scene.place
    server = scene.begin(Broken(place.writer, place, place.calls))
    peer = await scene.peer()
    peer.send(GET.replace(b"/healthz", path))
    assert not (await peer.ended()).endswith(b"0\r\n\r\n")
    assert "this is a bug" in caplog.text
    await peer.close()
    await until(lambda: server.connections == 0)


async def test_at_the_end_who_waits_is_let_go_and_who_is_answered_hears_the_end(
    scene: Scene,
) -> None:
    server = scene.begin()
    await scene.drop(*(card(f"m{n}", at=f"ns/c{n}/e/1") for n in range(4 * SLICE)))
    idle, asking = await scene.peer(), await scene.peer()
    await until(lambda: server.connections == 2)
    asking.send(GET.replace(b"/healthz", b"/v1/models"))
    await asking.reader.readuntil(b"\r\n\r\n")
    ending = asyncio.create_task(server.close(DEADLINE))
    assert await idle.ended() == b""
    assert (await asking.ended()).endswith(b"0\r\n\r\n")
    await asking.close()
    await ending
    assert server.connections == 0


async def test_who_does_not_read_at_the_end_is_cut_off(scene: Scene) -> None:
    server = scene.begin()
    await scene.drop(*(card(f"m{n}", at=f"ns/c{n}/e/1") for n in range(8 * SLICE)))
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.connect(scene.unix.getsockname())
        stuck.sendall(GET.replace(b"/healthz", b"/v1/models") * 50)
        await until(lambda: server.connections == 1)
        await server.close(0.01)
        assert server.connections == 0


async def test_a_socket_that_is_left_is_accepted_at_no_more(scene: Scene) -> None:
    server = scene.begin()
    server.leave(scene.tcp)
    await asyncio.sleep(0)
    peer = await scene.peer(tcp=True)
    assert (await (await scene.peer()).ask(GET)).status == 200
    peer.send(GET)
    assert server.connections == 1
