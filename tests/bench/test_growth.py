"""What a change costs does not depend on how many cards are on its endpoint."""

import gc
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest

from discoveryd.core.batch import Found
from discoveryd.core.card import Card
from tests.bench.growth import lone_card_bytes
from tests.bench.hosts import Host, without_collector
from tests.bench.moves import KINDS, Measured, PerCard
from tests.core.cards import card

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

FEW, MANY = 100, 100_000

ATTEMPTS = 5
"""How often a comparison is made before it counts as failed."""


class Pair(NamedTuple):
    """The hosts that are compared."""

    few: Host
    many: Host


def growth(pair: Pair, one_turn: Callable[[Host], int], *, turns: int = 200) -> float:
    """Return how many times as much a turn costs with many cards as with few."""
    few: list[int] = []
    many: list[int] = []
    for _ in range(turns):
        few.append(one_turn(pair.few))
        many.append(one_turn(pair.many))
    return statistics.median(many) / statistics.median(few)


def assert_flat(measure: Callable[[], float], limit: float = 1.5) -> None:
    """Assert that the growth is within the limit, at the first attempt or at one of the next."""
    seen: list[float] = []
    for _ in range(ATTEMPTS):
        seen.append(measure())
        if seen[-1] <= limit:
            return
    tried = ", ".join(f"{growth:.2f}" for growth in seen)
    raise AssertionError(f"costs grow with the number of cards: {tried} times as much")


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    make: Callable[[int], Card] = request.param
    with without_collector():
        hosts = Pair(Host(make, range(FEW)), Host(make, range(MANY)))
    yield hosts
    gc.unfreeze()


TURNS = [name for name in vars(Measured) if not name.startswith("_")]


@pytest.mark.parametrize("turn", TURNS)
def test_a_change_costs_the_same_among_few_and_many_cards(pair: Pair, turn: str) -> None:
    one_turn: Callable[[Host], int] = getattr(Measured(), turn)
    assert_flat(partial(growth, pair, one_turn))


SHRUNK_FROM = 20_000


@pytest.mark.parametrize("make", KINDS)
def test_a_change_costs_the_same_after_many_cards_have_left(make: Callable[[int], Card]) -> None:
    shrunk = Host(make, range(SHRUNK_FROM))
    shrunk.shrink(FEW)
    pair = Pair(Host(make, range(FEW)), shrunk)
    measured = Measured()
    for one_turn in (measured.admission, measured.refusal, measured.refused_adapter):
        assert_flat(partial(growth, pair, one_turn))


@pytest.mark.parametrize("scenario", [name for name in vars(PerCard) if not name.startswith("_")])
def test_many_cards_that_move_at_once_cost_the_same_each(scenario: str) -> None:
    each: Callable[[int], float] = getattr(PerCard(), scenario)

    def measure() -> float:
        few = statistics.median(each(10) for _ in range(15))
        return each(10_000) / few

    assert_flat(measure)


def test_a_name_served_in_many_namespaces_costs_its_worker_types_each() -> None:
    """The answer of a name must look at each namespace, but at none for another's sake."""

    def each(count: int) -> float:
        def decoder(number: int) -> Card:
            needs = (("prefill",),)
            return card("m", at=f"ns{number}/c/e/1", worker_type="decode", needs=needs)

        host = Host(decoder, range(count))
        newcomer: dict[str, Found] = {"newcomer": decoder(count)}
        return statistics.median(_there_and_back(host, newcomer) for _ in range(5)) / count

    assert_flat(lambda: each(2_000) / each(200))


def _there_and_back(host: Host, newcomer: dict[str, Found]) -> int:
    taken = host.cost(newcomer)
    host.apply(dict.fromkeys(newcomer))
    return taken


MOST_BYTES = 1920
"""What a lone card may take, beside its JSON, in cards, registry and answers together."""


@pytest.mark.parametrize("cards", [1_000, 10_000])
def test_a_lone_card_takes_little_memory_however_many_there_are(cards: int) -> None:
    assert lone_card_bytes(cards) <= MOST_BYTES
