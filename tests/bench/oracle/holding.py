"""What discoveryd holds registered before a newcomer, as Dynamo would have to see it.

This is how a deviation is more than a word: discoveryd's verdict on a newcomer must be the real
runtime's on the same newcomer beside those cards only that are held here, and a card of the case
may only be missing, or be changed, for a reason that has a name (deviations.py). So nothing is
waved through.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from discoveryd.core.card import Card
from discoveryd.core.rules import compatible
from tests.bench.oracle import deviations, ours
from tests.bench.oracle.cases import Lies, Registers, Step

Json = dict[str, Any]


class Held(NamedTuple):
    """What discoveryd holds registered before the last step, as Dynamo would have to see it.

    `deviations` are the names of those that made it other than what lies there.
    """

    steps: tuple[Step, ...]
    deviations: frozenset[str]


class _Entry(NamedTuple):
    step: Step
    card: Card


def duplicate(steps: Sequence[Step], newcomer: Step, instances: Sequence[int]) -> bool:
    """Whether the newcomer's key is that of a file before it with another name."""
    card = ours.read(newcomer, instances)
    if card is None:
        return False
    return any(
        step.file != newcomer.file
        and (former := ours.read(step, instances)) is not None
        and former.key == card.key
        for step in steps
    )


def held(steps: Sequence[Step], newcomer: Step, instances: Sequence[int]) -> Held:
    """Return what is registered after these steps, but for what the newcomer replaces."""
    registered: list[_Entry] = []
    waiting: list[_Entry] = []
    unread: list[Step] = []
    names: set[str] = set()
    for step in steps:
        if (name := deviations.invalid(step)) is not None:
            names.add(name)
            continue
        card = ours.read(step, instances)
        if card is None:
            unread.append(step)
            continue
        _replace(card, registered, waiting, names)
        waiting.append(_Entry(_single(step, instances, names), card))
        for entry in list(waiting):
            if all(_suit(entry.card, other.card) for other in registered):
                waiting.remove(entry)
                registered.append(entry)
    card = ours.read(newcomer, instances)
    if card is not None:
        _replace(card, registered, waiting, names)
    if any(isinstance(entry.step, Lies) for entry in waiting):
        names.add(deviations.REFUSED)
    # A file that was overwritten with what is no card keeps its last card, and holds up no edit.
    edited = {entry.step.file for entry in registered} | {newcomer.file}
    if any(step.file in edited for step in unread):
        names.add(deviations.EDITED)
        unread = [step for step in unread if step.file not in edited]
    stand = (Lies(entry.step.file, entry.step.text) for entry in registered)
    return Held((*unread, *stand), frozenset(names))


def _replace(card: Card, registered: list[_Entry], waiting: list[_Entry], names: set[str]) -> None:
    """Take out what lies under the key of a card that comes."""
    for group in (registered, waiting):
        for former in [entry for entry in group if entry.card.key == card.key]:
            names.add(deviations.EDITED)
            group.remove(former)


def _suit(card: Card, other: Card) -> bool:
    return card.key.place != other.key.place or compatible(card, other)


def _single(step: Step, instances: Sequence[int], names: set[str]) -> Step:
    """Return the step with every member of its envelope once, the last, and its file's suffix."""
    if isinstance(step, Registers):
        return step
    outermost: list[tuple[str, Any]] = []

    def once(pairs: list[tuple[str, Any]]) -> Json:
        outermost[:] = pairs  # the outermost object comes last
        return dict(pairs)

    text = ours.content(step, instances).decode("utf-8", "surrogatepass")
    envelope = json.loads(text, object_pairs_hook=once)
    suffix = (deviations.segments(step.file) or [])[4:]
    changed = set()
    if len(envelope) < len(outermost):
        changed.add(deviations.DOUBLED)
    if suffix and envelope.get("model_suffix") is None:
        changed.add(deviations.NAMED)
        envelope["model_suffix"] = suffix[0]
    names |= changed
    return Lies(step.file, json.dumps(envelope)) if changed else step
