"""What one more change costs among few cards and among very many, and what a card costs in memory.

Hosts of all sizes take turns, and the medians of many turns are compared, so that what slows the
machine for a while slows all of them. What moves at once is counted by the card. Memory is what the
registry, its answers and the cards hold, without the JSON; what the rest of the daemon keeps beside
is in the part `start`.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Batch, Sighting
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.registry import Registry
from tests.bench import daemons
from tests.bench.hosts import Host, file_of, without_collector
from tests.bench.moves import Measured, PerCard, many_primaries
from tests.bench.table import Row, Setup, Spread, spread

NAME = "growth"

SIZES = (100, 1_000, 10_000, 100_000)
QUICK_SIZES = (100, 1_000)
CROWDS = (10, 100, 1_000, 10_000)
QUICK_CROWDS = (10, 100)
TURNS = 200
QUICK_TURNS = 20

MOST_GROWTH = 1.5
MOST_BYTES = 2048

_ALONE = {
    "admission": "one more card admitted",
    "removal": "one card removed",
    "judged_edit": "one card's names edited",
    "unjudged_edit": "one card's labels edited",
    "refusal": "one card refused",
}
_AT_ONCE = {
    "unblocked_when_the_name_gets_free": "promotion when a name gets free, per card woken",
    "registered_when_the_card_that_refused_them_leaves": "promotion when a rival leaves, per card",
    "promoted_when_the_incumbent_leaves": "cohort switch when the incumbent leaves, per member",
    "handed_over_with_the_last_edit": "cohort switch with the last edit, per member",
}


def measure(setup: Setup) -> Iterator[Row]:
    """Yield what a change costs with growing numbers, in microseconds, then bytes a card."""
    sizes = QUICK_SIZES if setup.quick else SIZES
    turns = QUICK_TURNS if setup.quick else TURNS
    with without_collector():
        hosts = [Host(many_primaries, range(size)) for size in sizes]
    for move, what in _ALONE.items():
        seen = _in_turns(hosts, getattr(Measured(), move), turns)
        said = [f"{what}, {size:,} on its endpoint" for size in sizes]
        yield from _compared(said, seen)
    gc.unfreeze()
    crowds = QUICK_CROWDS if setup.quick else CROWDS
    for move, what in _AT_ONCE.items():
        each: Callable[[int], float] = getattr(PerCard(), move)
        seen = [[each(crowd) / 1e3 for _ in range(_rounds(crowd, turns))] for crowd in crowds]
        yield from _compared([f"{what}, {crowd:,} of them" for crowd in crowds], seen)
    for size in sizes:
        taken = lone_card_bytes(size)
        yield Row(
            part=NAME,
            what=f"registry, answers and card, beside its JSON, {size:,} lone cards",
            unit="bytes a card",
            ours=Spread(taken, taken, taken, 1),
            target=f"at most {MOST_BYTES:,}",
            met=taken <= MOST_BYTES,
        )


def lone_card_bytes(cards: int) -> float:
    """Return how many bytes a card takes, beside its JSON, of cards that have nothing in common."""
    gc.collect()
    tracemalloc.start()
    try:
        registry, answers = Registry(), Answers("epoch")
        contents = [daemons.flat_card(number) for number in range(cards)]
        sightings = tuple(
            Sighting(file=file_of(number), found=parse_card(content, stem=str(number)), owner=1000)
            for number, content in enumerate(contents)
        )
        json_bytes = sum(map(len, contents))
        answers.publish(registry.apply(Batch(sightings=sightings, now=time.time())))
        answers.history.forget()
        del contents, sightings
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (held - json_bytes) / cards


def _in_turns(
    hosts: Sequence[Host], one_turn: Callable[[Host], int], turns: int
) -> list[list[float]]:
    """Return the microseconds of each turn, for each host."""
    seen: list[list[float]] = [[] for _ in hosts]
    for _ in range(turns):
        for host, taken in zip(hosts, seen, strict=True):
            taken.append(one_turn(host) / 1e3)
    return seen


def _rounds(crowd: int, turns: int) -> int:
    """Return how often so many cards are made to move: small crowds oftener, since they vary."""
    return max(3, min(turns, 2_000) // max(10, crowd) * 2)


def _compared(what: Sequence[str], seen: Sequence[Sequence[float]]) -> Iterator[Row]:
    """Yield a row for each number of cards; all but the first are held against the first."""
    first = spread(seen[0])
    for place, (said, taken) in enumerate(zip(what, seen, strict=True)):
        ours = spread(taken)
        flat = ours.median <= MOST_GROWTH * first.median
        yield Row(
            part=NAME,
            what=said,
            unit="us",
            ours=ours,
            target=f"at most {MOST_GROWTH} times the fewest" if place else None,
            met=flat if place else None,
        )
