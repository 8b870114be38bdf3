"""What runs inside Dynamo's own environment: its bindings, told what to do by arguments and lines.

Nothing of ours is imported here, nor can it be. `dynamo.py` starts this file and reads its output.

`register MODEL NAME`: for every line read, register MODEL under NAME on one endpoint and take it
back; print the seconds that `register_model` took. `serve MODEL NAME COMPONENT`: serve and register
it, print `up`, stay. `see COUNT`: print `seen` once a client sees so many instances, stay.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator

from dynamo.llm import ModelInput, ModelType, WorkerType, register_model, unregister_model
from dynamo.runtime import DistributedRuntime

POLL_SECONDS = 0.01
"""Small beside what a look with many instances takes, which makes a list of all of them."""
INPUT, TYPE, ROLE = ModelInput.Tokens, ModelType.Chat, WorkerType.Aggregated


async def _register(model: str, name: str) -> None:
    loop = asyncio.get_running_loop()
    endpoint = DistributedRuntime(loop, "file", "tcp").endpoint("bench.backend.generate")
    _say("up")
    while await loop.run_in_executor(None, sys.stdin.readline):
        began = time.perf_counter()
        await register_model(INPUT, TYPE, endpoint, model, name, worker_type=ROLE)
        taken = time.perf_counter() - began
        await unregister_model(endpoint)
        _say(str(taken))


async def _serve(model: str, name: str, component: str) -> None:
    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")
    endpoint = runtime.endpoint(f"bench.{component}.generate")
    serving = asyncio.ensure_future(endpoint.serve_endpoint(_generate))
    await register_model(INPUT, TYPE, endpoint, model, name, worker_type=ROLE)
    _say("up")
    await serving


async def _see(count: str) -> None:
    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")
    client = await runtime.endpoint("bench.backend.generate").client()
    while len(client.instance_ids()) < int(count):
        await asyncio.sleep(POLL_SECONDS)
    _say("seen")
    await asyncio.Event().wait()


async def _generate(_request: object, _context: object = None) -> AsyncIterator[dict[str, object]]:
    yield {"token_ids": [3]}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["register", model, name]:
            asyncio.run(_register(model, name))
        case ["serve", model, name, component]:
            asyncio.run(_serve(model, name, component))
        case ["see", count]:
            asyncio.run(_see(count))
        case _:
            sys.exit(2)
