"""The bodies of HTTP answers: from the answers' values to bytes. Pure; routes are site.py's.

A model is one served name. Its members are those of OpenAI's listing, and those that vLLM adds:

- `created` is when the first worker that answers it began to serve, in whole seconds since 1970;
- `root` is where its weights come from, `parent` the base of an adapter, `alias_of` the name that
  an alias stands for, `max_model_len` the shortest context of its workers; each where known;
- `ready` is false for a name whose workers lack a type that they need. It is listed on demand only.

For Prometheus, each worker that speaks HTTP is a target once, whatever adapters share its URL.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Served
from discoveryd.core.card import Card
from discoveryd.core.text import quoted

JSON = "application/json"

encode = msgspec.json.Encoder().encode

_PORTS = {"http": 80, "https": 443}


class Page(NamedTuple):
    """What is answered. `headers` come besides those that every answer has."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One served name, in OpenAI's shape."""

    id: str
    object: str
    created: int
    owned_by: str
    root: str | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    alias_of: str | UnsetType = UNSET
    max_model_len: int | UnsetType = UNSET
    ready: bool


class Target(msgspec.Struct, frozen=True):
    """What Prometheus' discovery over HTTP is told of one worker."""

    targets: tuple[str, ...]
    labels: Mapping[str, str]


def model(answers: Answers, name: str, since: Callable[[str], float]) -> Model | None:
    """Return a name as a model, None if nobody serves it; `since` is when a file began to."""
    found = answers.resolve(name)
    if found is None:
        return None
    answer, kind = found
    first = next(iter(answer.members.values()))
    card = first.card
    base = answers.workers.get(card.key.base) if card.adapter else None
    lengths = [
        served.card.context_length
        for served in answer.members.values()
        if served.card.context_length is not None
    ]
    return Model(
        id=name,
        object="model",
        created=int(since(first.file)),
        owned_by="discoveryd",
        root=UNSET if card.source_path is None else card.source_path,
        parent=UNSET if base is None else base.card.display_name,
        alias_of=UNSET if kind in ("primary", "adapter") else answer.model,
        max_model_len=min(lengths) if lengths else UNSET,
        ready=answer.ready,
    )


def health(*, watching: bool, problems: Iterable[str]) -> Page:
    """Say whether watching works, with all that is wrong, be it watching or not."""
    body = {"watching": watching, "problems": list(problems)}
    return Page(200 if watching else 503, encode(body) + b"\n")


def no_such_model(name: str, similar: Iterable[str], *, unready: bool) -> Page:
    """Say that a name is not served, or not ready, as OpenAI says it."""
    if unready:
        message = f"the model {quoted(name)} is not ready: a worker that it needs is missing."
    else:
        near = ", ".join(map(quoted, similar))
        message = f"nobody serves the model {quoted(name)}"
        message += f"; did you mean {near}?" if near else "."
    return fault(404, f"{message} See discoveryctl explain", code="model_not_found")


def fault(status: int, message: str, *, code: str | None = None, allow: str | None = None) -> Page:
    """Say why a request is not answered, in OpenAI's shape; `allow` names the methods that are."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    headers = () if allow is None else (("allow", allow),)
    return Page(status, encode({"error": error}) + b"\n", headers=headers)


def targets(workers: Iterable[Served], told: set[tuple[str, str]]) -> Iterator[Target]:
    """Yield the workers that speak HTTP and are not `told` yet, which they are afterwards."""
    for served in workers:
        card = served.card
        if card.url is None or card.adapter:
            continue
        try:
            parts = urlsplit(card.url)
        except ValueError:
            continue  # a host with signs that stand for several: no client could ask it
        port = _PORTS.get(parts.scheme)
        if port is None or parts.hostname is None:
            continue
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        address = f"{host}:{port if parts.port is None else parts.port}"
        path = f"{parts.path.rstrip('/')}/metrics"
        if (address, path) not in told:
            told.add((address, path))
            yield Target((address,), _labels(served, parts.scheme, path))


def _labels(served: Served, scheme: str, path: str) -> dict[str, str]:
    card: Card = served.card
    said = {
        "model": card.display_name,
        "key": str(card.key),
        "file": served.file,
        "namespace": card.key.namespace,
        "component": card.key.component,
        "endpoint": card.key.endpoint,
        "instance": card.key.instance,
        "worker_type": card.worker_type,
        "accepting": str(card.accepting).lower(),
        **{f"label_{_label(name)}": value for name, value in (card.labels or {}).items()},
    }
    own = {f"__meta_discoveryd_{name}": value for name, value in said.items()}
    return {"__scheme__": scheme, "__metrics_path__": path, **own}


def _label(name: str) -> str:
    """Return what Prometheus would make of the name of a label."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)
