"""What a worker does: `model_type`, `worker_type` and `needs`, as Dynamo normalises them.

A worker that declares no `worker_type` is *legacy*. If its `model_type` has the old Prefill bit, it
is read as a prefill worker that needs a decode worker; otherwise it counts as aggregated, which is
not the same as having said so: the fingerprint tells the two apart, and readiness is laxer with it.
"""

from functools import lru_cache
from typing import NamedTuple

from discoveryd.core.parsing.findings import Findings, is_list, one_of

WORKER_TYPES = ("prefill", "decode", "encode", "aggregated")

_PREFILL_BIT = "Prefill"
_LONGEST_REMEMBERED = 200

Needs = tuple[tuple[str, ...], ...]
"""Alternatives, of which one must be fully present."""


class Role(NamedTuple):
    """What a worker does. `declared` is None for a legacy worker."""

    model_type: str | None
    declared: str | None
    needs: Needs

    @property
    def worker_type(self) -> str:
        """The effective worker type, part of the group."""
        return self.declared or "aggregated"


def read_role(card: dict[str, object], at: str, findings: Findings) -> Role:
    """Return what the card at the path `at` says its worker does; what is odd counts as absent."""
    model_type = _read_model_type(card.get("model_type"), at, findings)
    declared = _read_worker_type(card.get("worker_type"), at, findings)
    needs = _read_needs(card.get("needs"), at, findings)
    if needs or (model_type is not None and len(model_type) > _LONGEST_REMEMBERED):
        return _role(model_type, declared, needs)
    return _shared_role(model_type, declared, needs)


def _role(model_type: str | None, declared: str | None, needs: Needs) -> Role:
    if declared is None and model_type is not None and _PREFILL_BIT in model_type.split(" | "):
        return Role(model_type, "prefill", needs or (("decode",),))
    return Role(model_type, declared, needs)


_shared_role = lru_cache(maxsize=256)(_role)


def _read_model_type(given: object, at: str, findings: Findings) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        findings.warn(f"{at}.model_type", "not a string, so the card has no model_type")
        return None
    # A cache holds no more than it is meant to: cards may be large.
    return _remembered(given) if len(given) <= _LONGEST_REMEMBERED else _normalise(given)


def _normalise(text: str) -> str | None:
    names = {name.strip() for name in text.split("|")}
    return " | ".join(sorted(names - {""})) or None


_remembered = lru_cache(maxsize=256)(_normalise)


def _read_worker_type(given: object, at: str, findings: Findings) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or given not in WORKER_TYPES:
        findings.warn(
            f"{at}.worker_type", f"not {one_of(WORKER_TYPES)}, so the card has no worker_type"
        )
        return None
    return given


def _read_needs(given: object, at: str, findings: Findings) -> Needs:
    if given is None or given == []:
        return ()
    needs: list[tuple[str, ...]] = []
    for alternative in given if is_list(given) else [None]:
        wanted = alternative if is_list(alternative) else [None]
        known = tuple(name for name in wanted if isinstance(name, str) and name in WORKER_TYPES)
        if len(known) < len(wanted):
            findings.warn(
                f"{at}.needs", "not a list of lists of worker types, so the card has none"
            )
            return ()
        needs.append(known)
    return tuple(needs)
