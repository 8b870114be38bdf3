"""What `list` says: the served names, what stands by behind them, and what nobody serves yet.

Values in, printable lines out; prints nothing. The list of names knows nothing of cards that wait:
they come from the verdicts on all cards that do not serve their present content.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from discoveryd.client.ctl.tables import table
from discoveryd.core.text import printable
from discoveryd.interface import Name, Reason, Verdict

_NONE = "-"
_MOST = 20
"""Names that nobody serves which are told one by one."""

_LONGEST = 40
"""Characters of a member's value that still fit a note."""

_FIELDS = {"context_length": "context", "kv_cache_block_size": "block size"}


def names(served: Sequence[Name], waiting: Sequence[Verdict], limit: int | None) -> list[str]:
    """Return the served names as a table, below it the names that only `waiting` cards ask for."""
    lines = _served(served, _notes(waiting), limit) if served else ["no name is served"]
    lacking = _lacking({name.name for name in served}, waiting)
    if lacking:
        lines += ["", *_not_served(lacking, limit), "why: discoveryctl explain"]
    return lines


def _served(served: Sequence[Name], notes: Mapping[str, str], limit: int | None) -> list[str]:
    heading = ["NAME", "KIND", "WORKERS", "READY", "MODEL"]
    rows = [
        [name.name, name.kind, str(name.workers), "yes" if name.ready else "no", name.model]
        for name in served
    ]
    told = [
        f"{name.workers} serving, {notes[name.name]}"
        if name.name == name.model and name.name in notes
        else ""
        for name in served
    ]
    if any(told):
        heading.append("NOTE")
        rows = [[*row, note] for row, note in zip(rows, told, strict=True)]
    return table(heading, rows, limit=limit, elastic=(4,))


def _notes(waiting: Iterable[Verdict]) -> dict[str, str]:
    """Return, by the model, how many cards stand by with which configuration."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for verdict in waiting:
        if verdict.standing != "standby" or verdict.model is None:
            continue
        what = "standing by" if verdict.serves == "nothing" else "served as before its edit"
        difference = _difference(verdict.reasons[0]) if verdict.reasons else ""
        counts[verdict.model][what + difference] += 1
    return {
        model: ", ".join(f"{count} {what}" for what, count in cohorts.items())
        for model, cohorts in counts.items()
    }


def _difference(reason: Reason) -> str:
    """Return in what a card differs from those that serve, with a colon before it."""
    if reason.field is None:
        return ""
    field = _FIELDS.get(reason.field, reason.field)
    found, expected = reason.found or "absent", reason.expected or "absent"
    if len(found) + len(expected) > _LONGEST:
        return f": another {field}"
    return f": {field} {found}, not {expected}"


def _lacking(
    served: set[str], waiting: Iterable[Verdict]
) -> Mapping[str | None, Sequence[Verdict]]:
    """Return the cards that ask for each name that nobody serves; those without name under None."""
    lacking: defaultdict[str | None, list[Verdict]] = defaultdict(list)
    for verdict in waiting:
        for name in dict.fromkeys(verdict.names) or (None,):
            if name is None or name not in served:
                lacking[name].append(verdict)
    return lacking


def _not_served(
    lacking: Mapping[str | None, Sequence[Verdict]], limit: int | None
) -> Iterable[str]:
    rows: list[Sequence[str]] = []
    for name, cards in list(lacking.items())[:_MOST]:
        standings = Counter(verdict.standing for verdict in cards)
        shown = ", ".join(f"{count} {standing}" for standing, count in standings.items())
        more = f" and {len(cards) - 1} more" if len(cards) > 1 else ""
        rows.append((_NONE if name is None else name, shown, cards[0].file + more))
    yield from table(("NOT SERVED", "CARDS", "FILE"), rows, limit=limit, elastic=(2,))
    if len(lacking) > _MOST:
        yield printable(f"and {len(lacking) - _MOST} more names that nobody serves")
