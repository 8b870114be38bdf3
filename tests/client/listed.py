"""Servers that list models: the answers of each kind, and an HTTP server that gives them.

The answers lie in tests/data/listings. What a server of a kind does not know is answered as that
kind does: LM Studio answers 200, whatever it is asked.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LISTINGS = Path(__file__).parent.parent / "data" / "listings"

ANSWERS: dict[str, dict[str, str]] = {
    "vllm": {"/v1/models": "vllm"},
    "sglang": {
        "/v1/models": "sglang",
        "/get_model_info": "sglang-model-info",
        "/api/tags": "ollama-tags",
    },
    "llama.cpp": {"/v1/models": "llamacpp", "/props": "llamacpp-props"},
    "llama.cpp-router": {"/v1/models": "llamacpp-router", "/props": "llamacpp-props"},
    "ollama": {
        "/v1/models": "ollama-v1",
        "/api/ps": "ollama-ps",
        "/api/tags": "ollama-tags",
    },
    "lmstudio": {
        "/v1/models": "lmstudio-openai",
        "/api/v1/models": "lmstudio-v1",
        "/api/v0/models": "lmstudio-v0",
        "*": "lmstudio-unexpected",
    },
    "lmstudio-v0": {
        "/v1/models": "lmstudio-openai",
        "/api/v0/models": "lmstudio-v0",
        "*": "lmstudio-unexpected",
    },
    "openai": {"/v1/models": "llama-cpp-python"},
}
"""For each server, which listing it gives at which path; `*`: at any other, with status 200."""


def answers(server: str) -> dict[str, Any]:
    """Return what a server answers, by path."""
    return {
        path: json.loads((LISTINGS / f"{name}.json").read_text())
        for path, name in ANSWERS[server].items()
    }


class ListingServer:
    """A server of such answers, at `url`; change them, or how it answers, at any time.

    `status`: one that it gives instead; `statuses`: those of the next requests. `key`: what a
    request must bear. `asked` has the paths that were asked.
    """

    def __init__(self, given: Mapping[str, Any], port: int = 0) -> None:
        self.answers = dict(given)
        self.status: int | None = None
        self.statuses: list[int] = []
        self.key: str | None = None
        self.asked: list[str] = []
        self._answering = threading.Event()
        self._answering.set()
        server = self

        class Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Request)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def silent(self, silent: bool) -> None:
        """Let it answer nothing, or everything again."""
        if silent:
            self._answering.clear()
        else:
            self._answering.set()

    def close(self) -> None:
        """End it: connections are refused. Again is harmless."""
        self._answering.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        self._answering.wait()
        status, value = 404, {"error": "there is no such path"}
        if self.key is not None and request.headers["Authorization"] != f"Bearer {self.key}":
            status = 401
        elif self.statuses:
            status = self.statuses.pop(0)
        elif self.status is not None:
            status = self.status
        elif request.path in self.answers:
            status, value = 200, self.answers[request.path]
        elif "*" in self.answers:
            status, value = 200, self.answers["*"]
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        with contextlib.suppress(OSError):
            request.send_response(status)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)


@contextlib.contextmanager
def listing_server(given: Mapping[str, Any], port: int = 0) -> Iterator[ListingServer]:
    """Give such a server, and end it."""
    server = ListingServer(given, port)
    try:
        yield server
    finally:
        server.close()
