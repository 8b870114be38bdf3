"""What the live view shows, as values: what the daemon says in, rows of printable text out.

Knows no terminal: how much of a picture fits and how it looks is drawing.py's. All text that cards
or the daemon gave is made printable here.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from discoveryd.client.ctl.show import count, duration, standings
from discoveryd.core.text import printable
from discoveryd.interface import Name, Status, Verdict, Worker


class Model(NamedTuple):
    """One served model: its name, what else it answers to, how many workers take requests.

    `serving` counts the cards of that model that are served, draining ones included. `at` are the
    urls of the accepting ones.
    """

    name: str
    names: str
    ready: bool
    accepting: int
    serving: int
    at: str

    @property
    def workers(self) -> str:
        """How many workers there are, in words."""
        draining = self.serving - self.accepting
        return f"{self.accepting}, {draining} draining" if draining else str(self.accepting)


class Waiting(NamedTuple):
    """One card that does not serve its present content, and why.

    `previous`: an older content of its file serves meanwhile.
    """

    file: str
    standing: str
    previous: bool
    names: str
    why: str


class Picture(NamedTuple):
    """Everything that is to be seen.

    `stale` says that nothing is heard of the daemon, and for how long; None where it is heard of.
    `healthy` is the daemon's own word, None where it has not been heard yet.
    """

    head: str
    cards: str
    healthy: bool | None
    stale: str | None
    problems: tuple[str, ...]
    models: tuple[Model, ...]
    waiting: tuple[Waiting, ...]


def picture(
    names: Sequence[Name],
    workers: Iterable[Worker],
    waiting: Iterable[Verdict],
    status: Status | None,
    stale_seconds: float = 0.0,
) -> Picture:
    """Return the picture of what the daemon said last, `stale_seconds` ago."""
    served = models(names, workers)
    cards = "" if status is None else f"cards: {standings(status.standings)}; "
    return Picture(
        head=_head(status),
        cards=f"{cards}{count(len(names), 'name')}, {count(len(served), 'model')}",
        healthy=None if status is None else status.healthy,
        stale=f"no daemon: this is as of {duration(stale_seconds)} ago" if stale_seconds else None,
        problems=() if status is None else tuple(map(printable, status.problems)),
        models=served,
        waiting=tuple(_waiting(verdict) for verdict in waiting),
    )


def _head(status: Status | None) -> str:
    if status is None:
        return "discoveryd"
    health = "healthy" if status.healthy else "NOT healthy"
    uptime = duration(status.uptime_seconds)
    at = f"revision {status.cursor.revision}"
    return f"discoveryd {printable(status.version)}, up {uptime}, {health}, {at}"


def models(names: Sequence[Name], workers: Iterable[Worker]) -> tuple[Model, ...]:
    """Return a row for each model, those that are not ready first, each kind by name."""
    cards: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        cards[worker.model].append(worker)
    lines: defaultdict[str, list[Name]] = defaultdict(list)
    for name in names:
        lines[name.model].append(name)
    rows = [_model(model, lines[model], cards[model]) for model in lines]
    return tuple(sorted(rows, key=lambda row: (row.ready, row.name)))


def _model(model: str, lines: Sequence[Name], cards: Sequence[Worker]) -> Model:
    own = next((line for line in lines if line.name == model), None)
    accepting = [card for card in cards if card.accepting]
    # An alias may be ready where its model is not, and the other way round: it has its own workers.
    unready = [] if own is None or not own.ready else [line for line in lines if not line.ready]
    others = [
        f"{line.name} (not ready)" if line in unready else line.name
        for line in lines
        if line is not own
    ]
    return Model(
        name=printable(model),
        names=printable(", ".join(others)),
        ready=own is not None and own.ready,
        accepting=len(accepting),
        serving=len(cards),
        at=printable(", ".join(card.url for card in accepting if card.url is not None)),
    )


def _waiting(verdict: Verdict) -> Waiting:
    rest = len(verdict.reasons) - 1
    why = verdict.reasons[0].message if verdict.reasons else ""
    return Waiting(
        file=printable(verdict.file),
        standing=printable(verdict.standing),
        previous=verdict.serves == "previous",
        names=printable(", ".join(verdict.names)),
        why=printable(f"{why} (and {count(rest, 'more reason')})" if rest > 0 else why),
    )


def share(models: int, waiting: int, lines: int) -> tuple[int, int]:
    """Return how many rows of each table fit into so many lines, with the tables' own lines.

    A table with rows has a heading, and a line counts what is left out, where something is; an
    empty line is between them. A table that needs less than half leaves the rest to the other.
    """
    if not waiting:
        return _rows(models, lines), 0
    room = lines - 1
    need_models, need_waiting = models + 1, waiting + 1
    if need_models + need_waiting <= room:
        return models, waiting
    half = room // 2
    if need_waiting <= half:
        return _rows(models, room - need_waiting), waiting
    if need_models <= room - half:
        return models, _rows(waiting, room - need_models)
    return _rows(models, room - half), _rows(waiting, half)


def _rows(number: int, lines: int) -> int:
    """Return how many of so many rows fit below a heading; without rows there is none."""
    room = max(lines - 1, 0)
    return number if number <= room else max(room - 1, 0)
