"""What goes into the registry and what comes out of it: sightings in, one change out.

Plain values only. The registry's theory stands at the top of registry.py.
"""

from collections.abc import Mapping

import msgspec

from discoveryd.core.card import Card, Key
from discoveryd.core.verdict import Reason, Standing


class Invalid(msgspec.Struct, frozen=True):
    """The file's present content is no card, or cannot be read. The last valid content stays."""

    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...] = ()


class Barred(msgspec.Struct, frozen=True):
    """A valid card that may not count: `forbidden` or `expired`. It is withdrawn at once."""

    card: Card
    standing: Standing
    reasons: tuple[Reason, ...]


Found = Card | Invalid | Barred | None
"""What a look at a file found; None: the file is gone."""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one card file.

    `file` names it for people and for ever (the directory's path and the name, undecodable bytes
    escaped). `mtime_ns` orders arrivals within a batch. `owner` is the file's uid. `observed` is
    the start time of the process that the card names, as it was first seen, where that is known.
    """

    file: str
    found: Found
    mtime_ns: int = 0
    owner: int | None = None
    observed: int | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one scan, or one drained group of events, found: at most one sighting a file.

    A file whose present content is invalid may be sighted twice, first with its last valid card as
    that counts now, then as `Invalid`.

    `operator_aliases`, where not None, replaces the configured table. `now` is wall-clock time in
    seconds since the epoch, for `Verdict.since` only.
    """

    sightings: tuple[Sighting, ...] = ()
    operator_aliases: Mapping[str, str] | None = None
    now: float = 0.0


_SHOWN = (
    "key",
    "display_name",
    "aliases",
    "adapter",
    "url",
    "accepting",
    "model_type",
    "worker_type",
    "legacy",
    "needs",
    "context_length",
    "source_path",
    "fingerprint",
    "labels",
)
"""The members of a card that answers are made of."""


class Served(msgspec.Struct, frozen=True, gc=False):
    """A version in the answers. `admission` orders workers; `firm` is False for a courtesy."""

    card: Card
    file: str
    admission: int
    firm: bool

    def looks_like(self, other: "Served") -> bool:
        """Whether an answer that holds the one reads the same with the other in its place."""
        mine, its = self.card, other.card
        return self.file == other.file and (
            mine is its or all(getattr(mine, field) == getattr(its, field) for field in _SHOWN)
        )


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What applying one batch changed.

    `served` holds, for every key whose served version is another than before, the present one, or
    None, new ones in admission order. `judged` names the files whose verdict changed (ask the
    registry for it), `forgotten` those that are gone, each with its last valid card.
    `operator_aliases` is the new table if it changed.

    `keys` and `files` are for who keeps the state (state.py): everything whose state may be another
    now, what is gone included. That alone is nothing that anyone could see.
    """

    served: Mapping[Key, Served | None]
    judged: tuple[str, ...]
    forgotten: Mapping[str, Card | None]
    operator_aliases: Mapping[str, str] | None = None
    keys: tuple[Key, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing changed that anyone could see."""
        return not (
            self.served or self.judged or self.forgotten or self.operator_aliases is not None
        )
