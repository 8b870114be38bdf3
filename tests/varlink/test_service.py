"""The service: what a call gets before it is answered, and introspection."""

from typing import Any

import msgspec
import pytest
import varlink  # type: ignore[import-untyped]  # an independent reader of interface definitions

from discoveryd.varlink import (
    Call,
    CallError,
    ExpectedMore,
    InterfaceNotFound,
    InvalidParameter,
    Method,
    MethodNotFound,
    Service,
)
from discoveryd.varlink.errors import LocalProtocolError, ProtocolError, RemoteProtocolError


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    epoch: str
    revision: int


class Find(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    since: Cursor | None = None
    limit: int | None = None
    card: msgspec.Raw = msgspec.Raw(b"{}")
    labels: dict[str, Any] | None = None


class Stream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


DEFINITION = "interface a.b\n\nmethod Find(name: string) -> ()\n"


def service(**methods: Method) -> Service:
    return Service(
        vendor="somebody",
        product="thing",
        version="1.2",
        url="https://example.com",
        interfaces={"a.b": DEFINITION},
        methods={f"a.b.{name}": method for name, method in methods.items()}
        or {
            "a.b.Find": Method(Find, lambda parameters: parameters),
            "a.b.Stream": Method(Stream, lambda parameters: parameters, more="required"),
        },
    )


def call(method: str, parameters: bytes = b"{}", **flags: bool) -> Call:
    return Call(method, msgspec.Raw(parameters), **flags)


def test_a_call_is_prepared_with_its_parameters_decoded() -> None:
    prepared = service().prepare(call("a.b.Find", b'{"name":"x","since":null,"limit":7}'))
    assert prepared.parameters == Find("x", limit=7)
    assert prepared.method.answer(prepared.parameters) is prepared.parameters


@pytest.mark.parametrize(
    ("method", "error", "parameters"),
    [
        ("a.b.Other", MethodNotFound, {"method": "a.b.Other"}),
        ("a.b.find", MethodNotFound, {"method": "a.b.find"}),
        ("a.c.Find", InterfaceNotFound, {"interface": "a.c"}),
        ("a.b.Find.More", InterfaceNotFound, {"interface": "a.b.Find"}),
        ("Find", MethodNotFound, {"method": "Find"}),
        (".Find", MethodNotFound, {"method": ".Find"}),
        ("", MethodNotFound, {"method": ""}),
        ("org.varlink.service.Other", MethodNotFound, {"method": "org.varlink.service.Other"}),
    ],
)
def test_a_call_of_nothing_known_says_what_is_missing(
    method: str, error: type[CallError], parameters: dict[str, str]
) -> None:
    with pytest.raises(error) as caught:
        service().prepare(call(method))
    assert caught.value.name == f"org.varlink.service.{error.__name__}"
    assert caught.value.parameters == parameters


@pytest.mark.parametrize(
    ("parameters", "culprit"),
    [
        (b"{}", "name"),
        (b'{"name":null}', "name"),
        (b'{"name":1}', "name"),
        (b'{"nome":"x"}', "nome"),
        (b'{"name":"x","other":1}', "other"),
        (b'{"name":"x","":1}', ""),
        (b'{"name":"x","limit":1.5}', "limit"),
        (b'{"name":"x","limit":' + b"9" * 5000 + b"}", "limit"),
        (b'{"name":"x","since":{"epoch":"e"}}', "since"),
        (b'{"name":"x","since":{"epoch":"e","revision":1,"more":2}}', "since"),
        (b'{"name":"x","since":[]}', "since"),
        (b'{"name":"x","labels":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "parameters"),
        (b'{"name":1,"name":"x"}', "parameters"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: bytes, culprit: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        service().prepare(call("a.b.Find", parameters))
    assert caught.value.parameters == {"parameter": culprit}


def test_a_method_that_streams_expects_more() -> None:
    with pytest.raises(ExpectedMore):
        service().prepare(call("a.b.Stream"))
    assert service().prepare(call("a.b.Stream", more=True)).parameters == Stream()


def test_more_is_harmless_where_it_means_nothing() -> None:
    prepared = service().prepare(call("a.b.Find", b'{"name":"x"}', more=True))
    assert prepared.method.more == "never"


def test_an_upgrade_is_refused() -> None:
    with pytest.raises(InvalidParameter) as caught:
        service().prepare(call("a.b.Find", b'{"name":"x"}', upgrade=True))
    assert caught.value.parameters == {"parameter": "upgrade"}


def answer(method: str, parameters: bytes = b"{}") -> Any:
    prepared = service().prepare(call(f"org.varlink.service.{method}", parameters))
    result = prepared.method.answer(prepared.parameters, "whatever else the server passes")
    assert isinstance(result, bytes)
    return msgspec.json.decode(result)


def test_get_info_tells_who_it_is_and_lists_all_interfaces() -> None:
    assert answer("GetInfo") == {
        "vendor": "somebody",
        "product": "thing",
        "version": "1.2",
        "url": "https://example.com",
        "interfaces": ["org.varlink.service", "a.b"],
    }


def test_get_interface_description_gives_the_definition_as_it_is() -> None:
    description = answer("GetInterfaceDescription", b'{"interface":"a.b"}')
    assert description == {"description": DEFINITION}


def test_get_interface_description_of_an_unknown_interface_is_an_error() -> None:
    with pytest.raises(InterfaceNotFound) as caught:
        answer("GetInterfaceDescription", b'{"interface":"a.c"}')
    assert caught.value.parameters == {"interface": "a.c"}


def test_its_own_interface_can_be_read_by_an_independent_parser() -> None:
    text = answer("GetInterfaceDescription", b'{"interface":"org.varlink.service"}')["description"]
    interface = varlink.Interface(text)
    assert interface.name == "org.varlink.service"
    assert set(interface.members) == {
        "GetInfo",
        "GetInterfaceDescription",
        "InterfaceNotFound",
        "MethodNotFound",
        "MethodNotImplemented",
        "InvalidParameter",
        "PermissionDenied",
        "ExpectedMore",
        "ExpectedUpgrade",
    }


def test_a_method_outside_the_interfaces_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"a\.c\.Find"):
        Service(
            vendor="v",
            product="p",
            version="1",
            url="u",
            interfaces={"a.b": DEFINITION},
            methods={"a.c.Find": Method(Find, lambda parameters: parameters)},
        )


def test_parameters_that_let_unknown_members_pass_are_refused_at_once() -> None:
    class Lenient(msgspec.Struct):
        name: str

    with pytest.raises(ValueError, match="forbid"):
        service(Find=Method(Lenient, lambda parameters: parameters))


def test_the_two_protocol_errors_have_an_abstract_base() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ProtocolError("x")
    for kind in (LocalProtocolError, RemoteProtocolError):
        assert isinstance(kind("x"), ProtocolError)
