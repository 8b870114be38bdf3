"""From bytes to one JSON object, or to a reason that a person understands.

The decoder is msgspec's, whose own texts are partly misleading (a lone surrogate is "truncated")
and which keeps the last of duplicate members silently. So what it refuses is looked at again,
slowly, to say what is wrong; and so is whatever might hold duplicates.

Whether there may be duplicates is decided without looking for them: an object that came out of the
decoder, encoded again, has every member once. If that is the text we were given, apart from blanks
between tokens, the text had every member once. It is for nearly every card; the others (escapes,
numbers like 1e3) are read by `json`, which can show each member.

Nothing here may know a member of the card.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import msgspec

from discoveryd.core.parsing.findings import Findings, is_list, is_object, kind

MAX_BYTES = 1 << 20
"""The largest card: 1 MiB."""

MAX_DEPTH = 127
"""The deepest nesting, the outermost object included: what Dynamo's parser (serde_json) reads."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_object(content: bytes) -> dict[str, object]:
    """Return the JSON object that the bytes hold; of duplicate members the last.

    Raises InvalidCard, with one reason, if they hold none, or are too many or too deep.
    """
    if len(content) > MAX_BYTES:
        _refuse("too_large", f"is {len(content)} bytes long; a card holds at most {MAX_BYTES}")
    try:
        root: object = _decode(content)
    except RecursionError:
        _refuse_depth()
    except (msgspec.MsgspecError, ValueError):
        _explain(content)
    if not is_object(root):
        _refuse("not_object", f"is {kind(root)}, but a card is one JSON object, {{...}}")
    if content.count(b"[") + content.count(b"{") > MAX_DEPTH and _deeper_than(root, MAX_DEPTH):
        _refuse_depth()
    return root


class Doubled(dict[str, object]):
    """A JSON object that remembers which of its members the text gives more than once."""

    names: frozenset[str] = frozenset()


def find_doubled(content: bytes, root: dict[str, object]) -> Doubled | None:
    """Return the object that `read_object` read, with duplicates; None if it surely has none.

    Objects inside it are `Doubled` too.
    """
    try:
        compact = msgspec.json.format(content, indent=-1)
        if _encode(root) == compact:
            return None
    except (OverflowError, RecursionError, msgspec.MsgspecError):
        # A number beyond 64 bits, or something deep in a member that a duplicate displaced.
        pass
    try:
        doubled: object = json.loads(content, object_pairs_hook=_remember)
    except RecursionError:
        _refuse_depth()
    return doubled if isinstance(doubled, Doubled) else None


def _remember(pairs: list[tuple[str, Any]]) -> Doubled:
    members = Doubled(pairs)
    if len(members) < len(pairs):
        times = Counter(name for name, _ in pairs)
        members.names = frozenset(name for name in times if times[name] > 1)
    return members


def _deeper_than(root: object, limit: int) -> bool:
    level, depth = [root], 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [inner for outer in level for inner in _inside(outer)]
    return False


def _inside(outer: object) -> Iterator[object]:
    members: Iterable[object] = ()
    if is_object(outer):
        members = outer.values()
    elif is_list(outer):
        members = outer
    return (inner for inner in members if is_object(inner) or is_list(inner))


def _explain(content: bytes) -> NoReturn:
    """Say why the decoder refused these bytes."""
    if not content.strip(b" \t\r\n"):
        _refuse("not_json", "is empty: a card is one JSON object, {...}")
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            _refuse(
                "not_json",
                f"begins with a byte order mark (BOM) for {encoding}: save the file as UTF-8 "
                "without BOM",
            )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        byte = content[error.start]
        _refuse(
            "not_json", f"is not UTF-8: byte {error.start} is 0x{byte:02x}; save the file as UTF-8"
        )
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        _refuse("not_json", _describe(error, text))
    except RecursionError:
        _refuse_depth()
    except ValueError:
        _refuse("not_json", "has a number of more than 4,300 digits")
    if _has_half_pair(text):
        _refuse(
            "not_json",
            "has an escape from \\ud800 to \\udfff without its other half, which is no character",
        )
    _refuse("not_json", "has a number that is too large or otherwise out of range")


def _describe(error: json.JSONDecodeError, text: str) -> str:
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
        return (
            "is cut off: the file ends in the middle of the JSON. Write a card to a temporary file "
            "beside it and rename it"
        )
    where = f"at line {error.lineno}, column {error.colno}"
    if error.msg == "Extra data":
        return f"has something after the end of the card, {where}"
    if error.msg.startswith("Invalid control character"):
        return f"is not JSON: a string has an unescaped control character {where}"
    return f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]} {where}"


def _refuse_constant(name: str) -> NoReturn:
    _refuse("not_json", f"has {name}, which is not JSON: leave the member out, or give a number")


def _has_half_pair(text: str) -> bool:
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse_depth() -> NoReturn:
    _refuse("too_deep", f"is nested deeper than {MAX_DEPTH} levels")


def _refuse(rule: str, what: str) -> NoReturn:
    findings = Findings()
    findings.fault(rule, "$", what)
    raise findings.invalid() from None
