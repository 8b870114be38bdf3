"""Random histories of groups: workers and adapters that come and go, for the frontend to list.

A *world* is a few workers that ask for a few names, which nobody else asks for, so that hundreds of
worlds live side by side in one store and each is judged alone. Its events are such as real
workers cause: nobody comes whom registration would refuse, and no card is edited, since Dynamo
refuses both.

Which worlds may be listed differently is said by functions named for a deviation, from the history
alone; their numbers are those of the list in `discoveryctl help dynamo`.
"""

import random
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from discoveryd.core.card import Card, Group, Key
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.rules import compatible

Json = dict[str, Any]

_SOURCES = ("A", "B")
_MOST_WORKERS = 6
_TRIES = 20


class Event(msgspec.Struct, frozen=True):
    """What happens to a key.

    Its card comes; or it is written again as it was; or it leaves, a worker's with its adapters. A
    worker's instance record alone goes, or comes back.
    """

    what: Literal["comes", "is rewritten", "leaves", "loses its record", "has its record"]
    key: str
    card: Json | None = None


class World:
    """One world: `next_event` makes the next event, and takes it for having happened."""

    def __init__(self, seed: str, number: int) -> None:
        self._rng = random.Random(f"{seed}/{number}")  # noqa: S311  # no secret
        self.name = f"w{number}-"
        self.history: list[Event] = []
        self.standing: dict[str, Card] = {}
        self.deviations: set[str] = set()
        self.groups: set[Group] = set()
        self._cards: dict[str, Json] = {}
        self._unrecorded: set[str] = set()
        self._names = [f"{self.name}{letter}" for letter in "abcd"]
        self._instance = number << 16
        self._roles = self._rng.random() < 0.2
        self._clashes = self._rng.random() < 0.15
        self._records = self._rng.random() < 0.3

    def next_event(self) -> Event:
        """Return what happens next."""
        for _ in range(_TRIES):
            event = self._any_event()
            if event.what != "comes" or self._may_register(event):
                break
        else:
            event = Event("leaves", self._rng.choice(list(self.standing)))
        self._happen(event)
        return event

    def _any_event(self) -> Event:
        rng, workers = self._rng, [key for key in self.standing if key.count("/") == 3]
        if not workers or (len(workers) < _MOST_WORKERS and rng.random() < 0.5):
            self._instance += 1
            return Event("comes", f"{self._endpoint()}/{self._instance:x}", self._worker())
        if rng.random() < 0.4:
            at = rng.choice(workers)
            name = f"{self.name}l{rng.choice('123')}"
            if self._clashes and rng.random() < 0.5:
                name = rng.choice(self._names)
            card: Json = {"display_name": name, "lora": {"name": name}}
            card["source_path"] = self.standing[at].source_path
            return Event("comes", f"{at}/{name}", card)
        key, kind = rng.choice(list(self.standing)), rng.random()
        if kind < 0.1:
            return Event("is rewritten", key, self._cards[key])
        if key in self._unrecorded:
            return Event("has its record", key)
        if self._records and kind < 0.4 and key in workers:
            return Event("loses its record", key)
        return Event("leaves", key)

    def _endpoint(self) -> str:
        return f"{self.name}n{self._rng.choice(('/c', '/c', '-v2/d'))}/e"

    def _worker(self) -> Json:
        rng = self._rng
        card: Json = {"display_name": rng.choice(self._names), "source_path": rng.choice(_SOURCES)}
        aliases = rng.choices(self._names, k=rng.choice((0, 0, 1, 1, 2)))
        if aliases:
            card["aliases"] = aliases
        card["kv_cache_block_size"] = rng.choice((16, 16, 16, 32))
        card["user_data"] = rng.choice((None, {"any": 1}))
        if self._roles:
            card |= rng.choice(_ROLES)
        return card

    def _may_register(self, event: Event) -> bool:
        if event.key in self.standing:
            return False
        card = read(event)
        return all(
            compatible(card, other)
            for other in self.standing.values()
            if other.key.place == card.key.place
        )

    def _happen(self, event: Event) -> None:
        self.history.append(event)
        match event.what:
            case "comes":
                self._come(event)
            case "leaves":
                self._leave(event.key)
            case "loses its record":
                self._unrecorded.add(event.key)
            case "has its record":
                self._unrecorded.remove(event.key)
        for recognises in (adapter_clash, blocked_first):
            if recognises(list(self.standing.values())):
                self.deviations.add(recognises.__name__)
        if no_record(self.standing, self._unrecorded):
            self.deviations.add(no_record.__name__)

    def _come(self, event: Event) -> None:
        self.standing[event.key] = card = read(event)
        self._cards[event.key] = event.card or {}
        if not card.adapter:
            self.groups.add(card.group)

    def _leave(self, key: str) -> None:
        left = self.standing.pop(key)
        self._unrecorded.discard(key)
        for adapter in [other for other in self.standing if other.startswith(f"{key}/")]:
            del self.standing[adapter]
        if order_of_builds(list(self.standing.values()), left):
            self.deviations.add(order_of_builds.__name__)


_ROLES: tuple[Json, ...] = (
    {"worker_type": "decode", "needs": [["prefill"]]},
    {"worker_type": "prefill", "model_type": "Prefill", "needs": [["decode"]]},
    {},
)


def read(event: Event) -> Card:
    """Return the card of an event."""
    assert event.card is not None
    namespace, component, endpoint, instance, *suffix = event.key.split("/")
    key = Key(namespace, component, endpoint, instance, *suffix)
    whole = {
        "type": "Model",
        "namespace": namespace,
        "component": component,
        "endpoint": endpoint,
        "instance_id": int(instance, 16),
        "card_json": event.card,
    }
    if suffix:
        whole["model_suffix"] = suffix[0]
    return parse_card(msgspec.json.encode(whole), stem="", key=key)


def order_of_builds(standing: list[Card], left: Card) -> bool:
    """5. Names are claimed in order of arrival; in Dynamo it is who is built first: of several
    that wait for the names of one who left, another may have them there."""
    freed = set(left.names)
    return len({card.display_name for card in standing if freed & set(card.names)}) > 1


def adapter_clash(standing: list[Card]) -> bool:
    """7. A clash over an adapter's name blocks that adapter alone; in Dynamo its whole group."""
    primaries = {card.key: card.display_name for card in standing if not card.adapter}
    models: dict[str, set[str]] = {}
    for card in standing:
        for name in card.names:
            # A base asks for its names as its own; an adapter for its name as its base's.
            model = f"on {primaries.get(card.key.base)}" if card.adapter else card.display_name
            models.setdefault(name, set()).add(model)
    return any(card.adapter and len(models[card.display_name]) > 1 for card in standing)


def blocked_first(standing: list[Card]) -> bool:
    """13. A configuration of a group that is blocked keeps no other of the group waiting; in Dynamo
    the first one has the group, even while somebody else has its names."""
    bases = [card for card in standing if not card.adapter]
    return any(
        one.group == later.group
        and one.fingerprint != later.fingerprint
        and any(
            set(one.names) & set(other.names) and one.display_name != other.display_name
            for other in standing
        )
        for place, one in enumerate(bases)
        for later in bases[place + 1 :]
    )


def no_record(standing: Mapping[str, Card], unrecorded: Collection[str]) -> bool:
    """14. A card without its instance record has no names and no group; in Dynamo it keeps both,
    and nobody serves them."""
    for key in unrecorded:
        base = standing[key]
        lost = {at: card for at, card in standing.items() if f"{at}/".startswith(f"{key}/")}
        names = {name for card in lost.values() for name in card.names}
        for other in (card for at, card in standing.items() if at not in lost):
            if other.display_name != base.display_name and names & set(other.names):
                return True
            if _rivals(base, other):
                return True
    return False


def _rivals(base: Card, other: Card) -> bool:
    """Whether the other is another configuration of the base's group."""
    return not other.adapter and other.group == base.group and other.fingerprint != base.fingerprint
