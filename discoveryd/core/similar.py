"""Names that may have been meant: an index of served names by what people get wrong in them."""

import unicodedata

from discoveryd.core.keyindex import KeyIndex

_SEPARATORS = "-_./: "
_DROPPED = str.maketrans("", "", _SEPARATORS)
_DROPPED_BYTES = _SEPARATORS.encode()


def fold(name: str) -> str:
    """Return the name without what people mistype: case, compatibility forms, separators."""
    if name.isascii():
        return name.encode().lower().translate(None, _DROPPED_BYTES).decode()
    return unicodedata.normalize("NFKC", name).casefold().translate(_DROPPED)


class SimilarNames:
    """Served names by their folded form, and those with a slash by that of their last segment."""

    def __init__(self) -> None:
        self._whole: KeyIndex[str, str] = KeyIndex()
        self._last: KeyIndex[str, str] = KeyIndex()

    def add(self, name: str) -> None:
        """Enter a name that is served from now on."""
        self._whole.add(fold(name), name)
        if "/" in name:
            self._last.add(fold(name.rpartition("/")[2]), name)

    def discard(self, name: str) -> None:
        """Take out a name that nobody serves any more."""
        self._whole.discard(fold(name), name)
        if "/" in name:
            self._last.discard(fold(name.rpartition("/")[2]), name)

    def to(self, name: str, limit: int = 5) -> list[str]:
        """Return at most `limit` names like this one: whole matches first, each kind sorted."""
        segment = fold(name.rpartition("/")[2])
        whole = self._whole.members(fold(name), 4 * limit)
        bare = [one for one in self._whole.members(segment, 4 * limit) if "/" not in one]
        last = self._last.members(segment, 4 * limit)
        found = dict.fromkeys((*sorted(whole), *sorted((*bare, *last))))
        found.pop(name, None)
        return list(found)[:limit]
