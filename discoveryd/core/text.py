"""Text for people: file names and strings made safe to show on one line.

Nothing here may decide what a card means; it only says how bytes and strings look.
"""

import re
import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Controls, format and bidi characters, surrogates, line and paragraph separators."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_ESCAPED = re.compile(rb"\\(?:\\|x([0-9a-f]{2}))")

_LONGEST = 120
"""Characters of a quoted text that are shown before it is cut."""


def display_path(path: bytes) -> str:
    r"""Return a file name as text that names it for people and for ever.

    UTF-8 stays as it is, a byte that is not UTF-8 becomes `\xff`, a backslash `\\`. Two different
    names never look alike, and the result can always be encoded as UTF-8.
    """
    return path.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def path_bytes(display: str) -> bytes:
    r"""Return the bytes that `display_path` made the text of.

    A text that it never makes is read as leniently as can be: what is no escape stands for itself.
    """
    if "\\" not in display:
        return display.encode("utf-8", "surrogateescape")
    return _ESCAPED.sub(_unescape, display.encode("utf-8", "surrogateescape"))


def printable(text: str) -> str:
    r"""Return the text on one line, with everything escaped that could fool a terminal.

    Escaped are control, format and bidi characters, surrogates, and line and paragraph separators
    (as `\n`, `\r`, `\t`, `\uXXXX` or `\UXXXXXXXX`); everything else stays, backslashes too.
    """
    if text.isprintable():
        return text
    return "".join(
        _escape(char) if unicodedata.category(char) in _UNSAFE else char for char in text
    )


def quoted(text: str) -> str:
    """Return the text printable, in double quotes, and cut where it is long."""
    return f'"{printable(shortened(text, _LONGEST))}"'


def shortened(text: str, longest: int) -> str:
    """Return the text, cut after `longest` characters, which three dots then tell."""
    return text if len(text) <= longest else text[:longest] + "..."


def has_control(text: str) -> bool:
    """Whether the text has a control character (category Cc)."""
    if text.isprintable():
        return False
    return any(char < " " or "\x7f" <= char <= "\x9f" for char in text)


def _unescape(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    return b"\\" if digits is None else bytes([int(digits, 16)])


def _escape(char: str) -> str:
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  # the BMP's end
