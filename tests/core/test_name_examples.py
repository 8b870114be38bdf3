"""Who has a name, told in examples: claims, adapters, the operator's aliases, readiness.

A table has a line a file: its standing, and in brackets the version that is served still. Read
`put` as one batch: what one scan, or one burst of events, found. Each example holds of the plain
registry and of the real one.
"""

from typing import Any

from discoveryd.core.card import Card
from tests.core.cards import adapter, batch, card
from tests.core.hosts import Told

# Names on the host


def test_a_name_is_the_first_claimants_whatever_the_namespace(told: Told) -> None:
    # cat-004, cat-006, cat-016
    told.put(a=card("a", ("s",), at="ns1/c/e/1"))
    told.put(b=card("b", ("s",), at="ns2/c/e/1"))
    assert told.table() == {"a": "serving", "b": "blocked"}
    assert told.name("s") == ("alias", "a", True)
    assert told.workers("b") is None
    assert told.remove("a") == {"b": "serving"}
    assert told.name("s") == ("alias", "b", True)


def test_a_live_primary_blocks_a_whole_card_that_has_it_for_an_alias(told: Told) -> None:
    # cat-002
    told.put(a=card("taken", at="ns/c/e/1"), b=card("candidate", ("taken",), at="ns/d/e/1"))
    assert told.table() == {"a": "serving", "b": "blocked"}
    assert told.workers("candidate") is None


def test_a_claimed_alias_cannot_become_a_primary(told: Told) -> None:
    # cat-001, cat-003
    told.put(a=card("a", ("shared",), at="ns/c/e/1"))
    assert told.put(b=card("shared", at="ns/d/e/1"))["b"] == "blocked"
    assert told.name("shared") == ("alias", "a", True)


def test_an_alias_lives_until_the_last_worker_that_declares_it_leaves(told: Told) -> None:
    # cat-005, cat-007
    told.put(a=card("a", ("s",), at="ns1/c/e/1"), b=card("a", ("s",), at="ns2/c/e/1"))
    assert told.workers("s") == ["ns1/c/e/1", "ns2/c/e/1"]
    told.remove("a")
    assert told.workers("s") == ["ns2/c/e/1"]


def test_only_workers_that_declare_an_alias_answer_it(told: Told) -> None:
    """B68."""
    told.put(a=card("a", ("s",), at="ns1/c/e/1"), b=card("a", at="ns2/c/e/1"))
    assert told.workers("a") == ["ns1/c/e/1", "ns2/c/e/1"]
    assert told.workers("s") == ["ns1/c/e/1"]


def test_the_own_primary_as_alias_has_no_effect(told: Told) -> None:
    # cat-009
    told.put(a=card("a", ("a", "b"), at="ns/c/e/1"))
    assert told.name("a") == ("primary", "a", True)
    assert told.name("b") == ("alias", "a", True)


def test_names_are_compared_byte_by_byte(told: Told) -> None:
    # cat-010
    told.put(a=card("Llama", at="ns/c/e/1"), b=card("llama", at="ns/d/e/1"))
    assert told.workers("Llama") == ["ns/c/e/1"]
    assert told.workers("llama") == ["ns/d/e/1"]
    assert told.workers("LLAMA") is None


def test_a_draining_worker_keeps_its_names_but_leaves_the_answers(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), b=card("rival", ("m",), at="ns/d/e/1"))
    assert told.put(a=card("m", at="ns/c/e/1", accepting=False))["a"] == "serving"
    assert told.workers("m") == []
    assert told.name("m") == ("primary", "m", False)
    assert told.table()["b"] == "blocked"


# Adapters


def base(n: int, name: str = "base", **more: Any) -> Card:
    return card(name, source="S", at=f"ns/c/e/{n}", **more)


def lora(n: int, name: str = "lora", suffix: str = "l") -> Card:
    return adapter(name, source="S", at=f"ns/c/e/{n}/{suffix}")


def test_an_adapter_waits_for_its_base_and_serves_with_it(told: Told) -> None:
    assert told.put(l=lora(1)) == {"l": "orphan"}
    assert told.put(b=base(1)) == {"b": "serving", "l": "serving"}
    assert told.name("lora") == ("adapter", "lora", True)
    assert told.workers("lora") == ["ns/c/e/1/l"]
    assert told.remove("b") == {"l": "orphan"}
    assert told.workers("lora") is None


def test_an_adapter_on_another_instance_than_its_base_waits(told: Told) -> None:
    assert told.put(b=base(1), l=lora(2)) == {"b": "serving", "l": "orphan"}


def test_an_adapter_of_a_standby_base_waits(told: Told) -> None:
    told.put(a=base(1), b=base(2, block=32), l=lora(2))
    assert told.table() == {"a": "serving", "b": "standby", "l": "orphan"}
    assert told.remove("a") == {"b": "serving", "l": "serving"}


def test_one_adapter_on_several_workers_is_one_name(told: Told) -> None:
    told.put(a=base(1), b=base(2), k=lora(1), l=lora(2))
    assert told.workers("lora") == ["ns/c/e/1/l", "ns/c/e/2/l"]


def test_half_adapters_register_and_wait(told: Told) -> None:
    # adm-012
    told.put(b=base(1))
    table = told.put(
        lora_only=card("x", source="S", at="ns/c/e/2", lora=True),
        suffix_only=card("y", source="S", at="ns/c/e/1/y"),
    )
    assert table == {"b": "serving", "lora_only": "orphan", "suffix_only": "orphan"}
    assert told.put(c=base(3, "x"))["c"] == "refused"


def test_an_adapter_stays_firm_over_a_base_by_courtesy(told: Told) -> None:
    told.put(x=card("other", ("taken",), at="ns/d/e/1"), b=base(1), l=lora(1))
    table = told.put(b=base(1, "renamed", aliases=("taken",)))
    assert table == {"b": "blocked (base)", "l": "serving", "x": "serving"}
    # The courtesy yields, and its adapter goes with it.
    table = told.put(y=card("rival", ("base",), at="ns/f/e/1"))
    assert table == {"b": "blocked", "l": "orphan", "x": "serving", "y": "serving"}


def test_an_adapter_follows_its_base_to_another_primary(told: Told) -> None:
    told.put(b=base(1), l=lora(1))
    assert told.put(b=base(1, "renamed")) == {"b": "serving", "l": "serving"}


def test_an_adapter_whose_base_changes_its_source_goes(told: Told) -> None:
    told.put(b=base(1), l=lora(1))
    # The registered adapter refuses the edit of its base: the old version stays beneath it.
    assert told.put(b=card("base", source="T", at="ns/c/e/1")) == {
        "b": "refused (base)",
        "l": "serving",
    }


def test_an_adapter_name_under_another_base_primary_is_blocked_alone(told: Told) -> None:
    # cat-012
    told.put(a=base(1, "a"), k=lora(1))
    told.put(b=base(2, "b"), l=lora(2))
    assert told.table() == {"a": "serving", "b": "serving", "k": "serving", "l": "blocked"}
    assert told.workers("lora") == ["ns/c/e/1/l"]


def test_an_adapter_whose_base_takes_another_primary_loses_a_shared_name(told: Told) -> None:
    told.put(a=base(1), b=base(2), k=lora(1), l=lora(2))
    told.put(a=base(1, "renamed"))
    assert told.table() == {"a": "serving", "b": "serving", "k": "blocked", "l": "serving"}
    told.put(b=base(2, "renamed"))
    assert told.table() == {"a": "serving", "b": "serving", "k": "serving", "l": "serving"}


def test_two_adapters_of_one_name_follow_their_base_together(told: Told) -> None:
    told.put(b=base(1), k=lora(1, suffix="k"), l=lora(1, suffix="l"))
    told.put(b=base(1, "renamed"))
    assert told.table() == {"b": "serving", "k": "serving", "l": "serving"}
    assert told.workers("lora") == ["ns/c/e/1/k", "ns/c/e/1/l"]


def test_an_adapter_by_courtesy_stays_over_the_same_primary_only(told: Told) -> None:
    told.put(b=base(1), l=lora(1), x=card("taken", at="ns/d/e/1"))
    assert told.put(l=lora(1, "taken"))["l"] == "blocked (lora)"
    assert told.put(b=base(1, block=32))["l"] == "blocked (lora)"
    assert told.put(b=base(1, "renamed"))["l"] == "blocked"


def test_a_primary_named_as_an_adapter_elsewhere_is_blocked(told: Told) -> None:
    # cat-013
    told.put(a=base(1), l=lora(1))
    assert told.put(x=card("lora", at="ns/d/e/1"))["x"] == "blocked"


def test_a_base_named_as_an_adapter_on_its_endpoint_is_refused(told: Told) -> None:
    told.put(a=base(1), l=lora(1))
    assert told.put(b=base(2, "lora"))["b"] == "refused"
    assert told.put(c=base(3, aliases=("lora",)))["c"] == "refused"


# The operator's aliases


def test_an_operator_alias_answers_as_its_target(told: Told) -> None:
    told.apply(batch(operator_aliases={"gpt": "m"}))
    assert told.name("gpt") is None
    told.put(a=card("m", at="ns/c/e/1"))
    assert told.name("gpt") == ("operator", "m", True)
    assert told.workers("gpt") == ["ns/c/e/1"]


def test_an_operator_alias_blocks_cards_that_claim_its_name(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"))
    told.apply(batch(operator_aliases={"gpt": "m"}))
    assert told.put(b=card("gpt", at="ns/d/e/1"))["b"] == "blocked"
    told.apply(batch(operator_aliases={}))
    assert told.table() == {"a": "serving", "b": "serving"}


def test_a_new_operator_alias_displaces_even_who_serves(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), b=card("n", ("gpt",), at="ns/d/e/1"))
    table = told.apply(batch(operator_aliases={"gpt": "m"}))
    assert table == {"a": "serving", "b": "blocked"}
    assert told.name("gpt") == ("operator", "m", True)
    assert told.workers("n") is None


def test_an_adapter_edited_as_its_base_loses_a_name_is_judged_all_the_same(told: Told) -> None:
    told.put(b=base(1, aliases=("gpt",)), c=base(2), l=lora(1))
    found = {"l": lora(1, "base")}
    table = told.apply(batch(found, operator_aliases={"gpt": "base"}))
    assert table == {"b": "standby", "c": "serving", "l": "refused"}


# Readiness


def test_a_name_is_ready_where_one_namespace_is_complete(told: Told) -> None:
    decode: dict[str, Any] = {"worker_type": "decode", "needs": (("prefill",), ("encode", "x"))}
    told.put(
        d=card("m", at="ns1/c/e/1", **decode), p=card("m", at="ns2/p/e/1", worker_type="prefill")
    )
    told.put(p=card("other", at="ns2/p/e/1", worker_type="prefill"))
    assert told.name("m") == ("primary", "m", False)
    told.put(p=card("m", at="ns1/p/e/1", worker_type="prefill"))
    assert told.name("m") == ("primary", "m", True)


def test_an_alias_is_ready_only_if_the_workers_that_declare_it_are_complete(told: Told) -> None:
    told.put(
        d=card("m", ("x",), at="ns/c/e/1", worker_type="decode", needs=(("prefill",),)),
        p=card("m", at="ns/p/e/1", worker_type="prefill"),
    )
    assert told.name("m") == ("primary", "m", True)
    assert told.name("x") == ("alias", "m", False)


def test_a_worker_that_declares_no_type_makes_its_namespace_ready(told: Told) -> None:
    told.put(
        d=card("m", at="ns/c/e/1", worker_type="decode", needs=(("prefill",),)),
        a=card("m", at="ns/c/e/2"),
    )
    assert told.name("m") == ("primary", "m", True)
