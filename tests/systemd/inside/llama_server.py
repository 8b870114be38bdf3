"""Stands in for llama-server: answers /health where its arguments say, until it is ended."""

import http.server
import sys


class Health(http.server.BaseHTTPRequestHandler):
    """Says that all is well, and nothing else."""

    def do_GET(self) -> None:
        """Answer one request."""
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()


if __name__ == "__main__":
    told = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    address = (told["--host"], int(told["--port"]))
    http.server.ThreadingHTTPServer(address, Health).serve_forever()
