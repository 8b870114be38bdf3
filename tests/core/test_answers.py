"""What is published, and when."""

from collections.abc import Mapping

import pytest

from discoveryd.core.answers import Answers, Published
from discoveryd.core.batch import Change, Served
from discoveryd.core.card import Card, Key
from discoveryd.core.history import Cursor
from tests.core.cards import card


@pytest.fixture
def answers() -> Answers:
    return Answers("epoch")


def served(made: Card, admission: int) -> Served:
    return Served(made, f"/cards/{admission}.json", admission, firm=True)


def change(present: Mapping[Key, Served | None]) -> Change:
    return Change(served=present, judged=(), forgotten={})


def arrival(*versions: Served) -> Change:
    return change({version.card.key: version for version in versions})


def departure(*versions: Served) -> Change:
    return change(dict.fromkeys(version.card.key for version in versions))


def names(answers: Answers) -> set[str]:
    return {line.name for line in answers.lines()}


def members(answers: Answers, name: str) -> list[int]:
    found = answers.resolve(name)
    return [] if found is None else [one.admission for one in found[0].members.values()]


ONE = served(card("one", ("1",), at="ns/a/e/1"), 1)
TWO = served(card("two", at="ns/b/e/1"), 2)
ANOTHER_ONE = served(card("one", at="ns/a/e/2"), 3)


def test_until_the_last_step_everything_is_answered_as_before(answers: Answers) -> None:
    answers.publish(arrival(ONE))
    before = answers.cursor
    steps = answers.publishing(change({ONE.card.key: None, TWO.card.key: TWO}))
    for _ in steps:
        assert (answers.cursor, names(answers)) == (before, {"one", "1"})
        assert list(answers.workers.values()) == [ONE]
        assert (answers.similar("O-n-e"), answers.similar("T-w-o")) == (["one"], [])
    assert (answers.cursor.revision, names(answers)) == (before.revision + 1, {"two"})
    assert (answers.similar("O-n-e"), answers.similar("T-w-o")) == ([], ["two"])


def test_what_is_published_names_all_that_it_may_have_altered(answers: Answers) -> None:
    published = answers.publish(arrival(ONE, TWO, ANOTHER_ONE))
    assert published is not None
    assert set(published.names) == {"one", "1", "two"}
    assert set(published.keys) == {version.card.key for version in (ONE, TWO, ANOTHER_ONE)}


def test_workers_stand_in_admission_order_whether_or_not_they_share_names(answers: Answers) -> None:
    answers.publish(arrival(ONE))
    again = served(ONE.card, 4)
    answers.publish(arrival(TWO, ANOTHER_ONE, again))
    assert [one.admission for one in answers.workers.values()] == [2, 3, 4]
    assert members(answers, "one") == [3, 4]


def test_names_stand_in_the_order_of_those_who_bring_them_shared_or_not(answers: Answers) -> None:
    last = served(card("three", ("3",), at="ns/c/e/1"), 4)
    answers.publish(arrival(TWO, ONE, ANOTHER_ONE, last))
    assert [line.name for line in answers.lines()] == ["two", "one", "1", "three", "3"]
    assert members(answers, "one") == [1, 3]


def test_a_name_that_one_of_two_workers_leaves_is_the_others(answers: Answers) -> None:
    answers.publish(arrival(ONE, ANOTHER_ONE))
    assert members(answers, "one") == [1, 3]
    answers.publish(departure(ONE))
    assert members(answers, "one") == [3]
    assert names(answers) == {"one"}
    answers.publish(departure(ANOTHER_ONE))
    assert (names(answers), answers.models, len(answers)) == (set(), 0, 0)


def test_a_name_that_comes_back_is_similar_again(answers: Answers) -> None:
    for move in (arrival(TWO), departure(TWO), arrival(TWO)):
        answers.publish(move)
    assert answers.similar("T-w-o") == ["two"]


def test_models_are_counted_once_for_all_their_workers(answers: Answers) -> None:
    answers.publish(arrival(ONE, TWO, ANOTHER_ONE))
    assert (answers.models, len(answers)) == (2, 3)


def test_a_newcomer_that_an_operator_alias_stands_for_brings_that_too() -> None:
    answers = Answers("epoch", {"gpt": "two"})
    published = answers.publish(arrival(ONE, TWO))
    assert published is not None
    assert "gpt" in published.names
    assert answers.similar("G-P-T") == ["gpt"]


def test_another_epoch_begins_with_the_change_that_is_its_first(answers: Answers) -> None:
    answers.publish(arrival(ONE))
    steps = answers.publishing(arrival(TWO), "other")
    for _ in steps:
        assert answers.cursor == Cursor("epoch", 1)
    assert answers.cursor == Cursor("other", 1)
    assert answers.history.since(Cursor("epoch", 1)).reset


def test_what_was_forgotten_is_told_as_a_reset_and_what_came_later_as_a_difference(
    answers: Answers,
) -> None:
    answers.publish(arrival(ONE))
    answers.history.forget()
    present = answers.cursor
    answers.publish(arrival(TWO))
    assert answers.history.since(Cursor("epoch", 0)).reset
    difference = answers.history.since(present)
    assert (difference.reset, difference.keys, difference.names) == (
        False,
        (TWO.card.key,),
        ("two",),
    )


def test_a_change_that_is_none_is_not_published(answers: Answers) -> None:
    published: Published | None = answers.publish(arrival())
    assert published is None
    assert answers.cursor.revision == 0
