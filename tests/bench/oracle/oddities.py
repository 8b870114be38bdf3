"""What may be odd about a card: its members, its envelope, its text, the name of its file.

Each is a small function that makes one thing odd. Those of a card and of an envelope take the
object and names of the case, and return another object; those of text and of file names, a string.
"""

import json
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Odd = Callable[..., Any]

NAMES = ("", "\n", "m\x01", "\x7f", "m\u0085", "x" * 512, "x" * 513, "\u20ac" * 171, "\u202em", " ")
"""Names that few would choose; some of them, discoveryd takes for no names."""

_MISSING = object()
_U32 = 1 << 32
_U64 = 1 << 64


def _member(name: str, value: object) -> Odd:
    def odd(document: Json, _names: list[str]) -> Json:
        rest = {key: kept for key, kept in document.items() if key != name}
        return rest if value is _MISSING else rest | {name: value}

    return odd


def _aliases(make: Callable[[str], object]) -> Odd:
    def odd(document: Json, names: list[str]) -> Json:
        return document | {"aliases": make(names[0])}

    return odd


def _members(**values: tuple[object, ...]) -> tuple[Odd, ...]:
    return tuple(_member(name, value) for name, many in values.items() for value in many)


CARD: tuple[Odd, ...] = (
    *_members(
        display_name=(_MISSING, None, 7, True, ["m"], {}, *NAMES),
        source_path=(None, 5, True, {}, ["A"], "\n", "x" * 2000),
        aliases=(None, *([name] for name in NAMES)),
        lora=(None, {}, False, 0, "", [], {"name": "other"}, {"name": 5}),
    ),
    *_members(
        kv_cache_block_size=(None, -1, 1.5, "16", _U32 - 1, _U32),
        context_length=(-1, "x"),
        architectural_max_context_length=(_U32, []),
        runtime_config=(None, [], 5, {"context_length": -1}, {"context_length": None}),
        worker_type=(5, "Decode", "", []),
        model_type=(5, "", " | ", "Unheard", [], "chat"),
        needs=(None, 5, "decode", [5], [[]], [["nobody"]]),
        user_data=("x" * 1_100_000,),
        model_info=(5, "x", {"hf_config_json": 5}),
    ),
    *(
        _aliases(make)
        for make in (
            lambda name: name,
            lambda name: {name: 1},
            lambda name: [[name]],
            lambda name: [1, None, name],
            lambda name: [name, name],
            lambda _: 5,
        )
    ),
)

ENVELOPE: tuple[Odd, ...] = _members(
    type=(_MISSING, None, 5, "Endpoint", "model", "Unheard"),
    namespace=(_MISSING, None, 5, "elsewhere", "", "a/b"),
    component=(_MISSING, "elsewhere"),
    endpoint=(_MISSING, "elsewhere", "e2"),
    instance_id=(_MISSING, None, "12", -1, 5.0, 0, 77, _U64 - 1, _U64),
    model_suffix=(None, "", 5, "other", "a/b", []),
    card_json=(_MISSING, None, 5, "m", []),
    url=(5, "", "ftp://x", "http://u:p@h", "http://h:99999", "http://127.0.0.1:8000"),
    labels=(5, {"a": 1}, {"a": "b"}),
    accepting=("no", False, 0),
    liveness=(5, {"pid": "x"}, {"pid": -1}, {}),
    of_a_later_release=(5, {"display_name": 5}),
)


def _after_brace(member: str) -> Odd:
    return lambda text: "{" + member + "," + text[1:]


def _before_end(member: str) -> Odd:
    return lambda text: text[:-1] + "," + member + "}"


def _in_card(member: str) -> Odd:
    return lambda text: text.replace('"card_json": {', '"card_json": {' + member + ", ", 1)


def _at_end_of_card(member: str) -> Odd:
    def odd(text: str) -> str:
        whole = json.loads(_numbers(text))
        inner = json.dumps(whole["card_json"])
        return text.replace(inner, inner[:-1] + ", " + member + "}", 1)

    return odd


def _numbers(text: str) -> str:
    """Return the text as JSON: places for instances are none."""
    for worker in range(3):
        text = text.replace(f"{{{worker}}}", "0")
    return text


TEXT: tuple[Odd, ...] = (
    lambda text: text + "\n",
    lambda text: " \t\r\n" + text,
    lambda text: text + "x",
    lambda text: text + "{}",
    lambda text: "\ufeff" + text,
    lambda text: text[: len(text) // 2],
    lambda text: text[:-1],
    lambda _: "",
    lambda _: "[]",
    lambda _: "null",
    lambda text: text.replace("{", "{/* */", 1),
    lambda text: text[:-1] + ",}",
    lambda text: text.replace('"', "'"),
    *(
        put(member)
        for put in (_after_brace, _before_end, _in_card, _at_end_of_card)
        for member in (
            '"any": NaN',
            '"any": 1e999',
            '"any": "\\ud800"',
            '"any": "\\ud83d\\ude00"',
            '"any": "\t"',
            '"any": 01',
            '"any": 1, "any": 2',
            '"any": 123456789012345678901234567890',
            *('"any": ' + "[" * depth + "]" * depth for depth in (100, 125, 126, 127, 200)),
            '"display_name": "l"',
            '"display_name": 5',
            '"source_path": "B"',
            '"aliases": ["x"]',
            '"instance_id": 6',
            '"type": "Model"',
            '"model_suffix": "sfx"',
        )
    ),
)

FILE: tuple[Odd, ...] = (
    lambda name: name.replace("%2F", "%2f"),
    lambda name: name + ".json",
    lambda name: name + "%2F",
    lambda name: name + "%2Fmore",
    lambda name: name + "%2Fmore%2Fmore",
    lambda name: name + "%00",
    lambda name: name + "%zz",
    lambda name: name + "%",
    lambda name: name + "%FF",
    lambda name: name + "~",
    lambda name: "." + name,
    lambda name: ".tmp_" + name,
    lambda name: "%2F" + name,
    lambda name: name.replace("ns", "%6Es", 1),
    lambda name: name.replace("%2F", "%2F%2F", 1),
    lambda name: name.rsplit("%2F", 1)[0],
    lambda name: "%2F".join(name.split("%2F")[:3]),
    lambda name: "%2F".join(name.split("%2F")[:3]) + "%2FABC",
    lambda name: "%2F".join(name.split("%2F")[:3]) + "%2Fworker%2D1",
    lambda name: "%2F".join(name.split("%2F")[:3]) + "%2Fworker-1",
    lambda name: "%2F".join(name.split("%2F")[:3]) + "%2F1%2FL%2E1",
    lambda name: name.replace("%2Fe%2F", "%2Fe%0A%2F"),
)
