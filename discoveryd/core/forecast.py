"""What a card would get if it were dropped now: the same gates, read without moving anything.

The card is judged alone against the books as they stand, with what its own file has in them lifted
out for the length of the question.
"""

from collections.abc import Generator
from contextlib import contextmanager

from discoveryd.core.arbiter import Arbiter, first_heir
from discoveryd.core.batch import Barred, Invalid, Sighting
from discoveryd.core.card import Card
from discoveryd.core.catalogue import GroupBook
from discoveryd.core.entry import Entry
from discoveryd.core.files import Files
from discoveryd.core.reasons import blocked, duplicate, orphaned, refused, standing_by
from discoveryd.core.verdict import Reason, Serves, Standing, Verdict

_Outcome = tuple[Standing, tuple[Reason, ...]]


def check(
    arbiter: Arbiter, files: Files, sighting: Sighting, now: float
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict the sighting would get, and the files it would displace."""
    record = files.get(sighting.file)
    own = None if record is None or record.claim is None else arbiter.entries.get(record.claim)
    if own is not None and own.file != sighting.file:
        own = None
    serving = own is not None and own.served is not None
    found = sighting.found
    displaced: tuple[str, ...] = ()
    card: Card | None
    match found:
        case Card():
            card = found
            with _lifted(arbiter, own):
                standing, reasons = _judge(arbiter, files, found, own, sighting.file)
                if standing is Standing.SERVING:
                    displaced = tuple(arbiter.entries[key].file for key in arbiter.displaced(found))
            courtesy = serving and own is not None and own.key == found.key and found.anchored
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


def _judge(arbiter: Arbiter, files: Files, card: Card, own: Entry | None, file: str) -> _Outcome:
    holder = files.holder(card.key)
    if holder is not None and holder.file != file:
        return Standing.DUPLICATE, (duplicate(card, arbiter.entries[card.key]),)
    if own is not None and own.firm and card.judged_like(own.want) and card.anchored:
        return Standing.SERVING, ()
    cards = arbiter.registered.get(card.key.place)
    conflict = None if cards is None else cards.find_conflict(card)
    if conflict is not None:
        return Standing.REFUSED, (refused(arbiter, card, conflict),)
    if not arbiter.grounded(card):
        return Standing.ORPHAN, (orphaned(arbiter, card),)
    taken = arbiter.names.taken(arbiter.claims(card))
    book = None if card.adapter else arbiter.groups.get(card.group)
    if book is not None:
        rival = _rival(arbiter, book, card, own, free=taken is None)
        if rival is not None:
            members = [key for key in book.cohorts[rival].members if own is None or key != own.key]
            return Standing.STANDBY, (standing_by(arbiter, card, members),)
    if taken is not None:
        return Standing.BLOCKED, (blocked(arbiter, card, taken),)
    return Standing.SERVING, ()


def _rival(
    arbiter: Arbiter, book: GroupBook, card: Card, own: Entry | None, *, free: bool
) -> str | None:
    """Return the fingerprint of the cohort that would serve instead of the card, if one would."""
    mine = card.fingerprint
    key = None if own is None else own.key
    if book.incumbent is not None and any(member != key for member in book.firm):
        return None if book.incumbent == mine else book.incumbent

    def can_serve(fingerprint: str) -> bool:
        if fingerprint == mine:
            return free
        members = book.cohorts[fingerprint].members
        return arbiter.can_serve(member for member in members if member != key)

    rolling = arbiter.rolling(book)
    if own is not None and own.key == card.key and own.served is not None:
        was = own.served.card
        if not was.adapter and was.group == card.group:
            rolling.add(mine)
    heir = first_heir(dict.fromkeys((*book.cohorts, mine)), rolling, can_serve)
    return None if heir == mine else heir


@contextmanager
def _lifted(arbiter: Arbiter, own: Entry | None) -> Generator[None]:
    """Take an entry out of the books of endpoint and names while something is asked of them."""
    if own is None:
        yield
        return
    registered = arbiter.registered.get(own.key.place) if own.registration is not None else None
    claims = None if own.served is None else arbiter.claims(own.served.card)
    if registered is not None:
        registered.remove(own.want)
    if claims is not None and own.served is not None:
        arbiter.names.release(own.key, claims, firm=own.served.firm)
    try:
        yield
    finally:
        if registered is not None:
            registered.add(own.want)
        if claims is not None and own.served is not None:
            arbiter.names.claim(own.key, claims, firm=own.served.firm)
