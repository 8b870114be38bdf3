"""How fast calls are answered: ratios only. The numbers are printed by `tests.bench resolve`."""

import statistics
from collections.abc import Iterator

import pytest

from tests.bench import daemons

pytestmark = [pytest.mark.bench, pytest.mark.timeout(120)]

ATTEMPTS = 3
CARDS = 1_000

KNOWN = daemons.call("Resolve", name="acme/model-50")
UNKNOWN = daemons.call("Resolve", name="acme/model-none")


@pytest.fixture(scope="module")
def daemon() -> Iterator[daemons.Daemon]:
    with daemons.workplace() as place:
        for number in range(CARDS):
            (place / "cards" / f"{number}.json").write_bytes(daemons.flat_card(number))
        with daemons.running(place) as running:
            yield running


def test_an_unknown_name_is_answered_at_least_a_fifth_as_fast_as_a_known_one(
    daemon: daemons.Daemon,
) -> None:
    seen: list[float] = []
    for _ in range(ATTEMPTS):
        known, unknown = (
            statistics.median(
                daemons.pipelined(daemon, frame, batch=16, seconds=0.2) for _ in range(5)
            )
            for frame in (KNOWN, UNKNOWN)
        )
        seen.append(unknown / known)
        if seen[-1] >= 0.2:
            return
    raise AssertionError(f"unknown names are answered at {seen} times the speed of known ones")
