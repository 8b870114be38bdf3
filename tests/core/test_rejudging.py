"""A registry under another law: who keeps his place, and that the difference tells all of it."""

import os
from collections.abc import Mapping
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Batch, Found, Served, Sighting
from discoveryd.core.card import Key
from discoveryd.core.registry import Registry
from discoveryd.core.rejudging import difference, rejudged
from discoveryd.core.state import entry_state, file_state, take_out
from discoveryd.core.verdict import Verdict
from tests.core.cards import adapter, batch, card
from tests.core.recipes import FILES, Directory, Operation, operations, operator_tables

ANN, BEN = 1000, 1001
EXAMPLES = int(os.environ.get("DISCOVERYD_EXAMPLES", "300"))
OWNERS = dict.fromkeys(FILES[1::2], BEN)


def put(registry: Registry, owner: int, **found: Found) -> None:
    registry.apply(batch(found, owners=dict.fromkeys(found, owner)))


def table(registry: Registry) -> dict[str, str]:
    verdicts = {record.file: registry.verdict(record.file) for record in registry.files}
    return {file: verdict.standing for file, verdict in verdicts.items() if verdict is not None}


def shared() -> Registry:
    """A registry in which two users serve one name, and one of them has an adapter."""
    registry = Registry(count(1).__next__)
    put(registry, ANN, a=card("m", source="S", at="ns/c/e/1"))
    put(registry, BEN, b=card("m", source="S", at="ns/c/e/2"))
    put(registry, BEN, k=adapter("l", source="S", at="ns/c/e/2/l"))
    return registry


def test_where_owners_come_to_count_the_first_of_a_name_keeps_it() -> None:
    before = shared()
    assert set(table(before).values()) == {"serving"}
    after = rejudged(before, before.arbiter.ranks, by_owner=True)
    assert table(after) == {"a": "serving", "b": "blocked", "k": "orphan"}
    told = difference(before, after, None, now=7.0)
    assert set(told.judged) == {"b", "k"}
    assert [key.instance for key in told.served] == ["2", "2"]
    assert list(told.served.values()) == [None, None]


def test_where_owners_count_no_more_all_serve_who_may() -> None:
    before = rejudged(shared(), count(100).__next__, by_owner=True)
    put(before, BEN, d=card("other", at="ns/d/e/1"))
    after = rejudged(before, count(200).__next__, by_owner=False)
    assert set(table(after).values()) == {"serving"}
    assert [str(key) for key in after.served] == [
        "ns/c/e/1",
        "ns/d/e/1",
        "ns/c/e/2",
        "ns/c/e/2/l",
    ]


def test_what_is_said_as_before_has_been_so_since_then() -> None:
    before = Registry(count(1).__next__)
    before.apply(batch({"a": card("m", at="ns/c/e/1")}, owners={"a": ANN}))
    before.apply(Batch(sightings=(Sighting(file="b", found=card("n")),), now=5.0))
    after = rejudged(before, before.arbiter.ranks, by_owner=True)
    told = difference(before, after, None, now=9.0)
    assert told.empty
    assert [record.since for record in after.files] == [record.since for record in before.files]


def said(verdict: Verdict | None) -> object:
    return None if verdict is None else (verdict.standing, verdict.serves, verdict.warnings)


def looks(served: Mapping[Key, Served]) -> object:
    return [(key, each.file, each.admission, each.card.names) for key, each in served.items()]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(st.lists(operations, min_size=1, max_size=4), min_size=1, max_size=6),
    last=st.lists(operations, max_size=3),
    by_owner=st.booleans(),
    operators=st.none() | operator_tables,
)
@pytest.mark.timeout(0 if EXAMPLES > 300 else 120)
def test_the_difference_makes_the_answers_of_the_other_registry(
    steps: list[list[Operation]],
    last: list[Operation],
    by_owner: bool,
    operators: dict[str, str] | None,
) -> None:
    ranks = count(1).__next__
    before, answers, directory = Registry(ranks, by_owner=by_owner), Answers("e"), Directory()
    for number, drawn in enumerate(steps):
        sightings = directory.sightings(drawn, mtimes={}, owners=OWNERS)
        answers.publish(before.apply(Batch(sightings=sightings, now=float(number))))
    verdicts = {file: before.verdict(file) for file in FILES}
    files = {record.file: file_state(before, record.file) for record in before.files}
    entries = {key: entry_state(before, key) for key in before.arbiter.entries}

    after = rejudged(before, ranks, by_owner=not by_owner)
    sightings = directory.sightings(last, mtimes={}, owners=OWNERS)
    change = after.apply(Batch(sightings=sightings, operator_aliases=operators, now=99.0))
    told = difference(before, after, change.operator_aliases, now=99.0)
    answers.publish(told)

    fresh = Answers("e", after.arbiter.names.operator)
    fresh.resume(1, after.served.values())
    assert looks(answers.workers) == looks(fresh.workers)
    assert {line.name: line for line in answers.lines()} == {
        line.name: line for line in fresh.lines()
    }
    for file in FILES:
        now = after.verdict(file)
        if said(now) != said(verdicts[file]) and now is not None:
            assert file in told.judged
        if now is not None and file not in told.judged:
            assert now.since == getattr(verdicts[file], "since", None)
    assert set(told.forgotten) == {f for f in FILES if verdicts[f] and after.verdict(f) is None}
    # And what it names is all that a ledger must write.
    files.update({file: file_state(after, file) for file in told.files})
    entries.update({key: entry_state(after, key) for key in told.keys})
    state = take_out(after)
    assert {f: s for f, s in files.items() if s is not None} == {s.file: s for s in state.files}
    assert {k: s for k, s in entries.items() if s is not None} == {s.key: s for s in state.entries}
