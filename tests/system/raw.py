"""A Varlink peer of a few lines that knows nothing of the client under test, and may misbehave."""

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAME = "io.discoveryd.Models"


def call(method: str, parameters: object = None, **flags: bool) -> bytes:
    """Return the frame of a call; a method without a dot is one of ours."""
    message: dict[str, Any] = {"method": method if "." in method else f"{NAME}.{method}", **flags}
    if parameters is not None:
        message["parameters"] = parameters
    return json.dumps(message).encode() + b"\0"


class Raw:
    """One connection, blocking, with a timeout."""

    def __init__(self, path: Path, timeout: float = 10.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self._held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, frames: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(frames)

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while b"\0" not in self._held:
            received = self.socket.recv(1 << 20)
            if not received:
                assert not self._held, f"the daemon ended in the middle of {self._held[:200]!r}"
                return None
            self._held += received
        frame, _, self._held = self._held.partition(b"\0")
        message: dict[str, Any] = json.loads(frame)
        return message

    def ask(self, method: str, parameters: object = None, **flags: bool) -> dict[str, Any]:
        """Call, and return the one reply."""
        self.send(call(method, parameters, **flags))
        reply = self.receive()
        assert reply is not None, "the daemon closed the connection"
        return reply

    def rest(self) -> list[dict[str, Any]]:
        """Return all messages until the end."""
        messages: list[dict[str, Any]] = []
        while (message := self.receive()) is not None:
            messages.append(message)
        return messages
