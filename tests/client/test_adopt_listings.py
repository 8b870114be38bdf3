"""What each kind of server lists, as cards."""

import json
from pathlib import Path
from typing import Any

import pytest

from discoveryd.client.adopting.listings import (
    MOST_MODELS,
    Ambiguous,
    Listing,
    Override,
    Unreadable,
    cards,
    decoded,
    overridden,
)
from discoveryd.client.adopting.llamacpp import read_llamacpp
from discoveryd.client.adopting.lmstudio import read_lmstudio, read_lmstudio_v0
from discoveryd.client.adopting.ollama import read_ollama
from discoveryd.client.adopting.openai import read_openai, read_sglang
from discoveryd.core.card import Card
from discoveryd.core.parsing.cards import parse_card

LISTINGS = Path(__file__).parent.parent / "data" / "listings"
URL = "http://127.0.0.1:8001"


def listed(name: str) -> Any:
    return decoded((LISTINGS / f"{name}.json").read_bytes())


def parsed(listing: Listing) -> list[Card]:
    """Return the cards of a listing, as the daemon reads them: without a warning."""
    found, _ = cards(listing, URL, "test")
    read = [parse_card(json.dumps(card).encode(), stem="x") for card in found.values()]
    assert all(not card.warnings for card in read)
    return read


def served(listing: Listing) -> list[tuple[tuple[str, ...], str | None, int | None]]:
    assert listing.skipped == ()
    assert all(len(set(model.names)) == len(model.names) for model in listing.models)
    return [(card.names, card.source_path, card.context_length) for card in parsed(listing)]


def test_vllm_lists_each_name_and_each_adapter_on_its_own() -> None:
    read = parsed(read_openai(listed("vllm")))
    base, legal, code = read
    assert base.names == ("llama", "chat")
    assert (base.source_path, base.context_length) == ("/models/llama-3.1-8b", 32768)
    assert [(card.names, card.adapter) for card in (legal, code)] == [
        (("llama-legal",), True),
        (("llama-code",), True),
    ]
    assert {legal.key.base, code.key.base} == {base.key}


def test_sglang_tells_the_weights_elsewhere_and_reaches_adapters_behind_a_colon() -> None:
    base, adapter = parsed(read_sglang(listed("sglang"), listed("sglang-model-info")))
    assert (base.names, base.source_path) == (("qwen3",), "/models/qwen3-8b")
    assert (base.context_length, base.model_type) == (40960, "Chat | Completions")
    assert adapter.names == ("qwen3:support",)
    assert adapter.key.base == base.key


def test_sglang_without_its_model_info_has_its_name_for_a_source() -> None:
    base, adapter = parsed(read_sglang(listed("sglang"), None))
    assert (base.source_path, base.model_type) == ("qwen3", None)
    assert adapter.key.base == base.key


def test_sglang_says_what_only_embeds() -> None:
    (base,) = parsed(
        read_sglang({"data": [{"id": "bge", "root": "bge"}]}, {"is_generation": False})
    )
    assert base.model_type == "Embedding"


def test_an_adapter_that_sglang_cannot_reach_is_skipped() -> None:
    document = {"data": [{"id": "a:b", "root": "a:b"}, {"id": "x", "parent": "a:b"}]}
    read = read_sglang(document, None)
    assert [model.names for model in read.models] == [("a:b",)]
    assert read.skipped == ('"x" is skipped: SGLang finds no adapter on "a:b", which has a colon',)


def test_llamacpp_has_the_context_that_it_is_set_to() -> None:
    read = read_llamacpp(listed("llamacpp"), listed("llamacpp-props"), everything=False)
    assert served(read) == [(("small", "tiny"), "/models/tiny.gguf", 512)]


def test_llamacpp_without_props_is_adopted_by_its_name() -> None:
    read = read_llamacpp(listed("llamacpp"), None, everything=False)
    assert served(read) == [(("small", "tiny"), None, 512)]


def test_an_old_llamacpp_that_tells_the_trained_context_only_has_none() -> None:
    document = {"data": [{"id": "../m.gguf", "meta": {"n_ctx_train": 131072}}, {"id": "n"}]}
    read = read_llamacpp(document, None, everything=False)
    assert served(read) == [(("../m.gguf",), None, None), (("n",), None, None)]


def test_of_a_llamacpp_router_only_the_loaded_are_adopted() -> None:
    gemma = "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M"
    read = read_llamacpp(listed("llamacpp-router"), None, everything=False)
    assert served(read) == [((gemma, "gemma"), gemma, 4096), (("nightly",), "nightly", None)]


def test_with_everything_a_llamacpp_routers_models_are_all_adopted() -> None:
    read = read_llamacpp(listed("llamacpp-router"), None, everything=True)
    assert [names for names, *_ in served(read)][2:] == [
        ("ggml-org/Qwen3-0.6B-GGUF:Q8_0",),
        ("broken",),
    ]


def test_ollama_has_a_card_for_each_digest_that_is_loaded() -> None:
    read = read_ollama(listed("ollama-ps"))
    assert [(names, context) for names, _, context in served(read)] == [
        (("gemma3:latest", "gemma3"), 8192),
        (("nomic-embed-text:latest", "nomic-embed-text"), 2048),
        (("qwen3:4b",), 40960),
    ]
    assert len({card.key for card in parsed(read)}) == 3


def test_ollamas_tags_of_one_digest_are_names_of_one_card_in_an_order_of_their_own() -> None:
    document = listed("ollama-tags")
    read = read_ollama(listed("ollama-ps"), document)
    document["models"].reverse()
    again = read_ollama(listed("ollama-ps"), document)
    assert sorted(served(read)) == sorted(served(again))
    assert sorted((names, context) for names, _, context in served(read)) == [
        (("gemma3:4b", "gemma3:latest", "gemma3"), 8192),
        (("llama3.2:1b",), None),
        (("nomic-embed-text:latest", "nomic-embed-text"), 2048),
        (("qwen3:4b",), 40960),
    ]


def test_an_ollama_model_without_a_digest_is_adopted_by_its_name() -> None:
    read = read_ollama({"models": [{"name": "a"}, {"name": "b", "digest": 7}]})
    assert served(read) == [(("a",), None, None), (("b",), None, None)]


def test_ollama_with_nothing_loaded_has_no_card() -> None:
    assert read_ollama({"models": None}) == read_ollama({"models": []}) == Listing(())


def test_lmstudio_has_a_card_for_each_model_with_instances() -> None:
    read = read_lmstudio(listed("lmstudio-v1"), everything=False)
    assert served(read) == [
        (("gemma-3-270m-it-qat", "gemma-3-270m-it-qat:2"), "gemma-3-270m-it-qat", 4096),
        (("embed",), "text-embedding-nomic-embed-text-v1.5", 2048),
    ]
    assert [card.model_type for card in parsed(read)] == ["Chat | Completions", "Embedding"]


def test_with_everything_lmstudios_models_are_reached_by_their_keys_too() -> None:
    names = [names for names, *_ in served(read_lmstudio(listed("lmstudio-v1"), everything=True))]
    assert names == [
        ("gemma-3-270m-it-qat", "gemma-3-270m-it-qat:2"),
        ("embed", "text-embedding-nomic-embed-text-v1.5"),
        ("qwen/qwen3-4b",),
    ]


def test_an_old_lmstudio_has_a_card_for_each_entry_that_is_loaded() -> None:
    read = read_lmstudio_v0(listed("lmstudio-v0"), everything=False)
    llama, nomic = "meta-llama-3.1-8b-instruct", "text-embedding-nomic-embed-text-v1.5"
    assert served(read) == [((llama,), llama, 4096), ((nomic,), nomic, 2048)]
    assert len(read_lmstudio_v0(listed("lmstudio-v0"), everything=True).models) == 3


def test_a_server_that_says_no_more_than_a_name_is_adopted_by_it() -> None:
    assert served(read_openai(listed("llama-cpp-python"))) == [(("tiny",), None, None)]


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        "name",
        [],
        {},
        {"id": None},
        {"id": 7},
        {"id": ""},
        {"id": "a\nb"},
        {"id": "n" * 513},
        {"id": "\ud800"},
        {"id": "good"},
        {"id": "lost", "parent": "nobody"},
    ],
    ids=repr,
)
def test_an_entry_that_is_no_model_is_told_and_takes_nobody_along(entry: object) -> None:
    read = read_openai({"data": [{"id": "good"}, entry, {"id": "also"}]})
    assert [model.names for model in read.models] == [("good",), ("also",)]
    assert len(read.skipped) == 1
    assert read.skipped[0].startswith(
        ("entry 2 of its listing is skipped: ", '"lost" is skipped: its base "nobody" is not')
    )


@pytest.mark.parametrize(
    "odd",
    [
        {"root": 7, "parent": 7, "max_model_len": "8192"},
        {"root": "", "parent": "", "max_model_len": -1},
        {"root": "\ud800", "parent": [], "max_model_len": True},
        {"root": None, "parent": None, "max_model_len": 2**32},
        {"root": {}, "parent": "\ud800", "max_model_len": 8192.0},
        {"max_model_len": 0},
    ],
    ids=repr,
)
def test_odd_members_count_as_absent(odd: dict[str, object]) -> None:
    assert served(read_openai({"data": [{"id": "good"} | odd]})) == [(("good",), None, None)]


ODD: list[Any] = [None, True, 7, 7.5, "x", [], [7], {}, {"x": []}, {"config": 7}]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_no_oddity_in_an_entry_stops_the_reading(odd: Any) -> None:
    members = ("id", "name", "model", "key", "aliases", "meta", "status", "state", "digest")
    entry = {**dict.fromkeys(members, odd), "loaded_instances": [odd, {"id": odd, "config": odd}]}
    for member in ("data", "models"):
        document = {member: [odd, entry, {"id": "good", "model": "good", "key": "good"}]}
        for everything in (False, True):
            readings = (
                (read_openai, "data"),
                (lambda it: read_sglang(it, odd), "data"),
                (lambda it, all_=everything: read_llamacpp(it, odd, everything=all_), "data"),
                (lambda it, all_=everything: read_lmstudio_v0(it, everything=all_), "data"),
                (lambda it, all_=everything: read_lmstudio(it, everything=all_), "models"),
                (read_ollama, "models"),
            )
            for read, wanted in readings:
                if wanted == member:
                    parsed(read(document))
                else:
                    with pytest.raises(Unreadable):
                        read(document)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"<html>",
        b"[" * 100_000,
        b'{"error": {}}',
        b"[]",
        b"null",
        b'{"data": 7}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_no_listing_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read_openai(decoded(body))


def test_an_absurd_number_does_not_spoil_the_listing() -> None:
    digits = b"9" * 10_000
    document = decoded(b'{"data": [{"id": "good", "max_model_len": ' + digits + b"}]}")
    assert served(read_openai(document)) == [(("good",), None, None)]


def test_a_huge_listing_is_cut_and_that_is_told() -> None:
    read = read_openai({"data": [{"id": f"m{number}"} for number in range(10_000)]})
    found, skipped = cards(read, URL, "openai")
    assert len(found) == MOST_MODELS
    assert skipped == [f"it lists 10000 models, of which the first {MOST_MODELS} are adopted"]


def test_a_model_whose_card_would_be_no_card_is_told_and_takes_nobody_along() -> None:
    entries = [{"id": "huge", "root": "r" * 2**20}, {"id": "good", "root": "/g"}]
    found, skipped = cards(read_openai({"data": entries}), URL, "openai")
    assert [card["display_name"] for card in found.values()] == ["good"]
    assert len(skipped) == 1
    assert skipped[0].startswith('"huge" is skipped: ')


def test_a_second_model_of_one_source_is_told() -> None:
    entry = {"key": "k", "loaded_instances": [{"id": "one"}]}
    other = {"key": "k", "loaded_instances": [{"id": "two"}]}
    found, skipped = cards(
        read_lmstudio({"models": [entry, other]}, everything=False), URL, "lmstudio"
    )
    assert [card["display_name"] for card in found.values()] == ["one"]
    assert skipped == ['"two" is skipped: its source is listed already']


def test_a_card_tells_the_kind_of_server_it_was_adopted_from() -> None:
    found, _ = cards(read_openai(listed("llama-cpp-python")), URL, "openai")
    assert list(found.values()) == [
        {"display_name": "tiny", "url": URL, "labels": {"adopted": "openai"}}
    ]


def test_what_is_known_better_takes_the_place_of_what_is_listed() -> None:
    better = Override("mine", ("ours", "mine"), "/better")
    base, *adapters = parsed(overridden(read_openai(listed("vllm")), better))
    assert (base.names, base.source_path) == (("mine", "ours"), "/better")
    assert [card.names for card in adapters] == [("llama-legal",), ("llama-code",)]
    assert {card.key.base for card in adapters} == {base.key}


def test_further_aliases_come_after_the_listed_names() -> None:
    base, *_ = parsed(overridden(read_openai(listed("vllm")), Override(aliases=("more",))))
    assert base.names == ("llama", "chat", "more")


def test_nothing_is_known_better_of_several_models() -> None:
    with pytest.raises(Ambiguous) as caught:
        overridden(read_ollama(listed("ollama-ps")), Override(name="mine"))
    assert caught.value.bases == 3
    assert overridden(Listing(()), Override(name="mine")) == Listing(())
