"""Another client, that watches one name: the moment at which it is told is when an answer is there.

A client that asks Resolve again and again would know it a little later and keep the daemon busy
meanwhile, which a daemon is not that is said to be idle.
"""

import json
import time
from types import TracebackType
from typing import Any, Self

from tests.bench import daemons

DEADLINE_SECONDS = 10.0


class Watcher:
    """A connection on which Watch is called for a name; enter it to begin."""

    def __init__(self, daemon: daemons.Daemon, name: str) -> None:
        named = {"name": name}
        asked = {"method": "io.discoveryd.Models.Watch", "parameters": named, "more": True}
        self._asked = json.dumps(asked).encode() + b"\0"
        self._connection = daemon.connect()
        self._connection.settimeout(DEADLINE_SECONDS)

    def __enter__(self) -> Self:
        daemons.ask(self._connection, self._asked)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def told(self) -> tuple[float, dict[str, Any]]:
        """Wait for the next reply; return when it was there, by `time.perf_counter`, and it."""
        received = self._connection.recv(daemons.READ_BYTES)
        at = time.perf_counter()
        while received and not received.endswith(b"\0"):
            received += self._connection.recv(daemons.READ_BYTES)
            at = time.perf_counter()
        parameters: dict[str, Any] = json.loads(received[:-1])["parameters"]
        return at, parameters
