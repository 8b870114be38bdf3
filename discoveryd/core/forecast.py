"""What a card would get if it were dropped now: the same gates, read without moving anything.

The card is judged alone against the books as they stand, with what its own file has in them lifted
out for the length of the question.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from discoveryd.core.arbiter import Arbiter, first_heir
from discoveryd.core.batch import Barred, Invalid, Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.catalogue import CohortKey, GroupBook
from discoveryd.core.entry import Entry
from discoveryd.core.files import Files
from discoveryd.core.reasons import (
    blocked,
    duplicate,
    orphaned,
    other_owner,
    refused,
    standing_by,
)
from discoveryd.core.verdict import Reason, Serves, Standing, Verdict

_Outcome = tuple[Standing, tuple[Reason, ...]]


class _Asked(NamedTuple):
    """Whose the card would be, in which file, and the entry that this file holds now.

    `before` is that entry where the card would be its edit, and not another owner's arrival.
    """

    file: str
    owner: int | None
    own: Entry | None
    before: Entry | None


def check(
    arbiter: Arbiter, files: Files, sighting: Sighting, now: float
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict the sighting would get, and the files it would displace."""
    record = files.get(sighting.file)
    own = None if record is None or record.claim is None else arbiter.entries.get(record.claim)
    if own is not None and own.file != sighting.file:
        own = None
    another = own is not None and arbiter.by_owner and own.owner != sighting.owner
    before = None if another else own
    serving = before is not None and before.served is not None
    found = sighting.found
    displaced: tuple[str, ...] = ()
    card: Card | None
    match found:
        case Card():
            card = found
            arbiter.open(card.key.place)
            with _lifted(arbiter, own):
                asked = _Asked(sighting.file, sighting.owner, own, before)
                standing, reasons = _judge(arbiter, files, found, asked)
                if standing is Standing.SERVING:
                    rivals = arbiter.displaced(found, sighting.owner)
                    displaced = tuple(arbiter.entries[key].file for key in rivals)
            # Whoever asks chooses the places, and the next batch may be far off.
            for _ in arbiter.end_batch():
                pass
            courtesy = serving and before is not None and before.key == found.key and found.anchored
        case Barred():
            card, standing, reasons, courtesy = found.card, found.standing, found.reasons, False
        case Invalid():
            card = None if record is None else record.card
            standing, reasons, courtesy = Standing.INVALID, found.reasons, serving
        case None:
            raise ValueError("a file that is gone has nothing to check")
    serves = Serves.PREVIOUS if courtesy else Serves.NOTHING
    verdict = Verdict(
        file=sighting.file,
        key=None if card is None else str(card.key),
        model=None if card is None else card.display_name,
        names=() if card is None else card.names,
        standing=standing,
        serves=Serves.CURRENT if standing is Standing.SERVING else serves,
        reasons=reasons,
        warnings=found.warnings if isinstance(found, (Card, Invalid)) else found.card.warnings,
        owner_uid=sighting.owner,
        since=now,
    )
    return verdict, displaced


def _judge(arbiter: Arbiter, files: Files, card: Card, asked: _Asked) -> _Outcome:
    holder = files.holder(card.key)
    if holder is not None and holder.file != asked.file:
        return Standing.DUPLICATE, (duplicate(card, arbiter.entries[card.key]),)
    before = asked.before
    if before is not None and before.firm and card.judged_like(before.want) and card.anchored:
        return Standing.SERVING, ()
    conflict = arbiter.find_conflict(card)
    if conflict is not None:
        return Standing.REFUSED, (refused(arbiter, card, conflict),)
    if not arbiter.grounded(card):
        return Standing.ORPHAN, (orphaned(arbiter, card),)
    taken = arbiter.taken(card, arbiter.claim_of(card, asked.owner))
    book = None if card.adapter else arbiter.groups.get(card.group)
    if book is not None:
        rivals = _rivals(arbiter, book, card, asked, free=taken is None)
        if rivals and arbiter.entries[rivals[0]].want.fingerprint != card.fingerprint:
            return Standing.STANDBY, (standing_by(arbiter, card, rivals),)
        if rivals and taken is None:
            reason = other_owner(arbiter, card.display_name, asked.owner, rivals)
            return Standing.BLOCKED, (reason,)
    if taken is not None:
        return Standing.BLOCKED, (blocked(arbiter, card, taken, asked.owner),)
    return Standing.SERVING, ()


def _rivals(
    arbiter: Arbiter, book: GroupBook, card: Card, asked: _Asked, *, free: bool
) -> list[Key]:
    """Return the members of the cohort that would serve instead of the card, if one would."""
    mine = arbiter.cohort_key(card, asked.owner)
    key = None if asked.own is None else asked.own.key
    firm = [] if book.incumbent is None else [member for member in book.firm if member != key]
    if firm:
        return [] if book.incumbent == card.fingerprint else firm

    def can_serve(cohort: CohortKey) -> bool:
        if cohort == mine:
            return free
        members = book.cohorts[cohort].members
        return arbiter.can_serve(member for member in members if member != key)

    rolling = arbiter.rolling(book)
    before = asked.before
    if before is not None and before.key == card.key and before.served is not None:
        was = before.served.card
        if not was.adapter and was.group == card.group:
            rolling.add(mine)
    heir = first_heir(dict.fromkeys((*book.cohorts, mine)), rolling, can_serve)
    if heir is None or heir == mine:
        return []
    return [member for member in book.cohorts[heir].members if member != key]


@contextmanager
def _lifted(arbiter: Arbiter, own: Entry | None) -> Generator[None]:
    """Take an entry out of the books of endpoint and names while something is asked of them."""
    if own is None:
        yield
        return
    arbiter.open(own.key.place)
    registered = arbiter.registered.get(own.key.place) if own.registration is not None else None
    served = own.served
    if registered is not None:
        registered.remove(own.want)
    if served is not None:
        arbiter.names.release(own.key, served.card.names, firm=served.firm)
    try:
        yield
    finally:
        if registered is not None:
            registered.add(own.want)
        if served is not None:
            arbiter.names.claim(own.key, served.card.names, firm=served.firm)
