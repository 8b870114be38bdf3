"""The example router as a process, and workers that answer it as a test says."""

import contextlib
import http.client
import json
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.system.adopting import free_port
from tests.system.dropping import Host
from tests.system.running import END_SECONDS, PROMPT_SECONDS, REPOSITORY, environment, until

EXAMPLES = REPOSITORY / "examples"
START_SECONDS = 30.0
HEAD = b"HTTP/1.1 200 OK\r\n"


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Router:
    """examples/router.py for the daemon at a socket."""

    def __init__(self, socket_path: Path, errors: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._errors = errors
        program = [sys.executable, str(EXAMPLES / "router.py")]
        with errors.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, "--socket", str(socket_path), "--port", str(self.port)],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._errors.read_text()

    def wait_listening(self) -> "Router":
        def comes() -> bool:
            assert self.process.poll() is None, self.log
            return listens(self.port)

        until(comes, "the router listens", START_SECONDS)
        return self

    def begin(
        self, body: bytes, headers: dict[str, str] | None = None, path: str = "/v1/chat/completions"
    ) -> http.client.HTTPConnection:
        """Send a request; return the connection on which its answer comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PROMPT_SECONDS)
        connection.request("POST", path, body, headers or {})
        return connection

    def post(self, body: bytes) -> tuple[int, bytes]:
        """Return the status and the content of an answer."""
        with contextlib.closing(self.begin(body)) as connection:
            answer = connection.getresponse()
            return answer.status, answer.read()

    def ask(self, name: str) -> bytes:
        """Return what a worker of the name answers."""
        status, content = self.post(asking(name))
        assert status == 200, content
        return content

    def refusal(self, body: bytes) -> tuple[int, str | None, str]:
        """Return status, code and message of an error."""
        status, content = self.post(body)
        fault = json.loads(content)["error"]
        assert fault["type"] == ("server_error" if status >= 500 else "invalid_request_error")
        return status, fault["code"], fault["message"]

    def names(self) -> list[str]:
        """Return the names that it lists."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PROMPT_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/models")
            listed = json.loads(connection.getresponse().read())
        assert listed["object"] == "list"
        return [model["id"] for model in listed["data"]]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(2 * END_SECONDS)
        assert "Traceback" not in self.log, self.log[-3000:]

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def routing(socket_path: Path, errors: Path) -> Iterator[Router]:
    """Give a router that listens; it is held to have raised nothing."""
    router = Router(socket_path, errors)
    try:
        yield router.wait_listening()
        router.stop()
    finally:
        router.kill()


class Backend:
    """A worker: keeps what it is `asked`, and answers each request on a connection of its own.

    `left` is set when an asker has left, or takes no more, where the answer looks for that;
    `pieces` are what a test gives to an answer.
    """

    def __init__(self, answer: "Answer", unix: Path | None = None) -> None:
        self._answer = answer
        if unix is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(unix))
            self._listener.listen()
            self.url = f"unix://{unix}"
        self.asked: list[bytes] = []
        self.left = threading.Event()
        self.pieces = queue.Queue[bytes | None]()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def name(self) -> bytes:
        return self.url.encode()

    def close(self) -> None:
        """Listen no longer, as if it were dead."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            head = request.partition(b"\r\n\r\n")[0].lower()
            length = int(head.partition(b"content-length: ")[2].split()[0])
            while len(request) < len(head) + 4 + length:
                request += connection.recv(65536)
            self.asked.append(request)
            self._answer(self, connection)


Answer = Callable[[Backend, socket.socket], None]


def says_who(backend: Backend, connection: socket.socket) -> None:
    """Answer with the worker's own url."""
    length = b"content-length: %d\r\n" % len(backend.name)
    connection.sendall(HEAD + length + b"connection: close\r\n\r\n" + backend.name)


def drops(_: Backend, connection: socket.socket) -> None:
    """Close the connection instead of an answer."""
    connection.close()


def waits(backend: Backend, connection: socket.socket) -> None:
    """Answer nothing until the asker has left."""
    assert connection.recv(1) == b""
    backend.left.set()


def streams(backend: Backend, connection: socket.socket) -> None:
    """Send the head, then the `pieces` as they come; an empty one ends it, None breaks it off."""
    connection.sendall(
        HEAD + b"Content-Type: text/event-stream\r\nContent-Encoding: odd\r\nX-Own: 1\r\n"
        b"Connection: X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    piece: bytes | None = b"-"
    while piece and (piece := backend.pieces.get()) is not None:
        connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))


def begins(backend: Backend, connection: socket.socket) -> None:
    """Send the head and one piece; then nothing until the asker has left."""
    connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    waits(backend, connection)


def floods(backend: Backend, connection: socket.socket) -> None:
    """Send 200 MB; set `left` where nobody takes them for a second."""
    connection.settimeout(1)
    connection.sendall(HEAD + b"content-length: 200000000\r\n\r\n")
    try:
        for _ in range(200):
            connection.sendall(bytes(1_000_000))
    except TimeoutError:
        backend.left.set()


def asking(name: str, **members: Any) -> bytes:
    """Return the body of a request."""
    return json.dumps({"model": name} | members).encode()


class Workers:
    """Drops cards for backends, and knows when a router has heard of them."""

    def __init__(self, host: Host, router: Router) -> None:
        self._host = host
        self._router = router
        self._count = 0
        self._ends = contextlib.ExitStack()

    def add(
        self, name: str, answer: Answer = says_who, unix: Path | None = None, **members: Any
    ) -> Backend:
        """Return a worker that serves the name; `serve` has still to be called."""
        backend = Backend(answer, unix)
        self._ends.callback(backend.close)
        self.put(name, backend.url, **members)
        return backend

    def put(self, name: str, url: str, **members: Any) -> str:
        """Drop a card for a worker; return the name of its file."""
        self._count += 1
        file = f"w{self._count}"
        card = {"display_name": name, "source_path": f"/m/{name}", "url": url} | members
        assert self._host.put(file, card).standing == "serving"
        return file

    def settle(self) -> None:
        """Return when the router knows all that the daemon knows."""
        # What is told of cards is told in order.
        marker = f"marker-{self._count}"
        self.put(marker, "http://127.0.0.1:9")
        until(lambda: marker in self._router.names(), "the router is up to date")

    def close(self) -> None:
        self._ends.close()


class StandIn:
    """examples/dev-cluster/worker.py, answering to these names with words in quick succession."""

    def __init__(self, *names: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        program = [sys.executable, str(EXAMPLES / "dev-cluster/worker.py"), str(self.port)]
        self.process = subprocess.Popen(
            [*program, *names, "--pause", "0.005"], env=environment(), stdin=subprocess.DEVNULL
        )

    def wait_listening(self) -> "StandIn":
        until(lambda: listens(self.port), "the worker listens", START_SECONDS)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
