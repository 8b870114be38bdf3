"""Asking a server over HTTP: every answer, and everything that is none."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from discoveryd.client.fetch import Answer, NoAnswer, Unreachable, fetch

Behave = Callable[[socket.socket], None]
Serve = Callable[[Behave], str]

SECONDS = 10.0
"""Enough for what happens at once."""


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Give a function that serves connections as it is told, and returns the server's URL."""
    with contextlib.ExitStack() as ends:

        def begin(behave: Behave) -> str:
            listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
            return f"http://127.0.0.1:{_serve(listener, behave, ends)}"

        yield begin


def _serve(listener: socket.socket, behave: Behave, ends: contextlib.ExitStack) -> object:
    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    behave(connection)

    thread = threading.Thread(target=accept)
    thread.start()
    ends.callback(thread.join)
    ends.callback(listener.shutdown, socket.SHUT_RDWR)
    name = listener.getsockname()
    return name[1] if isinstance(name, tuple) else name


def saying(answer: bytes) -> Behave:
    """Return the behaviour of a server that reads a request, answers this, and hangs up."""

    def behave(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(answer)

    return behave


def request(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        received += connection.recv(65536)
    return received


def ok(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


async def test_an_answer_is_its_status_and_its_body(serve: Serve) -> None:
    assert await fetch(serve(saying(ok(b"body"))), seconds=SECONDS) == Answer(200, b"body")


@pytest.mark.parametrize("status", ["404 Not Found", "503 Service Unavailable", "301 Moved"])
async def test_any_status_is_an_answer_and_none_is_followed(serve: Serve, status: str) -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        seen.append(request(connection))
        connection.sendall(
            b"HTTP/1.1 %s\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n" % status.encode()
        )

    answer = await fetch(serve(behave), seconds=SECONDS)
    assert answer == Answer(int(status[:3]), b"")
    assert len(seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
    ],
    ids=["until the end", "chunked"],
)
async def test_every_way_to_end_a_body_is_understood(serve: Serve, answer: bytes) -> None:
    assert (await fetch(serve(saying(answer)), seconds=SECONDS)).body == b"body"


async def test_path_query_and_headers_are_sent_and_the_environments_proxy_is_not_asked(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        seen.append(request(connection))
        connection.sendall(ok(b""))

    url = serve(behave)
    await fetch(f"{url}/v1/models?a=b", seconds=SECONDS, headers={"Authorization": "Bearer x"})
    lines = seen[0].split(b"\r\n")
    assert lines[0] == b"GET /v1/models?a=b HTTP/1.1"
    assert f"Host: {url.removeprefix('http://')}".encode() in lines
    assert b"Authorization: Bearer x" in lines


async def test_what_is_not_ascii_is_sent_percent_encoded_and_nothing_else_is(serve: Serve) -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        seen.append(request(connection))
        connection.sendall(ok(b""))

    await fetch(f"{serve(behave)}/mod\xe8le%20a/'(~", seconds=SECONDS)
    assert seen[0].split()[1] == b"/mod%C3%A8le%20a/'(~"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nbody",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nbody",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0\xff\0\xff\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    ],
    ids=repr,
)
async def test_what_is_no_whole_answer_is_none(serve: Serve, answer: bytes) -> None:
    with pytest.raises(NoAnswer):
        await fetch(serve(saying(answer)), seconds=SECONDS)


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(serve: Serve) -> None:
    url = serve(saying(ok(b"x" * 11)))
    with pytest.raises(NoAnswer, match="more than 10 bytes"):
        await fetch(url, seconds=SECONDS, most_bytes=10)
    assert len((await fetch(url, seconds=SECONDS, most_bytes=11)).body) == 11


async def test_the_deadline_holds_against_silence(serve: Serve) -> None:
    over = threading.Event()

    def behave(_: socket.socket) -> None:
        over.wait(60)

    url = serve(behave)
    try:
        with pytest.raises(NoAnswer, match=r"no answer within 0\.1 s"):
            await fetch(url, seconds=0.1)
    finally:
        over.set()


async def test_whoever_notices_the_deadline_first_says_the_same(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy loop hears of the thread's timeout before its own."""
    over = threading.Event()

    def behave(_: socket.socket) -> None:
        over.wait(60)

    url = serve(behave)
    monkeypatch.setattr(anyio, "fail_after", lambda _: contextlib.nullcontext())
    try:
        with pytest.raises(NoAnswer, match=r"no answer within 0\.1 s"):
            await fetch(url, seconds=0.1)
    finally:
        over.set()


async def test_the_deadline_holds_against_a_server_that_drips_and_hangs_up_on_it(
    serve: Serve,
) -> None:
    hung_up = threading.Event()

    def drip(connection: socket.socket) -> None:
        request(connection)
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x")
                # The pace of the dripping, faster than any deadline here.
                time.sleep(0.005)
        except OSError:
            hung_up.set()

    with pytest.raises(NoAnswer):
        await fetch(serve(drip), seconds=0.2)
    assert await anyio.to_thread.run_sync(hung_up.wait, SECONDS)


async def test_whoever_is_cancelled_hangs_up(serve: Serve) -> None:
    asked, hung_up = threading.Event(), threading.Event()

    def behave(connection: socket.socket) -> None:
        request(connection)
        asked.set()
        if connection.recv(1) == b"":
            hung_up.set()

    async with anyio.create_task_group() as tasks:
        url = serve(behave)
        tasks.start_soon(lambda: fetch(url, seconds=60))
        assert await anyio.to_thread.run_sync(asked.wait, SECONDS)
        tasks.cancel_scope.cancel()
    assert hung_up.wait(SECONDS)


async def test_a_refused_connection_is_told_from_other_troubles() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable) as caught:
        await fetch(f"http://127.0.0.1:{port}", seconds=SECONDS)
    assert caught.value.refused
    for host in ("nowhere.invalid", "a..b", "x" * 70):
        with pytest.raises(Unreachable) as caught:
            await fetch(f"http://{host}:{port}", seconds=SECONDS)
        assert not caught.value.refused


async def test_a_server_without_tls_is_unreachable_by_https(serve: Serve) -> None:
    url = serve(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(Unreachable) as caught:
        await fetch(url.replace("http:", "https:"), seconds=SECONDS)
    assert not caught.value.refused


async def test_a_unix_socket_is_asked_for_what_is_written_behind_it(directory: Path) -> None:
    path = directory / "worker.sock"
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        seen.append(request(connection))
        connection.sendall(ok(b"body"))

    with contextlib.ExitStack() as ends:
        listener = ends.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()
        _serve(listener, behave, ends)
        for target in ("", "/v1/models"):
            assert (await fetch(f"unix://{path}{target}", seconds=SECONDS)).body == b"body"
    assert [each.split()[1] for each in seen] == [b"/", b"/v1/models"]
    with pytest.raises(Unreachable, match="refused") as caught:
        await fetch(f"unix://{path}/v1/models", seconds=SECONDS)
    assert caught.value.refused
    with pytest.raises(Unreachable, match="no such socket") as caught:
        await fetch(f"unix://{directory}/other.sock", seconds=SECONDS)
    assert caught.value.refused


async def test_a_url_of_another_kind_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="cannot ask a URL of the kind 'grpc'"):
        await fetch("grpc://host:1", seconds=SECONDS)
