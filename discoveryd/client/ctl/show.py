"""What the daemon answered, as lines for people. Values in, printable lines out; prints nothing.

`limit` is the width of the terminal, None where there is none: then nothing is cut.
"""

from collections.abc import Iterable, Sequence

from discoveryd.client.ctl.tables import table
from discoveryd.core.text import printable
from discoveryd.interface import (
    Event,
    Name,
    Reason,
    Resolution,
    Status,
    Verdict,
    WatchReply,
    Worker,
)

_NONE = "-"
_SERVES = {
    "current": "its present content",
    "previous": "an earlier content of the file, until the present one may serve",
    "nothing": "nothing",
}
_KINDS = {
    "alias": "an alias of {}",
    "operator": "the operator's name for {}",
    "adapter": "an adapter",
}


def resolution(answer: Resolution, limit: int | None) -> list[str]:
    """Return the workers of a name as a table below one line about the name."""
    name = printable(answer.name)
    kind = _KINDS.get(answer.kind)
    about = f" ({kind.format(printable(answer.model))})" if kind is not None else ""
    ready = "" if answer.ready else ", not ready"
    head = f"{name}{about}: {count(len(answer.workers), 'worker')}{ready}"
    if not answer.workers:
        return [head]
    rows = [
        (worker.url or _NONE, worker.worker_type, _number(worker.context_length), worker.key)
        for worker in answer.workers
    ]
    return [head, *table(("URL", "TYPE", "CONTEXT", "WORKER"), rows, limit=limit, elastic=(3,))]


def why_not_ready(answer: Resolution) -> str:
    """Return a sentence on what the workers of a name that is not ready lack."""
    return f"{printable(answer.name)} is not ready: {lack(answer)}"


def lack(answer: Resolution) -> str:
    """Return what the workers of a name that is not ready lack."""
    if not answer.workers:
        return "all its workers drain"
    there = {worker.worker_type for worker in answer.workers}
    lacking = sorted(
        {
            " or ".join(" and ".join(sorted(set(types) - there)) for types in worker.needs)
            for worker in answer.workers
            if worker.needs and not any(there.issuperset(types) for types in worker.needs)
        }
    )
    missing = f"; missing: {printable(', '.join(lacking))}" if lacking else ""
    return f"its workers are incomplete{missing}"


def workers(served: Sequence[Worker], limit: int | None) -> list[str]:
    """Return the served workers as a table."""
    if not served:
        return ["no worker is served"]
    rows = [
        (
            ", ".join((worker.model, *worker.aliases)),
            worker.url or _NONE,
            worker.worker_type,
            "accepting" if worker.accepting else "draining",
            worker.key,
            worker.file,
        )
        for worker in served
    ]
    heading = ("NAMES", "URL", "TYPE", "STATE", "WORKER", "FILE")
    return table(heading, rows, limit=limit, elastic=(4, 5))


def verdict(found: Verdict, *, supposed: bool = False) -> list[str]:
    """Return what became of a card file, or is `supposed` to; why, and what to do about it."""
    from discoveryd.client.ctl.mending import mends  # noqa: PLC0415 - resolve starts faster without

    lines = [f"{printable(found.file)}: {printable(found.standing)}"]
    if found.names:
        lines.append(f"  asks for: {printable(', '.join(found.names))}")
    if found.key is not None:
        lines.append(f"  worker:   {printable(found.key)}")
    lines.append(f"  serves:   {_SERVES.get(found.serves, printable(found.serves))}")
    if not supposed:
        lines.append(f"  since:    {printable(found.since)}")
    for reason in found.reasons:
        lines.extend(_reason(reason))
    for number, mend in enumerate(mends(found, supposed=supposed)):
        colon = ":" if mend.commands else ""
        lines.append(f"  {'or:  ' if number else 'mend:'}     {mend.words}{colon}")
        lines.extend(f"              {line}" for line in mend.commands)
    lines.extend(f"  warning:  {printable(warning)}" for warning in found.warnings)
    return lines


def _reason(reason: Reason) -> list[str]:
    lines = [f"  why:      {printable(reason.message)} [{printable(reason.rule)}]"]
    sides = [
        f"{side} {printable(value)}"
        for side, value in (
            ("at", reason.field),
            ("found", reason.found),
            ("expected", reason.expected),
        )
        if value is not None and value != "$"
    ]
    if sides:
        lines.append(f"            {', '.join(sides)}")
    lines.extend(f"  against:  {printable(file)}" for file in reason.against)
    return lines


def standings(counts: dict[str, int]) -> str:
    """Return how many cards have each standing, in words."""
    shown = [f"{count} {printable(standing)}" for standing, count in counts.items() if count]
    return ", ".join(shown) or "none"


def status(daemon: Status, limit: int | None) -> list[str]:
    """Return how the daemon is."""
    cursor = daemon.cursor
    health = "healthy" if daemon.healthy else "NOT healthy"
    uptime = duration(daemon.uptime_seconds)
    lines = [
        f"discoveryd {printable(daemon.version)}, up {uptime}, {health}",
        *(f"  problem: {printable(problem)}" for problem in daemon.problems),
        f"revision:    {cursor.revision} of epoch {printable(cursor.epoch)}",
        f"names:       {daemon.names}",
        f"cards:       {standings(daemon.standings)}",
        f"connections: {daemon.connections}, of them watching: {daemon.watchers}",
        *(f"idle:        {printable(cohort)}" for cohort in daemon.idle_cohorts),
    ]
    rows = [
        (
            directory.path,
            directory.layout,
            str(directory.files),
            directory.backend if directory.watching else "by rescan only",
            f"{directory.rescan_seconds:g} s",
            directory.problem or _NONE,
        )
        for directory in daemon.directories
    ]
    heading = ("DIRECTORY", "LAYOUT", "FILES", "NOTICED", "RESCAN", "PROBLEM")
    return [*lines, *table(heading, rows, limit=limit)]


def history(events: Sequence[Event], limit: int | None) -> list[str]:
    """Return what became of cards as a table, in the order given."""
    rows = [
        (
            event.time,
            event.standing,
            ", ".join(dict.fromkeys(reason.rule for reason in event.reasons)) or _NONE,
            event.file,
        )
        for event in events
    ]
    return table(("TIME", "STANDING", "WHY", "FILE"), rows, limit=limit, elastic=(3,))


def change(reply: WatchReply) -> list[str]:
    """Return one reply of a watch: a line for each thing that changed; none for a heartbeat."""
    if reply.heartbeat:
        return []
    whole = ", the whole state" if reply.reset else ""
    more = ", more follows" if reply.partial else ""
    at = f"{printable(reply.cursor.epoch)}:{reply.cursor.revision}"
    return [
        f"{at}{whole}{more}",
        *(f"  worker {_worker(worker)}" for worker in reply.changed),
        *(f"  name   {_name(name)}" for name in reply.names),
        *_gone("worker", reply.removed),
        *_gone("name", reply.gone),
    ]


def _worker(worker: Worker) -> str:
    where = f" at {worker.url}" if worker.url is not None else ""
    draining = "" if worker.accepting else ", draining"
    return printable(f"{worker.key} serves {worker.model}{where}{draining}")


def _name(name: Name) -> str:
    ready = "ready" if name.ready else "not ready"
    return f"{printable(name.name)}: {count(name.workers, 'worker')}, {ready}"


def _gone(kind: str, keys: Iterable[str]) -> Iterable[str]:
    return (f"  gone   {kind} {printable(key)}" for key in keys)


def count(number: int, what: str) -> str:
    """Return so many of something, in words."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _number(value: int | None) -> str:
    return _NONE if value is None else str(value)


def duration(seconds: float) -> str:
    """Return a length of time in its two greatest units."""
    whole = int(seconds)
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small} {smaller}"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"  # noqa: PLR2004
