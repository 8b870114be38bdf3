"""The card: one worker's statement of what it serves, and the key it is registered under.

Here live the values that the rules compare. How JSON becomes a `Card` is the business of parsing/,
how cards are compared is rules.py's. Nothing here may decide a standing.
"""

from typing import NamedTuple

import msgspec

from discoveryd.core.verdict import Reason

Endpoint = tuple[str, str, str]
"""Namespace, component, endpoint: the scope of the pairwise rules. Never a URL."""

Group = tuple[str, Endpoint, str | None, str]
"""Primary, endpoint, model_type, effective worker_type: the workers that share one pipeline."""


class Key(NamedTuple):
    """The identity of a registration, whatever file holds it. `suffix` is set for adapters."""

    namespace: str
    component: str
    endpoint: str
    instance: str
    suffix: str | None = None

    def __str__(self) -> str:
        """Return the key as Dynamo writes it: its segments joined by slashes."""
        return "/".join(self[:4] if self.suffix is None else (*self[:4], self.suffix))

    @property
    def place(self) -> Endpoint:
        """The endpoint this key lies on."""
        return self[:3]

    @property
    def base(self) -> "Key":
        """The key of the base card on the same instance; the key itself for a base."""
        return self if self.suffix is None else Key(*self[:4])


class Liveness(msgspec.Struct, frozen=True, gc=False):
    """What must hold for the card to count: all that is given."""

    lease_seconds: float | None = None
    pid: int | None = None
    pid_start: int | None = None
    pid_namespace: int | None = None
    held: bool = False


class Card(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One valid model card, read as Dynamo reads it, defaults applied.

    `aliases` keeps the strings as written, own primary and repeats included, since their order is
    part of the fingerprint; `alternates` is what they amount to as names. `half_adapter` marks a
    card with a suffix or a `lora` but not both where both are needed. `anchored` is False only for
    a card of a Dynamo store that has no instance record. `content` is the file's bytes.
    """

    key: Key
    display_name: str
    aliases: tuple[str, ...] = ()
    source_path: str | None = None
    adapter: bool = False
    half_adapter: bool = False
    anchored: bool = True
    model_type: str | None = None
    worker_type: str = "aggregated"
    legacy: bool = True
    needs: tuple[tuple[str, ...], ...] = ()
    context_length: int | None = None
    fingerprint: str = ""
    url: str | None = None
    accepting: bool = True
    labels: dict[str, str] | None = None
    liveness: Liveness | None = None
    warnings: tuple[str, ...] = ()
    content: bytes = b""

    @property
    def identity(self) -> str:
        """The base identity: `source_path` where present, even if empty, else `display_name`."""
        return self.display_name if self.source_path is None else self.source_path

    @property
    def alternates(self) -> tuple[str, ...]:
        """The served names besides the primary, once each, in order; none for an adapter."""
        if self.adapter or not self.aliases:
            return ()
        if len(self.aliases) == 1:
            return () if self.aliases[0] == self.display_name else self.aliases
        others = dict.fromkeys(self.aliases)
        others.pop(self.display_name, None)
        return tuple(others)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name the card asks to serve, the primary first."""
        return (self.display_name, *self.alternates)

    @property
    def group(self) -> Group:
        """The group a base card belongs to."""
        return (self.display_name, self.key.place, self.model_type, self.worker_type)

    def judged_like(self, other: "Card") -> bool:
        """Whether no gate and no fingerprint could tell the two versions apart.

        `anchored` is left out: it says whether the worker is there, not what it asks for.
        """
        if self.adapter or other.adapter:
            return (
                self.key == other.key
                and self.adapter == other.adapter
                and self.half_adapter == other.half_adapter
                and self.display_name == other.display_name
                and self.source_path == other.source_path
            )
        return (
            self.key == other.key
            and self.group == other.group
            and self.fingerprint == other.fingerprint
        )


class InvalidCard(Exception):
    """The bytes are no card. `reasons` holds every fault found, each with its JSON path."""

    def __init__(self, reasons: tuple[Reason, ...], warnings: tuple[str, ...] = ()) -> None:
        super().__init__("; ".join(reason.message for reason in reasons))
        self.reasons = reasons
        self.warnings = warnings
