"""What is odd but read all the same, as Dynamo reads it, and the slips that are told."""

from typing import Any

import pytest

from discoveryd.core.parsing.findings import MOST
from discoveryd.core.parsing.nearmiss import MOST_LOOKED_AT, Shape
from tests.core.reading import envelope, read

ODD: list[tuple[dict[str, Any], list[str]]] = [
    ({"source_path": 7}, ["$.source_path: not a string, so the card has no source_path"]),
    ({"aliases": "x"}, ["$.aliases: not a list, so the card has no aliases"]),
    ({"aliases": {"x": 1}}, ["$.aliases: not a list, so the card has no aliases"]),
    (
        {"aliases": [7, "x", None, ["y"]]},
        [
            "$.aliases[0]: not a string, so it is skipped",
            "$.aliases[2]: not a string, so it is skipped",
            "$.aliases[3]: not a string, so it is skipped",
        ],
    ),
    ({"model_type": ["Chat"]}, ["$.model_type: not a string, so the card has no model_type"]),
    (
        {"worker_type": "Prefill"},
        [
            (
                '$.worker_type: not "prefill", "decode", "encode" or "aggregated", so the card has '
                "no worker_type"
            )
        ],
    ),
    (
        {"needs": [["decoder"]]},
        ["$.needs: not a list of lists of worker types, so the card has none"],
    ),
    ({"needs": ["decode"]}, ["$.needs: not a list of lists of worker types, so the card has none"]),
    ({"needs": {}}, ["$.needs: not a list of lists of worker types, so the card has none"]),
    (
        {"runtime_config": []},
        ["$.runtime_config: not an object, so the card has no runtime_config"],
    ),
    (
        {"liveness": {"pid": 1, "ttl": 3}},
        ["$.liveness.ttl: not a known member, so it is not read"],
    ),
    ({"url": "http://h:1/v1/"}, ["$.url: ends in /v1, but a client appends /v1 itself"]),
]


@pytest.mark.parametrize(("members", "warnings"), ODD)
def test_an_oddity_is_a_warning_that_says_what_was_read_instead(
    members: dict[str, Any], warnings: list[str]
) -> None:
    """B06."""
    assert list(read({"display_name": "m"} | members).warnings) == warnings


def test_a_lora_that_is_no_object_is_a_warning() -> None:
    card = {"display_name": "l", "source_path": "/s", "instance": "1", "lora": 0}
    assert read(card).warnings == ("$.lora: not an object, but there, so the card is an adapter's",)


def test_null_is_absent_for_every_member_without_a_warning() -> None:
    """B06."""
    members = Shape.FLAT.value - {"display_name"}
    silent = read({"display_name": "m"})
    card = read({"display_name": "m"} | dict.fromkeys(members))
    assert card.warnings == ()
    assert card.fingerprint == silent.fingerprint
    assert card.key == silent.key
    assert card.judged_like(silent)


SLIPS = [
    ("alias", "aliases"),
    ("Aliases", "aliases"),
    ("alaises", "aliases"),
    ("served_name", "display_name"),
    ("served_nam", "display_name"),
    ("served_model_name", "display_name"),
    ("displayName", "display_name"),
    ("display-name", "display_name"),
    ("name", "display_name"),
    ("model", "display_name"),
    ("source", "source_path"),
    ("model_path", "source_path"),
    ("uri", "url"),
    ("instance_id", "instance"),
    ("context_len", "context_length"),
    ("ttl", "liveness"),
]


@pytest.mark.parametrize(("slip", "meant"), SLIPS)
def test_a_near_miss_of_a_known_member_is_a_warning(slip: str, meant: str) -> None:
    """B05."""
    card = read({"display_name": "m", slip: "x"})
    at = f'$["{slip}"]' if "-" in slip else f"$.{slip}"
    assert card.warnings == (f"{at}: not a known member; did you mean {meant}?",)


@pytest.mark.parametrize(
    "name", ["$schema", "comment", "x", "from_the_future", "\u00e9", "n" * 9999]
)
def test_an_unknown_member_that_is_near_nothing_is_no_warning(name: str) -> None:
    """B05."""
    assert read({"display_name": "m", name: {"any": "thing"}}).warnings == ()


def test_a_near_miss_inside_an_envelope_has_its_path() -> None:
    card = read(envelope({"display_name": "m", "alias": "x"}, instance="7"))
    assert card.warnings == (
        "$.instance: not a known member; did you mean instance_id?",
        "$.card_json.alias: not a known member; did you mean aliases?",
    )


def test_a_member_on_the_wrong_side_of_an_envelope_is_a_warning() -> None:
    card = read(envelope({"display_name": "m", "url": "http://h"}, aliases=["x"]))
    assert (card.url, card.aliases) == (None, ())
    assert card.warnings == (
        "$.aliases: not read here: it belongs inside card_json",
        "$.card_json.url: not read here: it belongs beside card_json",
    )


def test_only_the_first_unknown_members_are_looked_at() -> None:
    many = {f"unknown {number:04}": 1 for number in range(MOST_LOOKED_AT)}
    assert read({"display_name": "m"} | many | {"alias": "x"}).warnings == ()


DOUBLED: list[tuple[bytes, str, list[str]]] = [
    (b'{"display_name": "a", "display_name": "b"}', "b", ["$.display_name"]),
    (b'{"display_name":"a","aliases":[],"display_name":"b"}', "b", ["$.display_name"]),
    (b'{"display_name": "a", "display\\u005fname": "b"}', "b", ["$.display_name"]),
    (b'{"aliases": ["x"], "display_name": "b", "aliases": []}', "b", ["$.aliases"]),
    (b'{"display_name": "b", "x": 1, "x": 1}', "b", []),
    (b'{"display_name": "b", "labels": {"z": "1", "z": "2"}}', "b", []),
    (b'{"display_name": "\\u0062", "x": 1e3, "y": "\\/"}', "b", []),
    (b'{"display_name": "b", "x": 1' + b"0" * 30 + b"}", "b", []),
]


@pytest.mark.parametrize(("content", "name", "paths"), DOUBLED)
def test_of_duplicate_members_the_last_counts_with_a_warning(
    content: bytes, name: str, paths: list[str]
) -> None:
    """B08."""
    card = read(content)
    assert card.display_name == name
    assert list(card.warnings) == [
        f"{path}: given more than once, so the last one counts" for path in paths
    ]


def test_duplicates_are_seen_on_both_sides_of_an_envelope() -> None:
    card = read(
        b'{"type":"Model","namespace":"ns","component":"c","endpoint":"e","instance_id":5,'
        b'"card_json":{"display_name":"a","display_name":"b"},"instance_id":6}'
    )
    assert (card.key.instance, card.display_name) == ("6", "b")
    assert card.warnings == (
        "$.instance_id: given more than once, so the last one counts",
        "$.card_json.display_name: given more than once, so the last one counts",
    )


def test_warnings_beyond_a_hundred_are_counted() -> None:
    card = read({"display_name": "m", "aliases": [1] * (MOST + 7)})
    assert len(card.warnings) == MOST + 1
    assert card.warnings[-1] == "$: 7 more warnings like these"
