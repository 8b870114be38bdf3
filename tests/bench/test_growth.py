"""What a change costs does not depend on how many cards are on its endpoint."""

import gc
from collections.abc import Callable, Iterator
from itertools import count

import msgspec
import pytest

from discoveryd.core.card import Card
from discoveryd.core.verdict import Standing
from tests.bench.growth import (
    FEW,
    MANY,
    Host,
    Pair,
    assert_flat,
    file_of,
    growth,
    without_collector,
)
from tests.core.cards import adapter, card

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

SOURCE = "/models/one"


def one_primary(number: int) -> Card:
    """Workers of one model."""
    return card("m", ("a", "b"), source=SOURCE, at=f"ns/c/e/{number}")


def many_primaries(number: int) -> Card:
    """Workers of one source, each with names of its own."""
    aliases = (f"a{number}", f"b{number}")
    return card(f"m{number}", aliases, source=SOURCE, at=f"ns/c/e/{number}")


def bases_and_adapters(number: int) -> Card:
    """Workers of one model, each with an adapter of its own."""
    if number % 2:
        return adapter(f"x{number}", source=SOURCE, at=f"ns/c/e/{number - 1}/x{number}")
    return card("m", source=SOURCE, at=f"ns/c/e/{number}")


@pytest.fixture(scope="module", params=[one_primary, many_primaries, bases_and_adapters])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    make: Callable[[int], Card] = request.param
    with without_collector():
        hosts = Pair(Host(make, FEW), Host(make, MANY))
    yield hosts
    gc.unfreeze()


class Measured:
    """Turns that leave a host as it was. Each first asserts that it does what it is meant to."""

    def __init__(self) -> None:
        self._fresh = count(MANY * 2, 2)

    def admission(self, host: Host) -> int:
        number = next(self._fresh)
        file, newcomer = file_of(number), host.make(number)
        taken = host.cost({file: newcomer})
        assert host.standing(file) is Standing.SERVING
        host.apply({file: None})
        return taken

    def removal(self, host: Host) -> int:
        number = next(self._fresh)
        file = file_of(number)
        host.apply({file: host.make(number)})
        taken = host.cost({file: None})
        assert host.standing(file) is None
        return taken

    def removal_of_an_old_one(self, host: Host) -> int:
        number = host.any_number()
        taken = host.cost({file_of(number): None})
        host.apply({file_of(number): host.make(number)})
        return taken

    def refusal(self, host: Host) -> int:
        file = file_of(next(self._fresh))
        taken = host.cost({file: card("z", source="/models/other", at="ns/c/e/z")})
        assert host.standing(file) is Standing.REFUSED
        host.apply({file: None})
        return taken

    def refused_adapter(self, host: Host) -> int:
        file = file_of(next(self._fresh))
        taken = host.cost({file: adapter("z", source="/models/other", at="ns/c/e/0/z")})
        assert host.standing(file) is Standing.REFUSED
        host.apply({file: None})
        return taken

    def duplicate(self, host: Host) -> int:
        file = file_of(next(self._fresh))
        taken = host.cost({file: host.make(host.any_number())})
        assert host.standing(file) is Standing.DUPLICATE
        host.apply({file: None})
        return taken

    def unjudged_edit(self, host: Host) -> int:
        number = host.any_number()
        edited = msgspec.structs.replace(host.make(number), labels={"zone": "b"})
        taken = host.cost({file_of(number): edited})
        assert host.standing(file_of(number)) is Standing.SERVING
        host.apply({file_of(number): host.make(number)})
        return taken

    def judged_edit(self, host: Host) -> int:
        number = host.any_number() // 2 * 2
        before = host.make(number)
        edited = msgspec.structs.replace(
            before, aliases=(*before.aliases, f"e{number}"), fingerprint=f"edited {number}"
        )
        taken = host.cost({file_of(number): edited})
        assert host.standing(file_of(number)) in (Standing.SERVING, Standing.STANDBY)
        host.apply({file_of(number): before})
        return taken


TURNS = [name for name in vars(Measured) if not name.startswith("_")]


@pytest.mark.parametrize("turn", TURNS)
def test_a_change_costs_the_same_among_few_and_many_cards(pair: Pair, turn: str) -> None:
    one_turn: Callable[[Host], int] = getattr(Measured(), turn)
    assert_flat(lambda: growth(pair, one_turn))
