"""The pairwise rules: row by row, against the rule book's vectors and the real Dynamo."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discoveryd.core.card import Card, InvalidCard, Key
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.rules import compatible, conflict
from tests.core.reading import envelope, oracle, read, store_key, vectors


def base(name: str, source: str | None = None, *aliases: str) -> Card:
    key = Key("ns", "c", "e", f"of-{name}")
    return Card(key=key, display_name=name, source_path=source, aliases=aliases)


def adapter(name: str, source: str | None = None, *aliases: str) -> Card:
    key = Key("ns", "c", "e", f"of-{name}", name)
    return Card(key=key, display_name=name, source_path=source, aliases=aliases, adapter=True)


PAIRS = [
    # the number of the rule book's row, two cards, the rule that keeps them apart
    (1, base("m", "/a", "x"), base("m", "/b", "x"), None),
    (1, base("m"), base("m"), None),
    (2, base("a", "/s", "x"), base("b", "/s", "y"), None),
    (2, base("Llama", "/s"), base("llama", "/s"), None),
    (2, base("m", "/s"), base("m ", "/s"), None),
    (2, base("caf\u00e9", "/s"), base("cafe\u0301", "/s"), None),
    (3, base("a", "/s"), base("b"), "no_source"),
    (3, base("a"), base("b"), "no_source"),
    (3, base("a"), base("b", ""), "no_source"),
    (3, base("/s"), base("b", "/s"), "no_source"),
    (4, base("a", ""), base("b", ""), "no_source"),
    (5, base("a", "/s"), base("b", "/t"), "different_source"),
    (5, base("a", "/s"), base("b", "/s/"), "different_source"),
    (5, base("a", "/s"), base("b", "./s"), "different_source"),
    (5, base("a", "Org/Base"), base("b", "org/base"), "different_source"),
    (5, base("a", "/s"), base("b", " /s"), "different_source"),
    (5, base("a", "/s"), base("b", ""), "different_source"),
    (6, base("a", "/s", "b"), base("b", "/s"), "name_taken"),
    (7, base("a", "/s"), base("b", "/s", "a"), "name_taken"),
    (8, base("a", "/s", "x", "y"), base("b", "/s", "z", "y"), "name_taken"),
    (9, base("a", "/s", "a", "x"), base("b", "/s", "b", "y"), None),
    (10, base("m", "/s", "x"), adapter("l", "/s"), None),
    (10, base("/s"), adapter("l", "/s"), None),
    (10, base("m", ""), adapter("l", ""), None),
    (10, base("m", "/s", "x"), adapter("l", "/s", "x", "m"), None),
    (11, base("m", "/s"), adapter("l", "/s/"), "different_base"),
    (11, base("m", "/s"), adapter("m", "/t"), "different_base"),
    (11, base("m"), adapter("l"), "different_base"),
    (12, base("m", "/s"), adapter("m", "/s"), "adapter_name_taken"),
    (12, base("m"), adapter("m"), "adapter_name_taken"),
    (13, base("m", "/s", "l"), adapter("l", "/s"), "adapter_name_taken"),
    (14, adapter("l", "/s"), adapter("l", "/s"), None),
    (14, adapter("l", "/s", "x"), adapter("k", "/s", "x", "l"), None),
    (15, adapter("l", "/s"), adapter("l", "/t"), "different_base"),
    (15, adapter("l"), adapter("k"), "different_base"),
]


@pytest.mark.parametrize(("row", "one", "other", "rule"), PAIRS)
def test_a_pair_is_judged_as_the_rule_book_says_in_both_orders(
    row: int, one: Card, other: Card, rule: str | None
) -> None:
    assert row
    for newcomer, incumbent in ((one, other), (other, one)):
        reason = conflict(newcomer, incumbent)
        assert (reason and reason.rule) == rule
        assert compatible(newcomer, incumbent) is (rule is None)


@pytest.mark.parametrize(("row", "one", "other", "rule"), [pair for pair in PAIRS if pair[3]])
def test_a_reason_names_both_cards_by_name_and_key_and_says_what_to_do(
    row: int, one: Card, other: Card, rule: str
) -> None:
    reason = conflict(one, other)
    assert reason is not None, (row, rule)
    for card in (one, other):
        assert f'"{card.display_name}" (key {card.key})' in reason.message
    assert any(word in reason.message for word in ("Give", "Write", "Take", "Rename"))
    assert reason.against == ()


def test_a_reason_of_sources_quotes_both_and_holds_both_as_data() -> None:
    reason = conflict(base("a", "/m/l/"), base("b", "/m/l"))
    assert reason is not None
    assert '"/m/l/" is not "/m/l"' in reason.message
    assert (reason.field, reason.found, reason.expected) == ("source_path", "/m/l/", "/m/l")


def test_a_reason_of_a_missing_source_says_who_has_none() -> None:
    reason = conflict(base("a"), base("b", ""))
    assert reason is not None
    assert '"a" has none and "b" has an empty one' in reason.message


def test_a_reason_of_names_tells_them_and_where_the_newcomer_asks_for_them() -> None:
    taken = conflict(base("a", "/s", "x", "y"), base("b", "/s", "y", "x"))
    assert taken is not None
    assert 'both ask for "x", "y"' in taken.message
    assert (taken.field, taken.found) == ("aliases", "x")

    primary = conflict(base("a", "/s"), base("b", "/s", "a"))
    assert primary is not None
    assert (primary.field, primary.found) == ("display_name", "a")


def test_a_reason_of_bases_says_what_stood_in_for_a_missing_source() -> None:
    reason = conflict(adapter("l"), base("m", "/s"))
    assert reason is not None
    assert 'display_name "l" (which stands in for a source_path)' in reason.message
    assert (reason.field, reason.found, reason.expected) == ("display_name", "l", "/s")


def test_a_reason_of_an_adapter_says_whether_it_took_a_primary_or_an_alias() -> None:
    alias = conflict(base("m", "/s", "l"), adapter("l", "/s"))
    assert alias is not None
    assert '"l" is the base\'s alias' in alias.message
    assert (alias.field, alias.found) == ("aliases", "l")
    primary = conflict(adapter("m", "/s"), base("m", "/s"))
    assert primary is not None
    assert '"m" is the base\'s primary name' in primary.message


def test_hostile_names_do_not_get_into_a_reason_unescaped_or_whole() -> None:
    reason = conflict(base("a\u202e", "/s" * 5000), base("b", "/t\x1b[2J"))
    assert reason is not None
    assert reason.message.isprintable()
    assert len(reason.message) < 1000
    assert len(reason.found or "") < 1100


def test_the_relation_is_not_transitive() -> None:
    a, b, c = base("a", "/mount/a"), base("a", "/mount/b"), base("b", "/mount/b")
    assert compatible(a, b)
    assert compatible(b, c)
    assert not compatible(a, c)


NAMES = st.sampled_from(["a", "b", "c"])
SOURCES = st.none() | st.sampled_from(["", "/s", "/t", "a"])
CARDS = st.builds(
    lambda make, name, source, aliases: make(name, source, *aliases),
    st.sampled_from([base, adapter]),
    NAMES,
    SOURCES,
    st.lists(NAMES, max_size=3),
)


@given(CARDS, CARDS)
def test_swapping_two_cards_changes_neither_verdict_nor_rule(one: Card, other: Card) -> None:
    there, back = conflict(one, other), conflict(other, one)
    assert (there and there.rule) == (back and back.rule)


@given(CARDS)
def test_a_card_suits_itself(card: Card) -> None:
    # As Dynamo checks its own card too, after writing it. Sources may be missing.
    assert compatible(card, card)


DEVIATIONS = {
    "reg-base-025": "an existing card without display_name is invalid and harms nobody",
}


def place(record: dict[str, Any]) -> Card | None:
    suffix = {"model_suffix": record["model_suffix"]} if "model_suffix" in record else {}
    try:
        return read(envelope(record["card"], record["at"], **suffix))
    except InvalidCard:
        return None


@pytest.mark.parametrize("vector", vectors("registration"), ids=lambda vector: vector["id"])
def test_registration_vectors(vector: dict[str, Any]) -> None:
    newcomer = place(vector["newcomer"])
    existing = [card for record in vector["existing"] if (card := place(record)) is not None]
    if newcomer is None:
        assert vector["expected"]["verdict"] == "error"
        return
    refused_by = {
        card.display_name
        for card in existing
        if card.key.place == newcomer.key.place and conflict(newcomer, card)
    }
    if vector["id"] in DEVIATIONS:
        assert not refused_by
    else:
        assert vector["expected"]["verdict"] == ("reject" if refused_by else "accept")
        assert refused_by <= set(vector["expected"].get("conflicts_with_any_of", ()))


OF_THE_STORE = {
    "tmp-prefixed-file-ignored",
    "dot-file-not-tmp",
    "subdirectory-in-mdc",
    "endpoint-prefix-not-confused",
}
"""Rows about which files a store's reader looks at, and on which endpoint."""

INVALID_HERE = {
    "bb-both-empty-name": "an empty name is invalid",
    "al-new-empty-alias": "an empty alias is invalid",
    "ae-existing-alias-empty-new-name-empty": "an empty name is invalid",
}
HARMLESS_HERE = {
    "bad-no-display-name": "an invalid card harms nobody",
    "bad-display-name-int": "an invalid card harms nobody",
    "bad-card-json-null": "an invalid card harms nobody",
}
READ_HERE = {
    "bad-dup-keys-toplevel": "of duplicate members the last counts, in the envelope too",
}


def whole(raw: str) -> str:
    """Close the brackets of the deep rows: they were cut when they were recorded."""
    head, deep, tail = raw.partition("[[")
    if not deep:
        return raw
    depth = (deep + tail).count("[")
    return head + "[" * depth + "]" * depth + "}}"


def lying(entry: dict[str, Any]) -> Card | None:
    if "raw" in entry:
        content = whole(entry["raw"]).encode("latin-1")
        key = Key("ns", "oc", "e", "5")
    else:
        body = entry["body"]
        content = body.encode("latin-1") if isinstance(body, str) else json.dumps(body).encode()
        key = store_key(entry["file"])
    try:
        return parse_card(content, stem="", key=key)
    except InvalidCard:
        return None


@pytest.mark.parametrize(
    "row", [row for row in oracle() if row["id"] not in OF_THE_STORE], ids=lambda row: row["id"]
)
def test_verdicts_of_the_real_dynamo(row: dict[str, Any]) -> None:
    existing = [card for entry in row["existing"] if (card := lying(entry)) is not None]
    suffix = row["newcomer"]["model_suffix"]
    try:
        newcomer = read(envelope(row["newcomer"]["card_json"], model_suffix=suffix))
    except InvalidCard:
        assert row["id"] in INVALID_HERE
        return
    verdict = "accept" if all(compatible(newcomer, card) for card in existing) else "reject"
    if row["id"] in HARMLESS_HERE:
        assert (row["verdict"], verdict) == ("reject", "accept")
    elif row["id"] in READ_HERE:
        assert (row["verdict"], verdict) == ("accept", "reject")
    else:
        assert verdict == row["verdict"]
