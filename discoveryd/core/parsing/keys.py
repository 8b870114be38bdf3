"""The key of a card: read, derived, or given by the name of its file.

Where a flat card is silent, its key is derived so that unrelated models never share an endpoint by
accident, workers of one source always do, and a base and its adapters on one server meet: the
component is the base identity, the instance the authority and path of the url, else the file's
stem. What is derived is percent-encoded as one path segment of RFC 3986. What is written stands as
it is.

An envelope says all of it. In a Dynamo store the name of the file decides instead.
"""

import re
from typing import NamedTuple
from urllib.parse import quote

from discoveryd.core.card import Key
from discoveryd.core.parsing.findings import U64, Findings, is_unsigned
from discoveryd.core.parsing.urls import location
from discoveryd.core.text import has_control, quoted

_SEGMENT_CHARS = "!$&'()*+,;=:@"
"""What a path segment of RFC 3986 holds unencoded, besides the unreserved characters."""

_is_plain_path = re.compile(rf"[A-Za-z0-9_.~{_SEGMENT_CHARS}/-]*").fullmatch

_PLACEHOLDER = "?"
"""Stands in for a faulty segment, so that the rest of the card is read too."""

DEFAULT_NAMESPACE = "default"
DEFAULT_ENDPOINT = "generate"


class Facts(NamedTuple):
    """What keys depend on. `stem` is the file's, as os.fsdecode gives it."""

    display_name: str
    source_path: str | None
    lora: bool
    url: str | None
    stem: str


class Place(NamedTuple):
    """A card's key, and whether the card has a suffix as far as adapters are concerned."""

    key: Key
    suffixed: bool


def flat_place(card: dict[str, object], facts: Facts, findings: Findings) -> Place:
    """Return where a flat card lies."""
    suffix = _segment(card, "model_suffix", findings)
    suffixed = facts.lora or suffix is not None
    if suffixed:
        _require_base(card, facts, findings)
    if facts.lora and suffix is None:
        suffix = segment_of(facts.display_name)
    component = _segment(card, "component", findings)
    if component is None:
        component = segment_of(
            facts.display_name if facts.source_path is None else facts.source_path
        )
        if not component:
            findings.fault(
                "bad_key",
                "$.component",
                "cannot be taken from source_path, which is empty: leave source_path out, or give "
                "a component",
            )
    instance = _instance(card, "instance", findings)
    if instance is None:
        instance = segment_of(facts.stem if facts.url is None else location(facts.url))
    key = Key(
        _segment(card, "namespace", findings) or DEFAULT_NAMESPACE,
        component,
        _segment(card, "endpoint", findings) or DEFAULT_ENDPOINT,
        instance,
        suffix,
    )
    return Place(key, suffixed)


def envelope_place(envelope: dict[str, object], findings: Findings) -> Place:
    """Return where an envelope in a drop directory lies."""
    _require_model(envelope, findings)
    suffix = _segment(envelope, "model_suffix", findings)
    key = Key(
        _required(envelope, "namespace", findings),
        _required(envelope, "component", findings),
        _required(envelope, "endpoint", findings),
        _instance(envelope, "instance_id", findings) or _missing("instance_id", findings),
        suffix,
    )
    return Place(key, suffix is not None)


def store_place(envelope: dict[str, object], key: Key, findings: Findings) -> Place:
    """Return where an envelope of a Dynamo store lies: at the key that its file's name gives.

    The envelope must still be one that Dynamo reads; where it says otherwise, that is a warning.
    """
    _require_model(envelope, findings)
    for segment in key:
        if segment is not None and (problem := _segment_problem(segment)):
            findings.fault(
                "bad_key", "$", f"has a file name whose key has a segment that {problem}"
            )
    for name, segment in (
        ("namespace", key.namespace),
        ("component", key.component),
        ("endpoint", key.endpoint),
    ):
        _compare(_string(envelope, name, findings), segment, name, findings)
    number = envelope.get("instance_id")
    if number is None:
        _missing("instance_id", findings)
    elif is_unsigned(number, U64):
        _compare(f"{number:x}", key.instance, "instance_id", findings)
    else:
        findings.wrong_type("$.instance_id", number, _INTEGER)
    suffix = envelope.get("model_suffix")
    if suffix is not None and not isinstance(suffix, str):
        findings.wrong_type("$.model_suffix", suffix, "a string")
    elif suffix is not None or key.suffix is not None:
        _compare(suffix or "", key.suffix or "", "model_suffix", findings)
    return Place(key, suffix is not None or key.suffix is not None)


def segment_of(text: str) -> str:
    """Return the text percent-encoded as a path segment; undecodable bytes of a file name too."""
    if _is_plain_path(text):
        # Nearly all are, and quote takes ten times as long.
        return text.replace("/", "%2F")
    return quote(text, safe=_SEGMENT_CHARS, errors="surrogateescape")


_INTEGER = "an integer from 0 to 2^64 - 1"


def _require_base(card: dict[str, object], facts: Facts, findings: Findings) -> None:
    sign = "lora" if facts.lora else "model_suffix"
    if facts.source_path is None:
        findings.fault(
            "missing",
            "$.source_path",
            f"is missing: an adapter (this card has {sign}) names its base by it; add the "
            "base card's source_path",
        )
    if card.get("url") is None and card.get("instance") is None:
        findings.fault(
            "missing",
            "$.url",
            f"is missing: an adapter (this card has {sign}) lies on the server of its base; add "
            "the base card's url, or its instance",
        )


def _require_model(envelope: dict[str, object], findings: Findings) -> None:
    kind = envelope.get("type")
    if kind is None:
        _missing("type", findings)
    elif not isinstance(kind, str):
        findings.wrong_type("$.type", kind, 'the string "Model"')
    elif kind != "Model":
        findings.fault(
            "not_a_model",
            "$.type",
            f'is {quoted(kind)}, but only an envelope of type "Model" holds a card',
            found=kind,
            expected="Model",
        )


def _required(envelope: dict[str, object], name: str, findings: Findings) -> str:
    return _segment(envelope, name, findings) or _missing(name, findings)


def _missing(name: str, findings: Findings) -> str:
    findings.fault("missing", f"$.{name}", "is missing: an envelope (with card_json) must have it")
    return _PLACEHOLDER


def _string(envelope: dict[str, object], name: str, findings: Findings) -> str | None:
    text = envelope.get(name)
    if text is None:
        _missing(name, findings)
    elif not isinstance(text, str):
        findings.wrong_type(f"$.{name}", text, "a string")
    else:
        return text
    return None


def _compare(said: str | None, segment: str, name: str, findings: Findings) -> None:
    if said is not None and said != segment:
        findings.warn(
            f"$.{name}", f"{quoted(said)}, but the file's name says {quoted(segment)}, which counts"
        )


def _segment(members: dict[str, object], name: str, findings: Findings) -> str | None:
    """Return a written segment; None if it is absent, a placeholder if it is faulty."""
    given = members.get(name)
    if given is None:
        return None
    if not isinstance(given, str):
        findings.wrong_type(f"$.{name}", given, "a string")
        return _PLACEHOLDER
    problem = _segment_problem(given)
    if problem is None:
        return given
    findings.fault("bad_key", f"$.{name}", f"{problem}, but it is part of the key", found=given)
    return _PLACEHOLDER


def _instance(members: dict[str, object], name: str, findings: Findings) -> str | None:
    given = members.get(name)
    if given is None or isinstance(given, str):
        return _segment(members, name, findings)
    if is_unsigned(given, U64):
        return f"{given:x}"
    findings.wrong_type(f"$.{name}", given, f"a string or {_INTEGER}")
    return _PLACEHOLDER


def _segment_problem(segment: str) -> str | None:
    if not segment:
        return "is empty"
    if "/" in segment:
        return "has a slash"
    return "has control characters" if has_control(segment) else None
