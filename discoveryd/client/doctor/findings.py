"""What an examination finds: values, how they are said to people, and the exit status they mean.

Theory
======

**Looking and judging.** Every module of this folder has functions `look...`, which ask the host
once and return what they saw as a value, and functions `judge...`, which take such values and
return findings, and ask nobody. So every judgement is tested without the host that would earn it.

**Levels.** `wrong` is what keeps cards from being served or answers from being got, or will; it
alone makes the exit status 1. A `note` is worth knowing: what could not be seen, what is unusual
but may be meant. `ok` says what was looked at and found in order.

**Nothing is written.** What a directory allows is asked of the kernel (faccessat), never tried.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from discoveryd.client.ctl.mending import in_shell
from discoveryd.client.workers.publishing import shown
from discoveryd.core.text import printable

Level = Literal["ok", "note", "wrong"]

_INDENT = " " * 9
_LEVELS: tuple[Level, ...] = ("wrong", "note", "ok")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was found: `what`, in a few words, `why`, and the lines of its `remedy`.

    A line of the remedy is a sentence, or a command as a shell takes it. The texts are not escaped
    for a terminal, but for what a shell would take apart.
    """

    level: Level
    what: str
    why: str = ""
    remedy: tuple[str, ...] = ()


def ok(what: str, why: str = "") -> Finding:
    """Return that something is in order."""
    return Finding("ok", what, why)


def note(what: str, why: str = "", *remedy: str) -> Finding:
    """Return something that is worth knowing."""
    return Finding("note", what, why, remedy)


def wrong(what: str, why: str = "", *remedy: str) -> Finding:
    """Return something that is wrong."""
    return Finding("wrong", what, why, remedy)


def any_wrong(findings: Iterable[Finding]) -> bool:
    """Whether anything at all is wrong."""
    return any(finding.level == "wrong" for finding in findings)


def lines_of(findings: Sequence[Finding]) -> list[str]:
    """Return a printable line for each finding, its remedy below it, and how many there are."""
    lines: list[str] = []
    for finding in findings:
        why = f": {finding.why}" if finding.why else ""
        lines.append(printable(f"{finding.level:<5}  {finding.what}{why}"))
        lines += [_INDENT + printable(line) for line in finding.remedy]
    counts = Counter(finding.level for finding in findings)
    told = ", ".join(f"{counts[level]} {level}" for level in _LEVELS if counts[level])
    return [*lines, told]


def word(path: str) -> str:
    """Return a path as one word of a shell's command."""
    return in_shell(shown(path))
