"""Random histories of groups: workers and adapters that come and go, for the frontend to list.

A *world* is a few workers that ask for a few names, which nobody else asks for, so that hundreds of
worlds live side by side in one store and each is judged alone. Its events are such as real
workers cause: nobody comes whom registration would refuse, and no card is edited, since Dynamo
refuses both.

Which worlds may be listed differently is said by functions named for a deviation, from the history
alone; their numbers are those of the list in `discoveryctl help dynamo`.
"""

import random
from typing import Any

import msgspec

from discoveryd.core.card import Card, Group, Key
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.rules import compatible

Json = dict[str, Any]

_SOURCES = ("A", "B")
_MOST_WORKERS = 6
_TRIES = 20


class Event(msgspec.Struct, frozen=True):
    """A card comes to a key; or, `card` being None, it leaves, a worker's with its adapters."""

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
        self._names = [f"{self.name}{letter}" for letter in "abcd"]
        self._instance = number << 16
        self._roles = self._rng.random() < 0.2
        self._clashes = self._rng.random() < 0.15

    def next_event(self) -> Event:
        """Return what happens next."""
        for _ in range(_TRIES):
            event = self._any_event()
            if event.card is None or self._may_register(event):
                break
        else:
            event = Event(self._rng.choice(list(self.standing)))
        self._happen(event)
        return event

    def _any_event(self) -> Event:
        rng, workers = self._rng, [key for key in self.standing if key.count("/") == 3]
        if not workers or (len(workers) < _MOST_WORKERS and rng.random() < 0.5):
            self._instance += 1
            return Event(f"{self._endpoint()}/{self._instance:x}", self._worker())
        if rng.random() < 0.4:
            at = rng.choice(workers)
            name = f"{self.name}l{rng.choice('123')}"
            if self._clashes and rng.random() < 0.5:
                name = rng.choice(self._names)
            card = {"display_name": name, "lora": {"name": name}}
            return Event(f"{at}/{name}", card | {"source_path": self.standing[at].source_path})
        return Event(rng.choice(list(self.standing)))

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
        if event.card is not None:
            self.standing[event.key] = card = read(event)
            if not card.adapter:
                self.groups.add(card.group)
        else:
            left = self.standing.pop(event.key)
            for key in [key for key in self.standing if key.startswith(f"{event.key}/")]:
                del self.standing[key]
            if order_of_builds(list(self.standing.values()), left):
                self.deviations.add(order_of_builds.__name__)
        for recognises in (adapter_clash, blocked_first):
            if recognises(list(self.standing.values())):
                self.deviations.add(recognises.__name__)


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
    return any(
        one.display_name in other.names and one.display_name != other.display_name
        if not other.adapter
        else one.display_name == other.display_name and one.source_path != other.source_path
        for one in standing
        if one.adapter
        for other in standing
        if other is not one
    )


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
