"""What runs in Dynamo's own environment: plays cases on real runtimes. It imports nothing of ours.

Usage: `python driver.py`, in a directory with the model directories, with `DYN_FILE_KV` set to an
empty store. It writes a line with the runtimes' instances, then reads a case a line and writes its
verdicts a line: for each step None (a file was put there), or what registering came to: "" where it
was accepted, else the error's text; and the names and contents of the store's files then.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from dynamo.llm import (
    ModelInput,
    ModelRuntimeConfig,
    ModelType,
    WorkerType,
    register_model,
    unregister_model,
)
from dynamo.runtime import DistributedRuntime

RUNTIMES = 3

Registration = tuple[int, str, str | None]
"""The runtime, the endpoint and the adapter's name of what is to be unregistered."""


class Player:
    """Runtimes with one store, which is empty between two cases."""

    def __init__(self, loop: asyncio.AbstractEventLoop, mdc: Path) -> None:
        self.mdc = mdc
        self.runtimes = [DistributedRuntime(loop, "file", "tcp") for _ in range(RUNTIMES)]

    def instances(self) -> list[int]:
        return [each.endpoint("ns.oc.e").connection_id() for each in self.runtimes]

    async def play(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        verdicts: list[str | None] = []
        registered: dict[Registration, Any] = {}
        for step in steps:
            if step["type"] == "Lies":
                self.mdc.mkdir(parents=True, exist_ok=True)
                path = os.fsencode(self.mdc) + b"/" + step["file"].encode()
                Path(os.fsdecode(path)).write_bytes(step["text"].encode("utf-8", "surrogatepass"))
                verdicts.append(None)
            else:
                verdicts.append(await self.register(step, registered))
        written = {}
        for path in self.mdc.iterdir() if self.mdc.exists() else ():
            written[path.name] = path.read_bytes().decode("utf-8", "surrogateescape")
        for (_, _, adapter), endpoint in registered.items():
            await unregister_model(endpoint, adapter)
        for path in self.mdc.iterdir() if self.mdc.exists() else ():
            path.unlink(missing_ok=True)
        return {"verdicts": verdicts, "written": written}

    async def register(self, step: dict[str, Any], registered: dict[Registration, Any]) -> str:
        runtime = self.runtimes[step["worker"]]
        endpoint = runtime.endpoint(step["endpoint"].replace("/", "."))
        name = step["name"]
        arguments = given(step["others"])
        adapter = step["adapter"]
        if adapter:
            arguments |= {"lora_name": name, "base_model_path": step["source"]}
        assets = step["assets"]
        try:
            await register_model(
                ModelInput.Tokens if assets else ModelInput.Text,
                ModelType.Chat if assets else ModelType.Audios,
                endpoint,
                step["source"],
                None if adapter else name,
                model_aliases=step["aliases"],
                skip_model_assets=not assets,
                **arguments,
            )
        except Exception as error:  # noqa: BLE001  # its text is the verdict
            return f"{type(error).__name__}: {error}"
        undone = (step["worker"], step["endpoint"], name if adapter else None)
        registered[undone] = endpoint
        return ""


def given(others: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that no rule reads as Dynamo takes them."""
    arguments = dict(others)
    arguments["worker_type"] = getattr(WorkerType, others.get("worker_type", "Aggregated"))
    if "needs" in others:
        arguments["needs"] = [[getattr(WorkerType, of) for of in all_] for all_ in others["needs"]]
    if "runtime_config" in others:
        config = ModelRuntimeConfig()
        for name, value in others["runtime_config"].items():
            setattr(config, name, value)
        arguments["runtime_config"] = config
    return arguments


async def main() -> None:
    loop = asyncio.get_running_loop()
    player = Player(loop, Path(os.environ["DYN_FILE_KV"]) / "v1/mdc")
    print(json.dumps(player.instances()), flush=True)  # noqa: T201  # this is its protocol
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await player.play(json.loads(line))), flush=True)  # noqa: T201  # the same
    for runtime in player.runtimes:
        runtime.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
