"""The identity gate's books: which files there are, and which of them holds each key."""

from collections.abc import Iterable, Iterator, Mapping

from discoveryd.core.batch import Barred, Invalid, Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.entry import FileRecord
from discoveryd.core.keyindex import KeyIndex


class Files:
    """Every card file that was sighted and is not gone, and the claims on keys in order."""

    def __init__(self) -> None:
        self._records: dict[str, FileRecord] = {}
        self._claims: dict[Key, list[str]] = {}
        self._asking: KeyIndex[str, str] = KeyIndex()
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
        claims = self._claims.get(key)
        return self._records[claims[0]] if claims else None

    def claims(self, key: Key) -> tuple[str, ...]:
        """Return the files that claim the key, the holder first."""
        return tuple(self._claims.get(key, ()))

    def asking_for(self, name: str) -> tuple[str, ...]:
        """Return the files whose last valid card asks for the name."""
        return self._asking.members(name)

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
        if record is None:
            record = self._records[sighting.file] = FileRecord(sighting.file)
        before, known = record.claim, _kept(record)
        record.mtime_ns, record.owner = sighting.mtime_ns, sighting.owner
        record.observed = sighting.observed
        self._enter(record, sighting.found)
        self._claim(record.file, before, record.claim, keys)
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
            for name in () if known is None else known.names:
                self._asking.discard(name, record.file)
            for name in card.names:
                self._asking.add(name, record.file)
            record.card = card

    def _claim(
        self, file: str, before: Key | None, after: Key | None, keys: dict[Key, None]
    ) -> None:
        if before is not None and before != after:
            self._give_up(file, before)
            keys[before] = None
            self._altered_claims[before] = None
        if after is not None:
            if before != after:
                self._claims.setdefault(after, []).append(file)
                self._altered_claims[after] = None
            keys[after] = None

    def _give_up(self, file: str, key: Key) -> None:
        claims = self._claims[key]
        claims.remove(file)
        if not claims:
            del self._claims[key]

    def _forget(self, file: str, keys: dict[Key, None]) -> None:
        record = self._records.pop(file, None)
        if record is None:
            return
        self._claim(file, record.claim, None, keys)
        for name in () if record.card is None else record.card.names:
            self._asking.discard(name, file)
        self._left.append(record)
        self._altered_files[file] = None

    def restore(self, records: Iterable[FileRecord], claims: Mapping[Key, Iterable[str]]) -> None:
        """Put back what was taken out of another instance."""
        for record in records:
            self._records[record.file] = record
            for name in () if record.card is None else record.card.names:
                self._asking.add(name, record.file)
        self._claims = {key: list(files) for key, files in claims.items()}


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
