"""What is known of one file whose card says what must hold, and of one lease that seems due.

Records and the one look at a file that is asked for here; what follows is liveness.py's business.
"""

import errno
import os
from collections.abc import Iterable
from typing import NamedTuple, Self

from discoveryd.core.batch import Barred, Invalid, Sighting
from discoveryd.core.card import Card, Liveness
from discoveryd.core.text import path_bytes
from discoveryd.core.verdict import Reason, Standing
from discoveryd.daemon.life.leases import Seen
from discoveryd.daemon.life.processes import Process


class Failing(NamedTuple):
    """Why each condition of a card fails; None where it holds or is not asked for."""

    lease: Reason | None = None
    process: Reason | None = None
    hold: Reason | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Those that there are; a card is alive while there are none."""
        return tuple(reason for reason in self if reason is not None)

    @classmethod
    def of(cls, reasons: Iterable[Reason]) -> Self:
        """Sort the reasons of an expired card."""
        by_rule = {reason.rule: reason for reason in reasons}
        return cls(*map(by_rule.get, ("lease_expired", "process_gone", "not_held")))


class Life:
    """What is known of one file.

    `card` is its last valid content, `fault` what is wrong with the present one. `mtime_ns` is the
    last that was seen; `remembered` says that the ledger saw it, before a restart. `observed` is
    the start time of the process, where the card does not give it. `told` is what was told last of
    the card, None before anything was.
    """

    __slots__ = (
        "card", "failing", "fault", "file", "mtime_ns", "observed", "owner", "process",
        "remembered", "told", "wanted",
    )  # fmt: skip

    def __init__(self, file: str, card: Card, wanted: Liveness) -> None:
        self.file = file
        self.card = card
        self.wanted = wanted
        self.fault: Invalid | None = None
        self.owner: int | None = None
        self.mtime_ns = 0
        self.observed: int | None = None
        self.process: Process | None = None
        self.remembered = False
        self.failing = Failing()
        self.told: tuple[Reason, ...] | None = None

    def sightings(self) -> list[Sighting]:
        """Return the card as it counts now, and then what is wrong with the file, if anything."""
        reasons = self.failing.reasons
        card = Sighting(
            file=self.file,
            found=Barred(self.card, Standing.EXPIRED, reasons) if reasons else self.card,
            mtime_ns=self.mtime_ns,
            owner=self.owner,
            observed=self.observed,
        )
        if self.fault is None:
            return [card]
        torn = Sighting(
            file=self.file,
            found=self.fault,
            mtime_ns=self.mtime_ns,
            owner=self.owner,
            observed=self.observed,
        )
        return [card, torn]


def modification_time(file: str) -> Seen:
    """Return the mtime of a card file, named as sightings name it."""
    return mtime_of(path_bytes(file))


def mtime_of(path: bytes) -> Seen:
    """Return the mtime of the file at this path."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  # a path in bytes
    except OSError as error:
        return "absent" if error.errno in (errno.ENOENT, errno.ENOTDIR) else None
