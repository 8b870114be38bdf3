"""How a picture looks: rich's tables, cut to what fits, with a count of what does not.

Text is given to rich as Text, which knows neither markup nor emoji codes, and is printable already:
no card can steer the terminal or the looks of others.
"""

from collections.abc import Sequence
from io import StringIO
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from discoveryd.client.ctl.show import count
from discoveryd.client.ctl.tables import columns, end_of, squeeze
from discoveryd.client.top.picture import Picture, share

_NARROW = 70
"""Below so many columns, only what tells rows apart is shown."""

_WIDE = 160
"""From so many columns on, there is room for whole paths."""

_MOST_PROBLEMS = 3
_KEYS = "q ends"


def draw(seen: Picture, width: int, height: int | None) -> RenderableType:
    """Return the picture for a terminal of that size, in characters; None is as high as it takes.

    What does not fit is counted.
    """
    head = _head(seen, None if height is None else _MOST_PROBLEMS)
    models, waiting = len(seen.models), len(seen.waiting)
    if height is not None:
        models, waiting = share(models, waiting, height - len(head) - 1)
    parts: list[RenderableType] = [*head, Text("")]
    parts += _models(seen, models, width)
    if seen.waiting:
        parts += [Text(""), *_waiting(seen, waiting, width)]
    return Group(*parts)


def console_on(file: TextIO, width: int | None = None, *, terminal: bool = True) -> Console:
    """Return a console that writes to the file; as wide as its terminal where no width is given."""
    return Console(
        file=file,
        width=width,
        force_terminal=terminal,
        no_color=None if terminal else True,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def lines_of(seen: Picture, width: int | None) -> list[str]:
    """Return the picture as lines, as high as it takes: for a terminal so wide, or for none."""
    written = StringIO()
    console = console_on(written, width or _unbounded(seen), terminal=width is not None)
    console.print(draw(seen, console.width, None))
    return [line.rstrip(" ") for line in written.getvalue().splitlines()]


def _unbounded(seen: Picture) -> int:
    """Return a width in which nothing is cut."""
    rows = [*seen.models, *seen.waiting]
    longest = max((sum(2 * len(str(cell)) for cell in row) for row in rows), default=0)
    return max(longest, *(2 * len(line) for line in (seen.head, seen.cards, *seen.problems))) + 100


def _head(seen: Picture, most_problems: int | None) -> list[RenderableType]:
    looks = "bold green" if seen.healthy else "bold" if seen.healthy is None else "bold red"
    lines = [_line(seen.head, looks)]
    if seen.stale is not None:
        lines.append(_line(seen.stale, "bold reverse yellow"))
    lines += [_line(f"problem: {problem}", "red") for problem in seen.problems[:most_problems]]
    more = 0 if most_problems is None else len(seen.problems) - most_problems
    if more > 0:
        lines.append(_line(f"and {count(more, 'more problem')}: discoveryctl status", "red"))
    suffix = "" if most_problems is None else f" ({_KEYS})"
    return [*lines, _line(f"{seen.cards}{suffix}", "dim")]


def _models(seen: Picture, shown: int, width: int) -> Sequence[RenderableType]:
    if not seen.models:
        return [_line("no name is served", "bold")]
    narrow = width < _NARROW
    rows: list[list[Text]] = []
    for model in seen.models[:shown]:
        ready = Text("yes", "green") if model.ready else Text("no", "bold red")
        more = [] if narrow else [Text(model.names), Text(model.at)]
        rows.append([Text(model.name), ready, Text(model.workers), *more])
    heading = ["MODEL", "READY", "WORKERS", *([] if narrow else ["ALSO", "AT"])]
    rest = _left_out(len(seen.models) - shown, "model", "models", "discoveryctl list")
    return [*_table(heading, rows, width, elastic=(0, 3, 4)), *rest]


def _waiting(seen: Picture, shown: int, width: int) -> Sequence[RenderableType]:
    narrow = width < _NARROW
    rows: list[list[Text]] = []
    for card in seen.waiting[:shown]:
        standing = Text(card.standing, "bold red")
        if card.previous:
            standing = Text(f"{card.standing}, older serves", "yellow")
        # What tells card files apart is the end of their path.
        file = card.file if width >= _WIDE else end_of(card.file, width // 3)
        rows.append([Text(file), standing, *([] if narrow else [Text(card.names)]), Text(card.why)])
    heading = ["WAITING", "STANDING", *([] if narrow else ["ASKS FOR"]), "WHY"]
    rest = _left_out(len(seen.waiting) - shown, "that waits", "that wait", "discoveryctl explain")
    return [*_table(heading, rows, width, elastic=(2, 3)), *rest]


def _left_out(number: int, one: str, many: str, command: str) -> list[Text]:
    if number <= 0:
        return []
    return [_line(f"and {number} more {one if number == 1 else many}: {command}", "dim")]


def _table(
    heading: Sequence[str], rows: Sequence[Sequence[Text]], width: int, *, elastic: Sequence[int]
) -> list[Table]:
    """Return the rows below their heading; without rows, nothing. Elastic columns give way."""
    if not rows:
        return []
    cells = [heading, *([cell.plain for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    fitting = squeeze(widths, width, [each for each in elastic if each < len(widths)])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, wide in zip(heading, fitting, strict=True):
        table.add_column(name, width=wide, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    return [table]


def _line(text: str, looks: str) -> Text:
    return Text(text, looks, no_wrap=True, overflow="ellipsis")
