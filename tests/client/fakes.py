"""A daemon of canned answers, for tests of the client: real sockets, no rules."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

Reply = dict[str, Any]
Connection = socket.socket
Script = Callable[[Connection], None]

CURSOR = {"epoch": "e1", "revision": 7}


def worker(instance: str = "1", **members: Any) -> dict[str, Any]:
    return {
        "key": f"default/llama/generate/{instance}",
        "file": f"/cards/{instance}.json",
        "model": "llama",
        "aliases": ["chat"],
        "adapter": False,
        "namespace": "default",
        "component": "llama",
        "endpoint": "generate",
        "instance": instance,
        "url": f"http://127.0.0.1:800{instance}",
        "accepting": True,
        "worker_type": "aggregated",
        "needs": [],
        "context_length": 8192,
        "fingerprint": "f0",
        "admission": int(instance),
        **members,
    }


def verdict(file: str = "/cards/x.json", **members: Any) -> dict[str, Any]:
    return {
        "file": file,
        "key": "default/llama/generate/9",
        "model": "llama",
        "names": ["llama", "chat"],
        "standing": "refused",
        "serves": "nothing",
        "reasons": [
            {
                "rule": "different_source",
                "message": "the sources differ: give both the same source_path",
                "field": "source_path",
                "found": "/a",
                "expected": "/b",
                "against": ["/cards/1.json"],
            }
        ],
        "warnings": ["$.alias: did you mean aliases?"],
        "owner_uid": 1000,
        "since": "2026-01-02T03:04:05+00:00",
        **members,
    }


def serving(file: str = "/cards/1.json", **members: Any) -> dict[str, Any]:
    good = {"standing": "serving", "serves": "current", "reasons": [], "warnings": []}
    return verdict(file, **{**good, **members})


def name(text: str = "llama", **members: Any) -> dict[str, Any]:
    return {
        "name": text,
        "kind": "primary",
        "model": "llama",
        "workers": 1,
        "ready": True,
        **members,
    }


def resolution(**members: Any) -> dict[str, Any]:
    return {
        "name": "llama",
        "kind": "primary",
        "model": "llama",
        "ready": True,
        "workers": [worker()],
        "cursor": CURSOR,
        **members,
    }


def watched(**members: Any) -> dict[str, Any]:
    return {
        "cursor": CURSOR,
        "reset": False,
        "partial": False,
        "changed": [],
        "removed": [],
        "names": [],
        "gone": [],
        **members,
    }


def status(**members: Any) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "cursor": CURSOR,
        "uptime_seconds": 3725.5,
        "directories": [
            {
                "path": "/cards",
                "layout": "cards",
                "watching": True,
                "backend": "native",
                "files": 2,
                "rescan_seconds": 5.0,
                "last_scan_seconds": 0.001,
                "found_by_scan": 0,
            }
        ],
        "standings": {"serving": 1, "refused": 1},
        "names": 2,
        "idle_cohorts": [],
        "watchers": 0,
        "connections": 1,
        "healthy": True,
        "problems": [],
        **members,
    }


def failure(error: str, **parameters: Any) -> Reply:
    qualified = error if "." in error else f"io.discoveryd.Models.{error}"
    return {"error": qualified, "parameters": parameters}


def no_such_model(model: str = "llama", **members: Any) -> Reply:
    found = {"similar": [], "waiting": [], "more_waiting": 0, **members}
    return failure("NoSuchModel", name=model, **found)


def frame(reply: Mapping[str, Any]) -> bytes:
    return json.dumps(reply).encode() + b"\0"


def stay_silent(connection: socket.socket) -> None:
    """Read all calls and answer none."""
    while connection.recv(65536):
        pass


def end_at_once(connection: socket.socket) -> None:
    """Read a call and end."""
    connection.recv(65536)


def answer_once(reply: bytes) -> Script:
    """Send this for the first call, and end."""

    def script(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(reply)

    return script


def in_bytes(reply: bytes, size: int) -> Script:
    """Answer the first call with a reply that arrives in pieces of `size` bytes."""

    def script(connection: socket.socket) -> None:
        connection.recv(65536)
        for start in range(0, len(reply), size):
            connection.sendall(reply[start : start + size])
        connection.recv(1)

    return script


class Stream:
    """Answers the first call with what is put into it, and ends with `end`."""

    def __init__(self, daemon: "FakeDaemon") -> None:
        self._daemon = daemon
        self._replies: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self.over = threading.Event()
        """Set once the client has closed the connection."""

    def put(self, **members: Any) -> None:
        """Send these parameters, and say that more will come."""
        self._replies.put({"parameters": members, "continues": True})

    def put_last(self, **members: Any) -> None:
        """Send these parameters, which settle the call."""
        self._replies.put({"parameters": members})

    def end(self) -> None:
        self._replies.put(None)

    def __call__(self, connection: socket.socket) -> None:
        calls = self._daemon.receive(connection)
        next(calls)
        ends = threading.Thread(target=self._await_end, args=(connection,), daemon=True)
        ends.start()
        while (reply := self._replies.get()) is not None:
            connection.sendall(frame(reply))
        connection.shutdown(socket.SHUT_RDWR)
        ends.join(10)

    def _await_end(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass
        self.over.set()


class FakeDaemon:
    """Answers each method with its canned replies, in a thread for each connection.

    `scripts` holds what the next connections do instead, one each. A list of canned replies is all
    sent for one call; `continues` is set on all but the last. `calls` holds what was asked.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.answers: dict[str, Callable[[dict[str, Any]], list[Reply]]] = {}
        self.scripts: list[Script] = []
        self.calls: list[dict[str, Any]] = []
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._streams: list[Stream] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._start(self._accept)

    def answer(self, method: str, *parameters: dict[str, Any], **error: Any) -> None:
        """Answer a method with these replies, or with an `error` made by `failure`."""
        replies = [{"parameters": members} for members in parameters] if parameters else [error]
        self.answers[method] = lambda _: replies

    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the methods called and their parameters."""
        return [
            (call["method"].rpartition(".")[2], call.get("parameters", {})) for call in self.calls
        ]

    def serve(self, connection: socket.socket) -> None:
        for call in self.receive(connection):
            replies = self.answers[call["method"].rpartition(".")[2]](call.get("parameters", {}))
            *pieces, last = replies
            sent = [frame({**piece, "continues": True}) for piece in pieces]
            connection.sendall(b"".join([*sent, frame(last)]))

    def receive(self, connection: socket.socket) -> Iterator[dict[str, Any]]:
        """Yield the calls that come over a connection, until its end."""
        held = b""
        while data := connection.recv(65536):
            *calls, held = (held + data).split(b"\0")
            for text in calls:
                call = json.loads(text)
                self.calls.append(call)
                yield call

    def stream(self) -> Stream:
        """Return what the next connection that has no script yet does."""
        stream = Stream(self)
        self._streams.append(stream)
        self.scripts.append(stream)
        return stream

    def close(self) -> None:
        for stream in self._streams:
            stream.end()
        # Shutting down, not closing, is what wakes the threads.
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._start(self._run, connection, self.scripts.pop(0) if self.scripts else self.serve)

    def _run(self, connection: socket.socket, script: Script) -> None:
        with connection, contextlib.suppress(ConnectionError):
            script(connection)
