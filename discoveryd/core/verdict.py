"""Standings, reasons and verdicts: what became of a card, and why, as data.

Nothing here decides anything; the gates do (gates.py), and rules.py compares cards.
"""

from enum import StrEnum

import msgspec


class Standing(StrEnum):
    """What became of a card. A card that has not passed every gate carries the first it failed."""

    SERVING = "serving"
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    EXPIRED = "expired"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    ORPHAN = "orphan"
    STANDBY = "standby"
    BLOCKED = "blocked"


class Serves(StrEnum):
    """Which version of a file's card is in the answers."""

    CURRENT = "current"
    PREVIOUS = "previous"
    NOTHING = "nothing"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a card has its standing.

    `rule` is a stable word for programs, `message` a sentence for people that says what to do.
    `field` is the JSON path or member at fault, `found` and `expected` its two sides, `against`
    the files of at least one and at most ten cards it conflicts with.
    """

    rule: str
    message: str
    field: str | None = None
    found: str | None = None
    expected: str | None = None
    against: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon says of one card file: always of its present content.

    `since` is the wall-clock time (seconds since the epoch) at which the verdict became what it is.
    `key` and `model` are None where the file never held a valid card.
    """

    file: str
    key: str | None
    model: str | None
    names: tuple[str, ...]
    standing: Standing
    serves: Serves
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]
    owner_uid: int | None
    since: float
