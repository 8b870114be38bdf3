"""The values of both sides have the shapes of the interface: no member can drift unnoticed."""

import re
from importlib.resources import files
from typing import get_type_hints

import msgspec
import pytest

from discoveryd import interface

Shape = dict[str, str]

TYPES: dict[str, type[msgspec.Struct]] = {
    "Cursor": interface.Cursor,
    "Worker": interface.Worker,
    "Reason": interface.Reason,
    "Verdict": interface.Verdict,
    "Event": interface.Event,
    "Name": interface.Name,
    "Directory": interface.Directory,
}
REPLIES: dict[str, type[msgspec.Struct]] = {
    "Resolve": interface.Resolution,
    "List": interface.NameList,
    "ListWorkers": interface.WorkerList,
    "Explain": interface.Explanation,
    "Check": interface.CheckReply,
    "Sync": interface.SyncReply,
    "Watch": interface.WatchReply,
    "Hold": interface.HoldReply,
    "History": interface.HistoryReply,
    "Reload": interface.ReloadReply,
    "GetStatus": interface.Status,
}
ERRORS: dict[str, type[msgspec.Struct]] = {
    "NoSuchModel": interface.NoSuchModel,
    "NoSuchFile": interface.NoSuchFile,
    "TooLarge": interface.TooLarge,
}
PLAIN = {"string": "str", "int": "int", "bool": "bool", "float": "float"}

INTERFACE = re.sub(
    r"#.*", "", files("discoveryd").joinpath("io.discoveryd.Models.varlink").read_text()
)
ENUMS = set(re.findall(r"type (\w+) \((?:\w+, )*\w+\)", INTERFACE))


def declared(kind: str) -> dict[str, Shape]:
    """Return the shapes of all types, replies of methods, or errors that the file declares."""
    pattern = rf"{kind} (\w+)\s*" + (r"\([^()]*\)\s*->\s*" if kind == "method" else "")
    found = re.findall(pattern + r"\(([^()]*)\)", INTERFACE)
    return {
        name: {
            member.strip(): python(wire.strip())
            for member, wire in (line.split(":") for line in members.split(",") if ":" in line)
        }
        for name, members in found
        if name not in ENUMS
    }


def python(wire: str) -> str:
    """Return the Python type, as text, of a Varlink type."""
    if wire.startswith("?"):
        return f"{python(wire[1:])} | None"
    if wire.startswith("[]"):
        return f"tuple[{python(wire[2:])}, ...]"
    if wire.startswith("[string]"):
        return f"dict[str, {python(wire[8:])}]"
    return "str" if wire in ENUMS else PLAIN.get(wire, wire)


def written(struct: type[msgspec.Struct]) -> Shape:
    """Return the shape of a struct."""
    return {name: spelled(hint) for name, hint in get_type_hints(struct).items()}


def spelled(hint: object) -> str:
    if isinstance(hint, type):
        return hint.__name__
    return str(hint).replace("discoveryd.interface.", "")


@pytest.mark.parametrize(
    ("kind", "structs"), [("type", TYPES), ("method", REPLIES), ("error", ERRORS)]
)
def test_the_structs_have_the_shapes_of_the_interface(
    kind: str, structs: dict[str, type[msgspec.Struct]]
) -> None:
    assert {name: written(struct) for name, struct in structs.items()} == declared(kind)


def test_the_enums_of_the_interface_are_read_as_strings() -> None:
    assert {"Serves", "Layout", "Backend"} == ENUMS
