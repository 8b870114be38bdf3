"""Workers for tests of the whole: their cards, their files, their processes, their loops."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import anyio

from tests.system.dropping import Host, Json
from tests.system.running import REPOSITORY, Daemon, environment

LLAMA: Json = {
    "display_name": "llama",
    "source_path": "/models/llama",
    "url": "http://127.0.0.1:8001",
    "context_length": 8192,
}
BACKENDS = ["asyncio", "trio"]


def card(port: int = 8001, **members: object) -> Json:
    return {**LLAMA, "url": f"http://127.0.0.1:{port}", **members}


def files(host: Host) -> list[str]:
    return sorted(path.name for path in host.cards.iterdir())


def serves(host: Host, name: str = "llama") -> bool:
    return bool(host.workers(name))


def run(backend: str, main: Callable[[], Any]) -> None:
    async def in_time() -> None:
        with anyio.fail_after(40):
            await main()

    anyio.run(in_time, backend=backend)


WORK = """
import sys
from discoveryd.client.workers.blocking_worker import Worker
with Worker({"display_name": "llama", "url": "http://127.0.0.1:8001"}, waiting=True) as worker:
    print(worker.verdict.standing, flush=True)
    while True:
        worker.wait_changed()
"""


def worker_process(daemon: Daemon, program: str = WORK) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=environment(DISCOVERYD_SOCKET=str(daemon.socket)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
