"""The generator, and the recognisers of deviations, against what is known of the real Dynamo."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from tests.bench.oracle import deviations, holding, ours
from tests.bench.oracle.cases import Case, Lies, Registers, case, envelope, simpler, written
from tests.bench.oracle.worlds import (
    World,
    adapter_clash,
    blocked_first,
    no_record,
    order_of_builds,
)
from tests.core.reading import oracle

INSTANCES = [0x10, 0x11, 0x12]
MANY = 500

KNOWN = {
    "bb-both-empty-name": "no_name",
    "al-new-empty-alias": "no_name",
    "ae-existing-alias-empty-new-name-empty": "no_name",
    "bad-no-display-name": "unjudgeable",
    "bad-display-name-int": "unjudgeable",
    "bad-card-json-null": "unjudgeable",
    "bad-dup-keys-toplevel": "doubled",
    "mu-two-incompat-bases-preexisting-then-third-eq-first": "one_arbiter",
}
"""The rows of the recorded oracle that discoveryd judges otherwise, and the deviation each is."""


_OTHERS = (deviations.REFUSED, deviations.EDITED, deviations.NAMED, deviations.DOUBLED)

HARMLESS = {"sp-lora-missing-named-empty-vs-base-empty": "no_name"}
"""Rows that hold a deviation which leaves the verdict as it is."""


def steps_of(row: dict[str, Any]) -> tuple[list[Lies], Lies] | None:
    """Return a recorded row as the steps of a case; None where its files were cut or are none."""
    lying = []
    for entry in row["existing"]:
        if not isinstance(entry, dict) or "[[" in entry.get("raw", ""):
            return None
        body = entry.get("body", entry.get("raw"))
        text = body if isinstance(body, str) else json.dumps(body)
        lying.append(Lies(entry.get("file", "ns%2Foc%2Fe%2F5"), text))
    suffix = row["newcomer"]["model_suffix"]
    at = lying[0].file.split("%2F")[2] if lying and "%2F" in lying[0].file else "e"
    text = written(envelope(f"ns/oc/{at}", 99, row["newcomer"]["card_json"], suffix))
    name = f"ns%2Foc%2F{at}%2F63" + ("" if suffix is None else f"%2F{suffix}")
    return lying, Lies(name, text)


@pytest.mark.parametrize("row", oracle(), ids=lambda row: row["id"])
def test_recognisers_know_the_recorded_deviations_and_no_others(row: dict[str, Any]) -> None:
    steps = steps_of(row)
    if steps is None or row["id"] == "endpoint-prefix-not-confused":
        assert row["id"] not in KNOWN
        return
    lying, newcomer = steps
    found = deviations.invalid(newcomer)
    recognised = {found} if found else holding.held(lying, newcomer, INSTANCES).deviations
    expected = (KNOWN | HARMLESS).get(row["id"])
    assert recognised == (set() if expected is None else {expected})


def test_a_seed_and_a_number_always_make_the_same_case() -> None:
    assert case("a", 7) == case("a", 7)
    assert case("a", 7).steps != case("a", 8).steps
    assert case("a", 7).steps != case("b", 7).steps


def test_cases_collide_often_and_in_every_way() -> None:
    verdicts: Counter[str | None] = Counter()
    for number in range(MANY):
        one = case("collisions", number)
        assert isinstance(one.steps[-1], Registers)
        verdicts.update(ours.judged(one.steps, INSTANCES))
    assert min(verdicts["accept"], verdicts["reject"]) > MANY / 4
    assert verdicts["invalid"] > 0


def test_cases_hold_every_deviation() -> None:
    missing = {*deviations.INVALID, *_OTHERS}
    for number in range(20 * MANY):
        *before, newcomer = case("deviations", number).steps
        missing -= holding.held(before, newcomer, INSTANCES).deviations
        if not missing:
            break
    assert not missing


def test_a_second_spelling_of_a_key_is_recognised_as_its_duplicate() -> None:
    first = Lies("ns%2foc%2fe%2f{0}", written(envelope("ns/oc/e", 0, {"display_name": "m"})))
    second = Registers(worker=0, endpoint="ns/oc/e", source="A", name="m")
    assert holding.duplicate([first], second, INSTANCES)
    assert ours.judged([first, second], INSTANCES) == [None, "duplicate"]
    assert not holding.duplicate([second], second, INSTANCES)


def test_whatever_a_recogniser_calls_invalid_is_invalid_here() -> None:
    for number in range(MANY):
        for step in case("invalid", number).steps:
            if deviations.invalid(step) is not None:
                assert ours.read(step, INSTANCES) is None, step


def test_what_discoveryd_holds_suits_itself() -> None:
    for number in range(MANY):
        *before, newcomer = case("held", number).steps
        held = holding.held(before, newcomer, INSTANCES)
        asked = [
            Registers(
                worker=0,
                endpoint="ns/oc/elsewhere",
                source="A",
                name="m",
            )
        ]
        verdicts = ours.judged([*held.steps, *asked], INSTANCES)
        assert verdicts[-1] == "accept"
        assert holding.held(held.steps, asked[0], INSTANCES).steps == held.steps


def test_simpler_cases_are_smaller_and_keep_the_newcomer() -> None:
    size = len(msgspec.json.encode(one := case("shrinking", 3)))
    smaller = list(simpler(one))
    assert smaller
    for less in smaller:
        assert len(msgspec.json.encode(less)) < size
        assert isinstance(less.steps[-1], Registers)


def test_a_case_survives_being_written_down() -> None:
    one = case("written", 5)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Case) == one


def test_the_same_world_has_the_same_history_and_no_registration_that_would_be_refused() -> None:
    for number in range(50):
        one, same = World("w", number), World("w", number)
        assert [one.next_event() for _ in range(10)] == [same.next_event() for _ in range(10)]
        assert all(event.key.startswith(f"w{number}-") for event in one.history)


def test_worlds_hold_every_deviation_and_most_hold_none() -> None:
    worlds = [World("w", number) for number in range(200)]
    for world in worlds:
        for _ in range(10):
            world.next_event()
    seen = Counter(name for world in worlds for name in world.deviations)
    assert set(seen) == {
        each.__name__ for each in (order_of_builds, adapter_clash, blocked_first, no_record)
    }
    assert sum(not world.deviations for world in worlds) > len(worlds) / 2
