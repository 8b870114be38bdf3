"""A server that answers JSON over HTTP on loopback, asked over one kept connection."""

import http.client
import json
from typing import Any

DEADLINE_SECONDS = 60.0


class Asked:
    """A server's port, and a connection to it that is opened when it is needed.

    After any failure the connection is closed, so that the next question opens another.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)

    def send(self, method: str, path: str, members: dict[str, object] | None = None) -> None:
        """Send a question. Its answer is received before another is sent."""
        try:
            self._connection.request(method, path, json.dumps(members) if members else None)
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def receive(self) -> dict[str, Any]:
        """Return the answer to what was sent."""
        try:
            with self._connection.getresponse() as answer:
                return dict(json.loads(answer.read()))
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            raise

    def ask(
        self, method: str, path: str, members: dict[str, object] | None = None
    ) -> dict[str, Any]:
        """Return the answer to a question."""
        self.send(method, path, members)
        return self.receive()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
