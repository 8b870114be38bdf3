"""The permission gate: which cards may count at all, by who put them there.

Theory
======

**A stage of the pipeline**, between the directories and the liveness gate: sightings pass through
`judge`, and a card that may not count goes on as `Barred`. Whoever calls `judge` calls the next
stage before anything else runs, so what is told of one file is told in order. What must be asked of
the host, `look_up` asks before.

**Allowed** is what an entry of the configuration covers (allowing.py); without entries, everything.

**The quota** bounds how many cards one user may have, counted over all directories; dead ones
count, since they take room. Every allowed card queues; as many as there is room for are let in, the
first first, and keep their place through edits. When one goes, the next is told in the same batch.
Root's cards are not counted: root may write anything anywhere, and many things write as root.

**Another owner, another file.** A file that is torn keeps its last valid card, which was judged for
the owner that it had then. So where owners matter, a torn file that has another owner is told as
gone first. A file that cannot be looked at has the owner that it had.

**Nobody in particular.** In a user namespace all users who have no number there have the same one.
Such a file's owner is unknown: its cards are counted together, its card cannot be held, and where
owners count it is not allowed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from discoveryd.core.batch import Barred, Invalid, Sighting
from discoveryd.core.card import Card
from discoveryd.core.entry import FileRecord
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Reason, Standing
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.permit.allowing import Allow, Claimant, Permits
from discoveryd.daemon.permit.membership import Membership

USUAL_QUOTA = 1000
"""How many cards one user may have, by default, where several can write."""

_ROOT = 0


class _Queue:
    """One user's cards: those that count, and those that wait, in order, each as it was told last.

    What waits is a card, and then what is wrong with its file, if anything.
    """

    __slots__ = ("counted", "waiting")

    def __init__(self) -> None:
        self.counted: dict[str, None] = {}
        self.waiting: dict[str, list[Sighting]] = {}


class Permission:
    """Judges who may claim what. Lives on the loop.

    `by_owner` says that owners matter to the registry. `quota` is the most cards of one user; by
    default USUAL_QUOTA while `many_writers()`. `folders` maps the folder of card files, as their
    sightings name it, to its directory as the configuration does. `unmapped` is as whom everybody
    appears who has no number here, None where each has one.
    """

    def __init__(  # noqa: PLR0913  # one a setting
        self,
        allow: Iterable[Allow] = (),
        *,
        by_owner: bool = False,
        quota: int | None = None,
        many_writers: Callable[[], bool] = lambda: False,
        folders: Mapping[str, str] | None = None,
        membership: Membership | None = None,
        unmapped: int | None = None,
    ) -> None:
        self._permits = Permits(allow)
        self._by_owner = by_owner
        self._owners_matter = by_owner or bool(self._permits)
        self._unmapped = unmapped
        self._quota = quota
        self._many_writers = many_writers
        self._folders = folders or {}
        self._membership = Membership() if membership is None else membership
        self._owners: dict[str, int] = {}
        self._queues: dict[int, _Queue] = {}
        self._limit: int | None = None

    # What passes through

    async def look_up(self, owners: Iterable[int | None]) -> None:
        """Ask the host what must be known of these owners before their cards are judged."""
        if self._permits.by_group:
            await self._membership.look_up({owner for owner in owners if owner is not None})

    def judge(self, sightings: Sequence[Sighting]) -> list[Sighting]:
        """Return what the next stage is to be told: these sightings, and of who is let in now."""
        told: dict[str, list[Sighting]] = {}
        limit = self._limit_now()
        queued: dict[int, list[str]] = {}
        if limit != self._limit:
            queued = {user: [] for user in self._queues}
        self._limit = limit
        for sighting in sorted(sightings, key=lambda each: (each.mtime_ns, each.file)):
            told[sighting.file] = self._take_in(sighting, queued)
        for user, files in queued.items():
            queue = self._queues.get(user)
            if queue is not None:
                self._let_in(user, queue, files, told)
        return [self._known(sighting) for each in told.values() for sighting in each]

    def touched(self, touches: Iterable[Touch]) -> None:
        """Take in new mtimes of files whose content is as it was."""
        for touch in touches:
            queue = self._queues.get(self._owners.get(touch.file, _ROOT))
            waiting = None if queue is None else queue.waiting.get(touch.file)
            if queue is not None and waiting is not None:
                queue.waiting[touch.file] = [
                    msgspec.structs.replace(each, mtime_ns=touch.mtime_ns) for each in waiting
                ]

    def forecast(self, sighting: Sighting) -> Sighting:
        """Return what `judge` would make of a sighting, alone; change nothing."""
        card, owner = sighting.found, sighting.owner
        if not isinstance(card, Card):
            return self._known(sighting)
        reason = self._refusal(sighting.file, card, owner)
        queue = None if owner is None else self._queues.get(owner)
        if reason is None and queue is not None and sighting.file not in queue.counted:
            full = self._limit is not None and len(queue.counted) >= self._limit
            reason = _over_quota(owner, self._limit) if full else None
        return self._known(sighting if reason is None else _barred(sighting, card, reason))

    def restore(self, registry: Registry) -> None:
        """Take in what the ledger remembers, before the first sighting is judged."""
        self._limit = self._limit_now()
        entries = registry.arbiter.entries
        queued: list[tuple[bool, float, int, FileRecord]] = []
        for number, record in enumerate(registry.files):
            card, owner, barred = record.card, record.owner, record.barred
            if owner is not None:
                self._owners[record.file] = owner
            waits = barred is not None and barred.standing is Standing.FORBIDDEN
            if card is None or (waits and not _is_over_quota(barred)):
                continue
            entry = None if waits else entries.get(card.key)
            arrival = record.since if entry is None else float(entry.arrival)
            queued.append((waits, arrival, number, record))
        for *_, record in sorted(queued, key=lambda each: each[:3]):
            self._remember(record)

    def _remember(self, record: FileRecord) -> None:
        """Let a file queue again, with what is wrong with it."""
        known = Sighting(
            file=record.file, found=record.card, mtime_ns=record.mtime_ns, owner=record.owner
        )
        self._queue(record.owner, known, {})
        queue = self._queues.get(record.owner or _ROOT)
        waiting = None if queue is None else queue.waiting.get(record.file)
        if waiting is not None and record.fault is not None:
            waiting.append(msgspec.structs.replace(known, found=record.fault))

    def problems(self) -> list[str]:
        """Say what keeps cards from being judged rightly."""
        return self._membership.problems()

    # One file

    def _known(self, sighting: Sighting) -> Sighting:
        """Return the sighting without an owner who could be anybody."""
        if self._unmapped is None or sighting.owner != self._unmapped:
            return sighting
        return msgspec.structs.replace(sighting, owner=None)

    def _take_in(self, sighting: Sighting, queued: dict[int, list[str]]) -> list[Sighting]:
        """Enter what was seen; note in `queued` whose queue is another now, and who joined it."""
        file, found = sighting.file, sighting.found
        before = self._owners.get(file)
        if found is None:
            self._owners.pop(file, None)
            self._leave(before, file, queued)
            return [sighting]
        if isinstance(found, Barred):
            raise TypeError(f"{file} was barred before it came to the permission gate")
        owner = before if sighting.owner is None else sighting.owner
        if owner is not None:
            self._owners[file] = owner
        if owner != sighting.owner:
            sighting = msgspec.structs.replace(sighting, owner=owner)
        if isinstance(found, Invalid):
            return self._take_in_torn(sighting, before, queued)
        reason = self._refusal(file, found, owner)
        if owner != before or reason is not None:
            self._leave(before, file, queued)
        if reason is not None:
            return [_barred(sighting, found, reason)]
        self._queue(owner, sighting, queued)
        return [sighting]

    def _take_in_torn(
        self, sighting: Sighting, before: int | None, queued: dict[int, list[str]]
    ) -> list[Sighting]:
        file, owner = sighting.file, sighting.owner
        if owner != before and before is not None:
            if self._owners_matter:
                self._leave(before, file, queued)
                return [msgspec.structs.replace(sighting, found=None), sighting]
            # The card that it had goes on, and is counted where it was.
            self._owners[file] = before
        user = self._owners.get(file, _ROOT)
        queue = self._queues.get(user)
        waiting = None if queue is None else queue.waiting.get(file)
        if queue is not None and waiting is not None:
            card = msgspec.structs.replace(waiting[0], mtime_ns=sighting.mtime_ns)
            queue.waiting[file] = [card, sighting]
            queued.setdefault(user, []).append(file)
        return [sighting]

    def _refusal(self, file: str, card: Card, owner: int | None) -> Reason | None:
        if self._by_owner and owner in (None, self._unmapped):
            return _unknown_owner(file)
        if not self._permits:
            return None
        folder = file.rpartition("/")[0]
        directory = self._folders.get(folder, folder)
        claimant = Claimant(owner, self._membership.of(owner), directory)
        return self._permits.refusal(card, claimant)

    # The quota

    def _limit_now(self) -> int | None:
        return self._quota or (USUAL_QUOTA if self._many_writers() else None)

    def _queue(self, owner: int | None, sighting: Sighting, queued: dict[int, list[str]]) -> None:
        if not owner:
            return
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._queues[owner] = _Queue()
        file, counted, limit = sighting.file, queue.counted, self._limit
        if file in counted:
            return
        if not queue.waiting and (limit is None or len(counted) < limit):
            counted[file] = None
            return
        queue.waiting[file] = [sighting]
        queued.setdefault(owner, []).append(file)

    def _leave(self, owner: int | None, file: str, queued: dict[int, list[str]]) -> None:
        queue = None if owner is None else self._queues.get(owner)
        if queue is None or owner is None:
            return
        queue.counted.pop(file, None)
        queue.waiting.pop(file, None)
        queued.setdefault(owner, [])
        if not queue.counted and not queue.waiting:
            del self._queues[owner]

    def _let_in(
        self, user: int, queue: _Queue, files: Iterable[str], told: dict[str, list[Sighting]]
    ) -> None:
        """Let in who there is room for, and tell of those in the batch who wait."""
        limit = self._limit
        room = len(queue.waiting) if limit is None else max(0, limit - len(queue.counted))
        for file in list(islice(queue.waiting, room)):
            queue.counted[file] = None
            told[file] = queue.waiting.pop(file)
        for file in files:
            if file in queue.waiting:
                told[file] = [self._over(user, each) for each in queue.waiting[file]]

    def _over(self, user: int, sighting: Sighting) -> Sighting:
        card = sighting.found
        if not isinstance(card, Card):
            return sighting
        return _barred(sighting, card, _over_quota(user, self._limit))


def _unknown_owner(file: str) -> Reason:
    return Reason(
        rule="not_allowed",
        message=(
            f"the owner of {file} has no number in the daemon's user namespace, and on this host "
            "owners count. Run the daemon where all users of the directory are known, or give the "
            "file to one who is"
        ),
        field="owner",
    )


def _over_quota(owner: int | None, limit: int | None) -> Reason:
    return Reason(
        rule="quota",
        message=(
            f"uid {owner} has {limit} cards on this host, as many as one user may have. This one "
            "counts as soon as one of the others goes: remove those that are not needed, or ask "
            "the operator for a higher quota"
        ),
        field="owner",
        found=str(owner),
        expected=f"at most {limit} cards",
    )


def _is_over_quota(barred: Barred | None) -> bool:
    return barred is not None and any(reason.rule == "quota" for reason in barred.reasons)


def _barred(sighting: Sighting, card: Card, reason: Reason) -> Sighting:
    barred = Barred(card, Standing.FORBIDDEN, (reason,))
    return msgspec.structs.replace(sighting, found=barred)
