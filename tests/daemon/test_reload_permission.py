"""The permission gate under other terms: who is let in, who has to go, and who keeps his place."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from discoveryd.core.batch import Barred, Batch, Found, Invalid, Sighting
from discoveryd.core.card import Card
from discoveryd.core.registry import Registry
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.permit.allowing import Allow
from discoveryd.daemon.permit.membership import Membership
from discoveryd.daemon.permit.permission import USUAL_QUOTA, Permission
from tests.core.cards import TORN, card

ANN, BEN = 1000, 1001
RENDER = 44


def seen(file: str, found: Found, owner: int | None = ANN, mtime_ns: int = 1) -> Sighting:
    return Sighting(file=f"/cards/{file}", found=found, owner=owner, mtime_ns=mtime_ns)


def some(count: int, owner: int = ANN) -> list[Sighting]:
    return [seen(str(n), card(f"m{n}", at=f"n{n}/c/e/1"), owner, n) for n in range(count)]


def told(sightings: Sequence[Sighting]) -> list[tuple[str, str]]:
    """What is told, in order of the files: the rule that bars a card, or what else it is."""
    said: list[tuple[str, str]] = []
    for sighting in sorted(sightings, key=lambda each: each.file):
        match sighting.found:
            case Barred(reasons=(reason,)):
                what = reason.rule
            case Card():
                what = "card"
            case Invalid():
                what = "torn"
            case _:
                what = "gone"
        said.append((sighting.file.removeprefix("/cards/"), what))
    return said


def change(
    gate: Permission,
    *allow: Allow,
    by_owner: bool = False,
    quota: int | None = None,
    sightings: Sequence[Sighting] = (),
) -> list[tuple[str, str]]:
    """Put other terms on the gate, and return what it tells with these sightings."""
    gate.change(allow, by_owner=by_owner, quota=quota, folders={})
    return told(gate.judge(sightings))


# Entries


def test_only_what_changes_is_told() -> None:
    gate = Permission()
    gate.judge([seen("a", card("m")), seen("b", card("x"))])
    assert change(gate, Allow(names=("m",))) == [("b", "not_allowed")]
    assert change(gate, Allow(names=("m",))) == []
    assert change(gate, Allow(names=("m*",), user=BEN)) == [
        ("a", "not_allowed"),
        ("b", "not_allowed"),
    ]
    assert change(gate) == [("a", "card"), ("b", "card")]


def test_a_reason_that_reads_otherwise_is_told() -> None:
    gate = Permission([Allow(names=("m",))])
    gate.judge([seen("b", card("x"))])
    gate.change([Allow(names=("n",))], by_owner=False, quota=None, folders={})
    (sighting,) = gate.judge([])
    assert isinstance(sighting.found, Barred)
    assert sighting.found.reasons[0].expected == "n"


def test_a_torn_files_last_card_is_judged_too() -> None:
    gate = Permission()
    gate.judge([seen("a", card("m"))])
    gate.judge([seen("a", TORN), seen("never", TORN)])
    assert change(gate, Allow(user=BEN)) == [("a", "not_allowed"), ("a", "torn")]
    assert change(gate) == [("a", "card"), ("a", "torn")]


def test_what_is_seen_in_the_same_batch_comes_last() -> None:
    gate = Permission()
    gate.judge([seen("a", card("m")), seen("b", card("m2")), seen("c", card("m3"))])
    sightings = [seen("a", None), seen("b", card("x")), seen("c", TORN)]
    assert change(gate, Allow(names=("x",)), sightings=sightings) == [
        ("a", "gone"),
        ("b", "card"),
        ("c", "not_allowed"),
        ("c", "torn"),
    ]


def test_a_card_that_is_let_in_has_the_time_of_its_last_touch() -> None:
    gate = Permission([Allow(user=BEN)])
    gate.judge([seen("a", card("m"))])
    gate.touched([Touch("/cards/a", 77)])
    gate.change((), by_owner=False, quota=None, folders={})
    (sighting,) = gate.judge([])
    assert sighting.mtime_ns == 77


def test_directories_may_have_other_names_in_the_configuration() -> None:
    gate = Permission([Allow(directory="/srv/store")], folders={"/cards": "/srv/store"})
    assert told(gate.judge([seen("a", card("m"))])) == [("a", "card")]
    gate.change([Allow(directory="/srv/store")], by_owner=False, quota=None, folders={})
    assert told(gate.judge([])) == [("a", "not_allowed")]


def test_where_owners_come_to_count_the_unknown_have_to_go() -> None:
    gate = Permission(unmapped=BEN)
    gate.judge([seen("a", card("m")), seen("b", card("n"), BEN)])
    assert change(gate, by_owner=True) == [("b", "not_allowed")]
    assert change(gate) == [("b", "card")]


# Groups


async def test_groups_are_asked_for_anew_and_for_everybody() -> None:
    groups = {ANN: frozenset({RENDER}), BEN: frozenset[int]()}
    asked: list[int] = []

    def ask(uid: int) -> frozenset[int]:
        asked.append(uid)
        return groups[uid]

    gate = Permission(membership=Membership(ask))
    gate.judge([seen("a", card("m"))])
    entries = [Allow(group=RENDER)]
    await gate.prepare(entries, [BEN, None])
    assert sorted(asked) == [ANN, BEN]
    assert change(gate, *entries, sightings=[seen("b", card("n"), BEN)]) == [("b", "not_allowed")]
    groups[ANN], groups[BEN] = groups[BEN], groups[ANN]
    await gate.prepare(entries, ())
    assert change(gate, *entries) == [("a", "not_allowed"), ("b", "card")]


async def test_who_comes_while_the_host_is_asked_is_asked_for_too() -> None:
    gate: Permission

    def ask(uid: int) -> frozenset[int]:
        if uid == ANN:
            gate.judge([seen("b", card("n"), BEN)])
        return frozenset({RENDER})

    gate = Permission(membership=Membership(ask))
    gate.judge([seen("a", card("m"))])
    await gate.prepare([Allow(group=RENDER)], ())
    assert change(gate, Allow(group=RENDER)) == []


async def test_without_entries_for_groups_nobody_is_asked() -> None:
    def ask(uid: int) -> frozenset[int]:
        raise AssertionError(uid)

    gate = Permission(membership=Membership(ask))
    gate.judge([seen("a", card("m"))])
    await gate.prepare([Allow(user=ANN)], [BEN])
    assert change(gate, Allow(user=ANN)) == []


# The quota


def test_a_lower_quota_keeps_the_first_and_a_higher_one_lets_in_who_waits() -> None:
    gate = Permission()
    gate.judge(some(4))
    assert change(gate, quota=2) == [("2", "quota"), ("3", "quota")]
    assert change(gate, quota=3) == [("2", "card"), ("3", "quota")]
    assert change(gate, quota=3) == []
    assert change(gate) == [("3", "card")]


def test_who_is_newly_allowed_comes_after_who_counts_and_who_waits() -> None:
    gate = Permission([Allow(names=("m*",))], quota=2)
    gate.judge([*some(3), seen("0x", card("x"), mtime_ns=0)])
    # The limit stands in the reason of who waits, so that is told.
    assert change(gate, quota=3) == [("0x", "quota"), ("2", "card")]
    assert told(gate.judge([seen("0", None)])) == [("0", "gone"), ("0x", "card")]


def test_who_has_to_go_makes_room() -> None:
    gate = Permission(quota=2)
    gate.judge(some(3))
    assert change(gate, Allow(names=("m1", "m2")), quota=2) == [("0", "not_allowed"), ("2", "card")]


def test_what_leaves_in_the_same_batch_makes_room() -> None:
    gate = Permission(quota=3)
    gate.judge(some(3))
    gone = [seen("0", None)]
    assert change(gate, quota=2, sightings=gone) == [("0", "gone"), ("2", "card")]


def test_the_usual_quota_comes_with_a_directory_that_several_can_write() -> None:
    several = False
    gate = Permission(many_writers=lambda: several)
    gate.judge(some(USUAL_QUOTA + 1))
    several = True
    assert change(gate) == [(str(USUAL_QUOTA), "quota")]


def test_files_are_known_by_folder_until_they_are_gone() -> None:
    gate = Permission([Allow(names=("m",))])
    gate.judge([seen("a", card("m")), seen("b", card("x")), seen("c", TORN), seen("d", card("m"))])
    gate.judge([seen("d", None)])
    assert sorted(gate.files_in({"/cards"})) == ["/cards/a", "/cards/b", "/cards/c"]
    assert gate.files_in({"/other"}) == []


# Any change is as if the gate had had those terms from the beginning

TERMS = st.fixed_dictionaries(
    {
        "allow": st.sampled_from(
            [
                (),
                (Allow(user=ANN),),
                (Allow(names=("m0", "m1")), Allow(user=BEN)),
                (Allow(names=("x",)),),
            ]
        ),
        "by_owner": st.booleans(),
        "quota": st.sampled_from([None, 1, 2]),
    }
)
SEEN = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.sampled_from(["m0", "m1", "x", "torn", "gone"]),
        st.sampled_from([ANN, BEN, 0, None]),
    ),
    max_size=12,
)
CONTENTS: dict[str, Found] = {"gone": None, "torn": TORN}


def standings(registry: Registry) -> dict[str, tuple[str, ...]]:
    said: dict[str, tuple[str, ...]] = {}
    for record in registry.files:
        barred = () if record.barred is None else record.barred.reasons
        said[record.file] = tuple(each.rule for each in barred)
    return said


@settings(max_examples=300, deadline=None)
@given(first=SEEN, then=SEEN, terms=st.lists(TERMS, min_size=1, max_size=3))
def test_who_may_count_is_as_a_gate_says_that_was_restored_with_those_terms(
    first: list[tuple[str, str, int | None]],
    then: list[tuple[str, str, int | None]],
    terms: list[dict[str, object]],
) -> None:
    """As many count as may, none that no entry covers, and what is told is all that changes."""
    gate, registry = Permission(), Registry()
    clock = 0

    def see(drawn: list[tuple[str, str, int | None]]) -> None:
        nonlocal clock
        for file, what, uid in drawn:
            clock += 1
            found = CONTENTS.get(what, card(what, at=f"n/c/{file}/1"))
            # Whose a torn file is cannot be told, so it is whose it was.
            owner = None if what == "torn" else uid
            judged = gate.judge([seen(file, found, owner, clock)])
            registry.apply(Batch(sightings=tuple(judged)))

    see(first)
    for each in terms:
        gate.change(**each, folders={})  # type: ignore[arg-type]  # drawn as they are meant
        registry.apply(Batch(sightings=tuple(gate.judge([]))))
    see(then)
    restored = Permission(**terms[-1])  # type: ignore[arg-type]  # drawn as they are meant
    restored.restore(registry)
    again = [
        Sighting(file=r.file, found=r.card, mtime_ns=r.mtime_ns, owner=r.owner)
        for r in registry.files
        if r.card is not None and r.fault is None
    ]
    expected = standings(registry)
    registry.apply(Batch(sightings=tuple(restored.judge(again))))
    assert standings(registry) == expected
