"""The fingerprint: which facts of a card make two workers of one group interchangeable.

Two workers with one fingerprint may answer each other's requests, so it covers what changes an
answer and nothing else. The facts are those of Dynamo's checksum, in its order; the digest is our
own (every fact is delimited and typed, so no two lists of facts can look alike), and is not
comparable with Dynamo's. `_facts` is the list.

Left out on purpose: slug, model_type (the group has it), model_input, migration_limit, lora,
user_data, all of runtime_config but its context_length, media settings, tensor_model_config, the
paths, URLs, sizes and `is_custom` of files, everything outside the card itself (key, url, labels,
accepting, liveness), and unknown members.

Its digest is kept across restarts of the daemon, so a change here is a change of format.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import msgspec

from discoveryd.core.parsing.findings import is_list, is_object
from discoveryd.core.parsing.roles import Role

_encode = msgspec.msgpack.Encoder().encode

_one = lru_cache(maxsize=256, typed=True)(int)
"""Few lengths are common, and cards that say the same share the number."""

_DIGEST_BYTES = 16
_FORMAT = b"discoveryd.card1"


def fingerprint(card: Mapping[str, object], role: Role) -> str:
    """Return the digest of a valid card's decoded members as 32 hexadecimal digits.

    `card` is the flat card, or the `card_json` of an envelope; `role` what roles.py made of it.
    """
    digest = blake2b(_encode(_facts(card, role)), digest_size=_DIGEST_BYTES, person=_FORMAT)
    return digest.hexdigest()


def effective_context(card: Mapping[str, object]) -> int | None:
    """Return the context length that users get, in tokens; None if the card says nothing of it.

    What the worker was started with comes before what the model could do, and that before the old
    member.
    """
    runtime = card.get("runtime_config")
    if is_object(runtime) and isinstance(length := runtime.get("context_length"), int):
        return _one(length)
    for name in ("architectural_max_context_length", "context_length"):
        if isinstance(length := card.get(name), int):
            return _one(length)
    return None


def _facts(card: Mapping[str, object], role: Role) -> tuple[object, ...]:
    """List the facts that count, each in one place; None stands for an absent one."""
    get = card.get
    return (
        get("display_name"),
        _string(get("source_path")),
        # Files by their content: where they lie does not matter.
        _checksum(get("model_info")),
        _checksum(get("tokenizer")),
        _checksum(get("prompt_formatter")),
        _checksum(get("chat_template_file")),
        _checksum(get("gen_config")),
        _extra_files(get("extra_files")),
        _value(get("prompt_context")),
        effective_context(card) or 0,
        get("kv_cache_block_size") or 0,
        # None, not "aggregated", for a worker that does not say.
        role.declared,
        role.needs,
        # Replaces a frontend's configuration wholesale, so even a default one counts.
        _value(get("router_config")),
        _value(get("indexer_identity")),
        # In the order in which they are written.
        _strings(get("aliases")),
    )


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if is_list(value) else []


def _value(value: object) -> str | None:
    """Stand for any JSON value; the order of its members does not count."""
    return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def _checksum(value: object) -> tuple[str, str] | None:
    """Stand for a tagged file: `{tag: file}`, or `{tag: {"is_custom": ..., "file": file}}`."""
    if value is None:
        return None
    found = _checksum_within(value)
    if found is not None:
        return ("checksum", found)
    return ("value", _value(value) or "")


def _checksum_within(value: object) -> str | None:
    for _ in range(3):  # tag, file, checksum
        if not is_object(value):
            return None
        found = value.get("checksum")
        if isinstance(found, str):
            return found
        if "file" in value:
            value = value["file"]
        elif len(value) == 1:
            (value,) = value.values()
        else:
            return None
    return None


def _extra_files(value: object) -> list[tuple[str, tuple[str, str] | None]]:
    """Stand for further files: their base names and contents, in any order."""
    if value is None:
        return []
    files = value if is_list(value) else [value]
    return sorted((_extra_file(item) for item in files), key=repr)


def _extra_file(item: object) -> tuple[str, tuple[str, str] | None]:
    if is_object(item) and isinstance(path := item.get("path"), str):
        return (_base_name(path), _checksum(item))
    if is_list(item) and len(item) == 2 and isinstance(path := item[0], str):  # noqa: PLR2004  # name, hash
        return (
            (_base_name(path), ("checksum", item[1]))
            if isinstance(item[1], str)
            else ("", _checksum(item))
        )
    return ("", _checksum(item))


def _base_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
