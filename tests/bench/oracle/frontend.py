"""The real frontend, and a store whose workers are nobody's: this process writes their files."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.oracle.cases import Registers, slug
from tests.bench.oracle.runtime import Runtime, environment
from tests.bench.oracle.worlds import Event
from tests.system.dropping import envelope, instance_record, store_name, write

Json = dict[str, Any]

TOUCH_SECONDS = 2.0
START_SECONDS = 60.0


def real_card(runtime: Runtime) -> Json:
    """Return a real worker's card, for others to be made of. It names files of the runtime's."""
    worker = Registers(worker=0, endpoint="ns/oc/e", source="A", name="m", assets=True)
    (text,) = runtime.play([worker]).written.values()
    card: Json = json.loads(text)["card_json"]
    return card


class Store:
    """A store in which workers come and go that nobody runs: what they would touch is touched."""

    def __init__(self, root: Path, card: Json) -> None:
        self.mdc = root / "v1/mdc"
        self.instances = root / "v1/instances"
        self._card = card

    def happen(self, event: Event) -> None:
        """Write or remove the files that an event is about."""
        name, worker = self._name(event.key), event.key.count("/") == 3
        record, card = self.instances / name, self.mdc / name
        if event.what in {"comes", "has its record"} and worker:
            write(record, instance_record(event.key))
        if event.card is not None:
            write(card, self._envelope(event.key, event.card))
        if event.what == "leaves":
            for path in (card, *self.mdc.glob(f"{name}%2F*")):
                path.unlink()
        if event.what in {"leaves", "loses its record"} and worker:
            record.unlink(missing_ok=True)

    def _envelope(self, key: str, card: Json) -> Json:
        at, suffix = "/".join(key.split("/")[:4]), key.split("/")[4:]
        suffixed = {"model_suffix": slug(suffix[0])} if suffix else {}
        return envelope(at, self._card | card, **suffixed)

    def _name(self, key: str) -> str:
        at, suffix = "/".join(key.split("/")[:4]), key.split("/")[4:]
        return store_name("/".join([at, *map(slug, suffix)]))

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Touch every file meanwhile, as living workers do."""
        ended = threading.Event()

        def touch() -> None:
            while not ended.wait(TOUCH_SECONDS):
                for directory in (self.mdc, self.instances):
                    for path in directory.iterdir():
                        with contextlib.suppress(FileNotFoundError):
                            os.utime(path)

        toucher = threading.Thread(target=touch)
        toucher.start()
        try:
            yield
        finally:
            ended.set()
            toucher.join()


class Hindered(Exception):
    """The frontend cannot work here, which says nothing of its rules. The text says why."""


class Frontend:
    """A running `dynamo.frontend`."""

    def __init__(self, port: int, log: Path) -> None:
        self._port = port
        self._log = log

    def check(self) -> None:
        """Raise Hindered where it could not do its work."""
        if "Too many open files" in self._log.read_text(errors="replace"):
            raise Hindered(
                "Dynamo's frontend has run out of inotify instances: end other programs of this "
                "user's, or let root raise fs.inotify.max_user_instances"
            )

    def names(self) -> frozenset[str]:
        """Return what it lists. Raises OSError where it does not answer."""
        asked = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with contextlib.closing(asked):
            asked.request("GET", "/v1/models")
            listed = json.load(asked.getresponse())["data"]
        return frozenset(model["id"] for model in listed)


@contextlib.contextmanager
def running(python: Path, root: Path, store: Path) -> Iterator[Frontend]:
    """Run the frontend on a store meanwhile; it writes its log and caches below `root`."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port = tried.getsockname()[1]
    command = [str(python), "-m", "dynamo.frontend", "--discovery-backend", "file"]
    command += ["--http-host", "127.0.0.1", "--http-port", str(port)]
    log = root / "frontend.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment(root, store) | {"DYN_LOG": "warn"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    frontend = Frontend(port, log)
    try:
        _wait_for(frontend, process, log)
        yield frontend
    finally:
        process.kill()
        process.wait()


def _wait_for(frontend: Frontend, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            frontend.names()
        except OSError:
            frontend.check()
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")
                raise RuntimeError(f"Dynamo's frontend does not start:\n{text[-2000:]}") from None
            time.sleep(0.05)
        else:
            return
