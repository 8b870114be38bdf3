"""The answer to one name: who serves it, and whether they are complete. Knows no other name."""

from functools import lru_cache
from typing import NamedTuple

from discoveryd.core.batch import Served
from discoveryd.core.card import Card, Key


class NameLine(NamedTuple):
    """One served name in short. `workers` counts the accepting ones."""

    name: str
    kind: str
    model: str
    workers: int
    ready: bool


class _Role(NamedTuple):
    """What readiness needs to know of a worker; many workers share one."""

    namespace: str
    worker_type: str
    needs: tuple[tuple[str, ...], ...]
    legacy: bool
    accepting: bool


# There are few roles, and many workers to each name.
_shared_role = lru_cache(maxsize=1024)(_Role)


def _role(card: Card) -> _Role:
    return _shared_role(
        card.key.namespace, card.worker_type, card.needs, card.legacy, card.accepting
    )


def _complete(accepting: list[_Role]) -> bool:
    """Whether the accepting workers of one namespace have all that they need.

    A worker that drains is as if it were gone; one that declares no type can do the whole job.
    """
    live = {role.worker_type for role in accepting}
    return any(role.legacy for role in accepting) or all(
        not role.needs or any(live.issuperset(wanted) for wanted in role.needs)
        for role in accepting
    )


class Answer:
    """Who answers one name. `kind` is primary, alias or adapter; `model` the name it stands for.

    A worker put in with an older rank than the last one's is not in its place until `order`.
    """

    __slots__ = ("_roles", "kind", "members", "model", "name")

    def __init__(self, name: str, *workers: Served) -> None:
        self.name = name
        self.model = self.kind = ""
        self.members: dict[Key, Served] = {}
        self._roles: dict[_Role, int] = {}
        for worker in workers:
            self.put(worker)

    def put(self, served: Served) -> None:
        """Enter a worker, or its next version in the same place.

        What the name stands for is said by the last worker put: between two changes all say the
        same.
        """
        card = served.card
        self.model = card.display_name
        self.kind = _kind(self.name, card)
        self.take(card.key, keep_place=True)
        self.members[card.key] = served
        role = _role(card)
        self._roles[role] = self._roles.get(role, 0) + 1

    def order(self) -> None:
        """Put the workers in admission order, after one has come in late."""
        self.members = dict(sorted(self.members.items(), key=lambda pair: pair[1].admission))

    def take(self, key: Key, *, keep_place: bool = False) -> None:
        """Take a worker out, if it is in."""
        served = self.members.get(key)
        if served is None:
            return
        if not keep_place:
            del self.members[key]
        role = _role(served.card)
        self._roles[role] -= 1
        if not self._roles[role]:
            del self._roles[role]

    @property
    def workers(self) -> list[Served]:
        """The accepting workers, in admission order."""
        return [served for served in self.members.values() if served.card.accepting]

    @property
    def line(self) -> NameLine:
        """The name in short."""
        accepting = sum(count for role, count in self._roles.items() if role.accepting)
        return NameLine(self.name, self.kind, self.model, accepting, self.ready)

    @property
    def ready(self) -> bool:
        """Whether the accepting workers are complete in at least one namespace."""
        crews: dict[str, list[_Role]] = {}
        for role in filter(lambda role: role.accepting, self._roles):
            crews.setdefault(role.namespace, []).append(role)
        return any(map(_complete, crews.values()))


def line_of_one(name: str, served: Served) -> NameLine:
    """Return the name in short, as `Answer(name, served).line` would."""
    card = served.card
    ready = card.accepting and (card.legacy or not card.needs or _complete([_role(card)]))
    return NameLine(name, _kind(name, card), card.display_name, int(card.accepting), ready)


def _kind(name: str, card: Card) -> str:
    return "adapter" if card.adapter else "primary" if name == card.display_name else "alias"
