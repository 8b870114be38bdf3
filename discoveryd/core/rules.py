"""The pairwise rules: whether two cards on one endpoint may be registered together.

The rules, in order
===================

They are Dynamo's (1.5 and later), and this file is their specification: the registry judges by
counts (endpoint.py) and is tested against it. Everything is compared byte by byte: no case folding,
no trimming, no reading of paths.

*Two bases* with equal primaries suit each other, whatever else they say. With different primaries
they must come from one source and share no name:

1. `no_source`: a `source_path` is absent, or both are empty;
2. `different_source`: the two differ;
3. `name_taken`: one's primary is the other's alias, or they share an alias.

*A base and an adapter*, whichever came first:

4. `different_base`: their base identities differ. An empty `source_path` counts here: it is equal
   to another empty one;
5. `adapter_name_taken`: the adapter's name is the base's primary or one of its aliases.

*Two adapters* are held to rule 4 only: the same adapter on many workers is normal, and their
aliases are nobody's.

The relation is symmetric and **not transitive**: A and B, B and C may suit each other where A and C
do not. Cards on different endpoints are never compared; the callers see to that. Nothing here may
know more than two cards.
"""

from discoveryd.core.card import Card
from discoveryd.core.text import quoted, shortened
from discoveryd.core.verdict import Reason

_LONGEST_SIDE = 1000
"""Characters of a source that a reason holds as data: sources are as long as cards may be."""


def conflict(newcomer: Card, incumbent: Card) -> Reason | None:
    """Return why the newcomer may not join the incumbent on their endpoint; None if it may.

    Both cards must lie on one endpoint. Swapping them changes the words, never whether there is a
    reason, nor its rule. `against` is left empty: cards do not know their files.
    """
    if newcomer.adapter:
        if incumbent.adapter:
            return _different_base(newcomer, incumbent)
        return _different_base(newcomer, incumbent) or _adapter_name_taken(newcomer, incumbent)
    if incumbent.adapter:
        return _different_base(newcomer, incumbent) or _adapter_name_taken(newcomer, incumbent)
    if newcomer.display_name == incumbent.display_name:
        return None
    return (
        _no_source(newcomer, incumbent)
        or _different_source(newcomer, incumbent)
        or _name_taken(newcomer, incumbent)
    )


def compatible(a: Card, b: Card) -> bool:
    """Whether two cards on one endpoint may be registered together."""
    return conflict(a, b) is None


def _no_source(newcomer: Card, incumbent: Card) -> Reason | None:
    mine, theirs = newcomer.source_path, incumbent.source_path
    if mine is not None and theirs is not None and (mine or theirs):
        return None
    lacking = [
        f"{quoted(card.display_name)} has {'none' if card.source_path is None else 'an empty one'}"
        for card in (newcomer, incumbent)
        if not card.source_path
    ]
    return Reason(
        rule="no_source",
        message=(
            f"{_both(newcomer, incumbent)}: different names on one endpoint must come from one "
            f"source_path, and {' and '.join(lacking)}. Give both the same source_path, or give "
            "one of them another component"
        ),
        field="source_path",
        found=_side(mine),
        expected=_side(theirs),
    )


def _different_source(newcomer: Card, incumbent: Card) -> Reason | None:
    mine, theirs = newcomer.source_path, incumbent.source_path
    if mine == theirs:
        return None
    return Reason(
        rule="different_source",
        message=(
            f"{_both(newcomer, incumbent)}: different names on one endpoint must come from one "
            f"source_path, and {quoted(mine or '')} is not {quoted(theirs or '')}; they are "
            "compared byte by byte. Write the same source_path in both, or give one of them "
            "another component"
        ),
        field="source_path",
        found=_side(mine),
        expected=_side(theirs),
    )


def _name_taken(newcomer: Card, incumbent: Card) -> Reason | None:
    if not newcomer.aliases and not incumbent.aliases:
        return None
    theirs = set(incumbent.names)
    shared = [name for name in newcomer.names if name in theirs]
    if not shared:
        return None
    return Reason(
        rule="name_taken",
        message=(
            f"{_both(newcomer, incumbent)}: two models on one endpoint may share no name, and "
            f"both ask for {_listed(shared)}. Take the shared name out of one card"
        ),
        field=_asked_as(newcomer, shared[0]),
        found=shared[0],
    )


def _different_base(newcomer: Card, incumbent: Card) -> Reason | None:
    mine, theirs = newcomer.identity, incumbent.identity
    if mine == theirs:
        return None
    return Reason(
        rule="different_base",
        message=(
            f"{_both(newcomer, incumbent)}: an adapter may only share an endpoint with its own "
            f"base and that base's adapters, and {_stated(newcomer)} is not {_stated(incumbent)}; "
            "they are compared byte by byte. Write the base's source_path in the adapter's card, "
            "or give one of them another component"
        ),
        field="display_name" if newcomer.source_path is None else "source_path",
        found=_side(mine),
        expected=_side(theirs),
    )


def _adapter_name_taken(newcomer: Card, incumbent: Card) -> Reason | None:
    adapter, base = (newcomer, incumbent) if newcomer.adapter else (incumbent, newcomer)
    name = adapter.display_name
    if name != base.display_name and name not in base.aliases:
        return None
    part = "primary name" if name == base.display_name else "alias"
    return Reason(
        rule="adapter_name_taken",
        message=(
            f"{_both(newcomer, incumbent)}: an adapter needs a name of its own, and "
            f"{quoted(name)} is the base's {part}. Rename the adapter, or the base's name"
        ),
        field=_asked_as(newcomer, name),
        found=name,
    )


def _side(text: str | None) -> str | None:
    return None if text is None else shortened(text, _LONGEST_SIDE)


def _both(newcomer: Card, incumbent: Card) -> str:
    return f"{_shown(newcomer)} cannot join {_shown(incumbent)}"


def _shown(card: Card) -> str:
    kind = "adapter " if card.adapter else ""
    return f"{kind}{quoted(card.display_name)} (key {quoted(str(card.key))[1:-1]})"


def _stated(card: Card) -> str:
    if card.source_path is None:
        return f"display_name {quoted(card.display_name)} (which stands in for a source_path)"
    return f"source_path {quoted(card.source_path)}"


def _asked_as(card: Card, name: str) -> str:
    return "display_name" if name == card.display_name else "aliases"


def _listed(names: list[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"  # noqa: PLR2004  # enough to see
