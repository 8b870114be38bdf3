"""What a measurement is: a row of the table, beside its peer, and its figures for people.

No measuring here.

A part of the benchmark is a module with `NAME`, the word that chooses it, and `measure(setup)`,
which yields rows as they are ready. Ours and the peer's are measured in turns, in the same run.
"""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """What was seen: the median, and the range without the highest and lowest twentieth."""

    median: float
    low: float
    high: float
    runs: int


def spread(seen: Sequence[float]) -> Spread:
    """Return the spread of at least one measurement."""
    ordered = sorted(seen)
    cut = len(ordered) // 20
    return Spread(statistics.median(ordered), ordered[cut], ordered[-1 - cut], len(ordered))


TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
SIZES = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
UNITS = {*TIMES, *SIZES, "bytes a card", "calls/s", "/s", "%", "times", "answers", "cases"}
"""What rows are measured in. Times and sizes are shown in whichever unit suits the figure."""


def figures(values: Sequence[float], unit: str) -> tuple[list[str], str]:
    """Return values as people read them, all in the unit that suits the first; and that unit."""
    for scale in (TIMES, SIZES):
        if unit in scale:
            first = abs(values[0]) * scale[unit]
            fitting = [other for other, one in scale.items() if first >= one]
            chosen = fitting[-1] if fitting else next(iter(scale))
            return [_three_digits(value * scale[unit] / scale[chosen]) for value in values], chosen
    return [_three_digits(value) for value in values], unit


def figure(seen: Spread, unit: str) -> str:
    """Return a spread as people read it: `2.31 ms (1.90 to 3.05)`."""
    (median, low, high), shown = figures((seen.median, seen.low, seen.high), unit)
    return f"{median} {shown}" + (f" ({low} to {high})" if low != high else "")


def _three_digits(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One thing measured.

    `what` says it to people; `unit`, one of UNITS, is of `ours` and `theirs`; `peer` names who
    `theirs` is of.
    `target` says what is promised, in words, and `met` whether it was kept; both None where nothing
    is. `missing` says why a peer could not be measured: such a row is shown, loudly.
    """

    part: str
    what: str
    unit: str
    ours: Spread | None
    better: Literal["less", "more"] = "less"
    peer: str | None = None
    theirs: Spread | None = None
    target: str | None = None
    met: bool | None = None
    missing: str | None = None

    @property
    def ratio(self) -> float | None:
        """How many times the peer ours is."""
        if self.ours is None or self.theirs is None or not self.theirs.median:
            return None
        return self.ours.median / self.theirs.median


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What parts are told: `quick` asks for seconds instead of minutes, with the same rows.

    `peers` is the directory that the peers' own environments are installed in; it may lack any.
    """

    quick: bool
    peers: Path


class Part(Protocol):
    """A module that measures."""

    NAME: str

    def measure(self, setup: Setup) -> Iterator[Row]:
        """Yield rows as they are ready."""
        ...
