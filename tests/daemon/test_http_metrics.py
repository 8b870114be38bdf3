"""What is counted, and what Prometheus' own parser reads of it."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from discoveryd.core.batch import Sighting
from discoveryd.daemon.http.calls import BOUNDS, Calls, Tally
from discoveryd.daemon.ledger.ledger import Ledger
from discoveryd.daemon.writer import Writer
from discoveryd.varlink import CallError, InvalidParameter, Method
from tests.core.cards import TORN, card
from tests.daemon.sites import Place

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


async def samples(place: Place) -> Samples:
    """Return everything that is told, by name and labels."""
    status, body = await place.get("/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def of(told: Samples, name: str, **labels: str) -> float | None:
    return told.get((f"discoveryd_{name}", tuple(sorted(labels.items()))))


def counting(calls: Calls, **answers: object) -> dict[str, Method]:
    """Return counted methods of these names, each with what it answers or raises."""

    def answering(answer: object) -> Method:
        def give(*_: object) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return Method(Nothing, give)

    named = {f"io.toy.{name}": answering(answer) for name, answer in answers.items()}
    return calls.counted(named)


def call(methods: dict[str, Method], name: str) -> object:
    return methods[f"io.toy.{name}"].answer(Nothing(), None, False)


# Calls


def test_what_a_method_answers_is_left_as_it_is() -> None:
    methods = counting(Calls(), List=b"l", Watch=InvalidParameter("name"))
    assert call(methods, "List") == b"l"
    with pytest.raises(CallError):
        call(methods, "Watch")


def test_every_call_is_counted_and_timed_whether_it_fails_or_not() -> None:
    calls = Calls()
    methods = counting(calls, List=b"", Check=InvalidParameter("card"))
    for _ in range(5):
        call(methods, "List")
        with pytest.raises(CallError):
            call(methods, "Check")
    told = {name: (tally.calls, sum(tally.classes)) for name, tally in calls.tallies.items()}
    assert told == {"List": (5, 5), "Check": (5, 5)}
    assert all(tally.seconds > 0 for tally in calls.tallies.values())


def test_a_method_that_keeps_its_own_tally_is_called_as_it_is() -> None:
    calls, own = Calls(), Tally(timed=False)
    method = Method(Nothing, lambda *_: b"")
    assert calls.counted({"io.toy.Resolve": method}, {"io.toy.Resolve": own}) == {
        "io.toy.Resolve": method
    }
    assert calls.tallies == {"Resolve": own}


async def test_an_answer_that_takes_time_is_timed_until_it_is_there() -> None:
    calls = Calls()

    async def later() -> bytes:
        return b"later"

    methods = counting(calls, Sync=later())
    tally = calls.tallies["Sync"]
    waiting = call(methods, "Sync")
    assert (tally.calls, sum(tally.classes)) == (1, 0)
    assert await waiting == b"later"  # type: ignore[misc]  # what it is, is to be seen
    assert sum(tally.classes) == 1


async def test_a_stream_is_timed_until_it_begins_only() -> None:
    calls = Calls()

    async def stream() -> AsyncIterator[bytes]:
        yield b"item"

    made = stream()
    assert call(counting(calls, Watch=made), "Watch") is made
    assert sum(calls.tallies["Watch"].classes) == 1
    assert [item async for item in made] == [b"item"]


def test_a_duration_is_put_into_the_class_that_holds_it() -> None:
    calls = Calls()
    counting(calls, List=b"")
    tally = calls.tallies["List"]
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] + 1):
        tally.note(seconds)
    assert tally.classes[:2] == [2, 1]
    assert tally.classes[-2:] == [1, 1]


def test_errors_are_counted_by_method_and_invented_methods_as_one() -> None:
    calls = Calls()
    counting(calls, Resolve=b"")
    for method in ("io.toy.Resolve", "io.toy.Resolve", "io.toy.X", "Y", "a.Z"):
        calls.refused(method, "io.toy.NoSuchModel")
    assert calls.errors == {
        ("Resolve", "io.toy.NoSuchModel"): 2,
        ("other", "io.toy.NoSuchModel"): 3,
    }


# Metrics


async def test_prometheus_reads_every_figure() -> None:
    place = Place({"alias": "a"})
    await place.drop(card("a", ("b",)), card("c", at="ns/d/e/1", source="/other"))
    counting(place.calls, Resolve=b"", List=b"")
    place.calls.tallies["Hold"] = Tally(timed=False)
    tally = place.calls.tallies["Resolve"]
    tally.calls = 300
    tally.note(2e-5)
    tally.note(20.0)
    place.calls.refused("io.toy.Resolve", "io.toy.NoSuchModel")
    told = await samples(place)
    assert of(told, "cards", standing="serving") == 2
    assert of(told, "cards", standing="refused") == 0
    assert (of(told, "workers"), of(told, "names")) == (2, 4)
    assert of(told, "revision") == 1
    assert of(told, "calls_total", method="Resolve") == 300
    assert of(told, "calls_total", method="List") == 0
    refused = {"method": "Resolve", "error": "io.toy.NoSuchModel"}
    assert of(told, "call_errors_total", **refused) == 1
    assert of(told, "call_seconds_bucket", method="Resolve", le="1e-05") == 0
    assert of(told, "call_seconds_bucket", method="Resolve", le="2.5e-05") == 1
    assert of(told, "call_seconds_bucket", method="Resolve", le="+Inf") == 2
    assert of(told, "call_seconds_count", method="Resolve") == 2
    assert of(told, "calls_total", method="Hold") == 0
    assert of(told, "call_seconds_count", method="Hold") is None
    assert of(told, "call_seconds_sum", method="Resolve") == pytest.approx(20.00002)
    assert (of(told, "watchers"), of(told, "connections"), of(told, "problems")) == (1, 2, 0)
    assert of(told, "uptime_seconds") == 7
    directory = {"directory": "/cards"}
    assert of(told, "directory_watching", **directory) == 1
    assert of(told, "directory_files", **directory) == 3
    assert of(told, "directory_scan_seconds", **directory) == 0.25
    assert of(told, "directory_found_by_scan_total", **directory) == 2
    assert of(told, "ledger_behind") is None


async def test_cards_are_counted_by_their_standings() -> None:
    place = Place()
    await place.drop(card("a"))
    await place.writer.apply([Sighting(file="/cards/torn.json", found=TORN)])
    told = await samples(place)
    assert of(told, "cards", standing="serving") == 1
    assert of(told, "cards", standing="invalid") == 1


async def test_a_ledger_that_cannot_be_written_lags() -> None:
    ledger = Ledger("/nowhere/at/all/ledger")
    place = Place()
    place.writer = Writer("epoch", {}, ledger)
    place.site = type(place.site)(place.writer, place, place.calls)
    await ledger.open()
    await place.drop(card("a"))
    told = await samples(place)
    assert of(told, "ledger_behind") == 1
    assert of(told, "ledger_events_unwritten") == 1


async def test_names_of_directories_cannot_break_the_format() -> None:
    place = Place()
    place.change_directory(path='/a"b\\c\nd')
    told = await samples(place)
    assert of(told, "directory_files", directory='/a"b\\c\nd') == 3
