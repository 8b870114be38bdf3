"""What a measurement is: a row of the table, beside its peer. No measuring here.

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


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One thing measured.

    `what` says it to people; `unit` is of `ours` and `theirs`; `peer` names who `theirs` is of.
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
