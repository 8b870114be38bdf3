"""Where verdicts are meant to differ from Dynamo's: a function for each deviation, by its name.

Each recognises its deviation from the case alone, from JSON read with the standard library, never
from a verdict. Those that need the cards before a newcomer have their names here, and are found
where those cards are put together (holding.py).

The numbers are those of the list in `discoveryctl help dynamo`.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from tests.bench.oracle import ours
from tests.bench.oracle.cases import Step

Json = dict[str, Any]

MAX_NAME_BYTES = 512
_U32 = 1 << 32
_NUMBERS = ("architectural_max_context_length", "context_length", "kv_cache_block_size")
_OURS = ("url", "labels", "accepting", "liveness")
_URL = re.compile(r"(http|https|grpc|grpcs)://[^@:/]+(:[0-9]{1,4})?(/.*)?|unix:///.+")


class Member(NamedTuple):
    """A card of a case, as the recognisers see it.

    `segments` are the key's, as the file's name gives them, None if it is not UTF-8; `size` is the
    text's in bytes.
    """

    segments: list[str] | None
    size: int
    envelope: Json
    card: Json


def unjudgeable(member: Member) -> bool:
    """3. A card without a string `display_name` is invalid and harms nobody; Dynamo's is a card
    that fails every registration on its endpoint."""
    return "card_json" in member.envelope and not isinstance(member.card.get("display_name"), str)


def no_name(member: Member) -> bool:
    """6. Empty names, names over 512 bytes and names with control characters are invalid."""
    names = [member.card.get("display_name")]
    aliases = member.card.get("aliases")
    if isinstance(aliases, list) and not adapter(member):
        names += aliases
    return any(isinstance(name, str) and _is_no_name(name) for name in names)


def _is_no_name(name: str) -> bool:
    size = len(name.encode("utf-8", "surrogatepass"))
    return not 0 < size <= MAX_NAME_BYTES or any(_is_control(c) for c in name)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"


def no_number(member: Member) -> bool:
    """12. What the fingerprint reads as a number must be one, from 0 to 2^32 - 1."""
    runtime = member.card.get("runtime_config")
    numbers = [member.card.get(name) for name in _NUMBERS]
    numbers += [runtime.get("context_length")] if isinstance(runtime, dict) else []
    return any(number is not None and not _is_u32(number) for number in numbers)


def _is_u32(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < _U32


def not_ours(member: Member) -> bool:
    """12. `url`, `labels`, `accepting` and `liveness` beside the card must have their shapes."""
    url, labels, accepting, liveness = map(member.envelope.get, _OURS)
    return (
        (url is not None and not (isinstance(url, str) and _URL.fullmatch(url)))
        or (labels is not None and not _is_labels(labels))
        or (accepting is not None and not isinstance(accepting, bool))
        or (liveness is not None and not _is_liveness(liveness))
    )


def _is_labels(labels: object) -> bool:
    return isinstance(labels, dict) and all(isinstance(text, str) for text in labels.values())


def _is_liveness(liveness: object) -> bool:
    if not isinstance(liveness, dict):
        return False
    pid = liveness.get("pid")
    return pid is None or (_is_u32(pid) and pid > 0)


def no_key(member: Member) -> bool:
    """12. The file's name must be a key in UTF-8: four segments or five, none empty, none with
    control characters."""
    segments = member.segments
    return (
        segments is None
        or len(segments) not in {4, 5}
        or any(not segment or any(_is_control(c) for c in segment) for segment in segments)
    )


def too_large(member: Member) -> bool:
    """12. A card holds at most 1 MiB."""
    return member.size > 1 << 20


def adapter(member: Member) -> bool:
    """Whether the card is an adapter's."""
    suffix = (member.segments or [])[4:] or member.envelope.get("model_suffix")
    return suffix is not None or member.card.get("lora") is not None


INVALID: dict[str, Callable[[Member], bool]] = {
    "unjudgeable": unjudgeable,
    "no_name": no_name,
    "no_number": no_number,
    "not_ours": not_ours,
    "no_key": no_key,
    "too_large": too_large,
}
"""Why a card of Dynamo's is none of ours."""

REFUSED = "one_arbiter"
"""1. Of two cards that do not suit each other, in the store already, one is refused, and then
refuses nobody."""

EDITED = "edited"
"""4. A changed card under the same key is judged anew; Dynamo refuses it in place."""

NAMED = "named"
"""9. In a store the name of the file decides the key, whatever the content says: with a suffix it
is an adapter's."""

DUPLICATE = "duplicate"
"""9. Two names of files that are one key, spelt differently, are one registration: the first's."""

DOUBLED = "doubled"
"""10. Of duplicate members the last counts, in an envelope too, which Dynamo skips."""


def member(step: Step) -> Member | None:
    """Return a step's card for the recognisers; None where neither reads one."""
    envelope = ours.members(step)
    if envelope is None or step.file.startswith(".tmp_"):
        return None
    card = envelope.get("card_json")
    return Member(
        segments(step.file), len(step.text), envelope, card if isinstance(card, dict) else {}
    )


def segments(file: str) -> list[str] | None:
    """Return a key's segments; None if they are not UTF-8."""
    try:
        return unquote(file, errors="strict").split("/")
    except UnicodeDecodeError:
        return None


def invalid(step: Step) -> str | None:
    """Return the deviation that makes a step's card invalid, if one does."""
    seen = member(step)
    if seen is None:
        return None
    return next((name for name, recognises in INVALID.items() if recognises(seen)), None)
