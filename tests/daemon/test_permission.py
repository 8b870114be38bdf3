"""Who may claim what: the entries of `[[allow]]`, the quota, and files that change hands."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from discoveryd.core.batch import Barred, Batch, Found, Invalid, Sighting
from discoveryd.core.card import Card
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Reason, Standing
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.errors import ConfigError
from discoveryd.daemon.permit.allowing import Allow, read_allow
from discoveryd.daemon.permit.membership import Membership, groups_of
from discoveryd.daemon.permit.permission import USUAL_QUOTA, Permission
from tests.core.cards import TORN, adapter, card

ANN, BEN = 1000, 1001
RENDER = 44


def seen(file: str, found: Found, owner: int | None = ANN, mtime_ns: int = 1) -> Sighting:
    return Sighting(file=f"/cards/{file}", found=found, owner=owner, mtime_ns=mtime_ns)


def said(sightings: Sequence[Sighting]) -> list[tuple[str, str]]:
    """What is told: the file's name, and the rule that bars its card, or what else it is."""
    told = []
    for sighting in sightings:
        match sighting.found:
            case Barred(reasons=(reason,), standing=Standing.FORBIDDEN):
                what = reason.rule
            case Card():
                what = "card"
            case Invalid():
                what = "torn"
            case _:
                what = "gone"
        told.append((sighting.file.removeprefix("/cards/"), what))
    return told


def why(gate: Permission, sighting: Sighting) -> Reason | None:
    """Return why a sighting is barred, None where it is not."""
    (judged,) = gate.judge([sighting])
    if not isinstance(judged.found, Barred):
        assert judged == sighting
        return None
    assert judged.found.card == sighting.found
    assert judged.found.standing is Standing.FORBIDDEN
    (reason,) = judged.found.reasons
    return reason


async def rule(gate: Permission, found: Card, owner: int | None = ANN) -> str | None:
    await gate.look_up([owner])
    reason = why(gate, seen("a", found, owner))
    return None if reason is None else reason.rule


# Allowing


def test_without_entries_every_card_is_allowed() -> None:
    assert why(Permission(), seen("a", card("m"), 4711)) is None


async def test_a_card_is_allowed_where_one_entry_covers_it_and_no_other_is() -> None:
    gate = Permission([Allow(user=ANN), Allow(user=BEN, names=("b-*",))])
    assert await rule(gate, card("m"), ANN) is None
    assert await rule(gate, card("b-1"), BEN) is None
    assert await rule(gate, card("m"), BEN) == "not_allowed"
    assert await rule(gate, card("m"), 1002) == "not_allowed"
    assert await rule(gate, card("m"), None) == "not_allowed"


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (card("team-1"), True),
        (card("team-1", ("team-2",)), True),
        (card("team-1", ("gpt-4o",)), False),
        (card("gpt-4o", ("team-1",)), False),
        (card("Team-1"), False),
        (card("team-"), True),
        (adapter("team-x", at="ns/c/e/1/s"), True),
        (adapter("x", at="ns/c/e/1/s"), False),
    ],
)
async def test_every_name_must_match_a_pattern_by_the_letter(found: Card, allowed: bool) -> None:
    gate = Permission([Allow(names=("team-*", "other"))])
    assert (await rule(gate, found) is None) == allowed


@pytest.mark.parametrize(
    ("entry", "allowed"),
    [
        (Allow(endpoints=("ns/*",)), True),
        (Allow(endpoints=("ns/c/e",)), True),
        (Allow(endpoints=("other/*", "ns/?/e")), True),
        (Allow(endpoints=("n/*",)), False),
        (Allow(endpoints=()), False),
        (Allow(urls=("http://127.0.0.1:80*",)), True),
        (Allow(urls=("http://127.0.0.1:90*",)), False),
        (Allow(endpoints=("ns/*",), urls=("https://*",)), False),
        (Allow(user=ANN, names=("m",), endpoints=("ns/*",), urls=("http://*",)), True),
        (Allow(user=BEN, names=("m",), endpoints=("ns/*",), urls=("http://*",)), False),
    ],
    ids=str,
)
async def test_all_parts_of_an_entry_must_match(entry: Allow, allowed: bool) -> None:
    gate = Permission([entry])
    found = card("m", at="ns/c/e/1", url="http://127.0.0.1:8000")
    assert (await rule(gate, found) is None) == allowed


async def test_a_card_without_url_matches_no_pattern_of_urls() -> None:
    assert await rule(Permission([Allow(urls=("*",))]), card("m")) == "not_allowed"


def test_a_directory_is_a_tenants_own_with_its_stores() -> None:
    folders = {"/srv/ann": "/srv/ann", "/srv/store/v1/mdc": "/srv/store"}
    gate = Permission([Allow(directory="/srv/ann"), Allow(directory="/srv/store")], folders=folders)
    for folder in folders:
        assert why(gate, Sighting(file=f"{folder}/a", found=card("m"), owner=ANN)) is None
    reason = why(gate, Sighting(file="/srv/ann/sub/a", found=card("m"), owner=ANN))
    assert reason is not None
    assert reason.found == "/srv/ann/sub"


async def test_a_group_is_all_its_members() -> None:
    groups = {ANN: frozenset({ANN, RENDER}), BEN: frozenset({BEN})}
    membership = Membership(lambda uid: groups.get(uid, frozenset()))
    gate = Permission([Allow(group=RENDER)], membership=membership)
    assert await rule(gate, card("m"), ANN) is None
    assert await rule(gate, card("m"), BEN) == "not_allowed"
    assert await rule(gate, card("m"), 4711) == "not_allowed"
    assert await rule(gate, card("m"), None) == "not_allowed"


def test_the_reason_names_the_entry_that_comes_closest_and_what_to_ask_for() -> None:
    gate = Permission(
        [
            Allow(user=BEN),
            Allow(user=ANN, names=("x",), urls=("https://*",)),
            Allow(user=ANN, names=("a-*", "b-*")),
        ]
    )
    reason = why(gate, seen("a", card("a-1", ("llama",))))
    assert reason is not None
    assert (reason.field, reason.found, reason.expected) == ("names", "llama", "a-*, b-*")
    assert "Entry 3 (uid 1000)" in reason.message
    assert "Ask the operator to add a pattern to its names" in reason.message


def test_who_has_no_entry_is_told_to_ask_for_one() -> None:
    reason = why(Permission([Allow(user=BEN)]), seen("a", card("m")))
    assert reason is not None
    assert (reason.field, reason.found, reason.expected) == ("owner", "uid 1000", "uid 1001")
    assert "for a new one for uid 1000" in reason.message


async def test_a_file_that_changes_hands_is_judged_by_its_new_owner() -> None:
    gate = Permission([Allow(user=ANN)])
    assert await rule(gate, card("m"), ANN) is None
    assert await rule(gate, card("m"), BEN) == "not_allowed"
    assert await rule(gate, card("m"), ANN) is None


@pytest.mark.parametrize("gate", [Permission([Allow(user=ANN)]), Permission(by_owner=True)])
def test_a_torn_file_of_another_owner_is_gone_first(gate: Permission) -> None:
    assert said(gate.judge([seen("a", card("m"), ANN)])) == [("a", "card")]
    assert said(gate.judge([seen("a", TORN, ANN)])) == [("a", "torn")]
    assert said(gate.judge([seen("a", TORN, BEN)])) == [("a", "gone"), ("a", "torn")]
    assert said(gate.judge([seen("a", TORN, BEN)])) == [("a", "torn")]


def test_for_the_quota_too_a_torn_file_of_another_owner_is_gone_first() -> None:
    """Else the card would be counted for the one until a restart, and for the other after it."""
    gate = Permission(quota=1)
    gate.judge([seen("a", card("m"), ANN)])
    assert said(gate.judge([seen("a", TORN, BEN)])) == [("a", "gone"), ("a", "torn")]
    assert said(gate.judge([seen("b", card("n"), ANN)])) == [("b", "card")]


def test_where_owners_do_not_matter_a_torn_file_is_only_torn() -> None:
    gate = Permission()
    gate.judge([seen("a", card("m"), ANN)])
    assert said(gate.judge([seen("a", TORN, BEN)])) == [("a", "torn")]


def test_a_file_whose_owner_cannot_be_told_has_the_one_it_had() -> None:
    gate = Permission(by_owner=True)
    gate.judge([seen("a", card("m"), ANN)])
    (torn,) = gate.judge([seen("a", TORN, None)])
    assert torn.owner == ANN


def test_where_users_have_no_number_their_files_are_nobodys() -> None:
    gate = Permission(by_owner=True, unmapped=BEN)
    told = gate.judge([seen("a", card("m"), ANN), seen("b", card("m"), BEN)])
    assert said(told) == [("a", "card"), ("b", "not_allowed")]
    assert [each.owner for each in told] == [ANN, None]
    lenient = Permission(quota=1, unmapped=BEN)
    told = lenient.judge([*some(2, BEN), seen("9", card("m"), ANN, 9)])
    assert said(told) == [("0", "card"), ("1", "quota"), ("9", "card")]
    assert [each.owner for each in told] == [None, None, ANN]


# The quota


def some(count: int, owner: int = ANN, first: int = 0) -> list[Sighting]:
    return [seen(str(n), card(f"m{n}"), owner, n) for n in range(first, first + count)]


def test_the_first_of_a_users_cards_count_the_others_wait_for_room() -> None:
    gate = Permission(quota=2)
    assert said(gate.judge(reversed_(some(3)))) == [("0", "card"), ("1", "card"), ("2", "quota")]
    assert said(gate.judge([seen("9", card("n"), BEN)])) == [("9", "card")]
    assert said(gate.judge([seen("5", card("n"))])) == [("5", "quota")]
    assert said(gate.judge([seen("1", None, None, 0)])) == [("1", "gone"), ("2", "card")]
    assert said(gate.judge([seen("0", None, None, 0)])) == [("0", "gone"), ("5", "card")]


def reversed_(sightings: Sequence[Sighting]) -> list[Sighting]:
    return list(reversed(sightings))


def test_a_newcomer_does_not_overtake_who_waits() -> None:
    gate = Permission(quota=1)
    gate.judge(some(2))
    told = gate.judge([seen("0", None, None, 0), seen("9", card("n"))])
    assert sorted(said(told)) == [("0", "gone"), ("1", "card"), ("9", "quota")]


def test_an_edit_keeps_its_place_whether_it_counts_or_waits() -> None:
    gate = Permission(quota=1)
    gate.judge(some(3))
    assert said(gate.judge([seen("0", card("other"))])) == [("0", "card")]
    assert said(gate.judge([seen("1", card("edited"), mtime_ns=9)])) == [("1", "quota")]
    told = gate.judge([seen("0", None, None, 0)])
    assert said(told) == [("0", "gone"), ("1", "card")]
    assert isinstance(told[1].found, Card)
    assert (told[1].found.display_name, told[1].mtime_ns) == ("edited", 9)


def test_a_torn_file_keeps_its_place_and_is_let_in_torn() -> None:
    gate = Permission(quota=1)
    gate.judge(some(2))
    assert said(gate.judge([seen("0", TORN)])) == [("0", "torn")]
    assert said(gate.judge([seen("1", TORN, mtime_ns=0)])) == [("1", "quota"), ("1", "torn")]
    told = gate.judge([seen("0", None, None, 0)])
    assert said(told) == [("0", "gone"), ("1", "card"), ("1", "torn")]
    assert {each.mtime_ns for each in told} == {0}


def test_a_card_that_is_not_allowed_takes_no_room() -> None:
    gate = Permission([Allow(names=("m*",))], quota=1)
    told = gate.judge([seen("x", card("x"), mtime_ns=0), *some(1)])
    assert sorted(said(told)) == [("0", "card"), ("x", "not_allowed")]
    told = gate.judge([seen("0", card("x")), seen("1", card("m1"))])
    assert said(told) == [("0", "not_allowed"), ("1", "card")]


def test_a_file_that_changes_hands_is_counted_for_its_new_owner() -> None:
    gate = Permission(quota=1)
    gate.judge([*some(2), *some(1, BEN, 9)])
    told = gate.judge([seen("0", card("m0"), BEN)])
    assert sorted(said(told)) == [("0", "quota"), ("1", "card")]


def test_roots_cards_are_not_counted() -> None:
    gate = Permission(quota=1)
    assert [what for _, what in said(gate.judge(some(3, owner=0)))] == ["card"] * 3


def test_by_default_there_is_a_quota_while_several_can_write() -> None:
    several = True
    gate = Permission(many_writers=lambda: several)
    told = said(gate.judge(some(USUAL_QUOTA + 2)))
    assert [what for _, what in told].count("quota") == 2
    several = False
    told = said(gate.judge([seen("x", card("x"))]))
    assert sorted(told) == [("1000", "card"), ("1001", "card"), ("x", "card")]


def test_what_is_only_touched_while_it_waits_is_let_in_as_fresh() -> None:
    gate = Permission(quota=1)
    gate.judge(some(2))
    gate.touched([Touch("/cards/1", 77), Touch("/cards/0", 78), Touch("/cards/unknown", 79)])
    told = gate.judge([seen("0", None, None, 0)])
    assert said(told) == [("0", "gone"), ("1", "card")]
    assert told[1].mtime_ns == 77


def test_the_reason_says_how_many_count_and_what_to_do() -> None:
    gate = Permission(quota=1)
    gate.judge(some(1))
    reason = why(gate, seen("x", card("x")))
    assert reason is not None
    assert "uid 1000 has 1 cards" in reason.message
    assert "ask the operator" in reason.message


# Asked beforehand, and after a restart


def test_a_forecast_is_what_judging_says_and_changes_nothing() -> None:
    gate = Permission([Allow(names=("m*",))], quota=1)
    gate.judge(some(2))
    for sighting in [seen("0", card("x")), seen("0", card("m")), seen("7", card("m")), *some(2)]:
        assert said([gate.forecast(sighting)]) == said([gate.forecast(sighting)])
    asked = [seen("0", card("x")), seen("0", card("m")), seen("7", card("m")), seen("0", TORN)]
    expected = [("0", "not_allowed"), ("0", "card"), ("7", "quota"), ("0", "torn")]
    assert said([gate.forecast(sighting) for sighting in asked]) == expected
    assert said(gate.judge([seen("0", None, None, 0)])) == [("0", "gone"), ("1", "card")]


def remembered(sightings: Sequence[Sighting], quota: int) -> Registry:
    """Return a registry that was told these by a gate with this quota."""
    registry = Registry()
    registry.apply(Batch(sightings=tuple(Permission(quota=quota).judge(sightings)), now=1.0))
    return registry


def test_after_a_restart_the_same_cards_count_and_wait() -> None:
    first = [seen("b", card("m", at="n/c/e/1"), mtime_ns=5)]
    registry = remembered(first, 1)
    gate = Permission(quota=1)
    gate.restore(registry)
    # Written anew meanwhile, it would come second by its time.
    again = [seen("b", card("m", at="n/c/e/1"), mtime_ns=9), seen("a", card("a"), mtime_ns=1)]
    assert sorted(said(gate.judge(again))) == [("a", "quota"), ("b", "card")]


def test_after_a_restart_with_a_lower_quota_the_first_stay() -> None:
    cards = [seen(str(n), card(f"m{n}", at=f"n{n}/c/e/1"), mtime_ns=n) for n in range(3)]
    gate = Permission(quota=2)
    gate.restore(remembered(cards, 3))
    assert sorted(said(gate.judge(cards))) == [("0", "card"), ("1", "card"), ("2", "quota")]


def test_after_a_restart_only_news_is_told() -> None:
    cards = [seen(str(n), card(f"m{n}", at=f"n{n}/c/e/1"), mtime_ns=n) for n in range(3)]
    gate = Permission(quota=2)
    gate.restore(remembered([*cards, seen("2", TORN, mtime_ns=9)], 2))
    assert gate.judge([]) == []
    assert said(gate.judge(cards[:1])) == [("0", "card")]
    told = gate.judge([seen("0", None, None, 0)])
    assert said(told) == [("0", "gone"), ("2", "card"), ("2", "torn")]


def test_after_a_restart_a_torn_file_still_has_its_owner() -> None:
    registry = remembered([seen("a", card("m"))], 1)
    gate = Permission(by_owner=True)
    gate.restore(registry)
    assert said(gate.judge([seen("a", TORN, BEN)])) == [("a", "gone"), ("a", "torn")]


# Who is in which group


async def test_a_user_is_asked_for_again_only_after_a_while() -> None:
    asked: list[int] = []

    def ask(uid: int) -> frozenset[int]:
        asked.append(uid)
        return frozenset({len(asked)})

    kept = Membership(ask)
    await kept.look_up([ANN])
    await kept.look_up([ANN, BEN])
    assert asked == [ANN, BEN]
    assert (set(kept.of(ANN)), set(kept.of(BEN)), set(kept.of(None))) == ({1}, {2}, set())
    fresh = Membership(ask, kept_seconds=0)
    await fresh.look_up([ANN])
    await fresh.look_up([ANN])
    assert set(fresh.of(ANN)) == {4}


@pytest.fixture
def gate_of_thread() -> Iterator[threading.Event]:
    """Give an event that is set in the end, for a thread to wait for."""
    event = threading.Event()
    yield event
    event.set()


async def test_what_was_known_holds_where_nobody_answers(gate_of_thread: threading.Event) -> None:
    answers = iter([frozenset({RENDER})])

    def ask(_uid: int) -> frozenset[int]:
        known = next(answers, None)
        if known is None:
            gate_of_thread.wait()
        return known or frozenset()

    membership = Membership(ask, kept_seconds=0, patience_seconds=0.05)
    await membership.look_up([ANN])
    assert membership.problems() == []
    await membership.look_up([ANN])
    assert set(membership.of(ANN)) == {RENDER}
    (problem,) = membership.problems()
    assert "user database" in problem


def test_the_host_knows_roots_groups_and_none_of_nobody_it_knows() -> None:
    assert 0 in groups_of(0)
    assert groups_of(4_000_000_000) == frozenset()
    assert groups_of(2**40) == frozenset()


# Reading entries


def test_an_entry_is_read_by_names_or_numbers(tmp_path: Path) -> None:
    table = {"user": "root", "group": 44, "directory": "cards", "names": ["a*"]}
    expected = Allow(user=0, group=44, directory=f"{tmp_path}/cards", names=("a*",))
    assert read_allow("here", table, tmp_path) == expected
    assert read_allow("here", {"user": "1000", "group": "root"}, tmp_path) == Allow(
        user=1000, group=0
    )


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"user": "no-such-user"}, "there is no user 'no-such-user'"),
        ({"group": "no-such-group"}, "there is no group 'no-such-group'"),
        ({"name": ["m"]}, "unknown field `name`"),
        ({"names": "m"}, "got `str` - at `$.names`"),
        ({}, "says nothing"),
    ],
)
def test_a_wrong_entry_says_what_is_wrong(table: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_allow("file: [[allow]] 1", table, Path("/"))
    assert expected in str(error.value)
    assert str(error.value).startswith("file: [[allow]] 1")
