"""Aligned columns of text for people, and how wide text is on a terminal.

Knows nothing of models. Cells are made printable here, so that no card can steer a terminal.
"""

from collections.abc import Collection, Sequence

from discoveryd.core.text import printable

_GAP = 2
_NARROWEST = 12
_ELLIPSIS = "\u2026"


def columns(text: str) -> int:
    """Return how many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    # Seldom needed, and not small.
    from unicodedata import category, east_asian_width  # noqa: PLC0415

    taken = 0
    for char in text:
        if east_asian_width(char) in ("W", "F"):
            taken += 2
        elif category(char) not in ("Mn", "Me"):
            taken += 1
    return taken


def table(
    heading: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    limit: int | None = None,
    elastic: Collection[int] = (),
) -> list[str]:
    """Return the lines of a table, none of them with spaces at its end.

    Where lines would take more than `limit` columns, cells of the `elastic` columns lose their
    beginning, since what tells paths and keys apart is their end; the others are never cut.
    """
    cells = [list(heading), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    if limit is not None:
        widths = squeeze(widths, limit, elastic)
    return [_line(row, widths) for row in cells]


def squeeze(widths: Sequence[int], limit: int, elastic: Collection[int]) -> list[int]:
    """Return widths whose sum fits `limit`, as far as the widest elastic columns can give way."""
    squeezed = list(widths)
    excess = sum(widths) + _GAP * (len(widths) - 1) - limit
    while excess > 0:
        wide = [column for column in elastic if squeezed[column] > _NARROWEST]
        if not wide:
            break
        squeezed[max(wide, key=squeezed.__getitem__)] -= 1
        excess -= 1
    return squeezed


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    shown: list[str] = []
    for cell, width in zip(row, widths, strict=True):
        fitted = end_of(cell, width)
        shown.append(fitted + " " * (width + _GAP - columns(fitted)))
    return "".join(shown).rstrip(" ")


def end_of(text: str, width: int) -> str:
    """Return the text, or as much of its end as fits behind an ellipsis."""
    if columns(text) <= width:
        return text
    start = 0
    while columns(text[start:]) > width - 1:
        start += 1
    return _ELLIPSIS + text[start:]
