"""`discoveryctl export --watch` as a process, and the real programs that read what it writes."""

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.system.adopting import free_port
from tests.system.running import PROMPT_SECONDS, REPOSITORY, Daemon, environment, until

_PROGRAM = "from discoveryd.client.ctl.cli import main; main()"

_NGINX = """\
{user}
daemon off;
pid {root}/nginx.pid;
error_log {root}/nginx.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    include {root}/export.conf;
    server {{
        listen 127.0.0.1:{port};
        set $discoveryd_model $http_x_model;
        location /v1/ {{
            if ($discoveryd_upstream = "") {{ return 404; }}
            proxy_pass http://$discoveryd_upstream;
        }}
    }}
}}
"""


def export(daemon: Daemon, *arguments: str) -> str:
    """Return what `discoveryctl export` prints."""
    command = [sys.executable, "-c", _PROGRAM, "--socket", str(daemon.socket), "export", *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class Exporting:
    """`discoveryctl export` with these arguments and --watch."""

    def __init__(self, daemon: Daemon, said: Path, *arguments: str) -> None:
        self._said = said
        command = [sys.executable, "-c", _PROGRAM, "--socket", str(daemon.socket), "export"]
        with said.open("wb") as written:
            self.process = subprocess.Popen(
                [*command, *arguments, "--watch"],
                cwd=REPOSITORY,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
            )

    @property
    def said(self) -> str:
        """Everything that it has written, its commands included."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal; return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(PROMPT_SECONDS)

    def kill(self) -> None:
        """Kill it, if it lives yet."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Nginx:
    """A real nginx below `root`, which reads `export.conf` there."""

    def __init__(self, root: Path) -> None:
        self.export = root / "export.conf"
        self.port = free_port()
        self._config = root / "nginx.conf"
        self._log = root / "nginx.log"
        # Root's nginx would serve as somebody who may not enter a test's directory.
        user = "user root;" if os.geteuid() == 0 else ""
        self._config.write_text(_NGINX.format(root=root, user=user, port=self.port))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        return ["nginx", "-p", str(self._config.parent), "-c", str(self._config), "-e", "stderr"]

    def test(self) -> subprocess.CompletedProcess[str]:
        """Let it test its configuration."""
        command = [*self.command, "-t"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def start(self) -> None:
        """Start it; return when it answers."""
        self._process = subprocess.Popen(self.command)
        until(lambda: self.status("nobody") == 404, f"nginx answers: {self._log}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PROMPT_SECONDS)

    def status(self, model: str) -> int:
        """Return the status that a request for the model gets; 0 where nobody answers."""
        try:
            return self._ask(model)[0]
        except OSError:
            return 0

    def who(self, model: str) -> str:
        """Return which server answers a request for the model."""
        status, body = self._ask(model)
        assert status == 200, f"{status}: {self._log.read_text()}"
        return body

    def _ask(self, model: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PROMPT_SECONDS)
        try:
            connection.request("GET", "/v1/models", headers={"X-Model": model.encode()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def named_servers(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Run a server for each name, which answers /v1/models with it; yield their URLs by name."""
    servers: list[ThreadingHTTPServer] = []
    try:
        urls: dict[str, str] = {}
        for name in names:
            server = ThreadingHTTPServer(("127.0.0.1", 0), _answering(name))
            servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            urls[name] = f"http://127.0.0.1:{server.server_address[1]}"
        yield urls
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


@contextmanager
def looping(line: str, python: Path, place: Path) -> Iterator[None]:
    """Run a line of a shell, which has no end, in a place, beside the programs of a Python."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    with (place / "looping").open("wb") as said:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", line],
            cwd=place,
            env=environment(PATH=path, LITELLM_LOCAL_MODEL_COST_MAP="True"),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def _answering(name: str) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            self.send_response(200)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, *_: object) -> None:
            pass

    return Answering
