"""Hosts in this process, with few and with very many cards, whose changes can be measured.

A host here is what the daemon has: a registry and its published answers. Costs are processor time,
so that a neighbour on the machine does not count.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from discoveryd.core.answers import Answers
from discoveryd.core.batch import Batch, Found, Sighting
from discoveryd.core.card import Card
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Standing

MakeCard = Callable[[int], Card]


class Host:
    """A registry and its answers, with the cards that `make` made for `numbers`, all serving."""

    def __init__(self, make: MakeCard, numbers: Sequence[int] = ()) -> None:
        self.make = make
        self.numbers = numbers
        self.registry = Registry()
        self.answers = Answers("epoch")
        self.apply({file_of(number): make(number) for number in numbers})
        assert self.registry.standings[Standing.SERVING] == len(numbers)

    def apply(self, found: dict[str, Found]) -> None:
        """Apply one batch and publish it."""
        self.answers.publish(self.registry.apply(batch(found)))

    def cost(self, found: dict[str, Found]) -> int:
        """Apply one batch and publish it; return the nanoseconds that took."""
        whole = batch(found)
        began = time.process_time_ns()
        self.answers.publish(self.registry.apply(whole))
        return time.process_time_ns() - began

    def standing(self, file: str) -> Standing | None:
        """Return what became of a file."""
        verdict = self.registry.verdict(file)
        return None if verdict is None else verdict.standing

    def any_number(self) -> int:
        """Return the number of one of the cards."""
        return random.choice(self.numbers)  # noqa: S311  # no secret

    def shrink(self, left: int) -> None:
        """Let all but the last cards leave, one after another."""
        leaving, self.numbers = self.numbers[:-left], self.numbers[-left:]
        for number in leaving:
            self.apply({file_of(number): None})


def file_of(number: int) -> str:
    """Return the file that holds a host's card of that number."""
    return f"/cards/{number}.json"


def batch(found: dict[str, Found]) -> Batch:
    """Return what one look found, in this order."""
    return Batch(
        sightings=tuple(
            Sighting(file=file, found=content, mtime_ns=place, owner=1000)
            for place, (file, content) in enumerate(found.items())
        )
    )


@contextmanager
def without_collector() -> Iterator[None]:
    """Make many things at once without the collector looking through all of them again and again.

    Those who stay are then put aside for good, as in the daemon after its start.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
