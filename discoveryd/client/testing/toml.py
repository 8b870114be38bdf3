"""Values of Python written as a configuration file.

The daemon says what is wrong with keys and values; here is refused only what TOML has no form for.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TypeVar, cast

T = TypeVar("T")


def written(table: Mapping[str, object]) -> str:
    """Return the table as TOML, a key a line. None is left out, a path is its text.

    Raises TypeError where a value is of a kind that TOML does not know.
    """
    lines = [f"{_text(key)} = {_value(key, value)}\n" for key, value in _given(table)]
    return "".join(lines)


def _value(key: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str() | PurePath():
            return _text(value)
        case Mapping():
            table = _given(cast("Mapping[object, object]", value))
            return f"{{{', '.join(f'{_text(k)} = {_value(key, v)}' for k, v in table)}}}"
        case list() | tuple():
            items = cast("Sequence[object]", value)
            return f"[{', '.join(_value(key, each) for each in items)}]"
        case _:
            raise TypeError(f"{key}: a configuration file cannot hold a {type(value).__name__}")


def _given(table: Mapping[T, object]) -> list[tuple[T, object]]:
    return [(key, value) for key, value in table.items() if value is not None]


def _text(text: object) -> str:
    """Return the text in quotes. JSON escapes as TOML does, but for one character."""
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")
