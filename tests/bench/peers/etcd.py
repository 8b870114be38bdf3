"""etcd, one node on loopback, asked by its gateway for JSON over kept HTTP connections.

A watcher is a stream of JSON lines over the same gateway: what a client without gRPC has. The store
is where temporary files are, with etcd's own settings: each put is on disk before it is seen.
"""

import base64
import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.peers import children
from tests.bench.peers.asked import Asked

DEADLINE_SECONDS = 20.0


class Etcd:
    """A running server, and one connection to it."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.port = asked.port

    def call(self, path: str, **members: object) -> dict[str, Any]:
        """Return the answer to one call of the gateway."""
        return self._asked.ask("POST", f"/v3/{path}", members)

    def healthy(self) -> bool:
        """Say whether it answers and has elected itself."""
        return "header" in self.call("kv/range", key=_encoded(b"none"))

    def until_watched(self, number: int, value: bytes) -> float:
        """Put a key; return the seconds until another client's watcher has it."""
        key = f"models/model-{number}"
        with self._watcher(key) as reports:
            began = time.perf_counter()
            self._begin_put(key, value)
            reports.readline()
            taken = time.perf_counter() - began
            self._asked.receive()
            return taken

    def until_lapsed(self, number: int, value: bytes, seconds: int) -> float:
        """Put a key with a lease that nobody renews; return the seconds until a watcher is told.

        etcd may lengthen a lease: it grants none that is shorter than an election.
        """
        key = f"models/leased-{number}"
        with self._watcher(key) as reports:
            lease = str(self.call("lease/grant", TTL=seconds)["ID"])
            began = time.perf_counter()
            self._begin_put(key, value, lease=lease)
            reports.readline()
            self._asked.receive()
            if b"DELETE" not in reports.readline():
                raise children.Missing("etcd's watcher was not told of the lease's end")
            return time.perf_counter() - began

    @contextlib.contextmanager
    def _watcher(self, key: str) -> Iterator[http.client.HTTPResponse]:
        """Watch a key meanwhile: each line read is one report."""
        port = self._asked.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
        watch = {"create_request": {"key": _encoded(key.encode())}}
        connection.request("POST", "/v3/watch", json.dumps(watch))
        with contextlib.closing(connection), connection.getresponse() as reports:
            if b'"created":true' not in reports.readline():
                raise children.Missing("etcd did not begin to watch")
            yield reports

    def _begin_put(self, key: str, value: bytes, *, lease: str = "0") -> None:
        members = {"key": _encoded(key.encode()), "value": _encoded(value), "lease": lease}
        self._asked.send("POST", "/v3/kv/put", dict(members))


@contextlib.contextmanager
def running(place: Path) -> Iterator[Etcd]:
    """Run a server meanwhile."""
    client, peer, log = children.free_port(), children.free_port(), place / "etcd.log"
    command = [children.program("etcd"), "--data-dir", str(place / "etcd")]
    for which, port in (("client", client), ("peer", peer)):
        url = f"http://127.0.0.1:{port}"
        advertised = "initial-advertise-peer" if which == "peer" else "advertise-client"
        command += [f"--listen-{which}-urls", url, f"--{advertised}-urls", url]
    command += ["--initial-cluster", f"default=http://127.0.0.1:{peer}"]
    with children.child(command, log) as process, contextlib.closing(Asked(client)) as asked:
        server = Etcd(asked)
        children.until(server.healthy, process, log)
        yield server


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
