"""What the fingerprint covers, fact by fact, and what it leaves out."""

from typing import Any

import pytest

from tests.core.reading import DATA, envelope, read, store_key, vectors

FILE = {"path": "/models/a/config.json", "checksum": "blake3:11aa", "size": 726}
TEMPLATE = {"hf_chat_template_jinja": {"is_custom": False, "file": FILE}}
CARD: dict[str, Any] = {
    "component": "any",
    "display_name": "m",
    "slug": "m_0a1b",
    "source_path": "org/base",
    "model_info": {"hf_config_json": FILE},
    "tokenizer": {"hf_tokenizer_json": FILE},
    "prompt_formatter": {"hf_tokenizer_config_json": FILE},
    "chat_template_file": TEMPLATE,
    "gen_config": {"hf_generation_config_json": FILE},
    "prompt_context": ["one"],
    "architectural_max_context_length": 4096,
    "context_length": 2048,
    "kv_cache_block_size": 16,
    "migration_limit": 0,
    "model_type": "Chat | Completions",
    "model_input": "Tokens",
    "worker_type": "decode",
    "needs": [["prefill"]],
    "aliases": ["x", "y"],
    "user_data": {"tier": "gold"},
    "runtime_config": {"max_gpu_lora_count": 4, "taints": ["gpu=a"]},
    "router_config": {"router_mode": "kv", "weights": {"a": 1, "b": 2}},
    "indexer_identity": {"kind": "local"},
    "extra_files": [
        {"path": "/models/a/one.json", "checksum": "blake3:01"},
        {"path": "/models/a/two.json", "checksum": "blake3:02"},
    ],
    "media_decoder": None,
}


def digest(card: dict[str, Any]) -> str:
    return read(card).fingerprint


def other(file: dict[str, Any]) -> dict[str, Any]:
    return file | {"checksum": "blake3:99ff"}


INCLUDED: list[tuple[str, object]] = [
    ("display_name", "n"),
    ("source_path", "org/base/"),
    ("source_path", ""),
    ("source_path", None),
    ("model_info", {"hf_config_json": other(FILE)}),
    ("model_info", None),
    ("tokenizer", {"hf_tokenizer_json": other(FILE)}),
    ("prompt_formatter", {"hf_tokenizer_config_json": other(FILE)}),
    ("chat_template_file", {"hf_chat_template_jinja": {"is_custom": False, "file": other(FILE)}}),
    ("gen_config", {"hf_generation_config_json": other(FILE)}),
    ("gen_config", {"hf_generation_config_json": {"path": "/models/a/config.json"}}),
    ("prompt_context", ["two"]),
    ("architectural_max_context_length", 4097),
    ("runtime_config", {"context_length": 1024}),
    ("kv_cache_block_size", 32),
    ("worker_type", "prefill"),
    ("worker_type", None),
    ("needs", []),
    ("needs", [["prefill", "encode"]]),
    ("needs", [["prefill"], ["encode"]]),
    ("aliases", ["x"]),
    ("aliases", ["y", "x"]),
    ("aliases", []),
    ("router_config", {"router_mode": "kv"}),
    ("router_config", {}),
    ("indexer_identity", None),
    ("extra_files", []),
    ("extra_files", [{"path": "one.json", "checksum": "blake3:01"}]),
    (
        "extra_files",
        [
            {"path": "/models/a/one.json", "checksum": "blake3:02"},
            {"path": "/models/a/two.json", "checksum": "blake3:01"},
        ],
    ),
]


@pytest.mark.parametrize(("member", "value"), INCLUDED)
def test_another_value_of_this_member_is_another_fingerprint(member: str, value: object) -> None:
    assert digest(CARD | {member: value}) != digest(CARD)


moved = FILE | {"path": "hf://org/base/config.json", "size": 1}

EXCLUDED: list[tuple[str, object]] = [
    ("slug", "n"),
    ("model_type", "Embedding"),
    ("model_input", "Text"),
    ("migration_limit", 3),
    ("user_data", None),
    ("runtime_config", {"taints": [], "max_gpu_lora_count": 8, "context_length": 4096}),
    ("media_decoder", {"x": 1}),
    ("media_fetcher", {"x": 1}),
    ("tensor_model_config", {"x": 1}),
    ("url", "http://127.0.0.1:1"),
    ("labels", {"zone": "a"}),
    ("accepting", False),
    ("liveness", {"held": True}),
    ("instance", "7"),
    ("component", "c"),
    ("from_the_future", [1]),
    ("context_length", 1),
    ("model_info", {"hf_config_json": moved}),
    ("chat_template_file", {"hf_chat_template_jinja": {"is_custom": True, "file": moved}}),
    ("router_config", {"weights": {"b": 2, "a": 1}, "router_mode": "kv"}),
    (
        "extra_files",
        [
            {"path": "/elsewhere/two.json", "checksum": "blake3:02", "size": 2},
            {"path": "/elsewhere/one.json", "checksum": "blake3:01"},
        ],
    ),
    ("aliases", ["x", 7, "y"]),
]


@pytest.mark.parametrize(("member", "value"), EXCLUDED)
def test_another_value_of_this_member_is_the_same_fingerprint(member: str, value: object) -> None:
    assert digest(CARD | {member: value}) == digest(CARD)


@pytest.mark.parametrize("vector", vectors("checksum"), ids=lambda vector: vector["id"])
def test_checksum_vectors(vector: dict[str, Any]) -> None:
    equal = digest(vector["card_a"]) == digest(vector["card_b"])
    assert equal is vector["expected"]["checksums_equal"]


def test_the_shape_and_the_place_of_a_card_do_not_count() -> None:
    in_an_envelope = read(envelope(CARD, "elsewhere/c/e/2a"))
    assert in_an_envelope.fingerprint == digest(CARD)


def test_a_lora_does_not_count() -> None:
    card = CARD | {"aliases": [], "instance": "1"}
    assert digest(card | {"lora": {"name": "l"}}) == digest(card)


def test_a_worker_that_does_not_say_its_type_is_not_one_that_says_aggregated() -> None:
    silent = CARD | {"worker_type": None}
    assert digest(silent) != digest(CARD | {"worker_type": "aggregated"})
    assert read(silent).worker_type == "aggregated"


def test_a_legacy_prefill_worker_is_one_that_says_so() -> None:
    legacy = {"display_name": "m", "model_type": "Prefill"}
    assert digest(legacy) == digest(legacy | {"worker_type": "prefill", "needs": [["decode"]]})


def test_the_effective_context_length_counts_by_whichever_route() -> None:
    lengths: list[dict[str, Any]] = [
        {"context_length": 4096},
        {"architectural_max_context_length": 4096, "context_length": 1},
        {"architectural_max_context_length": 1, "runtime_config": {"context_length": 4096}},
    ]
    assert len({digest({"display_name": "m"} | length) for length in lengths}) == 1


def test_no_context_length_is_the_same_as_none_at_all() -> None:
    assert digest({"display_name": "m", "context_length": 0}) == digest({"display_name": "m"})


def test_neighbouring_texts_cannot_run_into_each_other() -> None:
    one = {"display_name": "m", "source_path": "org"}
    assert digest(one) != digest({"display_name": "mo", "source_path": "rg"})
    assert digest({"display_name": "m", "aliases": ["ab", "c"]}) != digest(
        {"display_name": "m", "aliases": ["a", "bc"]}
    )


def test_numbers_of_any_size_inside_a_member_count() -> None:
    huge = {"display_name": "m", "router_config": {"n": 10**30}}
    assert digest(huge) != digest({"display_name": "m", "router_config": {"n": 10**30 + 1}})


def test_the_same_worker_has_the_same_fingerprint_in_two_releases_of_dynamo() -> None:
    prints: set[str] = set()
    for release in ("1.5.0", "1.6.1"):
        files = (DATA / "dynamo-store" / release / "v1" / "mdc").glob("demo%2Fplain*")
        prints |= {read(file.read_bytes(), key=store_key(file.name)).fingerprint for file in files}
    assert len(prints) == 1


def test_the_digest_stays_what_it_is_across_releases() -> None:
    # It is kept in the ledger: a change here is a change of its format.
    assert digest({"display_name": "m"}) == "cb12944683c5dcd2aef2aa26d2bb9b13"
