"""The interface file and the code cannot drift apart: methods, what they take, how they refuse.

The file is read by a parser that is not ours. The values that are answered are held to the file by
test_interface_shapes.py, and on the wire by test_clients.py.
"""

import inspect
from collections.abc import Collection, Sequence
from typing import Any, get_args, get_origin

import msgspec
import pytest
import varlink.scanner as idl  # type: ignore[import-untyped]  # it has no types

from discoveryd import interface
from discoveryd.core.batch import Sighting
from discoveryd.daemon.life.holders import Holder
from discoveryd.daemon.methods import parameters, replies
from discoveryd.daemon.methods.api import NAME, Api, description
from discoveryd.daemon.methods.upkeep import Surroundings
from discoveryd.daemon.writer import Writer
from discoveryd.varlink import Method
from discoveryd.varlink.errors import CallError

INTERFACE = idl.Interface(description())
MEMBERS: dict[str, Any] = INTERFACE.members
METHODS = {name: m for name, m in MEMBERS.items() if isinstance(m, idl._Method)}
ERRORS = {name: m for name, m in MEMBERS.items() if isinstance(m, idl._Error)}


class NoDisk:
    """Stands in for the disk where nobody asks."""

    def files_named(self, file: str) -> Sequence[str]:
        raise AssertionError(file)

    def key_of(self, file: str) -> None:
        raise AssertionError(file)

    async def permitted(self, sighting: Sighting) -> Sighting:
        raise AssertionError(sighting)

    async def sync(self, files: Sequence[str] | None) -> None:
        raise AssertionError(files)

    def status(self) -> Surroundings:
        raise AssertionError

    def may_reload(self, uid: int) -> bool:
        raise AssertionError(uid)

    async def reload(self) -> interface.ReloadReply:
        raise AssertionError


class NoKeeper:
    """Stands in for who keeps held cards alive."""

    async def hold(self, holder: Holder, files: Collection[str]) -> None:
        raise AssertionError(holder, files)

    def release(self, holder: Holder, files: Collection[str]) -> None:
        raise AssertionError(holder, files)


async def served_methods() -> dict[str, Method]:
    """Return the methods that the daemon's service answers, ours only, by bare name."""
    service = Api(Writer("epoch", {}), NoDisk(), NoKeeper()).service()
    return {
        name.removeprefix(f"{NAME}."): method
        for name, (method, _) in service._methods.items()
        if name.startswith(f"{NAME}.")
    }


def in_file(declared: Any) -> Any:
    """Return a type of the file as nested tuples, named types spelled out."""
    match declared:
        case idl._CustomType():
            return in_file(MEMBERS[declared.name].type)
        case idl._Maybe():
            return ("maybe", in_file(declared.element_type))
        case idl._Array():
            return ("array", in_file(declared.element_type))
        case idl._Dict():
            return ("map", in_file(declared.element_type))
        case idl._Struct():
            return {name: in_file(member) for name, member in declared.fields.items()}
        case idl._Object():
            return "object"
        case idl._Enum():
            return "str"
        case _:
            return type(declared).__name__


def in_code(annotation: Any) -> Any:
    """Return a Python type in the same form."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is not None and type(None) in arguments:
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return ("maybe", in_code(inner))
    if origin in (list, tuple):
        return ("array", in_code(arguments[0]))
    if origin is dict:
        return ("map", in_code(arguments[1]))
    if annotation is msgspec.Raw:
        return "object"
    if issubclass(annotation, msgspec.Struct):
        return {f.encode_name: in_code(f.type) for f in msgspec.structs.fields(annotation)}
    return annotation.__name__


def test_the_file_names_our_interface() -> None:
    assert INTERFACE.name == NAME


async def test_the_daemon_answers_the_methods_of_the_file_and_no_other() -> None:
    assert (await served_methods()).keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
async def test_a_method_takes_what_the_file_says(name: str) -> None:
    takes = (await served_methods())[name].parameters
    assert in_code(takes) == in_file(METHODS[name].in_type)
    optional = {field.encode_name for field in msgspec.structs.fields(takes) if not field.required}
    maybes = {n for n, t in METHODS[name].in_type.fields.items() if isinstance(t, idl._Maybe)}
    assert optional == maybes, "what may be left out has a default, and nothing else"


@pytest.mark.parametrize("name", METHODS)
async def test_which_methods_stream_stands_in_the_file(name: str) -> None:
    comment = " ".join(METHODS[name].doc.split())
    if "call it with more" in comment:
        said = "required"
    else:
        said = "optional" if "when called with more" in comment else "never"
    assert (await served_methods())[name].more == said


BUILT: dict[str, CallError] = {
    "NoSuchFile": replies.no_such_file("a.json"),
    "TooLarge": replies.too_large(2, 1),
    "NoSuchModel": replies.no_such_model(
        interface.NoSuchModel(name="a", similar=(), waiting=(), more_waiting=0)
    ),
}


def test_every_error_of_the_file_can_be_built_and_no_other() -> None:
    assert BUILT.keys() == ERRORS.keys()
    assert {error.name for error in BUILT.values()} == {f"{NAME}.{name}" for name in ERRORS}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_carries_what_the_file_says(name: str) -> None:
    assert list(BUILT[name].parameters) == list(ERRORS[name].type.fields)
    assert in_code(getattr(interface, name)) == in_file(ERRORS[name].type)


def test_every_type_of_the_file_is_used() -> None:
    uses = description()
    for name, member in MEMBERS.items():
        if isinstance(member, idl._Alias):
            assert uses.count(name) > 1, name


def test_every_parameter_type_is_of_some_method() -> None:
    defined = {
        struct
        for _, struct in inspect.getmembers(parameters, inspect.isclass)
        if issubclass(struct, parameters.Parameters) and struct is not parameters.Parameters
    }
    assert {struct.__name__ for struct in defined} <= METHODS.keys() | {"Nothing", "Cursor"}


def test_every_member_is_commented() -> None:
    for name, member in MEMBERS.items():
        assert member.doc.strip(), name
