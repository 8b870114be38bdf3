"""Who comes and has nothing to do with anybody is let in at once, and nobody can tell."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discoveryd.core.batch import Batch, Change, Sighting
from discoveryd.core.card import Card
from discoveryd.core.entry import Entry
from discoveryd.core.registry import Registry
from discoveryd.core.state import State, take_out
from tests.core.cards import adapter, card
from tests.core.recipes import Directory, Operation, files, mtimes, operations, recipes

batches = st.lists(
    st.tuples(st.lists(operations, min_size=1, max_size=6), mtimes), min_size=1, max_size=4
)


class Slow(Registry):
    """A registry that takes everybody the long way."""

    def __init__(self) -> None:
        super().__init__()
        self.arbiter.welcome = self._know_nobody  # type: ignore[method-assign]  # to compare with

    def _know_nobody(self, entry: Entry) -> bool:
        return entry is None


def ranked(state: State) -> list[object]:
    """Return the entries with their places in the orders instead of their ranks."""
    entries = state.entries
    orders = [
        sorted({rank for rank in ranks if rank is not None})
        for ranks in (
            [entry.registration for entry in entries],
            [entry.admission for entry in entries],
        )
    ]
    return [
        (
            entry.key,
            entry.claims,
            entry.firm,
            None if entry.courtesy is None else entry.courtesy.card,
            None if entry.registration is None else orders[0].index(entry.registration),
            None if entry.admission is None else orders[1].index(entry.admission),
        )
        for entry in entries
    ]


def told(change: Change) -> object:
    """Return what a change says, without ranks."""
    served = [(key, at and (at.card, at.file, at.firm)) for key, at in change.served.items()]
    return served, change.judged, change.forgotten, set(change.keys), set(change.files)


@settings(deadline=None)
@given(contents=st.dictionaries(files, recipes, min_size=1), later=batches)
def test_strangers_end_where_the_long_way_leads(
    contents: dict[str, dict[str, object]], later: Sequence[tuple[list[Operation], dict[str, int]]]
) -> None:
    first: list[Operation] = [("put", file, recipe) for file, recipe in contents.items()]
    directory, fast, slow = Directory(), Registry(), Slow()
    for drawn, times in [(first, {}), *later]:
        batch = Batch(sightings=directory.sightings(drawn, mtimes=times, owners={}))
        assert told(fast.apply(batch)) == told(slow.apply(batch))
        kept, expected = take_out(fast), take_out(slow)
        assert ranked(kept) == ranked(expected)
        assert sorted(kept.files, key=str) == sorted(expected.files, key=str)
        assert [*fast.unsettled()] == [*slow.unsettled()]


def test_a_stranger_has_one_rank_for_all() -> None:
    registry = Registry()
    registry.apply(Batch(sightings=(Sighting(file="a", found=card("m", at="ns/c/e/1")),)))
    (entry,) = registry.arbiter.entries.values()
    assert entry.arrival == entry.registration == entry.admission
    assert entry.firm


@pytest.mark.parametrize(
    "other",
    [
        card("n", at="ns/c/e/2"),
        card("n", ("m",), at="ns/d/e/1"),
        adapter("l", source="m", at="ns/c/e/1/l"),
    ],
    ids=["its endpoint", "its name", "its instance"],
)
def test_who_has_to_do_with_somebody_is_no_stranger(other: Card) -> None:
    registry = Registry()
    registry.apply(Batch(sightings=(Sighting(file="a", found=other),)))
    newcomer = card("m", at="ns/c/e/1")
    assert not registry.arbiter.welcome(Entry(newcomer.key, newcomer, "b", None, 99))
    assert newcomer.key not in registry.arbiter.entries


def test_an_operators_name_makes_no_stranger() -> None:
    registry = Registry(operator_aliases={"m": "n"})
    newcomer = card("m", at="ns/c/e/1")
    assert not registry.arbiter.welcome(Entry(newcomer.key, newcomer, "b", None, 99))
