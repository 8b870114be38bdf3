"""Both shapes of a card, their defaults, and what is derived."""

import os
from typing import Any

import pytest

from discoveryd.core.card import Card, InvalidCard, Key, Liveness
from discoveryd.core.rules import compatible
from tests.core.reading import DATA, envelope, faults, read, store_key


def test_a_flat_card_needs_nothing_but_a_name() -> None:
    assert read({"display_name": "m"}) == Card(
        key=Key("default", "m", "generate", "worker"),
        display_name="m",
        fingerprint=read({"display_name": "m"}).fingerprint,
        content=b'{"display_name": "m"}',
    )


def test_a_flat_card_says_all_it_wants_to_say() -> None:
    card = read(
        {
            "display_name": "Org/M",
            "aliases": ["x", "Org/M", "x"],
            "source_path": "/models/m",
            "namespace": "ns",
            "component": "c",
            "endpoint": "e",
            "instance": "i",
            "url": "http://127.0.0.1:8001",
            "accepting": False,
            "labels": {"zone": "a"},
            "liveness": {
                "lease_seconds": 10,
                "pid": 4711,
                "pid_start": 2**64 - 1,
                "pid_namespace": 4026531836,
                "held": True,
            },
            "model_type": "Chat|Completions",
            "worker_type": "decode",
            "needs": [["prefill"], ["encode", "aggregated"]],
            "kv_cache_block_size": 16,
            "context_length": 8192,
        }
    )
    assert card.key == Key("ns", "c", "e", "i")
    assert card.aliases == ("x", "Org/M", "x")
    assert card.names == ("Org/M", "x")
    assert card.url == "http://127.0.0.1:8001"
    assert (card.accepting, card.labels) == (False, {"zone": "a"})
    assert card.liveness == Liveness(10.0, 4711, 2**64 - 1, 4026531836, held=True)
    assert (card.worker_type, card.legacy) == ("decode", False)
    assert card.needs == (("prefill",), ("encode", "aggregated"))
    assert (card.model_type, card.context_length) == ("Chat | Completions", 8192)
    assert card.warnings == ()


# What is derived


@pytest.mark.parametrize(
    ("members", "component"),
    [
        ({}, "Org%2FM%20%C3%A9"),
        ({"source_path": "/models/m:1@q4"}, "%2Fmodels%2Fm:1@q4"),
        ({"source_path": "a!$&'()*+,;=~b"}, "a!$&'()*+,;=~b"),
        ({"source_path": 'a%2F"#?b'}, "a%252F%22%23%3Fb"),
        ({"source_path": "a\nb"}, "a%0Ab"),
        ({"source_path": 7}, "Org%2FM%20%C3%A9"),
        ({"source_path": "/s", "component": "mine"}, "mine"),
    ],
)
def test_the_component_is_the_base_identity(members: dict[str, Any], component: str) -> None:
    assert read({"display_name": "Org/M \u00e9"} | members).key.component == component


@pytest.mark.parametrize(
    ("members", "instance"),
    [
        ({}, "worker"),
        ({"url": "http://127.0.0.1:8001"}, "127.0.0.1:8001"),
        ({"url": "http://127.0.0.1:8001//"}, "127.0.0.1:8001"),
        ({"url": "https://[::1]:8001/v2/m"}, "%5B::1%5D:8001%2Fv2%2Fm"),
        ({"url": "unix:///run/w.sock"}, "%2Frun%2Fw.sock"),
        ({"url": "http://h", "instance": "mine"}, "mine"),
        ({"instance": 18446744073709551615}, "ffffffffffffffff"),
        ({"instance": 0}, "0"),
        ({"instance": None}, "worker"),
    ],
)
def test_the_instance_is_written_or_the_url_or_the_stem(
    members: dict[str, Any], instance: str
) -> None:
    assert read({"display_name": "m"} | members).key.instance == instance


def test_a_stem_that_is_not_utf8_is_encoded_from_its_real_bytes() -> None:
    stem = os.fsdecode(b"a b\xff\xc3\xa9")
    assert read({"display_name": "m"}, stem=stem).key.instance == "a%20b%FF%C3%A9"


def test_workers_of_one_source_share_an_endpoint_and_unrelated_models_do_not() -> None:
    one = read({"display_name": "a", "source_path": "/s"}, stem="one")
    two = read({"display_name": "b", "source_path": "/s"}, stem="two")
    other = read({"display_name": "c"}, stem="three")
    assert one.key.place == two.key.place != other.key.place


def test_a_second_card_for_one_server_and_source_has_the_same_key() -> None:
    server = {"source_path": "/s", "url": "http://h:1"}
    one = read({"display_name": "a"} | server, stem="one")
    assert one.key == read({"display_name": "b"} | server, stem="two").key


# Flat adapters


def test_a_base_and_its_adapter_on_one_server_meet_by_themselves() -> None:
    server = {"source_path": "/s", "url": "http://h:1"}
    base = read({"display_name": "m"} | server)
    adapter = read({"display_name": "My LoRA/v1", "lora": {"name": "x"}} | server)
    assert adapter.key.suffix == "My%20LoRA%2Fv1"
    assert adapter.key.base == base.key
    assert (adapter.adapter, adapter.half_adapter, base.adapter) == (True, False, False)
    assert compatible(base, adapter)


def test_an_adapter_may_name_its_suffix() -> None:
    card = {"display_name": "l", "source_path": "/s", "instance": "i", "lora": {}}
    assert read(card | {"model_suffix": "slug"}).key.suffix == "slug"


def test_a_suffix_without_a_lora_is_half_an_adapter_in_a_flat_card_too() -> None:
    card = read({"display_name": "l", "source_path": "/s", "instance": "i", "model_suffix": "l"})
    assert (card.adapter, card.half_adapter, card.key.suffix) == (True, True, "l")


@pytest.mark.parametrize("lora", [False, 0, "", [], {}])
def test_any_lora_but_null_makes_an_adapter(lora: object) -> None:
    members = {"display_name": "l", "source_path": "/s", "instance": "i"}
    assert read(members | {"lora": lora}).adapter
    assert not read(members | {"lora": None}).adapter


def test_an_adapter_without_source_or_server_is_told_what_to_add() -> None:
    with pytest.raises(InvalidCard) as caught:
        read({"display_name": "l", "lora": {}})
    source, server = caught.value.reasons
    assert (source.rule, source.field) == ("missing", "$.source_path")
    assert "add the base card's source_path" in source.message
    assert (server.rule, server.field) == ("missing", "$.url")
    assert "add the base card's url, or its instance" in server.message


def test_an_adapter_has_no_aliases() -> None:
    card = {"display_name": "l", "source_path": "/s", "instance": "i", "lora": {}}
    read_card = read(card | {"aliases": ["", 7]})
    assert read_card.aliases == ()
    assert read_card.warnings == ("$.aliases: an adapter has no aliases, so they are not read",)


# Envelopes in a drop directory


def test_an_envelope_says_its_key() -> None:
    card = read(envelope({"display_name": "m"}, "ns/c/e/cc5b766f2cf93033"))
    assert card.key == Key("ns", "c", "e", "cc5b766f2cf93033")
    assert (card.adapter, card.warnings) == (False, ())


def test_an_instance_of_an_envelope_may_be_a_string_that_stands_as_it_is() -> None:
    card = read(envelope({"display_name": "m"}, instance_id="Worker 1"))
    assert card.key.instance == "Worker 1"


def test_our_own_members_are_read_beside_the_card() -> None:
    ours: dict[str, Any] = {
        "url": "grpc://h:1",
        "accepting": False,
        "labels": {},
        "liveness": {"lease_seconds": 2.5},
    }
    card = read(envelope({"display_name": "m"}, **ours))
    assert (card.url, card.accepting, card.labels) == ("grpc://h:1", False, {})
    assert card.liveness == Liveness(lease_seconds=2.5)


@pytest.mark.parametrize(
    ("suffix", "lora", "adapter", "half"),
    [
        (None, None, False, False),
        ("s", {"name": "s"}, True, False),
        ("s", None, True, True),
        (None, {"name": "s"}, True, True),
    ],
)
def test_an_envelope_with_half_of_an_adapter_is_half_an_adapter(
    suffix: str | None, lora: object, adapter: bool, half: bool
) -> None:
    card = read(envelope({"display_name": "s", "lora": lora}, model_suffix=suffix))
    assert (card.adapter, card.half_adapter, card.key.suffix) == (adapter, half, suffix)


# Cards of a Dynamo store


def test_in_a_store_the_name_of_the_file_decides_the_key() -> None:
    key = Key("ns", "comp", "elsewhere", "2")
    card = read(envelope({"display_name": "m"}), key=key)
    assert card.key == key
    assert card.warnings == (
        '$.endpoint: "generate", but the file\'s name says "elsewhere", which counts',
        '$.instance_id: "1", but the file\'s name says "2", which counts',
    )


def test_in_a_store_the_address_of_the_record_counts_unless_the_card_gives_one() -> None:
    where: dict[str, Any] = {"key": Key("ns", "comp", "generate", "1"), "url": "dynamo+tcp://h:1/x"}
    assert read(envelope({"display_name": "m"}), **where).url == "dynamo+tcp://h:1/x"
    assert read(envelope({"display_name": "m"}, url="http://h"), **where).url == "http://h"


@pytest.mark.parametrize(
    ("in_name", "in_card", "lora", "half"),
    [
        ("s", "s", {}, False),
        ("s", None, {}, False),
        ("s", None, None, True),
        (None, "", None, True),
        (None, "s", {}, False),
        (None, None, {}, True),
    ],
)
def test_in_a_store_a_suffix_in_the_name_or_in_the_card_makes_an_adapter(
    in_name: str | None, in_card: str | None, lora: object, half: bool
) -> None:
    key = Key("ns", "comp", "generate", "1", in_name)
    card = read(envelope({"display_name": "l", "lora": lora}, model_suffix=in_card), key=key)
    assert (card.adapter, card.half_adapter, card.key) == (True, half, key)


def test_in_a_store_there_are_only_envelopes() -> None:
    key = Key("ns", "comp", "generate", "1")
    assert ("missing", "$.card_json") in faults({"display_name": "m"}, key=key)


@pytest.mark.parametrize("release", ["1.4.2", "1.5.0", "1.6.1"])
def test_every_card_of_a_real_store_is_read_without_a_warning(release: str) -> None:
    files = sorted((DATA / "dynamo-store" / release / "v1" / "mdc").iterdir())
    cards = [read(file.read_bytes(), key=store_key(file.name)) for file in files]
    assert [card.warnings for card in cards] == [()] * len(files)
    assert [str(card.key) for card in cards] == [str(store_key(file.name)) for file in files]
    assert [card.display_name for card in cards if card.adapter] == ["My LoRA/v1"]
    assert [card.key.component for card in cards if card.worker_type == "prefill"] == ["prefill"]


# Roles


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("Completions|Chat | Chat", "Chat | Completions"),
        ("Chat", "Chat"),
        (" | ", None),
        ("", None),
        (None, None),
        ("|".join(["b", "a"] * 200), "a | b"),
    ],
)
def test_a_model_type_is_sorted_names_once_each(given: str | None, normal: str | None) -> None:
    assert read({"display_name": "m", "model_type": given}).model_type == normal


@pytest.mark.parametrize(
    ("members", "worker_type", "legacy", "needs"),
    [
        ({}, "aggregated", True, ()),
        ({"worker_type": "aggregated"}, "aggregated", False, ()),
        ({"model_type": "Prefill"}, "prefill", False, (("decode",),)),
        ({"model_type": "Chat | Prefill", "needs": []}, "prefill", False, (("decode",),)),
        ({"model_type": "Prefill", "needs": [["encode"]]}, "prefill", False, (("encode",),)),
        ({"model_type": "Prefill", "worker_type": "decode"}, "decode", False, ()),
        ({"model_type": "Prefiller"}, "aggregated", True, ()),
    ],
)
def test_a_worker_type_that_is_not_declared_follows_from_the_old_prefill_bit(
    members: dict[str, Any], worker_type: str, legacy: bool, needs: tuple[tuple[str, ...], ...]
) -> None:
    card = read({"display_name": "m"} | members)
    assert (card.worker_type, card.legacy, card.needs) == (worker_type, legacy, needs)


@pytest.mark.parametrize(
    ("members", "length"),
    [
        ({}, None),
        ({"context_length": 0}, 0),
        ({"context_length": 1, "architectural_max_context_length": 2}, 2),
        ({"architectural_max_context_length": 2, "runtime_config": {"context_length": 3}}, 3),
        ({"context_length": 1, "runtime_config": {"context_length": None}}, 1),
    ],
)
def test_the_context_length_is_the_effective_one(
    members: dict[str, Any], length: int | None
) -> None:
    assert read({"display_name": "m"} | members).context_length == length


def test_a_liveness_that_asks_for_nothing_is_none() -> None:
    assert read({"display_name": "m", "liveness": {"held": False, "pid": None}}).liveness is None


def test_names_are_kept_byte_for_byte() -> None:
    """B17."""
    for name in ("org/m:tag@q4", "gpt-4o-2024-08-06", "a%2Fb", " a b ", "cafe\u0301", "\u202ex"):
        assert read({"display_name": name, "aliases": [name + "2"]}).names == (name, name + "2")


def test_the_content_is_kept() -> None:
    content = b' {"display_name" : "m"}\n'
    assert read(content).content is content
