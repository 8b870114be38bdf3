"""Ours and a peer's measured in turns: what slows the machine for a while slows both."""

import http.client
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from tests.bench.peers.children import Missing
from tests.bench.table import Row, spread

Once = Callable[[int], float]
"""Measures once and returns seconds. The number is of the turn, and never the same twice."""


class Peer(NamedTuple):
    """A peer: whose numbers they are, and what runs it meanwhile and gives what measures it.

    It raises Missing, in the beginning or later, where the peer cannot be had or measured.
    """

    name: str
    running: Callable[[], AbstractContextManager[Once]]


class Turns(NamedTuple):
    """How often is measured, and whether a first turn is thrown away, being of cold caches."""

    measured: int
    warm_up: bool = True


def beside(part: str, what: str, ours: Once, peer: Peer, turns: Turns) -> Row:
    """Measure in turns. Ours is measured whether there is a peer or not."""
    numbers = range(turns.measured + turns.warm_up)
    seen_ours: list[float] = []
    seen_theirs: list[float] = []
    missing: str | None = None
    try:
        with peer.running() as theirs:
            for number in numbers:
                seen_ours.append(ours(number))
                seen_theirs.append(_once(theirs, number))
    except Missing as why:
        missing = str(why)
        seen_ours += [ours(number) for number in numbers[len(seen_ours) :]]
        seen_theirs.clear()
    our_spread = spread(seen_ours[turns.warm_up :])
    their_spread = spread(seen_theirs[turns.warm_up :]) if seen_theirs else None
    return Row(
        part=part,
        what=what,
        unit="s",
        ours=our_spread,
        peer=peer.name,
        theirs=their_spread,
        target="less than the peer's",
        met=None if their_spread is None else our_spread.median < their_spread.median,
        missing=missing,
    )


def _once(theirs: Once, number: int) -> float:
    """Measure a peer's turn; one that stops answering is missing from then on."""
    try:
        return theirs(number)
    except (OSError, http.client.HTTPException) as wrong:
        raise Missing(f"it failed in turn {number + 1}: {wrong!r}") from wrong
