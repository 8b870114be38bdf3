"""The published answers: who serves which name, as of one revision.

Whoever asks is answered from here, never from the registry, which may be in the middle of a batch.
`publish` takes over one change at a time, whole; its cost is that of the change. Workers stand in
admission order everywhere: a dict keeps its order, an edit keeps its place, and what is admitted
anew goes to the end, since admission ranks only grow.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from discoveryd.core.batch import Change, Served
from discoveryd.core.card import Card, Key
from discoveryd.core.history import Cursor, History
from discoveryd.core.keyindex import KeyIndex
from discoveryd.core.similar import SimilarNames


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
    """Who answers one name. `kind` is primary, alias or adapter; `model` the name it stands for."""

    __slots__ = ("_roles", "kind", "members", "model", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.model = self.kind = ""
        self.members: dict[Key, Served] = {}
        self._roles: dict[_Role, int] = {}

    def put(self, served: Served) -> None:
        """Enter a worker, or its next version in the same place.

        What the name stands for is said by the last worker put: between two changes all say the
        same.
        """
        card = served.card
        self.model = card.display_name
        self.kind = "adapter" if card.adapter else "primary" if self.name == self.model else "alias"
        self.take(card.key, keep_place=True)
        last = next(reversed(self.members.values()), None)
        new = card.key not in self.members
        self.members[card.key] = served
        if new and last is not None and served.admission < last.admission:
            # An edit that kept its rank declares an alias that it did not.
            self.members = dict(sorted(self.members.items(), key=lambda pair: pair[1].admission))
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


class Published(NamedTuple):
    """One revision: its cursor, the names whose answer it may have altered, the changed keys."""

    cursor: Cursor
    names: tuple[str, ...]
    keys: tuple[Key, ...]


class Answers:
    """The answers of one epoch, and their history.

    `models` is how many names are served that others may stand for: primaries and adapters.
    """

    def __init__(self, epoch: str, operator_aliases: Mapping[str, str] | None = None) -> None:
        self.history = History(epoch)
        self.workers: dict[Key, Served] = {}
        self.models = 0
        self._answers: dict[str, Answer] = {}
        self._operator: dict[str, str] = dict(operator_aliases or {})
        self._operator_by_target = _by_target(self._operator)
        self._similar = SimilarNames()

    def resume(self, revision: int, served: Iterable[Served]) -> None:
        """Begin where other answers of this epoch ended, with what they told at `revision`.

        `served` comes in admission order.
        """
        present = {version.card.key: version for version in served}
        self.publish(Change(served=present, judged=(), forgotten={}))
        self.history = History(self.cursor.epoch, revision=revision)

    @property
    def cursor(self) -> Cursor:
        """The revision that is being answered from."""
        return self.history.cursor

    def __len__(self) -> int:
        """How many names are served, operator aliases included."""
        return len(self._answers) + sum(self.line(name) is not None for name in self._operator)

    def publish(self, change: Change) -> Published | None:
        """Take a change over as the next revision; None for a change that is none."""
        if change.empty:
            return None
        before = {name: self.line(name) for name in self._touched(change)}
        late: dict[str, None] = {}
        for key, served in change.served.items():
            self._replace(key, served, late)
        for name in late:
            self._answers[name].order()
        if change.operator_aliases is not None:
            self._operator = dict(change.operator_aliases)
            self._operator_by_target = _by_target(self._operator)
        told: dict[str, bool] = {}
        for name, old in before.items():
            new = self.line(name)
            if old != new:
                told[name] = new is not None
                self.models += _is_model(new) - _is_model(old)
            if old is None and new is not None:
                self._similar.add(name)
            elif old is not None and new is None:
                self._similar.discard(name)
        keys = {key: served is not None for key, served in change.served.items()}
        return Published(self.history.advance(keys, told), tuple(before), tuple(keys))

    def _touched(self, change: Change) -> dict[str, None]:
        """Return the names whose answer a change may alter."""
        touched: dict[str, None] = {}
        for key, served in change.served.items():
            for version in (self.workers.get(key), served):
                for name in () if version is None else version.card.names:
                    touched[name] = None
                    touched.update(dict.fromkeys(self._operator_by_target.members(name)))
        table = change.operator_aliases
        if table is not None:
            for name in self._operator.keys() | table.keys():
                if self._operator.get(name) != table.get(name):
                    touched[name] = None
        return touched

    def _replace(self, key: Key, served: Served | None, late: dict[str, None]) -> None:
        """Enter a version; add to `late` the names that are new to it, though its rank is not."""
        old = self.workers.get(key)
        stays = old is not None and served is not None and old.admission == served.admission
        for name in () if old is None else old.card.names:
            if stays and served is not None and name in served.card.names:
                continue
            left = self._answers[name]
            left.take(key)
            if not left.members:
                del self._answers[name]
        if old is not None and not stays:
            del self.workers[key]
        if served is None:
            return
        self.workers[key] = served
        for name in served.card.names:
            answer = self._answers.get(name)
            if answer is None:
                answer = self._answers[name] = Answer(name)
            answer.put(served)
            if stays and old is not None and name not in old.card.names:
                late[name] = None

    def resolve(self, name: str) -> tuple[Answer, str] | None:
        """Return who answers the name, and its kind; None if nobody does.

        An operator alias is one hop away from a primary or adapter, and answers as that does.
        """
        target = self._operator.get(name)
        answer = self._answers.get(name if target is None else target)
        if answer is None:
            return None
        if target is None:
            return answer, answer.kind
        return None if answer.kind == "alias" else (answer, "operator")

    def target(self, name: str) -> str:
        """Return what the operator made of a name; the name itself where nothing."""
        return self._operator.get(name, name)

    def line(self, name: str) -> NameLine | None:
        """Return the name in short, or None if nobody serves it."""
        found = self.resolve(name)
        if found is None:
            return None
        answer, kind = found
        return answer.line if kind == answer.kind else answer.line._replace(name=name, kind=kind)

    def names(self) -> list[str]:
        """Return every name that may be served, the operator's last; those need not be."""
        return [*self._answers, *self._operator]

    def lines(self) -> Iterator[NameLine]:
        """Yield every served name in short, the operator's last."""
        for answer in self._answers.values():
            yield answer.line
        for name in self._operator:
            line = self.line(name)
            if line is not None:
                yield line

    def similar(self, name: str) -> list[str]:
        """Return at most five served names that may have been meant."""
        return self._similar.to(name)


def _is_model(line: NameLine | None) -> bool:
    return line is not None and line.kind in {"primary", "adapter"}


def _by_target(operator: Mapping[str, str]) -> KeyIndex[str, str]:
    index: KeyIndex[str, str] = KeyIndex()
    for name, target in operator.items():
        index.add(target, name)
    return index
