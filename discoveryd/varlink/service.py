"""A service: which methods there are, what they take, and how it describes itself.

`Service.prepare` turns a call into a method and its decoded parameters, or into the named error
that the call gets. What a method's `answer` returns and who awaits it is the server's business;
only the two methods of org.varlink.service are answered here, synchronously and with bytes.

In which order a call is refused: unknown interface or method, an `upgrade` (no method here takes
over a connection), a missing `more`, the parameters. All errors leave the connection usable.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from discoveryd.varlink.errors import (
    CallError,
    ExpectedMore,
    InterfaceNotFound,
    InvalidParameter,
    MethodNotFound,
)
from discoveryd.varlink.messages import Call
from discoveryd.varlink.recall import Recall

_OWN_INTERFACE = "org.varlink.service"

_OWN_DESCRIPTION = """\
# Describes the service and the interfaces it implements. Its errors may come from any method.
interface org.varlink.service

# What this service is, and the names of its interfaces.
method GetInfo() -> (
  vendor: string,
  product: string,
  version: string,
  url: string,
  interfaces: []string
)

# The definition of one interface, with its documentation.
method GetInterfaceDescription(interface: string) -> (description: string)

# The service does not implement this interface.
error InterfaceNotFound (interface: string)

# The interface does not define this method.
error MethodNotFound (method: string)

# The interface defines this method, the service does not implement it.
error MethodNotImplemented (method: string)

# A parameter is missing, unknown, of the wrong type or out of range.
error InvalidParameter (parameter: string)

# The client may not do that.
error PermissionDenied ()

# The method has to be called with more.
error ExpectedMore ()

# The method has to be called with upgrade.
error ExpectedUpgrade ()
"""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Method(msgspec.Struct, frozen=True):
    """One method.

    `parameters` is the type of its input: unknown members forbidden, `T | None = None` for
    Varlink's `?T`. `answer` is called with a value of that type first; what follows and what it
    returns is agreed between the methods and the server. `more` says whether the method may be,
    or must be, called with that flag; where it is "never", such a call gets its one reply.
    """

    parameters: type[msgspec.Struct]
    answer: Callable[..., object]
    more: Literal["never", "optional", "required"] = "never"


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A call that may be answered: `method.answer(parameters, ...)`."""

    method: Method
    parameters: msgspec.Struct


class Service:
    """What a server offers.

    `vendor`, `product`, `version` and `url` are what GetInfo tells of it. `interfaces` maps names
    of interfaces to their definitions, `methods` fully qualified names to methods;
    org.varlink.service is added to both. `refused` is told of each call that gets an error, by the
    server: the names of the method that was called and of the error. `recall` has the replies that
    the server may give without asking.

    Raises `ValueError` for a method outside the interfaces and for parameters that would let
    unknown members pass.
    """

    def __init__(  # noqa: PLR0913 - the protocol wants to know that much
        self,
        *,
        vendor: str,
        product: str,
        version: str,
        url: str,
        interfaces: Mapping[str, str],
        methods: Mapping[str, Method],
        refused: Callable[[str, str], None] | None = None,
        recall: Recall | None = None,
    ) -> None:
        self.refused = refused
        self.recall = Recall(b"") if recall is None else recall
        self._descriptions = {_OWN_INTERFACE: _OWN_DESCRIPTION, **interfaces}
        self._info = msgspec.json.encode(
            {
                "vendor": vendor,
                "product": product,
                "version": version,
                "url": url,
                "interfaces": list(self._descriptions),
            }
        )
        self._methods: dict[str, tuple[Method, msgspec.json.Decoder[msgspec.Struct]]] = {}
        for name, method in {**methods, **self._own_methods()}.items():
            if name.rpartition(".")[0] not in self._descriptions:
                raise ValueError(f"the method {name} belongs to no interface of the service")
            if not method.parameters.__struct_config__.forbid_unknown_fields:
                raise ValueError(f"the parameters of {name} have to forbid unknown fields")
            self._methods[name] = (method, msgspec.json.Decoder(method.parameters))

    def prepare(self, call: Call) -> Prepared:
        """Find the call's method and decode its parameters. Raises the `CallError` it gets."""
        found = self._methods.get(call.method)
        if found is None:
            raise self._unknown(call.method)
        method, decoder = found
        if call.upgrade:
            raise InvalidParameter("upgrade")
        if method.more == "required" and not call.more:
            raise ExpectedMore
        try:
            parameters = decoder.decode(call.parameters)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidParameter(_culprit(method.parameters, call.parameters)) from error
        return Prepared(method, parameters)

    def _unknown(self, name: str) -> CallError:
        """Return what a call of an unknown method gets.

        A name without a dot names no interface that could be missing: the method is not found.
        """
        interface = name.rpartition(".")[0]
        if interface and interface not in self._descriptions:
            return InterfaceNotFound(interface)
        return MethodNotFound(name)

    def _own_methods(self) -> dict[str, Method]:
        return {
            f"{_OWN_INTERFACE}.GetInfo": Method(_GetInfo, self._get_info),
            f"{_OWN_INTERFACE}.GetInterfaceDescription": Method(
                _GetInterfaceDescription, self._get_interface_description
            ),
        }

    def _get_info(self, _parameters: "_GetInfo", *_: object) -> bytes:
        return self._info

    def _get_interface_description(
        self, parameters: "_GetInterfaceDescription", *_: object
    ) -> bytes:
        description = self._descriptions.get(parameters.interface)
        if description is None:
            raise InterfaceNotFound(parameters.interface)
        return msgspec.json.encode({"description": description})


class _GetInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class _GetInterfaceDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which interface to describe."""

    interface: str


def _culprit(parameters: type[msgspec.Struct], given: msgspec.Raw) -> str:
    """Name the parameter for which `given` cannot be decoded as `parameters`.

    Each member is tried by itself, since the decoder's message is made for people and names no
    place for some faults. "parameters" stands for what lies in no single one: members nested too
    deep to be taken apart, or one that comes twice and is wrong the first time.
    """
    try:
        members = _members.decode(given)
    except RecursionError:
        return "parameters"
    fields = {field.encode_name: field for field in msgspec.structs.fields(parameters)}
    for name, value in members.items():
        if name not in fields:
            return name
        try:
            msgspec.json.decode(value, type=fields[name].type)
        except msgspec.DecodeError:
            return name
    for name, field in fields.items():
        if field.required and name not in members:
            return name
    return "parameters"
