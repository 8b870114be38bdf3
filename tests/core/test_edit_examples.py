"""What becomes of edits, told in examples: courtesy, torn and barred content, keys that move.

A table has a line a file: its standing, and in brackets the version that is served still. Read
`put` as one batch: what one scan, or one burst of events, found. Each example holds of the plain
registry and of the real one.
"""

import pytest

from discoveryd.core.card import Card
from tests.core.cards import TORN, batch, card, expired, forbidden
from tests.core.hosts import Told

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
    told: Told, edit: Card, standing: str
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


def test_a_card_edited_out_of_a_refusal_leaves_nothing_behind(told: Told) -> None:
    told.put(a=card("m", at="ns/c/e/1"), b=card("m", at="ns/c/e/2"))
    assert told.put(a=card("n", at="ns/c/e/1"))["a"] == "refused (m)"
    told.put(a=card("m", at="ns/c/e/1"))
    told.remove("a", "b")
    assert told.put(c=card("n", at="ns/c/e/3")) == {"c": "serving"}


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
