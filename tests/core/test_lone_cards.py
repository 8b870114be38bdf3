"""Endpoints with one card have no books, whatever came and went there."""

import pytest

from discoveryd.core.batch import Batch, Found, Sighting
from discoveryd.core.card import Card
from discoveryd.core.registry import Registry
from discoveryd.core.state import put_back, take_out
from tests.core.cards import adapter, card

SOURCE = "/models/one"


def base(number: int, *names: str) -> Card:
    return card("m", names, source=SOURCE, at=f"ns/c/e/{number}")


@pytest.fixture
def registry() -> Registry:
    return Registry()


def apply(registry: Registry, **found: Found) -> None:
    """Apply what was found in each file as one batch."""
    sightings = tuple(Sighting(file=file, found=content) for file, content in found.items())
    registry.apply(Batch(sightings=sightings))


def booked(registry: Registry) -> bool:
    """Whether the books of the endpoints say anything."""
    arbiter = registry.arbiter
    return bool(arbiter.registered or arbiter.courtesies or list(arbiter.groups))


def test_a_lone_card_has_no_books(registry: Registry) -> None:
    apply(registry, a=base(1), b=card("n", at="ns/other/e/1"))
    assert len(registry.served) == 2
    assert not booked(registry)


def test_a_second_card_opens_the_books(registry: Registry) -> None:
    apply(registry, a=base(1))
    apply(registry, b=base(2))
    assert booked(registry)
    assert len(registry.served) == 2


@pytest.mark.parametrize("leaving", ["a", "b"])
def test_the_books_are_closed_when_one_card_is_left(registry: Registry, leaving: str) -> None:
    apply(registry, a=base(1), b=adapter("x", source=SOURCE, at="ns/c/e/1/x"))
    assert booked(registry)
    apply(registry, **{leaving: None})
    assert not booked(registry)


def test_the_books_are_closed_when_nobody_is_left(registry: Registry) -> None:
    apply(registry, a=base(1), b=base(2))
    apply(registry, a=None, b=None)
    assert not booked(registry)


def test_books_stay_open_while_an_earlier_version_is_served_by_courtesy(registry: Registry) -> None:
    apply(registry, a=base(1), b=card("taken", at="ns/other/e/1"))
    apply(registry, a=base(1, "taken"))
    assert booked(registry)
    apply(registry, b=None)
    assert len(registry.served) == 1


def test_a_question_leaves_no_books_behind(registry: Registry) -> None:
    apply(registry, a=base(1))
    verdict, displaced = registry.check(Sighting(file="b", found=base(2)))
    assert (verdict.standing, displaced) == ("serving", ())
    assert not booked(registry)


def test_a_question_about_an_empty_endpoint_is_not_remembered(registry: Registry) -> None:
    asked = card("n", at="ns/other/e/1")
    registry.check(Sighting(file="b", found=asked))
    assert registry.arbiter.is_empty(asked.key.place)


def test_lone_cards_are_put_back_without_books(registry: Registry) -> None:
    apply(registry, a=base(1), b=card("n", at="ns/other/e/1"))
    state = take_out(registry)
    again, same = put_back(state, iter(range(100, 200)).__next__)
    assert same
    assert take_out(again) == state
    assert not booked(again)
