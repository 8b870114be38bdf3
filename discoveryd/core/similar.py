"""Names that may have been meant: an index of served names by what people get wrong in them."""

import unicodedata

from discoveryd.core.keyindex import KeyIndex

_DROPPED = str.maketrans("", "", "-_./: ")


def fold(name: str) -> str:
    """Return the name without what people mistype: case, compatibility forms, separators."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_DROPPED)


class SimilarNames:
    """Served names by their folded form and by the folded form of their last segment."""

    def __init__(self) -> None:
        self._whole: KeyIndex[str, str] = KeyIndex()
        self._last: KeyIndex[str, str] = KeyIndex()

    def add(self, name: str) -> None:
        """Enter a name that is served from now on."""
        self._whole.add(fold(name), name)
        self._last.add(fold(name.rpartition("/")[2]), name)

    def discard(self, name: str) -> None:
        """Take out a name that nobody serves any more."""
        self._whole.discard(fold(name), name)
        self._last.discard(fold(name.rpartition("/")[2]), name)

    def to(self, name: str, limit: int = 5) -> list[str]:
        """Return at most `limit` names like this one: whole matches first, each kind sorted."""
        whole = self._whole.members(fold(name))[: 4 * limit]
        last = self._last.members(fold(name.rpartition("/")[2]))[: 4 * limit]
        found = dict.fromkeys((*sorted(whole), *sorted(last)))
        found.pop(name, None)
        return list(found)[:limit]
