#!/usr/bin/env python3
"""A dev cluster: discoveryd, four workers that stand in for real ones, a router, and a tour of it.

    python examples/dev-cluster/cluster.py [--stay]

On the tour the router is asked by OpenAI's own client, as any program would, while one worker is
killed and another drained; the exit status is 1 if anything fails that should not. All files are in
a temporary directory. With --stay the cluster stays until Ctrl-C.

    llama-1, llama-2   serve llama, also called chat    /models/llama
    llama-2            serves llama-legal, an adapter   /models/llama
    support            serves support-bot               /models/llama
    qwen               serves qwen                      /models/qwen
    impostor           wants to be called chat, too     /models/llama, and is refused
"""

import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import sleep

from interrupt import Interrupt
from tour import Tour, say

HERE = Path(__file__).parent
SOURCE = "/models/llama"
PROGRAM = "from discoveryd.client.ctl.cli import main; main()"
WORKERS = ("llama-1", "llama-2", "support", "qwen")


class Cluster:
    """The processes and the ports of their workers, by name; `end` ends them.

    An interrupt is raised wherever it comes, but when a process is begun or everything is ended.
    """

    def __init__(self, root: Path, port: int, interrupt: Interrupt) -> None:
        self.root = root
        self.port = port
        self.interrupt = interrupt
        self.url = f"http://127.0.0.1:{port}/v1"
        self.ports = {name: free_port() for name in WORKERS}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start everything; return when every name is served and the router answers."""
        (self.root / "cards").mkdir()
        places = f"--cards {self.root}/cards --socket {self.root}/socket --state none"
        self._begin("discoveryd", "-m", "discoveryd", "serve", *places.split())
        self.start_worker("llama-1")
        self.start_worker("llama-2", more=("llama-legal",))
        self._run("support", ("support-bot",), SOURCE)
        self._run("qwen", ("qwen",), "/models/qwen")
        self.wait("llama", "--workers", "2")
        self.wait("support-bot")
        self.wait("qwen")
        self.publish("llama-legal", self.ports["llama-2"], lora={"name": "llama-legal"})
        router = str(HERE.parent / "router.py")
        self._begin("router", router, "--socket", f"{self.root}/socket", "--port", str(self.port))
        while not listens(self.port):
            if self._processes["router"].poll() is not None:
                sys.exit(f"the router has ended:\n{(self.root / 'router.log').read_text()}")
            sleep(0.05)

    def start_worker(self, worker: str, more: tuple[str, ...] = ()) -> None:
        """Start a worker of llama, which answers to the names `more` as well."""
        self._run(worker, ("llama", "chat"), SOURCE, more)

    def kill(self, worker: str) -> None:
        """Kill a worker, as a machine does that runs out of memory."""
        run = self._processes[worker].pid
        child = Path(f"/proc/{run}/task/{run}/children").read_text()
        os.kill(int(child), signal.SIGKILL)

    def key(self, worker: str) -> str:
        """Return what discoveryd calls a worker of llama."""
        return f"default/%2Fmodels%2Fllama/generate/127.0.0.1:{self.ports[worker]}"

    def publish(self, name: str, port: int, **members: object) -> bool:
        """Drop one more card; return whether it may serve."""
        card = {"display_name": name, "source_path": SOURCE, "url": f"http://127.0.0.1:{port}"}
        return self.ctl("publish", "-", "--as", f"{name}.json", given=card | members) == 0

    def wait(self, name: str, *more: str) -> None:
        """Return when a name is served and ready."""
        if self.ctl("wait", name, "--timeout", "60", *more) != 0:
            sys.exit(f"{name} is not served:\n" + self.logs())

    def ctl(self, *words: str, given: object = None) -> int:
        """Run discoveryctl where everybody sees it; return its exit status."""
        self.interrupt.check()
        say(f"$ discoveryctl {shlex.join(words)}")
        command = [sys.executable, *self._ctl(*words)]
        text = json.dumps(given).encode()
        return subprocess.run(command, input=text, env=environment(), check=False).returncode  # noqa: S603  # our own

    def logs(self) -> str:
        """Return what all processes have written."""
        return "".join(f"{path.name}:\n{path.read_text()}" for path in self.root.glob("*.log"))

    def end(self) -> None:
        """End everything."""
        with self.interrupt.held():
            for process in self._processes.values():
                process.terminate()
            for process in self._processes.values():
                process.wait()

    def _run(
        self, worker: str, names: tuple[str, ...], source: str, more: tuple[str, ...] = ()
    ) -> None:
        """Start a worker under `discoveryctl run`, which keeps a card for it."""
        port = self.ports[worker]
        url = f"http://127.0.0.1:{port}"
        options = ["--name", names[0], "--source", source, "--url", url, "--drain", "0.5"]
        for alias in names[1:]:
            options += ["--alias", alias]
        command = [sys.executable, str(HERE / "worker.py"), str(port), *names, *more]
        self._begin(worker, *self._ctl("run", *options, "--", *command))

    def _ctl(self, *words: str) -> list[str]:
        return ["-c", PROGRAM, "--socket", f"{self.root}/socket", *words]

    def _begin(self, name: str, *arguments: str) -> None:
        """Start a Python program that Ctrl-C does not reach, but `end`."""
        self.interrupt.check()
        with self.interrupt.held(), (self.root / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603  # our own
                [sys.executable, *arguments],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def environment() -> dict[str, str]:
    """Return the environment without what it says of another discoveryd."""
    return {key: value for key, value in os.environ.items() if not key.startswith("DISCOVERYD_")}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody accepts connections at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> int:
    """Read the command line, and have a cluster for as long; return the exit status."""
    parser = argparse.ArgumentParser(description="Run a dev cluster, and take a tour of it.")
    parser.add_argument("--port", type=int, default=0, help="the router's [default: a free one]")
    parser.add_argument("--stay", action="store_true", help="keep it up until Ctrl-C")
    chosen = parser.parse_args()
    interrupt = Interrupt()
    interrupt.hear()
    try:
        with tempfile.TemporaryDirectory(prefix="dev-cluster-") as root:
            cluster = Cluster(Path(root), chosen.port or free_port(), interrupt)
            try:
                return run(cluster, stay=chosen.stay)
            finally:
                cluster.end()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def run(cluster: Cluster, *, stay: bool) -> int:
    """Start the cluster and tour it; return the exit status. Raises KeyboardInterrupt."""
    cluster.start()
    tour = Tour(cluster)
    tour.take()
    if stay:
        say(f"export OPENAI_BASE_URL={cluster.url} DISCOVERYD_SOCKET={cluster.root}/socket")
        with suppress(KeyboardInterrupt):
            while not cluster.interrupt.came:
                sleep(0.1)
    return 1 if tour.failures else 0


if __name__ == "__main__":
    sys.exit(main())
