"""The names a card asks to serve, and the source it serves them from.

Names are compared byte by byte everywhere, so they are kept exactly as they are written: no
trimming, no folding, no Unicode normalisation.
"""

from discoveryd.core.parsing.findings import Findings, is_list
from discoveryd.core.text import has_control

MAX_NAME_BYTES = 512
"""The longest name, in UTF-8."""

_PLACEHOLDER = "?"
"""Stands in for a faulty name, so that the rest of the card is read too."""


def read_display_name(card: dict[str, object], at: str, findings: Findings) -> str:
    """Return the primary or adapter name; a placeholder if it is faulty, which is reported."""
    path = f"{at}.display_name"
    name = card.get("display_name")
    if name is None:
        findings.fault("missing", path, "is missing: give the name that the worker serves")
        return _PLACEHOLDER
    if not isinstance(name, str):
        findings.wrong_type(path, name, "a string")
        return _PLACEHOLDER
    problem = name_problem(name)
    if problem is None:
        return name
    findings.fault("bad_name", path, problem, found=name)
    return _PLACEHOLDER


def read_source_path(card: dict[str, object], at: str, findings: Findings) -> str | None:
    """Return the source; what is no string counts as absent."""
    source = card.get("source_path")
    if source is None or isinstance(source, str):
        return source
    findings.warn(f"{at}.source_path", "not a string, so the card has no source_path")
    return None


def read_aliases(
    card: dict[str, object], at: str, findings: Findings, *, adapter: bool
) -> tuple[str, ...]:
    """Return a base's aliases as written, repeats included; what is no string is skipped."""
    given = card.get("aliases")
    if given is None or given == []:
        return ()
    path = f"{at}.aliases"
    if adapter:
        findings.warn(path, "an adapter has no aliases, so they are not read")
        return ()
    if not is_list(given):
        findings.warn(path, "not a list, so the card has no aliases")
        return ()
    aliases: list[str] = []
    for index, name in enumerate(given):
        if not isinstance(name, str):
            findings.warn(f"{path}[{index}]", "not a string, so it is skipped")
        elif (problem := name_problem(name)) is None:
            aliases.append(name)
        else:
            findings.fault("bad_name", f"{path}[{index}]", problem, found=name)
    return tuple(aliases)


def read_lora(card: dict[str, object], at: str, findings: Findings) -> bool:
    """Return whether the card has a `lora`, whatever that holds."""
    lora = card.get("lora")
    if lora is None:
        return False
    if not isinstance(lora, dict):
        findings.warn(f"{at}.lora", "not an object, but there, so the card is an adapter's")
    return True


def name_problem(name: str) -> str | None:
    """Return why a name may not be served, to follow on what names it; None if it may."""
    if not name:
        return "is empty: a name has at least one character"
    # A character takes at most 4 bytes, so short names need no encoding.
    if len(name) > MAX_NAME_BYTES // 4 and (size := len(name.encode())) > MAX_NAME_BYTES:
        return f"is {size} bytes long; a name has at most {MAX_NAME_BYTES}"
    if has_control(name):
        return "has control characters: a name has only visible ones"
    return None
