"""Whatever the bytes: a card or InvalidCard, and texts that can be written down."""

import json
import os
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from discoveryd.core.card import Card, InvalidCard, Key
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.parsing.nearmiss import Shape
from discoveryd.core.verdict import Reason

STEMS = st.binary(min_size=1, max_size=12).map(os.fsdecode)
KEYS = st.none() | st.just(Key("ns", "c", "e", "1")) | st.just(Key("ns", "c", "e", "1", "s"))
TEXTS = st.sampled_from(["", "m", "a/b", "a\0", "\u202e", "http://h:1/v1", "Model", "Prefill"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
MEMBERS = st.sampled_from(sorted(Shape.FLAT.value | {"alias", "checksum", "file"}))
CARDS = st.dictionaries(MEMBERS | st.text(max_size=4), VALUES | TEXTS, max_size=12)
ENVELOPES = st.fixed_dictionaries(
    {"card_json": CARDS | VALUES},
    optional={
        "type": st.just("Model") | VALUES,
        "namespace": st.just("ns") | VALUES,
        "component": st.just("c") | VALUES,
        "endpoint": st.just("e") | VALUES,
        "instance_id": st.just(1) | VALUES,
        "model_suffix": st.just("s") | VALUES,
        "url": TEXTS | VALUES,
        "labels": VALUES,
        "liveness": VALUES,
    },
)


def parse(content: bytes, stem: str, key: Key | None) -> Card | None:
    """Parse, and check that all that was said can be written as UTF-8."""
    card: Card | None = None
    reasons: tuple[Reason, ...] = ()
    try:
        card = parse_card(content, stem=stem, key=key)
        warnings = card.warnings
    except InvalidCard as invalid:
        reasons, warnings = invalid.reasons, invalid.warnings
    assert (card is None) is bool(reasons)
    for reason in reasons:
        assert_writable(reason.rule, reason.message, reason.field or "", reason.found or "")
        assert (reason.field or "").startswith("$")
    assert_writable(*warnings)
    assert all(warning.startswith("$") for warning in warnings)
    if card is not None:
        assert_writable(str(card.key), *card.names, card.fingerprint)
        assert all(card.names)
        assert all(segment and "/" not in segment for segment in card.key if segment is not None)
    return card


def assert_writable(*texts: str) -> None:
    for text in texts:
        assert text.encode().decode() == text


@given(st.binary(), STEMS, KEYS)
@example(b'{"display_name":"\\udfff"}', "x", None)
@example(b"[" * 2_000, "x", None)
@example(b'{"a":' * 2_000, "x", None)
def test_arbitrary_bytes_are_a_card_or_invalid(content: bytes, stem: str, key: Key | None) -> None:
    parse(content, stem, key)


@given(CARDS | ENVELOPES, STEMS, KEYS, st.booleans())
def test_arbitrary_objects_are_a_card_or_invalid(
    document: dict[str, Any], stem: str, key: Key | None, ascii_only: bool
) -> None:
    parse(json.dumps(document, ensure_ascii=ascii_only).encode(), stem, key)


@given(CARDS, st.data())
def test_a_torn_card_is_a_card_or_invalid(document: dict[str, Any], data: st.DataObject) -> None:
    content = json.dumps({"display_name": "m"} | document, ensure_ascii=False).encode()
    cut = data.draw(st.integers(0, len(content) - 1))
    assert parse(content[:cut], "x", None) is None


@given(CARDS)
def test_blanks_order_and_escapes_do_not_change_a_card(document: dict[str, Any]) -> None:
    document = {"display_name": "m", "aliases": ["\u00e9"]} | document
    writings = (
        json.dumps(document),
        json.dumps(document, ensure_ascii=False, indent=2),
        json.dumps(dict(reversed(document.items())), separators=(",", ":")),
    )
    cards = [parse(writing.encode(), "x", None) for writing in writings]
    facts = {
        None if card is None else (card.key, card.fingerprint, card.names, card.needs)
        for card in cards
    }
    assert len(facts) == 1
