"""A stand-in for an inference server, run as a program by the tests of `discoveryctl run`.

    stand_in.py PORT PLAN ASKED [--ignore-sigterm] [--fork]

It answers as the file PLAN says, in words, one for each request; the last one stays:

    ok       200 at /health and at /v1/models
    models   200 at /v1/models alone, 404 elsewhere
    key      401 at /v1/models, 404 elsewhere
    failing  503
    missing  404
    half     half an answer, and the end of the connection
    silent   nothing, until the plan changes
    crash    it exits with status 3

A plan that is written anew begins from its first word. While the first is `deaf`, nobody listens.
Each request, once answered, adds a line to the file ASKED.
"""

import os
import signal
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, PLAN, ASKED = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
LOCK = threading.Lock()
PAUSE = 0.01


class Plan:
    """The plan, and how far it is."""

    def __init__(self) -> None:
        self.text = ""
        self.done = 0

    def first(self) -> str:
        return PLAN.read_text().split()[0]

    def next(self) -> str:
        with LOCK:
            text = PLAN.read_text()
            if text != self.text:
                self.text, self.done = text, 0
            words = text.split()
            word = words[min(self.done, len(words) - 1)]
            self.done += 1
            return word


class Request(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        word = plan.next()
        if word == "crash":
            os._exit(3)
        while word == "silent" and PLAN.read_text().split()[-1] == "silent":
            time.sleep(PAUSE)
        if word == "half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhal")
        else:
            self.answer(word)
        with LOCK, ASKED.open("a") as asked:
            asked.write(f"{word} {self.path}\n")

    def answer(self, word: str) -> None:
        models = self.path == "/v1/models"
        status = {
            "ok": 200,
            "models": 200 if models else 404,
            "key": 401 if models else 404,
            "failing": 503,
            "missing": 404,
        }.get(word, 500)
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: who asked has gone."""

    def server_bind(self) -> None:
        # Without asking who this host is.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", PORT


plan = Plan()
if "--ignore-sigterm" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdout.write("started\n")
sys.stdout.flush()
while plan.first() == "deaf":
    time.sleep(PAUSE)
server = Server(("127.0.0.1", PORT), Request)
if "--fork" in sys.argv and (child := os.fork()):
    sys.stdout.write(f"child {child}\n")
    sys.stdout.flush()
    signal.pause()
server.serve_forever(PAUSE)
