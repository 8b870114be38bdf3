"""Names that may have been meant: an index of served names by what people get wrong in them."""

import unicodedata
from collections.abc import Iterable

from discoveryd.core.keyindex import KeyIndex

_SEPARATORS = "-_./: "
_DROPPED = str.maketrans("", "", _SEPARATORS)
_SMALL = (1 << 30) - 1
"""An integer up to here takes 28 bytes, a larger one 36; that more names meet then is seldom."""
_DROPPED_BYTES = _SEPARATORS.encode()


def fold(name: str) -> str:
    """Return the name without what people mistype: case, compatibility forms, separators."""
    if name.isascii():
        return name.encode().lower().translate(None, _DROPPED_BYTES).decode()
    return unicodedata.normalize("NFKC", name).casefold().translate(_DROPPED)


class SimilarNames:
    """Served names by their folded form, and those with a slash by that of their last segment.

    Of the folded forms only the hashes are kept: whether names are alike is asked of themselves.
    """

    def __init__(self) -> None:
        self._whole: KeyIndex[int, str] = KeyIndex()
        self._last: KeyIndex[int, str] = KeyIndex()

    def add(self, name: str) -> None:
        """Enter a name that is served from now on."""
        self._whole.add(_hash(fold(name)), name)
        if "/" in name:
            self._last.add(_hash(fold(_last(name))), name)

    def discard(self, name: str) -> None:
        """Take out a name that nobody serves any more."""
        self._whole.discard(_hash(fold(name)), name)
        if "/" in name:
            self._last.discard(_hash(fold(_last(name))), name)

    def to(self, name: str, limit: int = 5) -> list[str]:
        """Return at most `limit` names like this one: whole matches first, each kind sorted."""
        folded, segment = fold(name), fold(_last(name))
        whole = _those(self._whole.members(_hash(folded), 4 * limit), folded)
        bare = _those(self._whole.members(_hash(segment), 4 * limit), segment)
        bare = [one for one in bare if "/" not in one]
        last = [
            one
            for one in self._last.members(_hash(segment), 4 * limit)
            if fold(_last(one)) == segment
        ]
        found = dict.fromkeys((*sorted(whole), *sorted((*bare, *last))))
        found.pop(name, None)
        return list(found)[:limit]


def _hash(folded: str) -> int:
    return hash(folded) & _SMALL


def _last(name: str) -> str:
    """Return the last segment of a name."""
    return name.rpartition("/")[2]


def _those(names: Iterable[str], folded: str) -> list[str]:
    return [name for name in names if fold(name) == folded]
