"""The identity gate's books: which files there are, and which of them holds each key.

Hardly any key is claimed by two files, so a lone claim is its holder, bare.
"""

from collections.abc import Iterable, Iterator, Mapping

from discoveryd.core.batch import Barred, Invalid, Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.entry import FileRecord


class Files:
    """Every card file that was sighted and is not gone, and the claims on keys in order."""

    def __init__(self) -> None:
        self._records: dict[str, FileRecord] = {}
        self._holders: dict[Key, FileRecord] = {}
        self._behind: dict[Key, list[FileRecord]] = {}
        self._left: list[FileRecord] = []
        self._altered_files: dict[str, None] = {}
        self._altered_claims: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[FileRecord]:
        return iter(self._records.values())

    def get(self, file: str) -> FileRecord | None:
        """Return the record of a file, if it is known."""
        return self._records.get(file)

    def holder(self, key: Key) -> FileRecord | None:
        """Return the file that holds the key: the first that claimed it."""
        return self._holders.get(key)

    def claims(self, key: Key) -> tuple[str, ...]:
        """Return the files that claim the key, the holder first."""
        holder = self._holders.get(key)
        if holder is None:
            return ()
        return (holder.file, *(record.file for record in self._behind.get(key, ())))

    def leave(self) -> list[FileRecord]:
        """Take the records of the files that went since the last call."""
        left, self._left = self._left, []
        return left

    def altered(self) -> tuple[dict[str, None], dict[Key, None]]:
        """Take the files, and the keys whose claims, became others since the last call."""
        altered = self._altered_files, self._altered_claims
        self._altered_files, self._altered_claims = {}, {}
        return altered

    def note(self, sighting: Sighting, keys: dict[Key, None]) -> None:
        """Enter what was seen; add to `keys` those whose claims or holder may be other now."""
        if sighting.found is None:
            self._forget(sighting.file, keys)
            return
        record = self._records.get(sighting.file)
        if record is None and isinstance(card := sighting.found, Card):
            owner, mtime_ns, observed = sighting.owner, sighting.mtime_ns, sighting.observed
            record = FileRecord(sighting.file, owner, mtime_ns, observed, card)
            self._records[record.file] = record
            self._claim(record, None, card.key, keys)
            self._altered_files[record.file] = None
            return
        if record is None:
            record = self._records[sighting.file] = FileRecord(sighting.file)
        before, known = record.claim, _kept(record)
        record.mtime_ns, record.owner = sighting.mtime_ns, sighting.owner
        record.observed = sighting.observed
        self._enter(record, sighting.found)
        self._claim(record, before, record.claim, keys)
        if _kept(record) != known:
            self._altered_files[record.file] = None

    def _enter(self, record: FileRecord, found: Card | Barred | Invalid) -> None:
        if isinstance(found, Invalid):
            record.fault = found
            return
        record.fault = None
        card = found.card if isinstance(found, Barred) else found
        record.barred = found if isinstance(found, Barred) else None
        known = record.card
        if known is None or known != card:
            record.moved_from = None if known is None or known.key == card.key else known.key
            if known is None or not _speak_alike(known, card):
                record.shown = None
            record.card = card

    def _claim(
        self, record: FileRecord, before: Key | None, after: Key | None, keys: dict[Key, None]
    ) -> None:
        if before is not None and before != after:
            self._give_up(record, before)
            keys[before] = None
            self._altered_claims[before] = None
        if after is not None:
            if before != after:
                if self._holders.setdefault(after, record) is not record:
                    self._behind.setdefault(after, []).append(record)
                self._altered_claims[after] = None
            keys[after] = None

    def _give_up(self, record: FileRecord, key: Key) -> None:
        behind = self._behind.get(key)
        if behind is None:
            del self._holders[key]
            return
        if self._holders[key] is record:
            self._holders[key] = behind.pop(0)
        else:
            behind.remove(record)
        if not behind:
            del self._behind[key]

    def _forget(self, file: str, keys: dict[Key, None]) -> None:
        record = self._records.pop(file, None)
        if record is None:
            return
        self._claim(record, record.claim, None, keys)
        self._left.append(record)
        self._altered_files[file] = None

    def restore(self, records: Iterable[FileRecord], claims: Mapping[Key, Iterable[str]]) -> None:
        """Put back what was taken out of another instance. Claims of unknown files are none."""
        for record in records:
            self._records[record.file] = record
        for key, files in claims.items():
            claiming = [self._records[file] for file in files if file in self._records]
            if claiming:
                self._holders[key] = claiming[0]
            if claiming[1:]:
                self._behind[key] = claiming[1:]


def _speak_alike(one: Card, other: Card) -> bool:
    """Whether a verdict says the same of both cards."""
    return one.key == other.key and one.names == other.names and one.warnings == other.warnings


def _kept(record: FileRecord) -> object:
    """Return what outlives the daemon of a record, but for what is said of it."""
    return (
        record.card,
        record.mtime_ns,
        record.owner,
        record.observed,
        record.fault,
        record.barred,
        record.moved_from,
    )
