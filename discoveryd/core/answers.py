"""The published answers: who serves which name, as of one revision.

Whoever asks is answered from here, never from the registry, which may be in the middle of a batch.
`publish` takes over one change at a time, whole; its cost is that of the change. Workers stand in
admission order everywhere: a dict keeps its order, an edit keeps its place, and what is admitted
anew goes to the end, since admission ranks only grow.

Most names have one worker, and such a name is that worker, bare: its answer is made when somebody
asks.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from discoveryd.core.answer import Answer, NameLine, line_of_one
from discoveryd.core.batch import Change, Served
from discoveryd.core.card import Key
from discoveryd.core.history import Cursor, History
from discoveryd.core.keyindex import KeyIndex
from discoveryd.core.similar import SimilarNames


class Published(NamedTuple):
    """One revision: its cursor, the names whose answer it may have altered, the changed keys."""

    cursor: Cursor
    names: tuple[str, ...]
    keys: tuple[Key, ...]


class _Plan(NamedTuple):
    """How a change is taken over.

    `coming` are the names that nobody had, each with the first who brings it, in their order, and
    `fresh` those among them that strangers bring. `others` are who else changes, and `entering`
    those of both who have a new rank, in its order.
    """

    coming: dict[str, Served]
    fresh: dict[str, Served]
    others: dict[Key, Served | None]
    entering: dict[Key, Served]


class Answers:
    """The answers of one epoch, and their history.

    `models` is how many names are served that others may stand for: primaries and adapters.
    """

    def __init__(self, epoch: str, operator_aliases: Mapping[str, str] | None = None) -> None:
        self.history = History(epoch)
        self.workers: dict[Key, Served] = {}
        self.models = 0
        self._answers: dict[str, Served | Answer] = {}
        self._operator: dict[str, str] = dict(operator_aliases or {})
        self._operator_by_target = _by_target(self._operator)
        self._similar = SimilarNames()
        self._unlisted: list[str] = []

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
        steps = self.publishing(change)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                published: Published | None = end.value
                return published

    def publishing(
        self, change: Change, epoch: str | None = None
    ) -> Generator[None, None, Published | None]:
        """Publish in small steps, for a caller that has other things to do in between.

        What is answered meanwhile is as it was. The last step takes the whole change over; nobody
        may ask between that and being told of it. `epoch` is that of the revision, where another.
        """
        if change.empty:
            return None
        for name in self._unlisted:
            self._similar.discard(name)
            yield
        self._unlisted.clear()
        plan = yield from self._plan(change)
        before: dict[str, NameLine | None] = {}
        for name in self._touched(plan.others, change.operator_aliases):
            before[name] = self.line(name)
            yield
        self._take_over(plan, change.operator_aliases)
        told = {**dict.fromkeys(plan.fresh, True), **self._altered(before)}
        self.models += len(change.served) - len(plan.others)
        keys = {key: served is not None for key, served in change.served.items()}
        if epoch is not None and epoch != self.cursor.epoch:
            self.history.begin(epoch)
        cursor = self.history.advance(keys, told)
        return Published(cursor, (*before, *plan.fresh), tuple(keys))

    def _plan(self, change: Change) -> Generator[None, None, _Plan]:
        coming: dict[str, Served] = {}
        plan = _Plan(coming, (yield from self._strangers(change, coming)), {}, {})
        for key, served in change.served.items():
            yield
            if served is not None and plan.fresh.get(served.card.display_name) is served:
                plan.entering[key] = served
                continue
            plan.others[key] = served
            if served is not None and not _keeps_rank(self.workers.get(key), served):
                plan.entering[key] = served
        return plan

    def _take_over(self, plan: _Plan, table: Mapping[str, str] | None) -> None:
        late: dict[str, None] = {}
        # Before all others, for names to stand in the order of those who bring them.
        self._answers.update(plan.coming)
        for key, served in plan.others.items():
            self._replace(key, served, late)
        self.workers.update(plan.entering)
        for name in late:
            answer = self._answers[name]
            if isinstance(answer, Answer):
                answer.order()
        if table is not None:
            self._operator = dict(table)
            self._operator_by_target = _by_target(self._operator)

    def _altered(self, before: Mapping[str, NameLine | None]) -> dict[str, bool]:
        """Count the names that read otherwise now; return them, each with whether it is there."""
        told: dict[str, bool] = {}
        for name, old in before.items():
            new = self.line(name)
            if old == new:
                continue
            told[name] = new is not None
            self.models += _is_model(new) - _is_model(old)
            if new is None:
                self._unlisted.append(name)
            elif old is None:
                self._similar.add(name)
        return told

    def _strangers(
        self, change: Change, coming: dict[str, Served]
    ) -> Generator[None, None, dict[str, Served]]:
        """Return the names of strangers, each with its worker, and list them as similar.

        A stranger is a newcomer that shares no name with anybody. Most of what comes in great
        numbers is such, and needs no look at what was before. Who is the first to bring a name
        that nobody has, a stranger or not, is entered in `coming`.
        """
        fresh: dict[str, Served] = {}
        if change.operator_aliases is not None:
            return fresh
        claims: dict[str, Served | None] = {}
        for served in change.served.values():
            if served is None:
                continue
            yield
            for name in served.card.names:
                claims[name] = None if name in claims else served
                if name not in self._answers:
                    coming.setdefault(name, served)
        for key, served in change.served.items():
            if served is None or key in self.workers:
                continue
            yield
            names = served.card.names
            if self._are_unheard_of(names, claims):
                for name in names:
                    fresh[name] = served
                    self._similar.add(name)
        return fresh

    def _are_unheard_of(self, names: Iterable[str], claims: Mapping[str, Served | None]) -> bool:
        """Whether none is served so far, by anybody's word, and only one is to serve each."""
        for name in names:
            if claims[name] is None or name in self._answers:
                return False
            if name in self._operator or name in self._operator_by_target:
                return False
        return True

    def _touched(
        self, changed: Mapping[Key, Served | None], table: Mapping[str, str] | None
    ) -> dict[str, None]:
        """Return the names whose answer a change may alter."""
        touched: dict[str, None] = {}
        for key, served in changed.items():
            for version in (self.workers.get(key), served):
                for name in () if version is None else version.card.names:
                    touched[name] = None
                    touched.update(dict.fromkeys(self._operator_by_target.members(name)))
        if table is not None:
            for name in self._operator.keys() | table.keys():
                if self._operator.get(name) != table.get(name):
                    touched[name] = None
        return touched

    def _replace(self, key: Key, served: Served | None, late: dict[str, None]) -> None:
        """Enter a version; add to `late` the names that are new to it, though its rank is not.

        A worker with a new rank is only taken out of `workers`.
        """
        old = self.workers.get(key)
        stays = _keeps_rank(old, served)
        for name in () if old is None else old.card.names:
            if stays and served is not None and name in served.card.names:
                continue
            self._take(name, key)
        if old is not None and not stays:
            del self.workers[key]
        if served is None:
            return
        if stays:
            self.workers[key] = served
        for name in served.card.names:
            self._put(name, served)
            if stays and old is not None and name not in old.card.names:
                late[name] = None

    def _put(self, name: str, served: Served) -> None:
        answer = self._answers.get(name)
        if isinstance(answer, Answer):
            answer.put(served)
        elif answer is None or answer.card.key == served.card.key:
            self._answers[name] = served
        else:
            self._answers[name] = Answer(name, answer, served)

    def _take(self, name: str, key: Key) -> None:
        answer = self._answers[name]
        if isinstance(answer, Answer):
            answer.take(key)
            if len(answer.members) == 1:
                (self._answers[name],) = answer.members.values()
        else:
            del self._answers[name]

    def resolve(self, name: str) -> tuple[Answer, str] | None:
        """Return who answers the name, and its kind; None if nobody does.

        An operator alias is one hop away from a primary or adapter, and answers as that does.
        """
        target = self._operator.get(name)
        answer = self._answers.get(name if target is None else target)
        if answer is None:
            return None
        if isinstance(answer, Served):
            answer = Answer(name if target is None else target, answer)
        if target is None:
            return answer, answer.kind
        return None if answer.kind == "alias" else (answer, "operator")

    def target(self, name: str) -> str:
        """Return what the operator made of a name; the name itself where nothing."""
        return self._operator.get(name, name)

    def line(self, name: str) -> NameLine | None:
        """Return the name in short, or None if nobody serves it."""
        target = self._operator.get(name, name)
        answer = self._answers.get(target)
        if answer is None:
            return None
        line = answer.line if isinstance(answer, Answer) else line_of_one(target, answer)
        if name not in self._operator:
            return line
        return None if line.kind == "alias" else line._replace(name=name, kind="operator")

    def names(self) -> list[str]:
        """Return every name that may be served, the operator's last; those need not be."""
        return [*self._answers, *self._operator]

    def lines(self) -> Iterator[NameLine]:
        """Yield every served name in short, the operator's last."""
        for name, answer in self._answers.items():
            yield answer.line if isinstance(answer, Answer) else line_of_one(name, answer)
        for name in self._operator:
            line = self.line(name)
            if line is not None:
                yield line

    def similar(self, name: str) -> list[str]:
        """Return at most five served names that may have been meant."""
        return [other for other in self._similar.to(name) if self.line(other) is not None]


def _keeps_rank(old: Served | None, new: Served | None) -> bool:
    return old is not None and new is not None and old.admission == new.admission


def _is_model(line: NameLine | None) -> bool:
    return line is not None and line.kind in {"primary", "adapter"}


def _by_target(operator: Mapping[str, str]) -> KeyIndex[str, str]:
    index: KeyIndex[str, str] = KeyIndex()
    for name, target in operator.items():
        index.add(target, name)
    return index
