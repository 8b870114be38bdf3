"""What a verdict means for the worker that is run: whether it is a no, and in which words."""

from typing import Final

from discoveryd.interface import Verdict

_HOPELESS: Final = frozenset({"invalid", "forbidden"})
"""Standings that do not pass when other workers leave."""

_SOON_PAST: Final = frozenset({"orphan"})
"""Standings that may well have passed when a model has loaded: its base may be loading, too."""


def is_hopeless(verdict: Verdict) -> bool:
    """Whether there is nothing that a card with this verdict could wait for."""
    return verdict.standing in _HOPELESS


def is_refused(forecast: Verdict, *, standby: bool) -> bool:
    """Whether a worker with this forecast need not be started; `standby`: its card may wait."""
    if forecast.good:
        return False
    return is_hopeless(forecast) or not (standby or forecast.standing in _SOON_PAST)


def card_state(verdict: Verdict) -> str:
    """Return what becomes of a card and why; where configurations differ, the field and both."""
    names = ", ".join(verdict.names) or "the card"
    if verdict.good:
        return f"serving {names}"
    reasons = [
        f"{reason.field} is {reason.found}, the workers that serve have {reason.expected}"
        if reason.rule == "other_fingerprint" and reason.expected is not None
        else reason.message
        for reason in verdict.reasons
    ]
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"{names}: {verdict.standing}{why}"


def refusal(verdict: Verdict) -> str:
    """Return why a card may not serve, and what else there is."""
    state = card_state(verdict)
    if is_hopeless(verdict):
        return state
    return f"{state}\nWith --standby the worker would run, and its card wait for that to pass."
