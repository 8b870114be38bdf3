"""Why a card is expired, in words: what was expected, since when it is not so, and what to do.

Reasons and warnings only; who is alive is liveness.py's business.
"""

from datetime import UTC, datetime

from discoveryd.core.card import Liveness
from discoveryd.core.verdict import Reason

_RENEWALS = 3
"""How often within one lease a worker should renew it."""


def lease_expired(file: str, seconds: float, mtime_ns: int) -> Reason:
    """Return the reason of a card whose file was not touched within its lease."""
    last = _written(mtime_ns)
    often = f"{seconds / _RENEWALS:.3g}"
    return Reason(
        rule="lease_expired",
        message=f"{file} was not renewed within its lease of {seconds:g} s: its modification time "
        f"is still {last}. If the worker lives, let it touch the file every {often} s; if not, "
        "remove the file.",
        found=last,
        expected=f"a new modification time every {seconds:g} s",
    )


def process_gone(
    file: str, told: Liveness, *, expected: int | None, found: int | None, now_ns: int
) -> Reason:
    """Return the reason of a card whose process has ended.

    `expected` is the start time it should have, `found` that of the process which has its number.
    """
    pid = told.pid
    if expected is not None and found is not None and expected != found:
        what = (
            f"the process {pid} that {file} names is gone: one that started at tick {found} has "
            f"its number now, not the one that started at {expected}"
        )
    else:
        what = f"the process {pid} that {file} names is not there, as seen at {_written(now_ns)}"
    return Reason(
        rule="process_gone",
        message=f"{what}. Start the worker again and let it write its card anew, or remove the "
        "file.",
        field="$.liveness.pid" if told.pid_start is None else "$.liveness.pid_start",
        found=None if found is None else str(found),
        expected=str(pid) if expected is None else str(expected),
    )


def not_held(file: str, *, since_ns: int | None) -> Reason:
    """Return the reason of a card that nobody holds; `since_ns` is when the last who did left."""
    since = "" if since_ns is None else f" since {_written(since_ns)}"
    return Reason(
        rule="not_held",
        message=f"nobody holds {file}{since}. Let its worker call Hold for the file, as the file's "
        "owner, and keep that connection open.",
        field="$.liveness.held",
        expected="a connection that holds the file",
    )


def unknown_process(told: Liveness, own_namespace: int | None) -> str:
    """Return the warning of a card whose process is in a namespace that cannot be looked into."""
    own = "which cannot be read" if own_namespace is None else str(own_namespace)
    return (
        f"$.liveness.pid: the process {told.pid} is in the PID namespace {told.pid_namespace}, not "
        f"in the daemon's ({own}), so whether it lives is unknown: it counts as alive. Use "
        '{"held": true} and Hold instead'
    )


def unknown_start(told: Liveness) -> str:
    """Return the warning of a card whose process lives, but does not say since when."""
    return (
        f"$.liveness.pid: the start time of the process {told.pid} cannot be read, so another "
        "process that gets its number would be taken for it"
    )


def _written(ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ns / 1e9:.3f} s after 1970"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
