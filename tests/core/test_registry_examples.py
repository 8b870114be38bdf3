"""Who registers and who serves, told in examples: endpoints, order, cohorts, rolling edits.

A table has a line a file: its standing, and in brackets the version that is served still. Read
`put` as one batch: what one scan, or one burst of events, found. Each example holds of the plain
registry and of the real one.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from discoveryd.core.card import Card
from tests.core.cards import adapter, batch, card
from tests.core.hosts import Told

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "vectors" / "rulebook.json").read_bytes()
)["vectors"]


# The mission: other names for the same source on one endpoint


def test_two_primaries_of_one_source_share_an_endpoint_and_have_workers_of_their_own(
    told: Told,
) -> None:
    # adm-008, adm-009
    one = card("alias-a", source="S", at="ns/c/e/1")
    two = card("alias-b", source="S", at="ns/c/e/2")
    assert told.put(a=one, b=two) == {"a": "serving", "b": "serving"}
    assert told.workers("alias-a") == ["ns/c/e/1"]
    assert told.workers("alias-b") == ["ns/c/e/2"]
    told.remove("a")
    assert told.workers("alias-a") is None
    assert told.workers("alias-b") == ["ns/c/e/2"]
    told.put(a=one)
    assert told.workers("alias-a") == ["ns/c/e/1"]


def test_another_source_is_refused_and_registers_when_the_first_leaves(told: Told) -> None:
    told.put(a=card("a", source="S", at="ns/c/e/1"))
    assert told.put(b=card("b", source="S/", at="ns/c/e/2")) == {"a": "serving", "b": "refused"}
    assert told.workers("b") is None
    assert told.remove("a") == {"b": "serving"}


def test_a_refused_card_refuses_nobody(told: Told) -> None:
    told.put(a=card("a", source="S", at="ns/c/e/1"))
    told.put(b=card("b", source="T", at="ns/c/e/2"))
    told.put(c=card("c", source="S", at="ns/c/e/3"))
    assert told.table() == {"a": "serving", "b": "refused", "c": "serving"}


def test_a_registered_card_refuses_others_though_it_does_not_serve(told: Told) -> None:
    told.put(a=card("m", source="S", at="ns/c/e/1"))
    told.put(b=card("m", source="T", at="ns/c/e/2"))
    told.put(c=card("n", source="S", at="ns/c/e/3"))
    assert told.table() == {"a": "serving", "b": "standby", "c": "refused"}
    assert told.remove("b") == {"a": "serving", "c": "serving"}


def test_endpoints_are_judged_apart(told: Told) -> None:
    told.put(
        a=card("a", source="S", at="ns/c/e/1"),
        b=card("b", source="T", at="ns/c/f/1"),
        c=card("c", at="other/c/e/1"),
    )
    assert set(told.table().values()) == {"serving"}


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v["stage"] == "sequence"], ids=lambda vector: vector["id"]
)
def test_sequences_of_the_rule_book_register_whom_dynamo_registers(
    told: Told, vector: dict[str, Any]
) -> None:
    # Where Dynamo's worker would have to ask again, the waiting card has been promoted already.
    for step in vector["steps"]:
        if step["op"] == "unregister":
            told.remove(step["at"])
            continue
        at, facts = step["record"]["at"], step["record"]["card"]
        table = told.put(
            **{
                at: card(
                    facts["display_name"],
                    tuple(facts.get("aliases", ())),
                    source=facts.get("source_path"),
                    at=at,
                    lora="lora" in facts,
                )
            }
        )
        assert (table[at] != "refused") == (step["expect"] == "accept")
    live = [at for at, standing in told.table().items() if standing != "refused"]
    assert live == sorted(vector["expected"]["live_at_end"])


# Order


def test_within_a_batch_cards_arrive_by_mtime_then_file_name(told: Told) -> None:
    """B69."""
    cards = {"b": card("b", source="S", at="ns/c/e/2"), "a": card("a", source="T", at="ns/c/e/1")}
    assert told.put(**cards) == {"a": "serving", "b": "refused"}
    told.remove("a", "b")
    table = told.apply(batch(cards, mtimes={"a": 2, "b": 1}))
    assert table == {"a": "refused", "b": "serving"}


def test_waiting_cards_are_promoted_in_arrival_order(told: Told) -> None:
    told.put(a=card("a", source="A", at="ns/c/e/1"))
    told.put(z=card("z", source="Z", at="ns/c/e/2"))
    told.put(b=card("b", source="B", at="ns/c/e/3"))
    assert told.remove("a") == {"b": "refused", "z": "serving"}


def test_an_edit_of_a_waiting_card_keeps_its_place_in_the_line(told: Told) -> None:
    told.put(a=card("a", source="A", at="ns/c/e/1"))
    told.put(z=card("z", source="Z", at="ns/c/e/2"))
    told.put(b=card("b", source="B", at="ns/c/e/3"))
    told.put(z=card("y", source="Y", at="ns/c/e/2"))
    assert told.remove("a") == {"b": "refused", "z": "serving"}


def test_a_card_that_leaves_and_returns_goes_to_the_back(told: Told) -> None:
    one, two = card("m", at="ns/c/e/1"), card("m", at="ns/c/e/2")
    told.put(a=one)
    told.put(b=two)
    assert told.workers("m") == ["ns/c/e/1", "ns/c/e/2"]
    told.remove("a")
    told.put(a=one)
    assert told.workers("m") == ["ns/c/e/2", "ns/c/e/1"]


# Cohorts


def test_an_equal_fingerprint_joins_the_incumbent(told: Told) -> None:
    # adm-001
    told.put(a=card("m", at="ns/c/e/1"))
    told.put(b=card("m", at="ns/c/e/2"))
    assert told.workers("m") == ["ns/c/e/1", "ns/c/e/2"]


def test_an_equal_primary_with_another_source_registers_and_stands_by(told: Told) -> None:
    # adm-002
    told.put(a=card("m", source="/model/one", at="ns/c/e/1"))
    told.put(b=card("m", source="/model/two", at="ns/c/e/2"))
    assert told.table() == {"a": "serving", "b": "standby"}
    assert told.workers("m") == ["ns/c/e/1"]


def test_a_larger_cohort_does_not_displace_the_incumbent(told: Told) -> None:
    # adm-003
    told.put(a=card("m", at="ns/c/e/1"))
    told.put(**{f: card("m", at=f"ns/c/e/{f}", block=32) for f in ("b", "c", "d")})
    assert told.workers("m") == ["ns/c/e/1"]


def test_the_oldest_cohort_succeeds(told: Told) -> None:
    # adm-004
    told.put(a=card("m", at="ns/c/e/1", block=1))
    told.put(b=card("m", at="ns/c/e/2", block=2))
    told.put(c=card("m", at="ns/c/e/3", block=3))
    assert told.remove("a") == {"b": "serving", "c": "standby"}


def test_a_cohort_that_emptied_and_returns_goes_to_the_back(told: Told) -> None:
    # adm-005
    told.put(a=card("m", at="ns/c/e/1", block=1))
    told.put(b=card("m", at="ns/c/e/2", block=2))
    told.put(c=card("m", at="ns/c/e/3", block=3))
    told.remove("b")
    told.put(d=card("m", at="ns/c/e/4", block=2))
    assert told.remove("a") == {"c": "serving", "d": "standby"}


def test_a_cohort_keeps_its_age_while_any_member_is_registered(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1", block=1))
    told.put(b=card("m", at="ns/c/e/2", block=2))
    told.put(c=card("m", at="ns/c/e/3", block=3))
    told.put(d=card("m", at="ns/c/e/4", block=2))
    told.remove("b")
    assert told.remove("a") == {"c": "standby", "d": "serving"}


def test_a_cohort_whose_members_change_hands_in_one_batch_keeps_its_age(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1", block=1))
    told.put(b=card("m", at="ns/c/e/2", block=2))
    told.put(c=card("m", at="ns/c/e/3", block=3))
    told.put(b=None, d=card("m", at="ns/c/e/4", block=2))
    assert told.remove("a") == {"c": "standby", "d": "serving"}


def test_other_aliases_make_another_cohort(told: Told) -> None:
    # adm-006
    told.put(a=card("m", ("x",), at="ns/c/e/1"))
    told.put(b=card("m", ("y",), at="ns/c/e/2"))
    assert told.table() == {"a": "serving", "b": "standby"}
    assert told.workers("x") == ["ns/c/e/1"]
    assert told.workers("y") is None


def test_fingerprints_are_not_compared_across_namespaces(told: Told) -> None:
    # adm-007
    told.put(
        a=card("m", source="v1", at="dgd-v1/c/e/1"), b=card("m", source="v2", at="dgd-v2/c/e/2")
    )
    assert told.workers("m") == ["dgd-v1/c/e/1", "dgd-v2/c/e/2"]


def test_worker_types_and_model_types_make_groups_of_their_own(told: Told) -> None:
    told.put(
        p=card("m", at="ns/c/e/1", worker_type="prefill", block=1),
        d=card("m", at="ns/c/e/2", worker_type="decode", block=2),
        e=card("m", at="ns/c/e/3", worker_type="decode", model_type="Embedding", block=3),
    )
    assert set(told.table().values()) == {"serving"}


def test_a_successor_whose_names_are_taken_is_passed_over(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), x=card("other", ("x",), at="ns/d/e/1"))
    told.put(b=card("m", ("x",), at="ns/c/e/2"))
    told.put(c=card("m", at="ns/c/e/3", block=32))
    assert told.remove("a") == {"b": "standby", "c": "serving", "x": "serving"}


def test_where_no_cohort_can_serve_every_member_is_blocked(told: Told) -> None:
    told.put(x=card("other", ("m",), at="ns/d/e/1"))
    told.put(a=card("m", at="ns/c/e/1"), b=card("m", at="ns/c/e/2", block=32))
    assert told.table() == {"a": "blocked", "b": "blocked", "x": "serving"}
    assert told.remove("x") == {"a": "serving", "b": "standby"}


# Swaps and rolling edits


def swapped(where: str, names: str) -> Card:
    return card(names[0], (names[1],), source="S", at=f"ns/{where}/e/{where}")


def test_two_cards_swap_their_names_in_one_batch(told: Told) -> None:
    told.put(a=swapped("1", "mx"), b=swapped("2", "ny"))
    told.put(a=swapped("1", "ny"), b=swapped("2", "mx"))
    assert told.table() == {"a": "serving", "b": "serving"}
    assert told.workers("m") == told.workers("x") == ["ns/2/e/2"]


@pytest.mark.parametrize(("first", "last"), [("a", "b"), ("b", "a")])
def test_two_cards_swap_names_in_two_batches_in_any_order(
    told: Told, first: str, last: str
) -> None:
    contents = {"a": swapped("1", "ny"), "b": swapped("2", "xm")}
    told.put(a=swapped("1", "mx"), b=swapped("2", "yn"))
    table = told.put(**{first: contents[first]})
    assert table[first].startswith("blocked (")
    assert table[last] == "serving"
    table = told.put(**{last: contents[last]})
    assert table == {"a": "serving", "b": "serving"}


def test_a_rolling_edit_one_by_one_hands_over_whole_with_the_last(told: Told) -> None:
    def worker(n: int, block: int) -> Card:
        return card("m", at=f"ns/c/e/{n}", block=block)

    told.put(a=worker(1, 16), b=worker(2, 16), c=worker(3, 16))
    told.put(stray=card("m", at="ns/c/e/9", block=99))
    everyone = ["ns/c/e/1", "ns/c/e/2", "ns/c/e/3"]
    assert told.put(a=worker(1, 32)) == {
        "a": "standby (m)",
        "b": "serving",
        "c": "serving",
        "stray": "standby",
    }
    told.put(b=worker(2, 32))
    assert told.workers("m") == everyone
    table = told.put(c=worker(3, 32))
    assert table == {"a": "serving", "b": "serving", "c": "serving", "stray": "standby"}
    assert told.workers("m") == everyone


def test_a_rolling_edit_at_once_hands_over_whole_though_an_older_stray_waits(told: Told) -> None:
    def worker(n: int, block: int) -> Card:
        return card("m", at=f"ns/c/e/{n}", block=block)

    told.put(a=worker(1, 16), b=worker(2, 16), c=worker(3, 16))
    told.put(stray=card("m", at="ns/c/e/9", block=99))
    table = told.put(a=worker(1, 32), b=worker(2, 32), c=worker(3, 32))
    assert table == {"a": "serving", "b": "serving", "c": "serving", "stray": "standby"}
    assert told.workers("m") == ["ns/c/e/1", "ns/c/e/2", "ns/c/e/3"]


def test_a_rolling_edit_hands_over_when_the_last_old_worker_leaves(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), b=card("m", at="ns/c/e/2"))
    told.put(stray=card("m", at="ns/c/e/9", block=99))
    told.put(a=card("m", at="ns/c/e/1", block=32))
    assert told.remove("b") == {"a": "serving", "stray": "standby"}


def test_a_rolling_edit_keeps_every_adapter_and_its_place(told: Told) -> None:
    def worker(n: int, block: int) -> Card:
        return card("m", source="S", at=f"ns/c/e/{n}", block=block)

    told.put(a=worker(1, 16), b=worker(2, 16), l=adapter("lora", source="S", at="ns/c/e/2/l"))
    told.put(k=adapter("lora", source="S", at="ns/c/e/1/l"))
    told.put(b=worker(2, 32))
    told.put(a=worker(1, 32))
    assert set(told.table().values()) == {"serving"}
    assert told.workers("lora") == ["ns/c/e/2/l", "ns/c/e/1/l"]
