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
the owner that it had then. So where owners matter, be it for the quota only, a torn file that has
another owner is told as gone first. A file that cannot be looked at has the owner that it had.

**Other terms.** The operator may change the entries, the quota, or whether owners count, at any
time (`change`). So the gate remembers the last card of each file as it came, and judges it again:
who counts or waits keeps his place where he may, and who is newly allowed comes after them. What
that changes is told with the next batch, as if the files had been seen anew.

**Nobody in particular.** In a user namespace all users who have no number there have the same one.
Such a file's owner is unknown: its cards are counted together, its card cannot be held, and where
owners count it is not allowed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from discoveryd.core.batch import Barred, Invalid, Sighting
from discoveryd.core.card import Card
from discoveryd.core.entry import FileRecord
from discoveryd.core.registry import Registry
from discoveryd.core.verdict import Reason, Standing
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.permit.allowing import Allow, Claimant, Permits
from discoveryd.daemon.permit.membership import Membership
from discoveryd.daemon.permit.queues import Queues
from discoveryd.daemon.permit.refusals import QUOTA_RULE, over_quota, unknown_owner

USUAL_QUOTA = 1000
"""How many cards one user may have, by default, where several can write."""


class _File(msgspec.Struct, gc=False):
    """What is known of one file: its last valid card, and what is wrong with the present content.

    `owner` is whose the card is, `refusal` why it is not allowed.
    """

    card: Card | None
    fault: Invalid | None
    owner: int | None
    mtime_ns: int
    refusal: Reason | None = None


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
        self._quota = quota
        self._many_writers = many_writers
        self._folders = folders or {}
        self._membership = Membership() if membership is None else membership
        self._unmapped = unmapped
        self._files: dict[str, _File] = {}
        self._queues = Queues()
        self._due: dict[str, None] = {}
        # What everything that is known was judged by; None where that is not known.
        self._terms: object = None

    @property
    def _owners_matter(self) -> bool:
        return self._by_owner or bool(self._permits) or self._queues.limit is not None

    # What passes through

    async def look_up(self, owners: Iterable[int | None]) -> None:
        """Ask the host what must be known of these owners before their cards are judged."""
        if self._permits.by_group:
            await self._membership.look_up({owner for owner in owners if owner is not None})

    def judge(self, sightings: Sequence[Sighting]) -> list[Sighting]:
        """Return what the next stage is to be told: these sightings, and of who is let in now."""
        told = {file: self._again(file) for file in self._due}
        self._due = {}
        queues = self._queues
        queued: dict[int, list[str]] = {}
        limit = self._limit_now()
        if limit != queues.limit:
            queues.limit = limit
            queued = {user: [] for user in queues.users}
        said: dict[str, list[Sighting]] = {}
        for sighting in sorted(sightings, key=lambda each: (each.mtime_ns, each.file)):
            said.setdefault(sighting.file, []).extend(self._take_in(sighting, queued))
        for file, each in said.items():
            # Who is torn now and was to be told of before: of his card first.
            told[file] = self._again(file) if file in told and self._is_torn(file) else each
        for user, files in queued.items():
            for file in (*queues.let_in(user), *filter(self._waits, files)):
                told[file] = self._again(file)
        return [self._known(sighting) for each in told.values() for sighting in each]

    def touched(self, touches: Iterable[Touch]) -> None:
        """Take in new mtimes of files whose content is as it was."""
        for touch in touches:
            known = self._files.get(touch.file)
            if known is not None:
                known.mtime_ns = touch.mtime_ns

    def forecast(self, sighting: Sighting) -> Sighting:
        """Return what `judge` would make of a sighting, alone; change nothing."""
        file, card, owner = sighting.file, sighting.found, sighting.owner
        if not isinstance(card, Card):
            return self._known(sighting)
        reason = self._refusal(file, card, owner)
        if reason is None and self._queues.would_wait(owner, file):
            reason = over_quota(owner, self._queues.limit)
        return self._known(sighting if reason is None else _barred(sighting, card, reason))

    def restore(self, registry: Registry) -> None:
        """Take in what the ledger remembers, before the first sighting is judged."""
        self._queues.limit = self._limit_now()
        entries = registry.arbiter.entries
        queued: list[tuple[bool, float, int, FileRecord]] = []
        for number, record in enumerate(registry.files):
            card, barred = record.card, record.barred
            self._files[record.file] = known = _File(
                card, record.fault, record.owner, record.mtime_ns
            )
            waits = barred is not None and barred.standing is Standing.FORBIDDEN
            if barred is not None and waits and not _is_over_quota(barred):
                known.refusal = barred.reasons[0]
            elif card is not None:
                entry = None if waits else entries.get(card.key)
                arrival = record.since if entry is None else float(entry.arrival)
                queued.append((waits, arrival, number, record))
        for *_, record in sorted(queued, key=lambda each: each[:3]):
            self._queues.enter(record.owner, record.file)

    # Other terms

    async def prepare(self, allow: Iterable[Allow], owners: Iterable[int | None]) -> None:
        """Ask the host anew for what must be known to judge everything by these entries.

        That is of these owners and of all that are known; whoever calls `change` does so at once.
        """
        self._membership.forget()
        if not Permits(allow).by_group:
            return
        asked: set[int] = set()
        while wanted := {*owners, *self._owners()} - {None, *asked}:
            asked |= {owner for owner in wanted if owner is not None}
            await self._membership.look_up(asked)

    def change(
        self,
        allow: Iterable[Allow],
        *,
        by_owner: bool,
        quota: int | None,
        folders: Mapping[str, str],
    ) -> None:
        """Hold all cards to other terms, as the constructor's; the next `judge` tells of it."""
        permits = Permits(entries := tuple(allow))
        terms = (entries, by_owner, quota, folders)
        same = terms == self._terms and self._limit_now() == self._queues.limit
        if same and not permits.by_group:
            return
        self._terms = terms
        before, order = self._barred(), dict.fromkeys(self._queues)
        self._permits, self._by_owner = permits, by_owner
        self._quota, self._folders = quota, folders
        self._queues = Queues(self._limit_now())
        new = [file for file in self._files if file not in order]
        for file in (*order, *sorted(new, key=lambda file: (self._files[file].mtime_ns, file))):
            known = self._files[file]
            if known.card is None:
                continue
            known.refusal = self._refusal(file, known.card, known.owner)
            if known.refusal is None:
                self._queues.enter(known.owner, file)
        after = self._barred()
        for file in {**before, **after}:
            if before.get(file) != after.get(file):
                self._due[file] = None

    def files_in(self, folders: Collection[str]) -> list[str]:
        """Return the files of these folders that are known and not gone, as sightings name them.

        The folders are named as they name them.
        """
        return [file for file in self._files if file.rpartition("/")[0] in folders]

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
        """Enter what was seen; note in `queued` whose queue is another now, and who waits in it."""
        file, found = sighting.file, sighting.found
        known = self._files.get(file)
        before = None if known is None else known.owner
        if found is None:
            self._files.pop(file, None)
            self._leave(before, file, queued)
            return [sighting]
        if isinstance(found, Barred):
            raise TypeError(f"{file} was barred before it came to the permission gate")
        owner = before if sighting.owner is None else sighting.owner
        if owner != sighting.owner:
            sighting = msgspec.structs.replace(sighting, owner=owner)
        if isinstance(found, Invalid):
            return self._take_in_torn(sighting, found, known, queued)
        reason = self._refusal(file, found, owner)
        self._files[file] = _File(found, None, owner, sighting.mtime_ns, reason)
        if owner != before or reason is not None:
            self._leave(before, file, queued)
        if reason is not None:
            return [_barred(sighting, found, reason)]
        if owner is not None and self._queues.enter(owner, file):
            queued.setdefault(owner, []).append(file)
        return [sighting]

    def _take_in_torn(
        self,
        sighting: Sighting,
        fault: Invalid,
        known: _File | None,
        queued: dict[int, list[str]],
    ) -> list[Sighting]:
        file, owner = sighting.file, sighting.owner
        torn = _File(None, fault, owner, sighting.mtime_ns)
        if known is None:
            self._files[file] = torn
            return [sighting]
        if owner != known.owner and known.owner is not None and self._owners_matter:
            self._leave(known.owner, file, queued)
            self._files[file] = torn
            return [msgspec.structs.replace(sighting, found=None), sighting]
        # The card that it had goes on, and is counted where it was.
        known.fault, known.mtime_ns = fault, sighting.mtime_ns
        if known.owner is None:
            known.owner = owner
        elif self._queues.waits(known.owner, file):
            queued.setdefault(known.owner, []).append(file)
        return [sighting]

    def _again(self, file: str) -> list[Sighting]:
        """Return what is to be said of a file as it is known: its card, and what is wrong."""
        known = self._files[file]
        seen = Sighting(file=file, found=known.card, mtime_ns=known.mtime_ns, owner=known.owner)
        said: list[Sighting] = []
        if known.card is not None:
            reason = self._bar(file, known)
            said.append(seen if reason is None else _barred(seen, known.card, reason))
        if known.fault is not None:
            said.append(msgspec.structs.replace(seen, found=known.fault))
        return said

    def _bar(self, file: str, known: _File) -> Reason | None:
        if known.refusal is None and self._queues.waits(known.owner, file):
            return over_quota(known.owner, self._queues.limit)
        return known.refusal

    def _barred(self) -> dict[str, Reason | int | None]:
        """Return the files whose cards may not count, each with why: a refusal, or the limit."""
        barred: dict[str, Reason | int | None] = dict.fromkeys(
            self._queues.waiting(), self._queues.limit
        )
        for file, known in self._files.items():
            if known.refusal is not None:
                barred[file] = known.refusal
        return barred

    def _is_torn(self, file: str) -> bool:
        known = self._files.get(file)
        return known is not None and known.card is not None and known.fault is not None

    def _owners(self) -> set[int]:
        return {known.owner for known in self._files.values() if known.owner is not None}

    def _refusal(self, file: str, card: Card, owner: int | None) -> Reason | None:
        if self._by_owner and owner in (None, self._unmapped):
            return unknown_owner(file)
        if not self._permits:
            return None
        folder = file.rpartition("/")[0]
        directory = self._folders.get(folder, folder)
        claimant = Claimant(owner, self._membership.of(owner), directory)
        return self._permits.refusal(card, claimant)

    # The quota

    def _limit_now(self) -> int | None:
        return self._quota or (USUAL_QUOTA if self._many_writers() else None)

    def _waits(self, file: str) -> bool:
        known = self._files.get(file)
        return known is not None and self._queues.waits(known.owner, file)

    def _leave(self, owner: int | None, file: str, queued: dict[int, list[str]]) -> None:
        if owner is not None and self._queues.leave(owner, file):
            queued.setdefault(owner, [])


def _is_over_quota(barred: Barred) -> bool:
    return any(reason.rule == QUOTA_RULE for reason in barred.reasons)


def _barred(sighting: Sighting, card: Card, reason: Reason) -> Sighting:
    barred = Barred(card, Standing.FORBIDDEN, (reason,))
    return msgspec.structs.replace(sighting, found=barred)
