"""What makes a card invalid: the rule and the JSON path of every fault, and words for people."""

import json
from typing import Any

import pytest

from discoveryd.core.card import InvalidCard, Key
from discoveryd.core.parsing.document import MAX_BYTES
from discoveryd.core.parsing.findings import MOST
from tests.core.reading import envelope, faults, read

NOT_JSON: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b" \n", "is empty"),
    (b'\xef\xbb\xbf{"display_name": "m"}', "byte order mark (BOM) for UTF-8"),
    ('{"display_name": "m"}'.encode("utf-16"), "byte order mark (BOM) for UTF-16"),
    (b'{"display_name": "m', "is cut off"),
    (b'{"display_name": "m"', "is cut off"),
    (b'{"display_name": "m", "context_length": NaN}', "has NaN, which is not JSON"),
    (b'{"display_name": "m", "x": -Infinity}', "has -Infinity, which is not JSON"),
    (b'{"display_name": "m", "x": 1e999}', "a number that is too large"),
    (b'{"display_name": "m", "x": ' + b"7" * 5000 + b"}", "more than 4,300 digits"),
    (b'{"display_name": "m", "x": "\\ud800"}', "without its other half"),
    (b'{"display_name": "m", "\\ud800": 1}', "without its other half"),
    (b'{"display_name": "\xff"}', "is not UTF-8: byte 18 is 0xff"),
    (b'{"display_name": "m"}x', "something after the end of the card, at line 1, column 22"),
    (b'{"display_name": "m"} {}', "something after the end of the card"),
    (b'{"display_name": "a\nb"}', "unescaped control character at line 1, column 20"),
    (b'{\n "display_name": "m"\n "aliases": []}', "at line 3, column 2"),
    (b"\0\0\0", "is not JSON: expecting value at line 1, column 1"),
    (b"display_name: m", "is not JSON"),
    (b'{"display_name": "m", "context_length": 007}', "is not JSON"),
]


@pytest.mark.parametrize(("content", "said"), NOT_JSON)
def test_what_is_not_json_is_told_in_words_that_fit(content: bytes, said: str) -> None:
    """B10, B11."""
    with pytest.raises(InvalidCard) as caught:
        read(content)
    (reason,) = caught.value.reasons
    assert (reason.rule, reason.field) == ("not_json", "$")
    assert said in reason.message
    assert reason.message.startswith("the card ")
    assert reason.message.isprintable()


@pytest.mark.parametrize("document", [None, [], [{"display_name": "m"}], "m", 7, True])
def test_a_card_is_an_object(document: object) -> None:
    """B06, B07."""
    assert faults(json.dumps(document).encode()) == [("not_object", "$")]


def test_a_card_holds_at_most_one_mebibyte() -> None:
    card = b'{"display_name": "m"}'
    assert faults(card.ljust(MAX_BYTES)) == []
    assert faults(card.ljust(MAX_BYTES + 1)) == [("too_large", "$")]


@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_nesting_is_as_deep_as_dynamo_reads(brackets: str) -> None:
    def nested(depth: int) -> bytes:
        opening, closing = brackets[:-1], brackets[-1]
        inner = opening * depth + ("1" if "a" in opening else "") + closing * depth
        return f'{{"display_name": "m", "x": {inner}}}'.encode()

    assert faults(nested(126)) == []
    for depth in (127, 600, 100_000):
        assert faults(nested(depth)) == [("too_deep", "$")]


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert faults({"display_name": "m[[[[", "x": [[]] * 500}) == []


def test_a_deep_member_that_a_duplicate_displaces_is_no_trouble() -> None:
    deep = "[" * 900 + "]" * 900
    card = f'{{"display_name": "m", "x": {deep}, "x": 1}}'.encode()
    assert faults(card) in ([], [("too_deep", "$")])


NAMES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({}, [("missing", "$.display_name")]),
    ({"display_name": None}, [("missing", "$.display_name")]),
    ({"display_name": 7}, [("wrong_type", "$.display_name")]),
    ({"display_name": ["m"]}, [("wrong_type", "$.display_name")]),
    ({"display_name": ""}, [("bad_name", "$.display_name")]),
    ({"display_name": "a\0b"}, [("bad_name", "$.display_name")]),
    ({"display_name": "a\n"}, [("bad_name", "$.display_name")]),
    ({"display_name": "a\x85"}, [("bad_name", "$.display_name")]),
    ({"display_name": "x" * 512}, []),
    ({"display_name": "x" * 513}, [("bad_name", "$.display_name")]),
    ({"display_name": "\u00e9" * 256}, []),
    ({"display_name": "\u00e9" * 257}, [("bad_name", "$.display_name")]),
    ({"display_name": "m", "aliases": ["a", ""]}, [("bad_name", "$.aliases[1]")]),
    (
        {"display_name": "m", "aliases": ["\x7f", 1, "y" * 600]},
        [("bad_name", "$.aliases[0]"), ("bad_name", "$.aliases[2]")],
    ),
]


@pytest.mark.parametrize(("card", "expected"), NAMES)
def test_faulty_names(card: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """B05, B11."""
    assert faults(card) == expected


NUMBERS: list[tuple[dict[str, Any], str]] = [
    ({"kv_cache_block_size": True}, "$.kv_cache_block_size"),
    ({"kv_cache_block_size": 16.0}, "$.kv_cache_block_size"),
    ({"kv_cache_block_size": "16"}, "$.kv_cache_block_size"),
    ({"context_length": -1}, "$.context_length"),
    ({"context_length": 2**32}, "$.context_length"),
    ({"architectural_max_context_length": 10**300}, "$.architectural_max_context_length"),
    ({"runtime_config": {"context_length": 0.5}}, "$.runtime_config.context_length"),
]


@pytest.mark.parametrize(("members", "path"), NUMBERS)
def test_a_number_of_the_fingerprint_must_be_a_u32(members: dict[str, Any], path: str) -> None:
    """B10."""
    assert faults({"display_name": "m"} | members) == [("out_of_range", path)]


def test_a_number_outside_the_fingerprint_may_be_anything() -> None:
    assert faults({"display_name": "m", "migration_limit": -1.5, "n": 10**30}) == []


URLS = [
    ("http://127.0.0.1:8001", True),
    ("https://h", True),
    ("grpc://h:65535/x/y", True),
    ("grpcs://[2001:db8::1]:1", True),
    ("http://[::1]", True),
    ("unix:///run/w.sock", True),
    ("unix:///run/@w", True),
    ("", False),
    ("h:8001", False),
    ("HTTP://h", False),
    ("ftp://h", False),
    ("dynamo+tcp://h:1/x", False),
    ("http:/h", False),
    ("http://", False),
    ("http:///v1", False),
    ("http://:8001", False),
    ("http://h:", False),
    ("http://h:0", False),
    ("http://h:65536", False),
    ("http://h:http", False),
    ("http://h:\u0661", False),
    ("http://h:+1", False),
    ("http://::1", False),
    ("http://[::1", False),
    ("http://[]", False),
    ("http://[h]", False),
    ("http://[::1]8001", False),
    ("http://u@h", False),
    ("http://u:p@h", False),
    ("http://h?x=1", False),
    ("http://h/v1#x", False),
    ("http://h/a b", False),
    (" http://h", False),
    ("http://h\n", False),
    ("http://h\x00", False),
    ("http://h\u2028", False),
    ("unix://run/w.sock", False),
    ("unix:///", False),
    ("unix:/run/w.sock", False),
]


@pytest.mark.parametrize(("url", "valid"), URLS)
def test_urls(url: str, valid: bool) -> None:
    assert faults({"display_name": "m", "url": url}) == ([] if valid else [("bad_url", "$.url")])


def test_a_password_in_a_url_is_not_repeated_in_the_reason() -> None:
    with pytest.raises(InvalidCard) as caught:
        read({"display_name": "m", "url": "http://user:secret@h"})
    assert "secret" not in repr(caught.value.reasons)


OURS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"url": 8001}, [("wrong_type", "$.url")]),
    ({"accepting": 1}, [("wrong_type", "$.accepting")]),
    ({"accepting": "yes"}, [("wrong_type", "$.accepting")]),
    ({"labels": ["zone"]}, [("wrong_type", "$.labels")]),
    ({"labels": {"zone": None}}, [("wrong_type", "$.labels.zone")]),
    (
        {"labels": {"a b": 1, "c": 2}},
        [("wrong_type", '$.labels["a b"]'), ("wrong_type", "$.labels.c")],
    ),
    ({"liveness": True}, [("wrong_type", "$.liveness")]),
    ({"liveness": {"lease_seconds": 0.5}}, [("out_of_range", "$.liveness.lease_seconds")]),
    ({"liveness": {"lease_seconds": 86_401}}, [("out_of_range", "$.liveness.lease_seconds")]),
    ({"liveness": {"lease_seconds": True}}, [("out_of_range", "$.liveness.lease_seconds")]),
    ({"liveness": {"lease_seconds": "10"}}, [("out_of_range", "$.liveness.lease_seconds")]),
    ({"liveness": {"pid": 0}}, [("out_of_range", "$.liveness.pid")]),
    ({"liveness": {"pid": 2**22 + 1}}, [("out_of_range", "$.liveness.pid")]),
    ({"liveness": {"pid": 1.0}}, [("out_of_range", "$.liveness.pid")]),
    ({"liveness": {"pid": 1, "pid_start": -1}}, [("out_of_range", "$.liveness.pid_start")]),
    ({"liveness": {"pid_start": 1}}, [("missing", "$.liveness.pid_start")]),
    ({"liveness": {"pid_namespace": 1}}, [("missing", "$.liveness.pid_namespace")]),
    (
        {"liveness": {"pid": 1, "pid_namespace": 2**64}},
        [("out_of_range", "$.liveness.pid_namespace")],
    ),
    ({"liveness": {"held": 1}}, [("wrong_type", "$.liveness.held")]),
]


@pytest.mark.parametrize(("members", "expected"), OURS)
def test_our_own_members_are_held_to_their_shapes(
    members: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert faults({"display_name": "m"} | members) == expected
    assert faults(envelope({"display_name": "m"}, **members)) == expected


SEGMENTS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"namespace": ""}, [("bad_key", "$.namespace")]),
    ({"component": "a/b"}, [("bad_key", "$.component")]),
    ({"endpoint": "a\tb"}, [("bad_key", "$.endpoint")]),
    ({"endpoint": 7}, [("wrong_type", "$.endpoint")]),
    ({"instance": ""}, [("bad_key", "$.instance")]),
    ({"instance": -1}, [("wrong_type", "$.instance")]),
    ({"instance": 2**64}, [("wrong_type", "$.instance")]),
    ({"instance": 5.0}, [("wrong_type", "$.instance")]),
    ({"instance": True}, [("wrong_type", "$.instance")]),
    ({"source_path": ""}, [("bad_key", "$.component")]),
    ({"source_path": "", "component": "c"}, []),
    ({"model_suffix": "", "source_path": "/s", "instance": "1"}, [("bad_key", "$.model_suffix")]),
    ({"model_suffix": 5, "source_path": "/s", "instance": "1"}, [("wrong_type", "$.model_suffix")]),
]


@pytest.mark.parametrize(("members", "expected"), SEGMENTS)
def test_faulty_segments_of_the_key(
    members: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert faults({"display_name": "m"} | members) == expected


ENVELOPES: list[tuple[dict[str, Any], list[tuple[str, str]], list[tuple[str, str]]]] = [
    # what is changed, the faults in a drop directory, the faults in a store
    ({"type": None}, [("missing", "$.type")], [("missing", "$.type")]),
    ({"type": 5}, [("wrong_type", "$.type")], [("wrong_type", "$.type")]),
    ({"type": "Endpoint"}, [("not_a_model", "$.type")], [("not_a_model", "$.type")]),
    ({"namespace": None}, [("missing", "$.namespace")], [("missing", "$.namespace")]),
    ({"component": 1}, [("wrong_type", "$.component")], [("wrong_type", "$.component")]),
    ({"endpoint": "a/b"}, [("bad_key", "$.endpoint")], []),
    ({"instance_id": None}, [("missing", "$.instance_id")], [("missing", "$.instance_id")]),
    ({"instance_id": 5.0}, [("wrong_type", "$.instance_id")], [("wrong_type", "$.instance_id")]),
    ({"instance_id": -1}, [("wrong_type", "$.instance_id")], [("wrong_type", "$.instance_id")]),
    ({"instance_id": "12"}, [], [("wrong_type", "$.instance_id")]),
    ({"model_suffix": ""}, [("bad_key", "$.model_suffix")], []),
    ({"model_suffix": 5}, [("wrong_type", "$.model_suffix")], [("wrong_type", "$.model_suffix")]),
    ({"card_json": None}, [("wrong_type", "$.card_json")], [("wrong_type", "$.card_json")]),
    ({"card_json": []}, [("wrong_type", "$.card_json")], [("wrong_type", "$.card_json")]),
    (
        {"card_json": {"display_name": 7, "aliases": [""]}},
        [("wrong_type", "$.card_json.display_name"), ("bad_name", "$.card_json.aliases[0]")],
        [("wrong_type", "$.card_json.display_name"), ("bad_name", "$.card_json.aliases[0]")],
    ),
]


@pytest.mark.parametrize(("changes", "dropped", "stored"), ENVELOPES)
def test_faulty_envelopes(
    changes: dict[str, Any], dropped: list[tuple[str, str]], stored: list[tuple[str, str]]
) -> None:
    whole = envelope({"display_name": "m"}, **changes)
    assert faults(whole) == dropped
    assert faults(whole, key=Key("ns", "comp", "generate", "1")) == stored


@pytest.mark.parametrize("segment", ["", "a\0b"])
def test_a_faulty_segment_in_a_file_name_of_a_store_is_told(segment: str) -> None:
    key = Key("ns", segment, "generate", "1")
    assert ("bad_key", "$") in faults(envelope({"display_name": "m"}), key=key)


def test_all_faults_are_told_at_once_with_the_warnings() -> None:
    card = {
        "display_name": "",
        "aliases": ["ok", "a\nb"],
        "source_path": 7,
        "namespace": "a/b",
        "url": "h:1",
        "labels": {"zone": 1},
        "accepting": "no",
        "liveness": {"pid": "me"},
        "kv_cache_block_size": 1.5,
    }
    with pytest.raises(InvalidCard) as caught:
        read(card)
    assert {reason.field for reason in caught.value.reasons} == {
        "$.display_name",
        "$.aliases[1]",
        "$.namespace",
        "$.url",
        "$.labels.zone",
        "$.accepting",
        "$.liveness.pid",
        "$.kv_cache_block_size",
    }
    assert caught.value.warnings == ("$.source_path: not a string, so the card has no source_path",)


def test_a_fault_says_what_was_found_cut_to_a_readable_length() -> None:
    with pytest.raises(InvalidCard) as caught:
        read({"display_name": "x" * 5000, "labels": {"a": [1, 2]}, "context_length": 10**400})
    found = [reason.found for reason in caught.value.reasons]
    assert found == ["x" * 100 + "...", "1" + "0" * 99 + "...", "[1, 2]"]


def test_faults_beyond_a_hundred_are_counted() -> None:
    with pytest.raises(InvalidCard) as caught:
        read({"display_name": "m", "aliases": [""] * (MOST + 7)})
    assert len(caught.value.reasons) == MOST + 1
    assert caught.value.reasons[-1].message == "7 more faults like these"


def test_the_exception_reads_as_all_its_reasons() -> None:
    with pytest.raises(InvalidCard, match=r"display_name is missing.*aliases\[0\] is empty"):
        read({"aliases": [""]})
