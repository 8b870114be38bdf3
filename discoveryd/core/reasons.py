"""Why an entry waits, in words and as data, worked out when somebody asks.

A pure reading of the arbiter's books as they stand: nothing is stored, so no reason is ever stale.
"""

from collections.abc import Iterable
from itertools import islice
from typing import cast

import msgspec

from discoveryd.core import rules
from discoveryd.core.arbiter import Arbiter
from discoveryd.core.card import Card, Key
from discoveryd.core.entry import Entry
from discoveryd.core.text import quoted
from discoveryd.core.verdict import Reason, Standing

_MOST_AGAINST = 10

_FURTHER_FIELDS = (
    "kv_cache_block_size",
    "model_info",
    "tokenizer",
    "prompt_formatter",
    "chat_template_file",
    "gen_config",
    "extra_files",
    "prompt_context",
    "router_config",
    "indexer_identity",
)
"""What the fingerprint covers besides the members of `Card`."""


def reasons_for(arbiter: Arbiter, entry: Entry) -> tuple[Reason, ...]:
    """Return why the entry has its standing; nothing for one that serves its present content."""
    match entry.standing:
        case Standing.REFUSED if isinstance(entry.watching, tuple):
            return (refused(arbiter, entry.want, entry.watching),)
        case Standing.ORPHAN:
            return (orphaned(arbiter, entry.want),)
        case Standing.STANDBY:
            return (standing_by(arbiter, entry.want, arbiter.groups[entry.want.group].firm),)
        case Standing.BLOCKED if isinstance(entry.watching, str):
            return (blocked(arbiter, entry.want, entry.watching, entry.owner),)
        case _:
            return ()


def refused(arbiter: Arbiter, card: Card, blocker: Key) -> Reason:
    """Return the pairwise rule by which the registered card at `blocker` refuses `card`."""
    incumbent = arbiter.entries[blocker]
    reason = rules.conflict(card, incumbent.want)
    if reason is None:
        raise AssertionError(f"{card.key} was refused for {blocker}, but no rule says so")
    return Reason(
        rule=reason.rule,
        message=reason.message,
        field=reason.field,
        found=reason.found,
        expected=reason.expected,
        against=(incumbent.file,),
    )


def orphaned(arbiter: Arbiter, card: Card) -> Reason:
    """Return why a card has no ground to serve on."""
    model = quoted(card.display_name)
    if card.half_adapter:
        return Reason(
            rule="half_adapter",
            message=(
                f"{model} is half an adapter: an adapter needs both the member `lora` and"
                " a model suffix in its key. Add the one that is missing, or drop the other"
            ),
            field="lora",
        )
    if not card.anchored:
        return Reason(
            rule="no_instance",
            message=(
                f"The store has no instance record for {card.key.base}, so nobody knows where "
                f"{model} can be reached. The worker writes it when its endpoint "
                "starts serving"
            ),
            expected=str(card.key.base),
        )
    base = arbiter.base_of(card.key)
    holder = arbiter.entries.get(card.key.base)
    if base is None or holder is None:
        state = "does not serve" if holder is not None else "is not there"
        return Reason(
            rule="no_base",
            message=(
                f"The base of adapter {model} {state}: an adapter serves on the base "
                f"card of its own instance, {card.key.base}. Drop that card, or give this one the "
                "url, endpoint and instance of its base"
            ),
            field="source_path",
            expected=str(card.key.base),
            against=() if holder is None else (holder.file,),
        )
    conflict = rules.conflict(card, base)
    return Reason(
        rule="no_base",
        message=(
            f"The base served on {card.key.base} does not suit adapter {model}"
            f"{'' if conflict is None else ': ' + conflict.message}"
        ),
        field=None if conflict is None else conflict.field,
        found=None if conflict is None else conflict.found,
        expected=None if conflict is None else conflict.expected,
        against=(holder.file,),
    )


def standing_by(arbiter: Arbiter, card: Card, rivals: Iterable[Key]) -> Reason:
    """Return what sets the card apart from `rivals`, members of the cohort that serves instead."""
    incumbents = [arbiter.entries[key] for key in islice(rivals, _MOST_AGAINST)]
    model, other = quoted(card.display_name), incumbents[0].want
    field, found, expected = difference(card, other)
    return Reason(
        rule="other_fingerprint",
        message=(
            f"{model} is served already on {'/'.join(card.key.place)} with another "
            f"configuration: {field} {expected}, where this card says {found}. This card stands by "
            "and takes over when all workers of that configuration are gone; to serve beside them, "
            "make the cards equal or use another endpoint or namespace"
        ),
        field=field,
        found=found,
        expected=expected,
        against=tuple(entry.file for entry in incumbents),
    )


def difference(card: Card, other: Card) -> tuple[str, str, str]:
    """Return the first member in which two fingerprints differ, and its two values, as text."""
    for field in ("source_path", "aliases", "context_length", "worker_type", "needs"):
        mine, its = getattr(card, field), getattr(other, field)
        if mine != its:
            return field, _text(mine), _text(its)
    if card.legacy != other.legacy:
        declared = [None if each.legacy else each.worker_type for each in (card, other)]
        return "worker_type", _text(declared[0]), _text(declared[1])
    mine, its = _members(card.content), _members(other.content)
    for field in _FURTHER_FIELDS:
        if mine.get(field) != its.get(field):
            return field, _text(mine.get(field)), _text(its.get(field))
    return "fingerprint", card.fingerprint, other.fingerprint


def _members(content: bytes) -> dict[str, object]:
    card = msgspec.json.decode(content or b"{}", type=dict[str, object])
    nested = card.get("card_json")
    return cast("dict[str, object]", nested) if isinstance(nested, dict) else card


def _text(value: object) -> str:
    if value is None:
        return "absent"
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return ", ".join(map(_text, items)) or "none"
    return str(value)


def blocked(arbiter: Arbiter, card: Card, name: str, owner: int | None) -> Reason:
    """Return who has the name that the card, of this owner's, would have to claim."""
    names, taken = arbiter.names, quoted(name)
    if name in names.operator:
        return Reason(
            rule="operator_claim",
            message=(
                f"The name {taken} belongs to the operator: the configuration's [aliases] sends "
                f"it to {quoted(names.operator[name])}. Choose another name, or have that "
                "line removed"
            ),
            field="display_name" if name == card.display_name else "aliases",
            found=name,
        )
    mine, its = arbiter.claim_of(card, owner), arbiter.claim_on(name)
    if its is not None and mine._replace(owner=its.owner) == its:
        return other_owner(arbiter, name, owner, names.firm.members(name, _MOST_AGAINST))
    claimants = [arbiter.entries[key] for key in names.firm.members(name, _MOST_AGAINST)]
    first = claimants[0].want
    kind = "adapter" if first.adapter else "primary" if first.display_name == name else "alias"
    return Reason(
        rule="name_claimed",
        message=(
            f"The name {taken} is taken: it is the {kind} of {quoted(first.display_name)} "
            f"({first.key}). Choose another name; this card serves when that one leaves"
        ),
        field="display_name" if name == card.display_name else "aliases",
        found=name,
        against=tuple(entry.file for entry in claimants),
    )


def other_owner(arbiter: Arbiter, name: str, owner: int | None, claimants: Iterable[Key]) -> Reason:
    """Return why a card may not join claimants of the name, who mean the same but are another's."""
    entries = [arbiter.entries[key] for key in islice(claimants, _MOST_AGAINST)]
    other = entries[0]
    return Reason(
        rule="other_owner",
        message=(
            f"{quoted(name)} is served by cards of {_user(other.owner)}, and this card is "
            f"{_user(owner)}'s: on this host all who serve a name have one owner. Choose another "
            f"name, or publish as {_user(other.owner)}; this card serves when those leave"
        ),
        field="owner",
        found=None if owner is None else str(owner),
        expected=None if other.owner is None else str(other.owner),
        against=tuple(entry.file for entry in entries),
    )


def _user(uid: int | None) -> str:
    return "an unknown user" if uid is None else f"uid {uid}"


def duplicate(card: Card, holder: Entry) -> Reason:
    """Return why a second card for one key waits, and how two names share one server."""
    advice = (
        "list the other name under aliases there"
        if card.display_name not in holder.want.names
        else "drop one of the two files"
    )
    return Reason(
        rule="duplicate_key",
        message=(
            f"{holder.file} holds the key {card.key} already. If both cards speak of one server, "
            f"{advice}; if they speak of two, give them different urls or instances"
        ),
        field="key",
        found=str(card.key),
        against=(holder.file,),
    )
