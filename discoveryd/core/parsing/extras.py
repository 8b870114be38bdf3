"""The members that Dynamo does not know: `accepting`, `labels` and `liveness`.

They stand in the outermost object of either shape (`url` too: see urls.py). They are ours, so they
are held to their shapes: a wrong one makes the card invalid rather than being read as absent.
"""

from functools import lru_cache

from discoveryd.core.card import Liveness
from discoveryd.core.parsing.findings import U64, Findings, is_object, is_unsigned, member_path

LEASE_SECONDS = (1, 86_400)
LAST_PID = 2**22
"""The highest process number that Linux can give."""

_LONGEST_SHARED = 200
"""Labels of so many characters are worth remembering for other cards."""

_LIVENESS = frozenset({"lease_seconds", "pid", "pid_start", "pid_namespace", "held"})


def read_accepting(members: dict[str, object], findings: Findings) -> bool:
    """Return whether the worker takes new requests: True unless the card says otherwise."""
    accepting = members.get("accepting")
    if accepting is None:
        return True
    if isinstance(accepting, bool):
        return accepting
    findings.wrong_type("$.accepting", accepting, "true or false")
    return True


def read_labels(members: dict[str, object], findings: Findings) -> dict[str, str] | None:
    """Return the card's labels, which other cards may share; None if it gives none."""
    given = members.get("labels")
    if given is None:
        return None
    if not is_object(given):
        findings.wrong_type("$.labels", given, "an object of strings")
        return None
    labels: dict[str, str] = {}
    length = 0
    for name, text in given.items():
        if isinstance(text, str):
            labels[name] = text
            length += len(name) + len(text)
        else:
            findings.wrong_type(member_path("$.labels", name), text, "a string")
    # Zones, tiers and weights: few combinations, and many cards with each of them.
    return _shared_labels(tuple(labels.items())) if length <= _LONGEST_SHARED else labels


@lru_cache(maxsize=1024)
def _shared_labels(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(labels)


def read_liveness(members: dict[str, object], findings: Findings) -> Liveness | None:
    """Return what must hold for the card to count; None if nothing must."""
    given = members.get("liveness")
    if given is None:
        return None
    if not is_object(given):
        findings.wrong_type("$.liveness", given, "an object")
        return None
    for name in given:
        if name not in _LIVENESS:
            findings.warn(member_path("$.liveness", name), "not a known member, so it is not read")
    liveness = Liveness(
        lease_seconds=_read_lease(given.get("lease_seconds"), findings),
        pid=_read_number(given, "pid", 1, LAST_PID, findings),
        pid_start=_read_number(given, "pid_start", 0, U64, findings),
        pid_namespace=_read_number(given, "pid_namespace", 0, U64, findings),
        held=_read_held(given.get("held"), findings),
    )
    for name in ("pid_start", "pid_namespace"):
        if given.get(name) is not None and given.get("pid") is None:
            findings.fault("missing", f"$.liveness.{name}", "needs a pid beside it")
    return None if liveness == Liveness() else liveness


def _read_lease(given: object, findings: Findings) -> float | None:
    if given is None:
        return None
    first, last = LEASE_SECONDS
    if isinstance(given, int | float) and not isinstance(given, bool) and first <= given <= last:
        return float(given)
    findings.fault(
        "out_of_range",
        "$.liveness.lease_seconds",
        f"must be a number of seconds from {first} to {last}",
        found=given,
    )
    return None


def _read_number(
    given: dict[str, object], name: str, first: int, last: int, findings: Findings
) -> int | None:
    number = given.get(name)
    if number is None:
        return None
    if is_unsigned(number, last) and number >= first:
        return number
    findings.fault(
        "out_of_range",
        f"$.liveness.{name}",
        f"must be an integer from {first} to {last}",
        found=number,
    )
    return None


def _read_held(given: object, findings: Findings) -> bool:
    if given is None:
        return False
    if isinstance(given, bool):
        return given
    findings.wrong_type("$.liveness.held", given, "true or false")
    return False
