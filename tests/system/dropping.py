"""What tests drop: flat cards, envelopes, and the files of a Dynamo store.

`Host` ties a daemon to its directories and a client. Files are written as good writers do, by a
rename; each method returns when the daemon has applied it.
"""

import json
import os
from pathlib import Path
from typing import Any

from discoveryd.client import Client, NoSuchFile, NoSuchModel
from discoveryd.interface import Verdict
from tests.system.running import Daemon

Json = dict[str, Any]

DATA = Path(__file__).parent.parent / "data"

GOOD: Json = {"display_name": "good", "url": "http://127.0.0.1:8001"}
"""A card that nothing is wrong with."""


def write(path: Path, content: bytes | Json) -> None:
    """Put the content there by a rename, as writers should."""
    beside = path.parent / f".tmp_{path.name}"
    beside.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    beside.rename(path)


def envelope(at: str, card: object, **others: object) -> Json:
    """Wrap a card as Dynamo does; `at` is namespace/component/endpoint/instance in hex[/suffix]."""
    namespace, component, endpoint, instance, *_ = at.split("/")
    return {
        "type": "Model",
        "namespace": namespace,
        "component": component,
        "endpoint": endpoint,
        "instance_id": int(instance, 16),
        "card_json": card,
    } | others


def store_name(key: str) -> str:
    """Return the file name of a key in a Dynamo store."""
    return "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 else f"%{byte:02X}" for byte in key.encode()
    )


def instance_record(at: str, address: str = "127.0.0.1:9000") -> Json:
    """Return the instance record of the worker at namespace/component/endpoint/instance in hex."""
    namespace, component, endpoint, instance = at.split("/")
    return {
        "type": "Endpoint",
        "namespace": namespace,
        "component": component,
        "endpoint": endpoint,
        "instance_id": int(instance, 16),
        "transport": {"tcp": f"{address}/{instance}/{endpoint}"},
    }


class Host:
    """One daemon with its directories, asked over one connection."""

    def __init__(self, daemon: Daemon, client: Client) -> None:
        self.daemon = daemon
        self.client = client
        self.cards = daemon.cards
        self.mdc = daemon.store / "v1/mdc"
        self.instances = daemon.store / "v1/instances"

    def put(self, name: str, content: bytes | Json) -> Verdict:
        """Put a card into the drop directory as NAME.json; return what became of it."""
        path = self.cards / f"{name}.json"
        write(path, content)
        return self.verdict_of(path)

    def put_in_store(self, key: str, content: bytes | Json, *, record: bool = True) -> Verdict:
        """Put a card into the store under its key, by default with an instance record before it."""
        if record:
            at = "/".join(key.split("/")[:4])
            write(self.instances / store_name(at), instance_record(at))
        path = self.mdc / store_name(key)
        write(path, content)
        return self.verdict_of(path)

    def verdict_of(self, path: Path) -> Verdict:
        """Return the verdict on what the file holds now."""
        (verdict,) = self.client.sync(str(path)).verdicts
        assert verdict.file == str(path)
        return verdict

    def remove(self, path: Path) -> None:
        """Remove a file; return when that is applied."""
        path.unlink()
        self.sync_gone(path)

    def sync_gone(self, path: Path) -> None:
        """Return when the daemon knows that the file is gone."""
        try:
            self.client.sync(str(path))
        except NoSuchFile:
            return
        raise AssertionError(f"{path} is still known")

    def workers(self, name: str) -> list[str] | None:
        """Return the keys of the workers that serve the name; None where nobody does."""
        try:
            return [worker.key for worker in self.client.resolve(name).workers]
        except NoSuchModel:
            return None

    def standings(self) -> dict[str, str]:
        """Return the standing of every card file, by file name."""
        verdicts = {v.file: v.standing for v in self.client.explain().verdicts}
        serving = {w.file: "serving" for w in self.client.workers().workers}
        return {os.path.basename(f): s for f, s in (serving | verdicts).items()}  # noqa: PTH119 - one line

    def clear(self) -> None:
        """Remove everything, and see that the daemon has forgotten it."""
        for directory in (self.cards, self.mdc, self.instances):
            for path in directory.iterdir():
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()
        assert self.client.sync().standings == {}
        assert self.client.list().names == ()
