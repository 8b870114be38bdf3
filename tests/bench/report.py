"""All that a run has brought, as JSON for programs and as Markdown for the README."""

import contextlib
import os
from pathlib import Path

import msgspec

from tests.bench.table import Row, figure

HEAD = "| what | target | ours | peer | ratio | met |\n|---|---|---|---|---|---|\n"
READING = (
    "Medians, and in brackets the range without the highest and the lowest twentieth."
    " The ratio is ours divided by the peer's, both measured in turns in this run."
)
QUICK = "**A quick run: few turns of little. It shows that everything runs, and no numbers.**"


class Report(msgspec.Struct, kw_only=True):
    """What a run has brought so far.

    `machine` says where it ran, word by word; `took_seconds` how long each part took, and `failed`
    why one ended before it had yielded all its rows.
    """

    machine: dict[str, str]
    quick: bool
    rows: list[Row] = []
    took_seconds: dict[str, float] = {}
    failed: dict[str, str] = {}

    def save(self, path: Path) -> None:
        """Write it all, so that a reader finds the old or the new report."""
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
            beside.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    def markdown(self, *, promised: bool = False) -> str:
        """Return the table, with the machine and all that went wrong below it.

        `promised` leaves out what has no target.
        """
        text = f"{QUICK}\n\n" if self.quick else ""
        shown = [row for row in self.rows if row.target is not None or not promised]
        text += HEAD + "".join(line(row) + "\n" for row in shown)
        if len(shown) < len(self.rows):
            text += f"\nNot shown: rows that promise nothing, {len(self.rows) - len(shown)}.\n"
        where = "; ".join(f"{what} {said}" for what, said in self.machine.items())
        took = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in self.took_seconds.items())
        text += f"\n{READING}\n\nMeasured on: {where}.\n\nThe run took: {took}.\n"
        for part, why in self.failed.items():
            text += f"\n**FAILED: {part}**, its rows are not complete: {_cell(why)}\n"
        return text


def load(path: Path) -> Report:
    """Return a report that was saved; raise OSError or msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def line(row: Row) -> str:
    """Return a row of the table."""
    if row.missing is not None:
        theirs = f"**NOT MEASURED**: {row.missing}"
    elif row.theirs is not None:
        theirs = f"{figure(row.theirs, row.unit)}, {row.peer}"
    else:
        theirs = ""
    ours = "**NOT MEASURED**" if row.ours is None else figure(row.ours, row.unit)
    met = {None: "", True: "yes", False: "**no**"}[row.met]
    cells = (row.what, row.target or "", ours, theirs, _ratio(row.ratio), met)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if ratio >= 100:
        return f"{ratio:,.0f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{float(f'{ratio:.2g}'):.6f}".rstrip("0")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
