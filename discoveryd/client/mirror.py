"""A copy of what the daemon serves, as a watch tells it: replies in, answers out, nothing besides.

Theory
======

**Whole revisions.** A reply that has more pieces to come (`partial`) is put aside until the last is
there, then all are taken over at once: the copy is never between two revisions. Pieces whose rest
did not come are forgotten, and the cursor does not move, so the next watch tells them again.

**What a name answers** is not in the stream but follows from it: a worker answers its model and its
aliases, a name of kind `operator` is answered by those of the model that it stands for. Kind, model
and readiness are the daemon's own words, one `Name` for each name that is served.

**Order.** The daemon's order is that of admission, and each worker has its rank. Most workers come
in it: those of a reset, and those that are new in a reply; a worker that is told again keeps its
place, since an edit keeps the rank. It has another where it left and came back unnoticed, between
two replies or within one revision, and is entered as if its going had been told.

**Cost.** A reply costs in proportion to its own length. A lookup is one look into a dictionary; the
first after a change also makes the answer, and that for a name whose workers changed collects them.
"""

from collections.abc import Iterable

from discoveryd.interface import Cursor, Name, Resolution, WatchReply, Worker

_NOWHERE = Cursor("", 0)


class Mirror:
    """What is served, as of `cursor`. `whole` says whether anything has been told yet."""

    def __init__(self) -> None:
        self.cursor = _NOWHERE
        self.whole = False
        self.names: dict[str, Name] = {}
        self.workers: dict[str, Worker] = {}
        self._pieces: list[WatchReply] = []
        self._members: dict[str, dict[str, Worker]] = {}
        self._choices: dict[str, tuple[Worker, ...]] = {}
        self._resolutions: dict[str, Resolution] = {}

    def take(self, reply: WatchReply) -> bool:
        """Take a reply over, once its last piece is there; return whether that moved the cursor."""
        self._pieces.append(reply)
        if reply.partial:
            return False
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            self._apply(piece)
        moved = not self.whole or self.cursor != reply.cursor
        self.cursor = reply.cursor
        self.whole = True
        self._resolutions.clear()
        return moved

    def forget_pieces(self) -> None:
        """Forget a reply whose last piece will not come."""
        self._pieces.clear()

    def resolve(self, name: str) -> Resolution | None:
        """Return who serves the name, as the daemon's Resolve says it; None if nobody does."""
        known = self._resolutions.get(name)
        if known is not None:
            return known
        line = self.names.get(name)
        if line is None:
            return None
        found = self._resolutions[name] = Resolution(
            name=name,
            kind=line.kind,
            model=line.model,
            ready=line.ready,
            workers=self._accepting(_answered_as(line)),
            cursor=self.cursor,
        )
        return found

    def workers_of(self, name: str) -> tuple[Worker, ...]:
        """Return the workers that answer a name, draining ones included; none if nobody does."""
        line = self.names.get(name)
        return () if line is None else tuple(self._members_of(_answered_as(line)))

    def _accepting(self, name: str) -> tuple[Worker, ...]:
        known = self._choices.get(name)
        if known is None:
            members = self._members_of(name)
            known = self._choices[name] = tuple(worker for worker in members if worker.accepting)
        return known

    def _members_of(self, name: str) -> Iterable[Worker]:
        members = self._members.get(name)
        return () if members is None else members.values()

    def _clear(self) -> None:
        for table in (self.names, self.workers, self._members, self._choices):
            table.clear()

    def _apply(self, piece: WatchReply) -> None:
        if piece.reset:
            self._clear()
        for key in piece.removed:
            self._leave(key)
        for worker in piece.changed:
            self._enter(worker)
        for name in piece.gone:
            self.names.pop(name, None)
        for line in piece.names:
            self.names[line.name] = line

    def _leave(self, key: str) -> None:
        worker = self.workers.pop(key, None)
        if worker is None:
            return
        for name in _names(worker):
            self._take_out(name, key)

    def _enter(self, worker: Worker) -> None:
        """Enter a worker, or what a known one says now, in the place that it has."""
        key = worker.key
        old = self.workers.get(key)
        if old is not None and old.admission != worker.admission:
            self._leave(key)
            old = None
        names = _names(worker)
        if old is not None:
            for name in _names(old):
                if name not in names:
                    self._take_out(name, key)
        self.workers[key] = worker
        for name in names:
            self._choices.pop(name, None)
            members = self._members.setdefault(name, {})
            late = old is not None and key not in members
            members[key] = worker
            if late:
                in_order = sorted(members.items(), key=lambda member: member[1].admission)
                self._members[name] = dict(in_order)

    def _take_out(self, name: str, key: str) -> None:
        self._choices.pop(name, None)
        members = self._members[name]
        del members[key]
        if not members:
            del self._members[name]


def _names(worker: Worker) -> dict[str, None]:
    return dict.fromkeys((worker.model, *worker.aliases))


def _answered_as(line: Name) -> str:
    """Return the name that workers have to have to answer this one."""
    return line.model if line.kind == "operator" else line.name
