#!/usr/bin/env python3
"""A router: one OpenAI-compatible address for all the models that discoveryd knows of.

    python examples/router.py --port 8080
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none python ...

It needs starlette, uvicorn and httpx2, as httpx goes on: `pip install '.[examples]'`.

How a request is routed
=======================

**Whom to ask.** `Models` is a live copy of what discoveryd serves. The request's `model`, be it a
primary name, an alias or an adapter, is looked up in it without asking anybody. Of the workers that
accept, the one with the fewest requests in flight for its label `weight` (1 by default) is asked;
of several that are equal one at random, the heavier the likelier. The router speaks HTTP only
(http, https and unix urls), and prefill and encode workers are for other workers.

**What is sent** is the body as it came, since workers answer to all their names. Only the
operator's aliases they do not know: there `model` becomes the name that is meant, and all else
stays. Headers go both ways, but for those that speak of one connection.

**What comes back** is passed on as it arrives, piece by piece. A client who reads slowly slows the
worker down; one who leaves, at whatever moment, ends the request at the worker, too.

**When a worker dies** before anything of its answer has come, another is asked, once. Later, the
client's connection breaks as well: nobody shall take half an answer for a whole one.

**When nobody answers.** A name that nobody serves is a 404, and discoveryd is asked why: it knows
what may have been meant, and which cards ask for the name in vain. A name that is served, but by
nobody who can be asked at the moment, is a 503.
"""

import argparse
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePath

import anyio
import httpx2
import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from discoveryd.client import AsyncClient, DiscoverydError, Models, NoSuchModel
from discoveryd.core.text import printable
from discoveryd.interface import Resolution, Worker

# Who does not accept in time is dead; an answer may take as long as it takes.
TIMEOUT = httpx2.Timeout(None, connect=5.0).as_dict()
# uvicorn, and with it vLLM, closes what was idle for 5 s: let go of it before.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
SCHEMES = ("http://", "https://", "unix://")
OF_ONE_CONNECTION = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te "
    b"trailer transfer-encoding upgrade".split()
)
WRITTEN_ANEW = (b"host", b"content-length")
log = logging.getLogger("router")
Shares = dict[str, float]
"""The urls of workers, and how large their parts of the requests should be."""


class Refusal(HTTPException):
    """An answer that no worker gave."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, printable(message))
        self.code = code


class Router:
    """Routes to the workers of `models`; asks `daemon` only why a name is not among them."""

    def __init__(self, models: Models, daemon: AsyncClient) -> None:
        self._models = models
        self._daemon = daemon
        self._in_flight = Counter[str]()
        # Not clients: those add headers, keep cookies, follow redirects and use proxies.
        self._transports: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def list_models(self, _: Request) -> Response:
        """Answer GET /v1/models: every name that can be asked at the moment."""
        ready = [line.name for line in self._models.names() if line.ready]
        names = [name for name in ready if shares(self._models.resolve(name))]
        return JSONResponse({"object": "list", "data": [model(name) for name in names]})

    async def show_model(self, request: Request) -> Response:
        """Answer GET /v1/models/NAME."""
        found = await self._resolve(request.path_params["name"])
        return JSONResponse(model(found.name))

    async def forward(self, request: Request) -> ASGIApp:
        """Answer POST /v1/...: return what asks a worker and passes on what it says."""
        body = await request.body()
        try:
            members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            name = msgspec.json.decode(members.get("model", b"null"), type=str)
        except (msgspec.DecodeError, RecursionError) as fault:
            why = f"the body must be a JSON object whose member `model` is a name: {fault}"
            raise Refusal(400, "invalid_body", why) from None
        found = await self._resolve(name)
        share = shares(found)
        if not found.workers:
            raise Refusal(503, "model_not_ready", f"all workers of {name} are draining")
        if not found.ready:
            raise Refusal(503, "model_not_ready", f"{name} waits for workers that it needs")
        if not share:
            why = f"no worker of {name} has a weight above 0 and speaks HTTP with clients"
            raise Refusal(503, "model_not_ready", why)
        if found.kind == "operator":
            members["model"] = msgspec.Raw(msgspec.json.encode(found.model))
            body = msgspec.json.encode(members)
        return partial(self._relay, name, share, body)

    async def _resolve(self, name: str) -> Resolution:
        """Return who serves the name. Raises Refusal."""
        with suppress(NoSuchModel):
            return self._models.resolve(name)
        try:
            return await self._daemon.resolve(name)
        except NoSuchModel as miss:
            raise Refusal(404, "model_not_found", explanation(miss)) from None
        except DiscoverydError:
            why = f"nobody was known to serve {name}, and discoveryd cannot be asked at the moment"
            raise Refusal(503, "discovery_unavailable", why) from None

    def _choose(self, share: Shares) -> str:
        """Return the url of the worker to ask."""

        def load(url: str) -> tuple[float, float]:
            # The second decides between equals, the heavier the likelier.
            return self._in_flight[url] / share[url], random.expovariate(share[url])

        return min(share, key=load)

    def _others(self, name: str, dead: str) -> Shares:
        """Return whom to ask after the worker at `dead`: who else serves the name by now."""
        others: Shares = {}
        with suppress(NoSuchModel):
            others = shares(self._models.resolve(name))
            others.pop(dead, None)
        # Alone, it is asked once more: it may only have closed a connection that was idle.
        return others or {dead: 1.0}

    async def _relay(  # noqa: PLR0913, PLR0917  # the last three are ASGI's
        self, name: str, share: Shares, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Ask a worker, or else another, for as long as the client is there."""

        async def leave_with_client() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave_with_client)
            for _ in range(2):
                url = self._choose(share)
                with self._counted(url):
                    try:
                        answer = await self._ask(url, body, scope)
                    except (httpx2.TransportError, httpx2.InvalidURL) as fault:
                        log.warning("%s does not answer: %r", url, fault)
                        share = self._others(name, url)
                        continue
                    try:
                        await pass_on(answer, send)
                    except httpx2.TransportError as fault:
                        # uvicorn closes the connection of an answer that is left unfinished.
                        log.warning("%s broke off: %r", url, fault)
                    finally:
                        await answer.aclose()
                    break
            else:
                lost = Refusal(502, "worker_lost", "the workers that were asked do not answer")
                await (await error(Request(scope), lost))(scope, receive, send)
            tasks.cancel_scope.cancel()

    async def _ask(self, url: str, body: bytes, scope: Scope) -> httpx2.Response:
        """Return the worker's answer when its head is there. Raises TransportError, InvalidURL."""
        socket = url.removeprefix("unix://") if url.startswith("unix://") else None
        if socket not in self._transports:
            self._transports[socket] = httpx2.AsyncHTTPTransport(uds=socket, limits=LIMITS)
        base = httpx2.URL("http://localhost" if socket else url)
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        request = httpx2.Request(
            scope["method"],
            base.copy_with(raw_path=base.raw_path.rstrip(b"/") + scope["raw_path"] + query),
            headers=[line for line in end_to_end(scope["headers"]) if line[0] not in WRITTEN_ANEW],
            content=body,
            extensions={"timeout": TIMEOUT},
        )
        return await self._transports[socket].handle_async_request(request)

    @contextmanager
    def _counted(self, url: str) -> Iterator[None]:
        self._in_flight[url] += 1
        try:
            yield
        finally:
            self._in_flight[url] -= 1


def shares(found: Resolution) -> Shares:
    """Return the workers that can be asked from here."""
    weighed = ((worker.url or "", weight(worker)) for worker in found.workers)
    return {url: share for url, share in weighed if url.startswith(SCHEMES) and share > 0}


def weight(worker: Worker) -> float:
    """Return how large the worker's part of the requests should be, compared with others."""
    if worker.worker_type not in {"aggregated", "decode"}:
        return 0.0
    try:
        return float((worker.labels or {}).get("weight", "1"))
    except ValueError:
        return 1.0


async def pass_on(answer: httpx2.Response, send: Send) -> None:
    """Send the client what arrives, as it arrives."""
    headers = end_to_end(answer.headers.raw)
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    async for piece in answer.aiter_raw():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers without those that speak of one connection (RFC 9110, section 7.6.1)."""
    lines = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in lines if name == b"connection").lower().split(b",")
    dropped = OF_ONE_CONNECTION.union(name.strip() for name in named)
    return [line for line in lines if line[0] not in dropped]


def model(name: str) -> dict[str, object]:
    """Return what OpenAI calls a model."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "discoveryd"}


def explanation(miss: NoSuchModel) -> str:
    """Return why nobody serves a name, and what else may have been meant."""
    lines = [f"nobody serves {miss.model}"]
    if miss.similar:
        lines.append(f"did you mean {' or '.join(miss.similar)}?")
    for verdict in miss.waiting:
        why = "; ".join(reason.message for reason in verdict.reasons)
        file = PurePath(verdict.file).name
        lines.append(f"{file} asks for it, but is {verdict.standing}: {why}")
    return ". ".join(lines)


async def error(_: Request, fault: Exception) -> Response:
    """Return a refusal, the router's or the framework's, in the shape of OpenAI's errors."""
    if not isinstance(fault, HTTPException):
        return Response()  # to a client who has left
    kind = "server_error" if fault.status_code >= 500 else "invalid_request_error"  # noqa: PLR2004  # HTTP's
    code = getattr(fault, "code", None)
    found = {"message": fault.detail, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": found}, fault.status_code, fault.headers)


async def serve(socket: str | None, host: str, port: int) -> None:
    """Serve until a signal ends it. Raises NoDaemon where there is no discoveryd."""
    async with Models.follow(socket) as models, AsyncClient(socket) as daemon:
        router = Router(models, daemon)
        app = Starlette(
            routes=[
                Route("/v1/models", router.list_models),
                Route("/v1/models/{name:path}", router.show_model),
                Route("/v1/{path:path}", router.forward, methods=["POST"]),
            ],
            exception_handlers={HTTPException: error, ClientDisconnect: error},
        )
        # Nothing is added to what workers say: no `server`, no second `date`.
        own = uvicorn.Config(app, host, port, server_header=False, date_header=False)
        await uvicorn.Server(own).serve()


def main() -> None:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(description="Route OpenAI requests to the workers served.")
    parser.add_argument("--socket", help="discoveryd's socket; found by itself where it is usual")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    chosen = parser.parse_args()
    try:
        with suppress(KeyboardInterrupt):
            uvloop.run(serve(chosen.socket, chosen.host, chosen.port))
    except DiscoverydError as fault:
        sys.exit(f"router: {fault}")


if __name__ == "__main__":
    main()
