"""What file names mean in a Dynamo store: keys, percent-encoded."""

import re
from urllib.parse import unquote_to_bytes

from discoveryd.core.card import Key
from discoveryd.core.text import display_path, has_control
from discoveryd.core.verdict import Reason

_BASE_SEGMENTS = 4
_SLASH = re.compile(rb"%2f|/", re.IGNORECASE)


def is_key_name(name: bytes) -> bool:
    """Whether a file of this name, in a store, stands for a key."""
    return not name.startswith(b".tmp_") and b"/" not in name and b"\0" not in name


def record_name(name: bytes) -> bytes:
    """Return the name of the instance record that a card file of this name belongs to."""
    slashes = list(_SLASH.finditer(name))
    if len(slashes) < _BASE_SEGMENTS:
        return name
    return name[: slashes[_BASE_SEGMENTS - 1].start()]


def key_of(name: bytes) -> Key | Reason:
    """Decode a file name of a store; the reason says why it is no key."""
    try:
        segments = unquote_to_bytes(name).decode().split("/")
    except UnicodeDecodeError:
        return _no_key(name, "it is not UTF-8 once decoded")
    if len(segments) not in (_BASE_SEGMENTS, _BASE_SEGMENTS + 1):
        return _no_key(name, f"it has {len(segments)} segments")
    if not all(segments):
        return _no_key(name, "a segment of it is empty")
    if any(has_control(segment) for segment in segments):
        return _no_key(name, "it has control characters")
    return Key(*segments)


def _no_key(name: bytes, why: str) -> Reason:
    return Reason(
        rule="file_name",
        message=f"the file name {display_path(name)} is no key, since {why}. In a Dynamo store a "
        "card's file name is namespace/component/endpoint/instance or the same and /suffix, "
        "percent-encoded. Move other files elsewhere.",
        found=display_path(name),
    )
