"""A card's text: what a publisher writes, what it is called, what it changes, what it recognises.

Pure: content and values in, content and values out. What passes through here is changed in the one
member that is meant; every other keeps the bytes that it had, so that no number, no escape and no
nested duplicate becomes another. Of duplicate members of the card itself the last is kept, which is
the one that counts.

What a card means is the daemon's to judge (core/parsing): a card that is wrong is written as it is,
and its verdict says why.

The name of a file
==================

A worker that starts again should replace its own file instead of leaving one behind, and two
workers should never meet in one. So the name is made of what tells workers apart, the model and
where the worker listens: `meta-llama_Llama-3.1-8B-Instruct@127.0.0.1_8001.json`. Slashes of the
model and colons of the place become underscores. Where that may have made two names one, since
something else was replaced, cut, or an underscore before, eight digits of a digest of both tell
them apart.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from discoveryd.core.parsing.findings import is_object
from discoveryd.core.parsing.urls import location

MARK = "publication"
"""The member by which a worker knows a file for its own again, whoever edited it meanwhile.

Inode and mtime would not do: an operator's edit and `discoveryctl drain` replace the file as a
successor does, but their file is to go with the worker and the successor's is to stay.
"""

_ACCEPTING = "accepting"
_MODEL_BYTES = 120
_PLACE_BYTES = 60
_PLAIN = frozenset(".-+=~,")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Written(NamedTuple):
    """What a card file says of who wrote it. `lives`: its life depends on somebody's."""

    mark: str | None
    accepting: bool
    lives: bool


def encoded(card: Mapping[str, object]) -> bytes:
    """Return the card as JSON. Raises TypeError or ValueError where it cannot be."""
    return json.dumps(dict(card), ensure_ascii=False, allow_nan=False).encode()


def marked(
    card: Mapping[str, object], mark: str, *, accepting: bool | None = None
) -> dict[str, object]:
    """Return the card as a worker publishes it: with its mark, and held if it says nothing else.

    `accepting` is taken where the card does not say it.
    """
    members = dict(card)
    if members.get("liveness") is None:
        members["liveness"] = {"held": True}
    if accepting is not None and members.get(_ACCEPTING) is None:
        members[_ACCEPTING] = accepting
    members[MARK] = mark
    return members


def with_accepting(content: bytes, accepting: bool) -> bytes:
    """Return the card with `accepting` as given; the same bytes where it says so already.

    Raises ValueError where the content is no JSON object.
    """
    members = _read(content)
    if members is None:
        raise ValueError("is not one JSON object, {...}")
    if _is_accepting(members) == accepting:
        return content
    members[_ACCEPTING] = msgspec.Raw(b"true" if accepting else b"false")
    return msgspec.json.encode(members)


def written(content: bytes) -> Written:
    """Return what a card file says of who wrote it; where it is no JSON object, nothing."""
    members = _read(content) or {}
    liveness = _value(members, "liveness")
    lives = is_object(liveness) and any(
        liveness.get(sign) not in (None, False) for sign in ("held", "pid", "lease_seconds")
    )
    mark = _value(members, MARK)
    return Written(mark if isinstance(mark, str) else None, _is_accepting(members), lives)


def file_name(card: Mapping[str, object], process: str) -> str:
    """Return what a worker's card file is called: at most 200 bytes, and ends in .json.

    `process` tells the worker's process from all others; it stands for the url where the card gives
    none.
    """
    inner = card.get("card_json")
    name = (inner if is_object(inner) else card).get("display_name")
    url = card.get("url")
    model = name if isinstance(name, str) else ""
    place = location(url) if isinstance(url, str) else process
    said = _safe(model.lstrip("."), "/", _MODEL_BYTES)
    where = _safe(place, ":", _PLACE_BYTES)
    digest = ""
    if not (said.text and said.exact and where.exact) or model.startswith("."):
        digest = "-" + hashlib.sha256(f"{model}\0{place}".encode(errors="replace")).hexdigest()[:8]
    return f"{said.text or 'card'}@{where.text}{digest}.json"


class _Safe(NamedTuple):
    """A text for a file name; `exact`: no other text looks the same."""

    text: str
    exact: bool


def _safe(text: str, separator: str, most_bytes: int) -> _Safe:
    kept = "".join(char if char.isalnum() or char in _PLAIN else "_" for char in text)
    cut = kept.encode()[:most_bytes].decode(errors="ignore")
    return _Safe(cut, "_" not in text and cut == text.replace(separator, "_"))


def _read(content: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return _members.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _value(members: Mapping[str, msgspec.Raw], name: str) -> Any:  # noqa: ANN401 - JSON is Any
    given = members.get(name)
    try:
        return None if given is None else msgspec.json.decode(given)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _is_accepting(members: Mapping[str, msgspec.Raw]) -> bool:
    return _value(members, _ACCEPTING) is not False
