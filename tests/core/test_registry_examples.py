"""What becomes of cards, told in examples: each holds of the plain registry and of the real one.

A table has a line a file: its standing, and in brackets the version that is served still. Read
`put` as one batch: what one scan, or one burst of events, found.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.core.cards import TORN, adapter, batch, card, expired, forbidden
from tests.core.hosts import PlainHost, RealHost, Told

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "vectors" / "rulebook.json").read_bytes()
)["vectors"]


@pytest.fixture(params=[PlainHost, RealHost], ids=["plain", "real"])
def told(request: pytest.FixtureRequest) -> Told:
    return Told(request.param())


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


# Edits, and what stays by courtesy


def test_a_change_that_no_gate_reads_is_taken_over(told: Told) -> None:
    # adm-011
    told.put(a=card("m", at="ns/c/e/1"), b=card("m", at="ns/c/e/2"))
    told.put(a=card("m", at="ns/c/e/1", labels={"zone": "1"}, url="http://127.0.0.1:1"))
    assert told.table() == {"a": "serving", "b": "serving"}
    assert told.workers("m") == ["ns/c/e/1", "ns/c/e/2"]


def test_a_lone_edit_is_accepted_in_place(told: Told) -> None:
    # adm-010, where Dynamo refuses every change in place
    told.put(a=card("m", at="ns/c/e/1"))
    assert told.put(a=card("n", ("x",), at="ns/c/e/1")) == {"a": "serving"}
    assert told.workers("m") is None
    assert told.workers("n") == told.workers("x") == ["ns/c/e/1"]


def test_an_accepted_edit_keeps_the_admission_rank(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"))
    told.put(b=card("m", at="ns/d/e/2"))
    told.put(a=card("m", at="ns/c/e/1", block=32))
    assert told.workers("m") == ["ns/c/e/1", "ns/d/e/2"]


def test_torn_content_changes_nothing_but_the_verdict(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"))
    assert told.put(a=TORN) == {"a": "invalid (m)"}
    assert told.put(a=card("m", at="ns/c/e/1")) == {"a": "serving"}


def test_a_torn_card_keeps_its_place_in_the_line(told: Told) -> None:
    told.put(a=card("a", source="A", at="ns/c/e/1"))
    told.put(z=card("z", source="Z", at="ns/c/e/2"))
    told.put(b=card("b", source="B", at="ns/c/e/3"))
    assert told.put(z=TORN) == {"a": "serving", "b": "refused", "z": "invalid"}
    assert told.remove("a") == {"b": "refused", "z": "invalid (z)"}


def test_a_file_that_never_held_a_card_is_just_invalid(told: Told) -> None:
    assert told.put(a=TORN) == {"a": "invalid"}
    assert told.remove("a") == {}


@pytest.mark.parametrize(
    ("edit", "standing"),
    [
        (card("n", source="T", at="ns/c/e/1"), "refused"),
        (card("m", ("taken",), source="S", at="ns/c/e/1", block=32), "standby"),
        (card("n", ("taken",), source="S", at="ns/c/e/1"), "blocked"),
        (card("n", source="S", at="ns/c/e/1", lora=True), "orphan"),
    ],
)
def test_an_edit_that_may_not_serve_leaves_the_old_version_by_courtesy(
    told: Told, edit: Any, standing: str
) -> None:
    told.put(
        a=card("m", source="S", at="ns/c/e/1"),
        b=card("m", source="S", at="ns/c/e/2"),
        x=card("other", ("taken",), at="ns/d/e/1"),
    )
    assert told.put(a=edit)["a"] == f"{standing} (m)"
    assert told.workers("m") == ["ns/c/e/1", "ns/c/e/2"]


def test_an_edit_without_its_anchor_is_withdrawn(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"))
    assert told.put(a=card("m", at="ns/c/e/1", anchored=False)) == {"a": "orphan"}
    assert told.put(a=card("m", at="ns/c/e/1")) == {"a": "serving"}


def test_forbidden_and_expired_content_withdraws_the_card(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), b=card("n", at="ns/d/e/1"))
    table = told.put(a=forbidden(card("m", at="ns/c/e/1")), b=expired(card("n", at="ns/d/e/1")))
    assert table == {"a": "forbidden", "b": "expired"}
    assert told.workers("m") is None


def test_removal_withdraws_a_courtesy_too(told: Told) -> None:
    told.put(a=card("m", source="S", at="ns/c/e/1"), b=card("m", source="S", at="ns/c/e/2"))
    told.put(a=card("n", source="T", at="ns/c/e/1"))
    assert told.remove("a") == {"b": "serving"}
    assert told.workers("m") == ["ns/c/e/2"]


def test_a_courtesy_blocks_nobody_and_yields_to_a_newcomer(told: Told) -> None:
    told.put(x=card("other", ("taken",), at="ns/d/e/1"))
    told.put(a=card("m", at="ns/c/e/1"))
    told.put(a=card("n", ("taken",), at="ns/c/e/1"))
    assert told.table() == {"a": "blocked (m)", "x": "serving"}
    told.put(b=card("rival", ("m",), at="ns/f/e/1"))
    assert told.table() == {"a": "blocked", "b": "serving", "x": "serving"}
    assert told.name("m") == ("alias", "rival", True)


def test_a_courtesy_yields_to_a_rival_that_waits_already_in_the_same_revision(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), x=card("other", ("taken",), at="ns/d/e/1"))
    told.put(b=card("rival", ("m",), at="ns/f/e/1"))
    assert told.table() == {"a": "serving", "b": "blocked", "x": "serving"}
    told.put(a=card("n", ("taken",), at="ns/c/e/1"))
    assert told.table() == {"a": "blocked", "b": "serving", "x": "serving"}


def test_a_courtesy_yields_to_another_fingerprint_of_its_group(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"))
    told.put(b=card("m", at="ns/c/e/2", block=32))
    told.put(a=card("n", at="ns/c/e/1"))
    assert told.table() == {"a": "refused", "b": "serving"}


def test_a_change_that_no_gate_reads_leaves_a_courtesy_as_it_is(told: Told) -> None:
    told.put(x=card("other", ("taken",), at="ns/d/e/1"), a=card("m", at="ns/c/e/1"))
    told.put(a=card("n", ("taken",), at="ns/c/e/1"))
    told.put(a=card("n", ("taken",), at="ns/c/e/1", labels={"zone": "1"}))
    assert told.table() == {"a": "blocked (m)", "x": "serving"}


def test_an_edit_taken_back_serves_again_firmly(told: Told) -> None:
    told.put(x=card("other", ("taken",), at="ns/d/e/1"), a=card("m", at="ns/c/e/1"))
    told.put(a=card("n", ("taken",), at="ns/c/e/1"))
    assert told.put(a=card("m", at="ns/c/e/1")) == {"a": "serving", "x": "serving"}
    assert told.put(b=card("rival", ("m",), at="ns/f/e/1"))["b"] == "blocked"


# Swaps and rolling edits


def swapped(where: str, names: str) -> Any:
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
    def worker(n: int, block: int) -> Any:
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
    def worker(n: int, block: int) -> Any:
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


# Keys: duplicates, moves, changes


def test_a_second_file_for_a_key_is_a_duplicate_and_takes_over_with_the_ranks(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), z=card("m", at="ns/c/e/9"))
    assert told.put(b=card("n", at="ns/c/e/1"))["b"] == "duplicate"
    told.put(b=card("m", at="ns/c/e/1"))
    assert told.remove("a") == {"b": "serving", "z": "serving"}
    assert told.workers("m") == ["ns/c/e/1", "ns/c/e/9"]


def test_a_file_renamed_in_one_batch_keeps_the_ranks(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), z=card("m", at="ns/c/e/9"))
    assert told.put(a=None, b=card("m", at="ns/c/e/1")) == {"b": "serving", "z": "serving"}
    assert told.workers("m") == ["ns/c/e/1", "ns/c/e/9"]


def test_another_owner_inherits_no_ranks(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), z=card("m", at="ns/c/e/9"))
    told.apply(batch({"a": None, "b": card("m", at="ns/c/e/1")}, owners={"b": 1001}))
    assert told.table() == {"b": "serving", "z": "serving"}
    assert told.workers("m") == ["ns/c/e/9", "ns/c/e/1"]


def test_a_moved_key_with_an_edit_that_may_not_serve_is_withdrawn(told: Told) -> None:
    told.put(x=card("other", ("taken",), at="ns/d/e/1"), a=card("m", at="ns/c/e/1"))
    table = told.put(a=None, b=card("n", ("taken",), at="ns/c/e/1"))
    assert table == {"b": "blocked", "x": "serving"}
    assert told.workers("m") is None


def test_a_moved_key_takes_no_courtesy_along(told: Told) -> None:
    told.put(x=card("other", ("taken",), at="ns/d/e/1"), a=card("m", at="ns/c/e/1"))
    told.put(a=card("n", ("taken",), at="ns/c/e/1"))
    table = told.put(a=None, b=card("n", ("taken",), at="ns/c/e/1"))
    assert table == {"b": "blocked", "x": "serving"}


def test_a_torn_duplicate_takes_over_with_its_last_valid_card(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"))
    told.put(b=card("m", at="ns/c/e/1"))
    assert told.put(b=TORN) == {"a": "serving", "b": "invalid"}
    assert told.remove("a") == {"b": "invalid (m)"}


def test_an_edit_of_the_key_is_a_removal_and_an_arrival(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), z=card("m", at="ns/c/e/9"))
    told.put(a=card("m", at="ns/c/e/2"))
    assert told.workers("m") == ["ns/c/e/9", "ns/c/e/2"]


def test_an_edit_of_the_key_leaves_no_courtesy(told: Told) -> None:
    told.put(x=card("other", ("taken",), at="ns/d/e/1"), a=card("m", at="ns/c/e/1"))
    assert told.put(a=card("m", ("taken",), at="ns/c/e/2"))["a"] == "blocked"
    assert told.workers("m") is None


def test_an_expired_holder_lets_the_duplicate_have_the_key(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"))
    told.put(b=card("m", at="ns/c/e/1"))
    assert told.put(a=expired(card("m", at="ns/c/e/1"))) == {"a": "expired", "b": "serving"}
    assert told.put(a=card("m", at="ns/c/e/1")) == {"a": "duplicate", "b": "serving"}


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


def base(n: int, name: str = "base", **more: Any) -> Any:
    return card(name, source="S", at=f"ns/c/e/{n}", **more)


def lora(n: int, name: str = "lora", suffix: str = "l") -> Any:
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
