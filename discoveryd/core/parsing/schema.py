r"""The card's JSON Schema (2020-12), so that editors complete and check cards.

It is made of what the parser goes by: the members of each shape and the slips it warns of
(nearmiss.py), and the limits of each part (names.py, keys.py, roles.py, urls.py, extras.py). What
stands here is what only a schema says: a description of every member, and the shape of its value.
A member that the parser learns and that is not described here is an error at once.

What the parser takes without a warning, the schema takes; what makes a card invalid, it refuses as
far as JSON Schema can say it. It cannot count bytes, tell 16.0 from 16, or compare two members. In
between lies what is only warned of: a type that is not read, a slip like `alias`. An editor had
better say so while the card is written, so the schema refuses that too. Unknown members are kept.

Patterns are those that ECMA-262 and Python read alike.
"""

import re
from collections.abc import Iterable, Mapping

from discoveryd.core.parsing.extras import LAST_PID, LEASE_SECONDS
from discoveryd.core.parsing.findings import U32, U64
from discoveryd.core.parsing.keys import DEFAULT_ENDPOINT, DEFAULT_NAMESPACE
from discoveryd.core.parsing.names import MAX_NAME_BYTES
from discoveryd.core.parsing.nearmiss import MEANT, Shape
from discoveryd.core.parsing.roles import WORKER_TYPES
from discoveryd.core.parsing.urls import SCHEMES

Schema = dict[str, object]

_CONTROL = r"\u0000-\u001f\u007f-\u009f"


def card_schema() -> Schema:
    """Return the schema of a card file: a flat card, or an envelope, by the member card_json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "model card",
        "description": "What one worker serves, for discoveryd.",
        "type": "object",
        "if": {"required": ["card_json"]},
        "then": {"$ref": "#/$defs/envelope"},
        "else": {"$ref": "#/$defs/flat"},
        "$defs": {
            "flat": _flat(),
            "envelope": _envelope(),
            "card": _object(Shape.INNER, _MEMBERS, required=("display_name",)),
        },
    }


def _flat() -> Schema:
    return {
        **_object(Shape.FLAT, _MEMBERS, required=("display_name",)),
        "allOf": [
            {
                # An adapter names its base, and lies on that one's server.
                "if": {"anyOf": [_given("lora"), _given("model_suffix")]},
                "then": {
                    "allOf": [_given("source_path")],
                    "anyOf": [_given("url"), _given("instance")],
                },
            },
            {
                "if": {"properties": {"source_path": {"const": ""}}, "required": ["source_path"]},
                "then": _given("component"),
            },
        ],
    }


def _envelope() -> Schema:
    required = ("type", "namespace", "component", "endpoint", "instance_id", "card_json")
    return _object(Shape.ENVELOPE, _MEMBERS, required=required)


def _object(shape: Shape, members: Mapping[str, Schema], *, required: Iterable[str]) -> Schema:
    """Return the schema of an object; a member that is not required may be null."""
    needed = list(required)
    properties = {
        name: described if name in needed else _or_null(described)
        for name, described in members.items()
        if name in shape.value
    }
    if missing := shape.value - properties.keys():
        raise AssertionError(f"no schema says what these are: {sorted(missing)}")
    slips: Schema = {
        f"^{re.escape(name)}$": {"not": {}, "errorMessage": advice}
        for name, advice in _slips(shape).items()
    }
    return {
        "type": "object",
        "required": needed,
        "properties": properties,
        "patternProperties": slips,
    }


def _slips(shape: Shape) -> dict[str, str]:
    """Return the members that people write into an object where others are meant, with advice."""
    advice = {
        slip: f"Did you mean {meant}?" for slip, meant in MEANT.items() if meant in shape.value
    }
    if shape is Shape.ENVELOPE:
        advice |= dict.fromkeys(Shape.INNER.value, "It belongs inside card_json.")
    elif shape is Shape.INNER:
        advice |= dict.fromkeys(Shape.ENVELOPE.value, "It belongs beside card_json.")
    return {name: said for name, said in sorted(advice.items()) if name not in shape.value}


def _given(name: str) -> Schema:
    """Return the condition that a member is there, and not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _or_null(described: Schema) -> Schema:
    kind = described.get("type")
    if kind is None:
        return described
    allowed = [*kind, "null"] if isinstance(kind, list) else [kind, "null"]  # pyright: ignore[reportUnknownVariableType] - of strings
    changed: Schema = {**described, "type": allowed}
    if isinstance(choices := described.get("enum"), list):
        changed["enum"] = [*choices, None]
    return changed


def _text(description: str, **more: object) -> Schema:
    return {"description": description, "type": "string", **more}


def _without(pattern: str) -> Schema:
    """Return the condition that a value is no text with this in it; it may be no text at all."""
    return {"not": {"type": "string", "pattern": pattern}}


def _name(description: str) -> Schema:
    return _text(
        description,
        minLength=1,
        maxLength=MAX_NAME_BYTES,
        **_without(f"[{_CONTROL}]"),
    )


def _segment(description: str, **more: object) -> Schema:
    return _text(
        f"{description} Part of the key: no slash.",
        minLength=1,
        **_without(f"[/{_CONTROL}]"),
        **more,
    )


def _instance(description: str) -> Schema:
    return {**_segment(description), "type": ["string", "integer"], **_range(0, U64)}


def _range(first: int, last: int) -> Schema:
    return {"minimum": first, "maximum": last}


def _number(description: str, first: int = 0, last: int = U32) -> Schema:
    return {"description": description, "type": "integer", **_range(first, last)}


def _any(description: str, **more: object) -> Schema:
    return {"description": description, **more}


def _members(description: str, properties: Schema, **more: object) -> Schema:
    return {"description": description, "type": "object", "properties": properties, **more}


_WORKER_TYPE = {"type": "string", "enum": list(WORKER_TYPES)}
_NETWORK = "|".join(scheme for scheme in SCHEMES if scheme != "unix")
_URL = f"^(?:(?:{_NETWORK})://[^/?#@ ]+(?:/[^?# ]*)?|unix:///[^?# ]*[^/?# ][^?# ]*)$"

_LIVENESS: Schema = {
    "lease_seconds": {
        "description": "The file is touched at least that often, in seconds.",
        "type": ["number", "null"],
        **_range(*LEASE_SECONDS),
    },
    "pid": _or_null(_number("The process lives.", 1, LAST_PID)),
    "pid_start": _or_null(
        _number("When it started: field 22 of its stat file. Tells it from a later one.", 0, U64)
    ),
    "pid_namespace": _or_null(_number("The PID namespace in which pid is its number.", 0, U64)),
    "held": {
        "description": "Somebody's Hold of the file is open, as discoveryctl run keeps it.",
        "type": ["boolean", "null"],
    },
}

_MEMBERS: dict[str, Schema] = {
    "display_name": _name("The primary name that the worker serves; of an adapter, its name."),
    "aliases": {
        "description": "Further names of the same worker.",
        "type": "array",
        "items": _name("A further name."),
    },
    "source_path": _text(
        "Where the weights come from, compared byte by byte; for an adapter, its base's."
    ),
    "url": _text(
        f"Where clients reach the worker ({', '.join(SCHEMES)}); they append /v1 themselves.",
        pattern=_URL,
        examples=["http://127.0.0.1:8001"],
        **_without("/v1/*$"),
    ),
    "accepting": {
        "description": "false drains: the worker keeps its names but leaves the answers.",
        "type": "boolean",
        "default": True,
    },
    "labels": _members(
        "Public strings for routers.",
        {
            "weight": {"description": "How much of the requests it should get.", "type": "string"},
            "zone": {"description": "Where it runs.", "type": "string"},
            "tier": {"description": "Which class of service it is for.", "type": "string"},
        },
        additionalProperties={"type": "string"},
    ),
    "liveness": _members(
        "What must hold for the card to count, all of it; nothing: until the file is removed.",
        _LIVENESS,
        additionalProperties=False,
        allOf=[
            {"if": _given(name), "then": _given("pid")} for name in ("pid_start", "pid_namespace")
        ],
    ),
    "namespace": _segment("Where the pairwise rules apply.", default=DEFAULT_NAMESPACE),
    "component": _segment("Where the pairwise rules apply; by default the source, or the name."),
    "endpoint": _segment("Where the pairwise rules apply.", default=DEFAULT_ENDPOINT),
    "instance": _instance("Which worker it is; by default the url's authority and path."),
    "model_suffix": _segment("Which adapter on the instance; by default its display_name."),
    "lora": _members(
        "An object makes the card a LoRA adapter on the base card of its own instance.",
        {"name": {"description": "The adapter's name."}},
    ),
    "model_type": _text(
        'Capabilities, joined by " | ".',
        examples=["Chat | Completions", "Chat", "Completions", "Embedding", "Prefill"],
    ),
    "model_input": _any("What the worker is sent.", examples=["Text", "Tokens", "Tensor"]),
    "worker_type": {"description": "What the worker does; nothing: all of it.", **_WORKER_TYPE},
    "needs": {
        "description": "Worker types it depends on: one of these lists must be fully there.",
        "type": "array",
        "items": {"type": "array", "items": _WORKER_TYPE},
        "examples": [[["decode"]]],
    },
    "context_length": _number("The context length in tokens."),
    "architectural_max_context_length": _number("What the model could do, in tokens."),
    "kv_cache_block_size": _number("Tokens in a block of the KV cache."),
    "runtime_config": _members(
        "What the worker was started with.",
        {"context_length": _or_null(_number("The context length it was started with, in tokens."))},
    ),
    "slug": _any("The name in a form for paths, as Dynamo makes it."),
    "model_info": _any("The model's configuration file, with its checksum."),
    "tokenizer": _any("The tokenizer's file, with its checksum."),
    "prompt_formatter": _any("The prompt template's file, with its checksum."),
    "chat_template_file": _any("The chat template's file, with its checksum."),
    "gen_config": _any("The generation configuration's file, with its checksum."),
    "extra_files": _any("Further files of the model, with their checksums."),
    "prompt_context": _any("What the prompt template is given besides."),
    "migration_limit": _any("How often a request may move to another worker."),
    "user_data": _any("Whatever the worker's people want to keep here."),
    "tensor_model_config": _any("The configuration of a model that takes tensors."),
    "media_decoder": _any("How images, audio and video are decoded."),
    "media_fetcher": _any("How images, audio and video are fetched."),
    "router_config": _any("Replaces the configuration of Dynamo's router for this model."),
    "indexer_identity": _any("Which index of the KV cache the worker belongs to."),
    "type": _text("What the envelope holds.", const="Model"),
    "instance_id": _instance("Which worker it is."),
    "card_json": {"description": "The card itself.", "$ref": "#/$defs/card"},
}
"""Every member of a card and of an envelope, in the order in which editors offer them."""
