"""Counting calls of the interface: how many, how long their answers took, which errors they got.

Theory
======

Only a daemon that serves HTTP counts, since nobody else would read it; without, methods are called
as they are. Each call is timed, until its answer is there or, where that comes in pieces or is a
stream, until it begins. Resolve is answered in so few microseconds that this would be a twentieth
of them: it keeps its own tally, by one addition a call or less (api.py, varlink/recall.py), and is
not timed.

Errors are told by whoever sends them (conversation.py), since a call may be refused before any
method has it.
"""

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import msgspec

from discoveryd.varlink import Method

BOUNDS = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 5e-3, 2.5e-2, 0.1, 1.0, 10.0)
"""The upper ends of the classes into which durations are put, in seconds; the last has none."""

OTHER = "other"
"""The method of calls of what the interface does not have: anybody can invent names."""


class Tally:
    """What is known of the calls of one method; of one that is not `timed`, only how many."""

    __slots__ = ("calls", "classes", "seconds", "timed")

    def __init__(self, *, timed: bool = True) -> None:
        self.timed = timed
        self.calls = 0
        self.classes = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        """Put one duration into its class."""
        self.classes[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class Calls:
    """The tallies of all methods, by their names without the interface's, and errors by both."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.errors: dict[tuple[str, str], int] = {}
        self._short: dict[str, str] = {}

    def counted(
        self, methods: Mapping[str, Method], kept: Mapping[str, Tally] | None = None
    ) -> dict[str, Method]:
        """Return the methods, by their whole names, such that their calls are counted.

        Those in `kept`, by whole names, too, keep that tally themselves.
        """
        counted: dict[str, Method] = {}
        for whole, method in methods.items():
            tally = None if kept is None else kept.get(whole)
            counted[whole] = method
            if tally is None:
                tally = Tally()
                answer = _counted(method.answer, tally)
                counted[whole] = msgspec.structs.replace(method, answer=answer)
            short = self._short[whole] = whole.rpartition(".")[2]
            self.tallies[short] = tally
        return counted

    def refused(self, method: str, error: str, calls: int = 1) -> None:
        """Count an error that so many calls of this method got."""
        at = (self._short.get(method, OTHER), error)
        self.errors[at] = self.errors.get(at, 0) + calls


def _counted(answer: Callable[..., object], tally: Tally) -> Callable[..., object]:
    def counted(*call: object) -> object:
        tally.calls += 1
        began = time.perf_counter()
        later = False
        try:
            answered = answer(*call)
            if isinstance(answered, Awaitable):
                later = True
                return _timed(cast("Awaitable[object]", answered), tally, began)
            return answered
        finally:
            if not later:
                tally.note(time.perf_counter() - began)

    return counted


async def _timed(answer: Awaitable[object], tally: Tally, began: float) -> object:
    try:
        return await answer
    finally:
        tally.note(time.perf_counter() - began)
