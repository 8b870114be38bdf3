"""What reading a card finds: faults, which make it invalid, and warnings, which do not.

Whatever reads a part of the card (names.py, keys.py, roles.py, urls.py, extras.py, nearmiss.py)
reports here, so that a person learns everything at once. Nothing here may know a member of a card.
"""

import json
from collections.abc import Sequence
from typing import TypeGuard

from discoveryd.core.card import InvalidCard
from discoveryd.core.text import quoted, shortened
from discoveryd.core.verdict import Reason

MOST = 100
"""Faults of one card that are told one by one, and warnings; the rest is counted."""

_EXCERPT = 100

U32 = 2**32 - 1
U64 = 2**64 - 1


class Findings:
    """The faults and warnings of one card, in the order in which they were found."""

    __slots__ = ("_more_faults", "_more_warnings", "faults", "warnings")

    def __init__(self) -> None:
        self.faults: list[Reason] = []
        self.warnings: list[str] = []
        self._more_faults = 0
        self._more_warnings = 0

    def fault(
        self, rule: str, path: str, what: str, *, found: object = None, expected: str | None = None
    ) -> None:
        """Note that the card is invalid. `what` continues a sentence that begins with the path."""
        subject = "the card" if path == "$" else path
        if len(self.faults) >= MOST:
            self._more_faults += 1
            return
        self.faults.append(
            Reason(
                rule=rule,
                message=f"{subject} {what}",
                field=path,
                found=None if found is None else excerpt(found),
                expected=expected,
            )
        )

    def wrong_type(self, path: str, found: object, expected: str) -> None:
        """Note that a member has the wrong shape; `expected` says which is right."""
        self.fault(
            "wrong_type",
            path,
            f"is {kind(found)}, but must be {expected}",
            found=found,
            expected=expected,
        )

    def warn(self, path: str, what: str) -> None:
        """Note an oddity; `what` says what was read instead."""
        if len(self.warnings) >= MOST:
            self._more_warnings += 1
            return
        self.warnings.append(f"{path}: {what}")

    def all_warnings(self) -> tuple[str, ...]:
        """Return the warnings, closed by the number of those left out."""
        if self._more_warnings:
            return (*self.warnings, f"$: {self._more_warnings} more warnings like these")
        return tuple(self.warnings)

    def invalid(self) -> InvalidCard:
        """Return the exception that tells every fault found."""
        faults = self.faults
        if self._more_faults:
            message = f"{self._more_faults} more faults like these"
            faults = [*faults, Reason(rule="more_faults", message=message, field="$")]
        return InvalidCard(tuple(faults), self.all_warnings())


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a decoded JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether a decoded JSON value is a list."""
    return isinstance(value, list)


def is_unsigned(value: object, most: int) -> TypeGuard[int]:
    """Whether a decoded JSON value is an integer from 0 to `most`; true and 16.0 are none."""
    return type(value) is int and 0 <= value <= most


def kind(value: object) -> str:
    """Say what sort of JSON value this is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def excerpt(value: object) -> str:
    """Return a string as it is, anything else as JSON, both cut where they are long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, _EXCERPT)


def member_path(at: str, name: str) -> str:
    """Return the JSON path of a member of the object at `at`."""
    if name.isascii() and name.isidentifier():
        return f"{at}.{name}" if len(name) <= _EXCERPT else f"{at}.{name[:_EXCERPT]}..."
    return f"{at}[{json.dumps(name[:_EXCERPT])}]"


def one_of(words: Sequence[str]) -> str:
    """Return the words as people list alternatives: quoted, with an "or" before the last."""
    *rest, last = map(quoted, words)
    return f"{', '.join(rest)} or {last}"
