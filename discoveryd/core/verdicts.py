"""What is said of every file: verdicts, their counts, and who is waiting.

Read from the arbiter's books and the files' records as they stand between two batches; the only
thing remembered is what was said last, so that a change of it can be told.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from discoveryd.core.arbiter import Arbiter
from discoveryd.core.card import Card, Group
from discoveryd.core.entry import FileRecord, Shown
from discoveryd.core.files import Files
from discoveryd.core.keyindex import KeyIndex
from discoveryd.core.reasons import duplicate, reasons_for, standing_by
from discoveryd.core.verdict import Reason, Serves, Standing, Verdict

_MOST_IDLE = 20

_RANK_LOST = (
    "the key was {} before: another key is another worker, so the card arrived anew and gave up "
    "its rank"
)


_usual = lru_cache(maxsize=1024)(Shown)
"""Of most files the same is said, and then it is kept but once."""


class Outcome(NamedTuple):
    """A verdict in short, with the file's last valid card."""

    card: Card | None
    standing: Standing
    reasons: tuple[Reason, ...]


class Verdicts:
    """The verdicts of one registry. `standings` counts the files of each standing."""

    def __init__(self, arbiter: Arbiter) -> None:
        self.arbiter = arbiter
        self.files = Files()
        self.standings: Counter[str] = Counter()
        self._unsettled: dict[str, tuple[str, ...]] = {}
        self._waiting: KeyIndex[str, str] = KeyIndex()

    def forget(self) -> Generator[None, None, dict[str, Card | None]]:
        """Say nothing more of the files that are gone, and return them with their last cards.

        In small steps, all of which must be taken.
        """
        left = self.files.leave()
        for record in left:
            yield
            self._settle(record.file)
            if record.standing is not None:
                self.standings[record.standing] -= 1
        return {record.file: record.card for record in left}

    def show(self, file: str, now: float) -> bool:
        """Note what is said of a file from now on; return whether that is something new."""
        record = self.files.get(file)
        if record is None:
            return False
        standing, serves = self._standing(record)
        usual = record.fault is None and record.barred is None and record.moved_from is None
        if usual:
            shown = _usual(standing, serves, record.owner)
        else:
            reasons = None if record.barred is None else record.barred.reasons
            moved_from = record.moved_from
            shown = Shown(standing, serves, record.owner, record.fault, reasons, moved_from)
        if shown == record.shown:
            return False
        if record.standing is not None:
            self.standings[record.standing] -= 1
        self.standings[standing] += 1
        record.shown, record.standing, record.since = shown, standing, now
        self._settle(file)
        if serves is not Serves.CURRENT:
            names = () if record.card is None else record.card.names
            self._unsettled[file] = names
            for name in names:
                self._waiting.add(name, file)
        return True

    def _settle(self, file: str) -> None:
        for name in self._unsettled.pop(file, ()):
            self._waiting.discard(name, file)

    def _standing(self, record: FileRecord) -> tuple[Standing, Serves]:
        key = record.claim
        entry = None if key is None else self.arbiter.entries.get(key)
        holds = entry is not None and entry.file == record.file
        serves = Serves.NOTHING
        if entry is not None and holds:
            serves = entry.serves(torn=record.fault is not None)
        if record.fault is not None:
            return Standing.INVALID, serves
        if record.barred is not None:
            return record.barred.standing, Serves.NOTHING
        if entry is None or not holds:
            return Standing.DUPLICATE, Serves.NOTHING
        return entry.standing, serves

    def outcome(self, file: str) -> Outcome | None:
        """What became of a card file, in short; None for a file it does not know."""
        record = self.files.get(file)
        if record is None:
            return None
        standing, _ = self._standing(record)
        return Outcome(record.card, standing, self._reasons(record, standing))

    def verdict(self, file: str) -> Verdict | None:
        """What the registry says of a card file; None for a file it does not know."""
        record = self.files.get(file)
        if record is None:
            return None
        standing, serves = self._standing(record)
        card = record.card
        warnings = () if card is None or record.fault is not None else card.warnings
        if record.fault is not None:
            warnings = record.fault.warnings
        elif record.moved_from is not None:
            warnings = (*warnings, _RANK_LOST.format(record.moved_from))
        return Verdict(
            file=file,
            key=None if card is None else str(card.key),
            model=None if card is None else card.display_name,
            names=() if card is None else card.names,
            standing=standing,
            serves=serves,
            reasons=self._reasons(record, standing),
            warnings=warnings,
            owner_uid=record.owner,
            since=record.since,
        )

    def _reasons(self, record: FileRecord, standing: Standing) -> tuple[Reason, ...]:
        if record.fault is not None:
            return record.fault.reasons
        if record.barred is not None:
            return record.barred.reasons
        card = claimed_card(record)
        if standing is Standing.DUPLICATE:
            return (duplicate(card, self.arbiter.entries[card.key]),)
        return reasons_for(self.arbiter, self.arbiter.entries[card.key])

    def verdicts_for(self, name: str) -> Iterator[Verdict]:
        """The verdicts of every file whose last valid card asks for the name."""
        claims = self.arbiter.names.firm.members(name)
        serving = [self.arbiter.entries[key].file for key in claims]
        return self._verdicts(dict.fromkeys((*serving, *self._waiting.members(name))))

    def waiting_for(self, name: str) -> list[str]:
        """The files whose card asks for the name and does not serve what it holds now."""
        return list(self._waiting.members(name))

    def unsettled(self) -> Iterator[Verdict]:
        """The verdicts of every file that is not serving its present content."""
        return self._verdicts(tuple(self._unsettled))

    def _verdicts(self, files: Iterable[str]) -> Iterator[Verdict]:
        for file in files:
            verdict = self.verdict(file)
            if verdict is not None:
                yield verdict

    def idle_cohorts(self) -> list[str]:
        """Say which groups have cards standing by, how many, and why; at most 20."""
        idle: Counter[Group] = Counter()
        samples: dict[Group, Card] = {}
        for file in self._unsettled:
            record = self.files.get(file)
            if record is not None and record.standing is Standing.STANDBY:
                card = claimed_card(record)
                idle[card.group] += 1
                samples[card.group] = card
        said: list[str] = []
        for group, waiting in idle.most_common(_MOST_IDLE):
            firm = self.arbiter.groups[group].firm
            reason = standing_by(self.arbiter, samples[group], firm)
            said.append(
                f"{group[0]} on {'/'.join(group[1])}: {len(firm)} serving, {waiting} standing by: "
                f"{reason.field} {reason.found}, not {reason.expected}"
            )
        return said


def claimed_card(record: FileRecord) -> Card:
    """Return the card by which a file claims its key. It must claim one."""
    if record.card is None:
        raise AssertionError(f"{record.file} claims a key without a card")
    return record.card
