"""The card's JSON Schema says what the parser says, as far as JSON Schema can say it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from discoveryd.core.card import InvalidCard
from discoveryd.core.parsing.findings import U32
from discoveryd.core.parsing.nearmiss import CARD_MEMBERS, Shape
from discoveryd.core.parsing.schema import card_schema
from tests.core import test_parsing_faults as faulty
from tests.core import test_parsing_warnings as odd
from tests.core.reading import DATA, envelope, read, vectors
from tests.core.test_parsing_anything import CARDS, ENVELOPES

SCHEMA = card_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "cards"
NAMED: dict[str, Any] = {"display_name": "m"}


def takes(document: object) -> bool:
    return VALIDATOR.is_valid(document)


def parses(document: object) -> bool:
    try:
        read(document)
    except InvalidCard:
        return False
    return True


def described(shape: str) -> dict[str, Any]:
    definitions: Any = SCHEMA["$defs"]
    return dict(definitions[shape]["properties"])


def test_it_is_a_schema_and_refers_to_nothing_outside() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert set(re.findall(r'"\$ref": "(.)', json.dumps(SCHEMA))) == {"#"}


@pytest.mark.parametrize(
    ("shape", "members"),
    [("flat", Shape.FLAT.value), ("envelope", Shape.ENVELOPE.value), ("card", CARD_MEMBERS)],
)
def test_every_member_is_described(shape: str, members: frozenset[str]) -> None:
    properties = described(shape)
    assert properties.keys() == members
    assert all(each["description"].endswith((".", "...")) for each in properties.values())


# What is taken


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.name)
def test_the_example_cards_are_taken(path: Path) -> None:
    assert takes(json.loads(path.read_bytes()))


def test_what_dynamo_wrote_is_taken() -> None:
    cards = [path for path in DATA.glob("dynamo-store/*/v1/mdc/*") if path.is_file()]
    assert cards
    for path in cards:
        assert takes(json.loads(path.read_bytes())), path


def test_the_cards_of_the_rule_book_are_taken_where_they_parse_without_warning() -> None:
    cards = [card for vector in vectors("registration") for card in cards_of(vector)]
    taken = [card for card in cards if parses(envelope(card)) and not read(envelope(card)).warnings]
    assert len(taken) > 20
    assert all(takes(envelope(card)) for card in taken)


def cards_of(value: Any) -> list[dict[str, Any]]:
    """Return the objects that look like cards, wherever they are."""
    if isinstance(value, list):
        return [card for item in value for card in cards_of(item)]
    if not isinstance(value, dict):
        return []
    inner = [card for item in value.values() for card in cards_of(item)]
    return [value, *inner] if "display_name" in value else inner


@given(CARDS | ENVELOPES)
def test_what_the_parser_takes_without_a_warning_is_taken(document: dict[str, Any]) -> None:
    for card in (document, NAMED | document):
        if parses(card) and not read(card).warnings:
            assert takes(card), list(VALIDATOR.iter_errors(card))


@pytest.mark.parametrize("shape", ["flat", "envelope", "card"])
def test_null_is_absent(shape: str) -> None:
    absent: dict[str, Any] = dict.fromkeys(described(shape).keys() - {"display_name", "card_json"})
    match shape:
        case "flat":
            assert takes(absent | NAMED)
        case "card":
            assert takes(envelope(absent | NAMED))
        case _:
            assert takes(absent | envelope(NAMED))


def test_unknown_members_are_taken() -> None:
    assert takes(
        {"display_name": "m", "$schema": "card.schema.json", "of_a_newer_dynamo": {"x": 1}}
    )
    assert takes(envelope({"display_name": "m", "x": 1}, y=[2]))


# What is refused

UNSAYABLE: list[dict[str, Any]] = [
    {"display_name": "\u00e9" * 257},  # bytes are not counted
    {"kv_cache_block_size": 16.0},  # which JSON Schema takes for an integer
    {"liveness": {"pid": 1.0}},
    {"instance": 5.0},
    {"instance_id": 5.0},
]
UNSAID_URLS = {
    # Ports, IPv6 addresses and rare blanks would make a pattern that nobody reads.
    *("http://:8001", "http://h:", "http://h:0", "http://h:65536", "http://h:http", "http://h:+1"),
    *("http://h:\u0661", "http://::1", "http://[::1", "http://[]", "http://[h]"),
    *("http://[::1]8001", "http://h\n", "http://h\x00", "http://h\u2028"),
}
FAULTY: list[dict[str, Any]] = [
    *(card for card, found in faulty.NAMES if found),
    *(NAMED | members for members, _ in faulty.NUMBERS),
    *(NAMED | members for members, _ in faulty.OURS),
    *(envelope(NAMED, **members) for members, _ in faulty.OURS),
    *(NAMED | members for members, found in faulty.SEGMENTS if found),
    *(envelope(NAMED, **changes) for changes, dropped, _ in faulty.ENVELOPES if dropped),
]


def unsayable(document: dict[str, Any]) -> bool:
    return any(case.items() <= document.items() for case in UNSAYABLE)


@pytest.mark.parametrize("document", FAULTY)
def test_what_is_invalid_is_refused(document: dict[str, Any]) -> None:
    assert not parses(document)
    assert takes(document) == unsayable(document)


@pytest.mark.parametrize(("url", "valid"), faulty.URLS)
def test_a_faulty_url_is_refused_but_for_its_finer_points(url: str, valid: bool) -> None:
    assert takes(NAMED | {"url": url}) == (valid or url in UNSAID_URLS)


@pytest.mark.parametrize("document", [None, [], "m", 7, True, [NAMED]])
def test_what_is_no_object_is_refused(document: object) -> None:
    assert not takes(document)


@pytest.mark.parametrize(
    ("members", "taken"),
    [
        ({"lora": {}}, False),
        ({"lora": {}, "source_path": "/s"}, False),
        ({"lora": {}, "url": "http://h"}, False),
        ({"lora": {}, "source_path": "/s", "url": "http://h"}, True),
        ({"lora": {}, "source_path": "/s", "instance": 7}, True),
        ({"lora": {}, "source_path": None, "url": None}, False),
        ({"model_suffix": "s", "source_path": "/s"}, False),
        ({"lora": None, "model_suffix": None}, True),
    ],
)
def test_an_adapter_names_its_base(members: dict[str, Any], taken: bool) -> None:
    assert parses(NAMED | members) == taken
    assert takes(NAMED | members) == taken


@pytest.mark.parametrize("number", [0, U32, U32 + 1, -1])
def test_numbers_end_where_the_parser_ends(number: int) -> None:
    for members in ({"context_length": number}, {"runtime_config": {"context_length": number}}):
        assert takes(NAMED | members) == parses(NAMED | members)


# What is only warned of


@pytest.mark.parametrize("members", [members for members, _ in odd.ODD])
def test_an_oddity_is_told_in_the_editor(members: dict[str, Any]) -> None:
    assert not takes(NAMED | members)


@pytest.mark.parametrize("slip", ["alias", "served_model_name", "source", "uri", "ttl"])
def test_a_slip_is_told_in_the_editor_with_the_member_that_was_meant(slip: str) -> None:
    assert read(NAMED | {slip: "x"}).warnings
    (fault,) = leaves(NAMED | {slip: "x"})
    assert fault["errorMessage"].startswith("Did you mean ")


def test_a_member_on_the_wrong_side_of_an_envelope_is_told_in_the_editor() -> None:
    (inside,) = leaves(envelope(NAMED | {"url": "http://h"}))
    (beside,) = leaves(envelope(NAMED, aliases=["x"]))
    assert inside["errorMessage"] == "It belongs beside card_json."
    assert beside["errorMessage"] == "It belongs inside card_json."


def leaves(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of the schema that the document breaks."""
    return [dict(fault.schema) for fault in VALIDATOR.iter_errors(document)]
