"""Cards read from JSON, for the tests of the parser and of the rules."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from discoveryd.core.card import Card, InvalidCard, Key
from discoveryd.core.parsing.cards import parse_card

DATA = Path(__file__).parent.parent / "data"


def vectors(stage: str) -> list[dict[str, Any]]:
    """Return the rule book's vectors of one stage."""
    document = json.loads((DATA / "vectors" / "rulebook.json").read_bytes())
    return [vector for vector in document["vectors"] if vector["stage"] == stage]


def oracle() -> list[dict[str, Any]]:
    """Return the verdicts that the real Dynamo gave."""
    rows: list[dict[str, Any]] = json.loads((DATA / "vectors" / "oracle.json").read_bytes())["rows"]
    return rows


def envelope(card: object, at: str = "ns/comp/generate/1", **others: object) -> dict[str, Any]:
    """Wrap a card as Dynamo does. `at` gives the first four segments of the key."""
    namespace, component, endpoint, instance = at.split("/")[:4]
    whole = {
        "type": "Model",
        "namespace": namespace,
        "component": component,
        "endpoint": endpoint,
        "instance_id": int(instance, 16),
        "card_json": card,
    }
    return whole | others


def read(document: object, *, stem: str = "worker", **where: Any) -> Card:
    """Parse a card given as a JSON value, or as bytes."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_card(content, stem=stem, **where)


def faults(document: object, **where: Any) -> list[tuple[str, str | None]]:
    """Return the rule and the path of every fault; none for a valid card."""
    try:
        read(document, **where)
    except InvalidCard as invalid:
        return [(reason.rule, reason.field) for reason in invalid.reasons]
    return []


def store_key(file: str) -> Key:
    """Return the key that the name of a file of a Dynamo store gives."""
    return Key(*unquote(file).split("/"))
