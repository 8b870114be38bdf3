"""A registry under another law: judged anew in the order that there was, and what that changed.

Owners may come to count, or count no more, while cards serve. Then a registry is made in the state
of the one before, where each card keeps its place if the law lets it, and else is judged anew; and
whoever publishes is told the difference between the two, since for him they are one.
"""

from collections.abc import Callable, Mapping

from discoveryd.core.batch import Change, Served
from discoveryd.core.card import Key
from discoveryd.core.registry import Registry
from discoveryd.core.state import put_back, take_out


def rejudged(registry: Registry, ranks: Callable[[], int], *, by_owner: bool) -> Registry:
    """Return another registry with the same files, judged with or without regard to owners.

    `registry` is between two batches, and of no use afterwards; `ranks` are those it drew from.
    """
    return put_back(take_out(registry), ranks, by_owner=by_owner).registry


def difference(
    before: Registry, after: Registry, operator_aliases: Mapping[str, str] | None, now: float
) -> Change:
    """Return the change that leads from one registry to another, both between two batches.

    What is said as it was said before has been so since then; all else since `now`, in seconds
    since the epoch. `operator_aliases` is the new table if it is another.
    """
    judged: list[str] = []
    for record in after.files:
        known = before.files.get(record.file)
        if known is not None and known.shown == record.shown:
            record.since = known.since
        else:
            record.since = now
            judged.append(record.file)
    forgotten = {
        record.file: record.card for record in before.files if after.files.get(record.file) is None
    }
    return Change(
        served=_served_anew(before.served, after.served),
        judged=tuple(judged),
        forgotten=forgotten,
        operator_aliases=operator_aliases,
        keys=tuple({**before.arbiter.entries, **after.arbiter.entries}),
        files=(*forgotten, *(record.file for record in after.files)),
    )


def _served_anew(
    before: Mapping[Key, Served], after: Mapping[Key, Served]
) -> dict[Key, Served | None]:
    changed: dict[Key, Served | None] = {key: None for key in before if key not in after}
    fresh: list[tuple[Key, Served]] = []
    for key, served in after.items():
        known = before.get(key)
        if known is None or known.admission != served.admission:
            fresh.append((key, served))
        elif not served.looks_like(known):
            changed[key] = served
    return changed | dict(sorted(fresh, key=lambda pair: pair[1].admission))
