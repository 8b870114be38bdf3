#!/usr/bin/env python3
"""A stand-in for an inference server: it answers as OpenAI does, and says who answered.

    python worker.py PORT NAME... [--pause SECONDS]

It answers to its names alone, with `max_tokens` words (8 if a request does not say), of which the
first are its port and the name that was asked for, each after a pause of 0.05 seconds.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


class Worker:
    """Answers chat completions for some names."""

    def __init__(self, port: int, names: list[str], pause: float) -> None:
        self._port = str(port)
        self._names = names
        self._pause = pause

    async def list_models(self, _: Request) -> Response:
        """GET /v1/models."""
        owned = {"object": "model", "created": 0, "owned_by": self._port}
        return JSONResponse({"object": "list", "data": [{"id": n} | owned for n in self._names]})

    async def complete(self, request: Request) -> Response:
        """POST /v1/chat/completions, streaming or not."""
        asked = await request.json()
        name = asked["model"]
        if name not in self._names:
            fault = {"message": f"{self._port} has no {name}", "type": "invalid_request_error"}
            return JSONResponse({"error": fault}, 404)
        words = self._words(name, asked.get("max_tokens") or 8)
        common: dict[str, object] = {"id": "chatcmpl-0", "created": 0, "model": name}
        common["system_fingerprint"] = self._port
        if asked.get("stream"):
            return StreamingResponse(events(words, common), media_type="text/event-stream")
        message = {"role": "assistant", "content": "".join([word async for word in words])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse(common | {"object": "chat.completion", "choices": [choice]})

    async def _words(self, name: str, count: int) -> AsyncIterator[str]:
        words = [self._port, "answers", name, *map(str, range(count))][:count]
        for place, word in enumerate(words):
            await asyncio.sleep(self._pause)
            yield f" {word}" if place else word


async def events(words: AsyncIterator[str], common: dict[str, object]) -> AsyncIterator[str]:
    """Yield the words as server-sent events."""
    common |= {"object": "chat.completion.chunk"}
    async for word in words:
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        yield f"data: {json.dumps(common | {'choices': [choice]})}\n\n"
    last: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    yield f"data: {json.dumps(common | {'choices': [last]})}\n\ndata: [DONE]\n\n"


def main() -> None:
    """Read the command line, and answer."""
    parser = argparse.ArgumentParser(description="Stand in for an inference server.")
    parser.add_argument("port", type=int)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each word")
    chosen = parser.parse_args()
    worker = Worker(chosen.port, chosen.names, chosen.pause)
    routes = [
        Route("/v1/models", worker.list_models),
        Route("/v1/chat/completions", worker.complete, methods=["POST"]),
    ]
    uvicorn.run(Starlette(routes=routes), port=chosen.port, log_level="warning")


if __name__ == "__main__":
    main()
