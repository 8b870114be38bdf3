"""Whose a name is, told in examples: hosts whose users are strangers to each other.

As in test_name_examples.py, a table has a line a file. Each example holds of the plain registry and
of the real one.
"""

import pytest

from discoveryd.core.batch import Batch, Found, Sighting
from discoveryd.core.registry import Registry
from discoveryd.core.state import put_back, take_out
from discoveryd.core.verdict import Serves, Standing
from tests.core.cards import TORN, adapter, batch, card
from tests.core.hosts import PlainHost, RealHost, Told

ANN, BEN = 1000, 1001


@pytest.fixture(params=[PlainHost, RealHost], ids=["plain", "real"])
def strangers(request: pytest.FixtureRequest) -> Told:
    """An empty registry in which owners count, once the plain one and once the real one."""
    return Told(request.param(by_owner=True))


def put(told: Told, owner: int, **found: Found) -> dict[str, str]:
    """Put one owner's files as one batch and return the table."""
    return told.apply(batch(found, owners=dict.fromkeys(found, owner)))


def test_a_groups_members_have_the_first_ones_owner(strangers: Told) -> None:
    put(strangers, ANN, a=card("m", at="ns/c/e/1"))
    put(strangers, BEN, b=card("m", at="ns/c/e/2"))
    table = put(strangers, ANN, c=card("m", at="ns/c/e/3"))
    assert table == {"a": "serving", "b": "blocked", "c": "serving"}
    assert strangers.workers("m") == ["ns/c/e/1", "ns/c/e/3"]


def test_a_name_is_the_first_claimants_on_every_endpoint(strangers: Told) -> None:
    put(strangers, ANN, a=card("m", ("s",), at="ns/c/e/1"))
    table = put(strangers, BEN, b=card("m", at="q/c/e/1"), c=card("m2", ("s",), at="q/d/e/1"))
    assert table == {"a": "serving", "b": "blocked", "c": "blocked"}
    assert strangers.remove("a") == {"b": "serving", "c": "serving"}


def test_an_adapters_name_is_the_first_owners_too(strangers: Told) -> None:
    put(strangers, ANN, a=card("m", source="S", at="ns/c/e/1"))
    put(strangers, ANN, l=adapter("l", source="S", at="ns/c/e/1/l"))
    put(strangers, ANN, b=card("m", source="S", at="ns/c/e/2"))
    table = put(strangers, BEN, k=adapter("l", source="S", at="ns/c/e/2/l"))
    assert table == {"a": "serving", "b": "serving", "k": "blocked", "l": "serving"}


def test_the_name_goes_to_who_waits_when_the_last_of_its_owner_leaves(strangers: Told) -> None:
    put(strangers, ANN, a=card("m", at="ns/c/e/1"), b=card("m", at="ns/c/e/2"))
    put(strangers, BEN, c=card("m", at="ns/c/e/3"))
    assert strangers.remove("a") == {"b": "serving", "c": "blocked"}
    assert strangers.remove("b") == {"c": "serving"}
    assert put(strangers, ANN, a=card("m", at="ns/c/e/1"))["a"] == "blocked"


def test_an_edit_hands_the_group_over_to_the_same_owner(strangers: Told) -> None:
    put(strangers, ANN, a=card("m", at="ns/c/e/1"))
    put(strangers, BEN, b=card("m", block=32, at="ns/c/e/2"))
    assert strangers.table() == {"a": "serving", "b": "standby"}
    table = put(strangers, ANN, a=card("m", block=32, at="ns/c/e/1"))
    assert table == {"a": "serving", "b": "blocked"}


def test_a_file_that_changes_hands_arrives_anew(strangers: Told) -> None:
    put(strangers, ANN, a=card("m", at="ns/c/e/1"))
    put(strangers, BEN, b=card("m", at="ns/c/e/2"))
    table = put(strangers, BEN, a=card("m", at="ns/c/e/1"))
    assert table == {"a": "serving", "b": "serving"}
    assert strangers.workers("m") == ["ns/c/e/2", "ns/c/e/1"]


def test_nothing_is_served_by_courtesy_for_another_owner(strangers: Told) -> None:
    put(strangers, ANN, a=card("m", at="ns/c/e/1"), b=card("o", ("n",), at="ns/d/e/1"))
    assert put(strangers, ANN, a=card("n", at="ns/c/e/1"))["a"] == "blocked (m)"
    assert put(strangers, BEN, a=card("n", at="ns/c/e/1"))["a"] == "blocked"


def test_where_owners_do_not_count_nobody_asks(told: Told) -> None:
    put(told, ANN, a=card("m", at="ns/c/e/1"))
    table = put(told, BEN, b=card("m", at="ns/c/e/2"), c=card("m", at="q/c/e/2"))
    assert table == {"a": "serving", "b": "serving", "c": "serving"}
    assert put(told, BEN, a=TORN)["a"] == "invalid (m)"


# What is said of it


def owned(registry: Registry, file: str, found: Found, owner: int) -> None:
    registry.apply(Batch(sightings=(Sighting(file=file, found=found, owner=owner),)))


def test_the_reason_names_both_owners_and_the_files() -> None:
    registry = Registry(by_owner=True)
    owned(registry, "a", card("m", ("s",), at="ns/c/e/1"), ANN)
    owned(registry, "b", card("m", ("s",), at="ns/c/e/2"), BEN)
    verdict = registry.verdict("b")
    assert verdict is not None
    (reason,) = verdict.reasons
    assert (reason.rule, reason.field) == ("other_owner", "owner")
    assert (reason.found, reason.expected, reason.against) == ("1001", "1000", ("a",))
    assert "uid 1000" in reason.message
    assert "uid 1001" in reason.message


def test_a_name_that_means_another_model_is_claimed_whoever_asks() -> None:
    registry = Registry(by_owner=True)
    owned(registry, "a", card("m", ("s",), at="ns/c/e/1"), ANN)
    owned(registry, "b", card("n", ("s",), at="ns/d/e/2"), BEN)
    verdict = registry.verdict("b")
    assert verdict is not None
    assert [reason.rule for reason in verdict.reasons] == ["name_claimed"]


def test_a_forecast_speaks_for_the_owner_who_asks() -> None:
    registry = Registry(by_owner=True)
    owned(registry, "a", card("m", at="ns/c/e/1"), ANN)
    edit = card("m", block=32, at="ns/c/e/1")
    mine, _ = registry.check(Sighting(file="a", found=edit, owner=ANN))
    assert mine.standing is Standing.SERVING
    newcomer = card("m", at="ns/c/e/2")
    verdict, _ = registry.check(Sighting(file="b", found=newcomer, owner=BEN))
    assert verdict.standing is Standing.BLOCKED
    assert [reason.rule for reason in verdict.reasons] == ["other_owner"]
    owned(registry, "b", card("other", at="ns/d/e/2"), BEN)
    theirs, _ = registry.check(Sighting(file="a", found=card("other", at="ns/c/e/1"), owner=BEN))
    assert (theirs.standing, theirs.serves) == (Standing.SERVING, Serves.CURRENT)
    taken, _ = registry.check(Sighting(file="a", found=card("other", at="ns/c/e/1"), owner=ANN))
    assert (taken.standing, taken.serves) == (Standing.BLOCKED, Serves.PREVIOUS)


# What was remembered under another policy


def test_who_serves_beside_a_stranger_is_judged_anew_once_owners_count() -> None:
    before = Registry()
    owned(before, "a", card("m", at="ns/c/e/1"), ANN)
    owned(before, "b", card("m", at="ns/c/e/2"), BEN)
    ranks = iter(range(100, 200)).__next__
    after, same = put_back(take_out(before), ranks, by_owner=True)
    assert not same
    verdicts = {file: after.verdict(file) for file in "ab"}
    standings = {file: verdict and verdict.standing for file, verdict in verdicts.items()}
    assert standings == {"a": Standing.SERVING, "b": Standing.BLOCKED}
    assert put_back(take_out(after), ranks, by_owner=True).same


def test_a_strangers_courtesy_is_not_put_back_once_owners_count() -> None:
    before = Registry()
    owned(before, "a", card("m", at="ns/c/e/1"), ANN)
    owned(before, "n", card("o", ("n",), at="ns/d/e/1"), ANN)
    owned(before, "b", card("m", at="ns/c/e/2"), BEN)
    owned(before, "a", card("n", at="ns/c/e/1"), ANN)
    assert [served.file for served in before.served.values()] == ["a", "n", "b"]
    after, same = put_back(take_out(before), iter(range(100, 200)).__next__, by_owner=True)
    assert not same
    assert sorted(served.file for served in after.served.values()) == ["b", "n"]
