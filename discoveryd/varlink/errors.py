"""What can go wrong, by whose fault it is.

`ProtocolError` speaks of the connection: the caller misused it (`LocalProtocolError`), or the peer
broke the protocol (`RemoteProtocolError`). `CallError` speaks of one call: a named Varlink error
that travels in a reply, after which the connection goes on. The named errors every service may
answer with (interface org.varlink.service) stand here; those of other interfaces do not.
"""

from collections.abc import Mapping


class ProtocolError(Exception):
    """Either side broke the protocol. Abstract: only its two children are raised."""

    def __init__(self, message: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: raise one of its children")
        super().__init__(message)


class LocalProtocolError(ProtocolError):
    """The caller asked for something that the connection's state forbids; nothing was changed."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; the message says how. The connection must be closed."""


class CallError(Exception):
    """A call failed with a named error.

    `name` is fully qualified (interface.Error). `parameters` are what the error carries; to be
    encoded as JSON when it is raised by a service, decoded from JSON when it comes from one.
    A service sets `lasting` where every such call gets it until the next revision (recall.py).
    """

    def __init__(self, name: str, parameters: Mapping[str, object] | None = None) -> None:
        super().__init__(name)
        self.name = name
        self.lasting = False
        self.parameters = dict(parameters or {})


class MethodNotFound(CallError):
    """The interface has no such method. `method` is the name that was called."""

    def __init__(self, method: str) -> None:
        super().__init__("org.varlink.service.MethodNotFound", {"method": method})


class MethodNotImplemented(CallError):
    """The interface has the method, this service does not answer it."""

    def __init__(self, method: str) -> None:
        super().__init__("org.varlink.service.MethodNotImplemented", {"method": method})


class InterfaceNotFound(CallError):
    """The service has no such interface."""

    def __init__(self, interface: str) -> None:
        super().__init__("org.varlink.service.InterfaceNotFound", {"interface": interface})


class InvalidParameter(CallError):
    """A parameter is missing, unknown, of the wrong type or out of range: `parameter` names it."""

    def __init__(self, parameter: str) -> None:
        super().__init__("org.varlink.service.InvalidParameter", {"parameter": parameter})


class PermissionDenied(CallError):
    """This caller may not do that."""

    def __init__(self) -> None:
        super().__init__("org.varlink.service.PermissionDenied")


class ExpectedMore(CallError):
    """The method only makes sense called with `more`."""

    def __init__(self) -> None:
        super().__init__("org.varlink.service.ExpectedMore")


class ExpectedUpgrade(CallError):
    """The method only makes sense called with `upgrade`."""

    def __init__(self) -> None:
        super().__init__("org.varlink.service.ExpectedUpgrade")


_SERVICE_ERRORS: dict[str, type[CallError]] = {
    f"org.varlink.service.{kind.__name__}": kind
    for kind in (
        MethodNotFound,
        MethodNotImplemented,
        InterfaceNotFound,
        InvalidParameter,
        PermissionDenied,
        ExpectedMore,
        ExpectedUpgrade,
    )
}


def call_error(name: str, parameters: Mapping[str, object] | None = None) -> CallError:
    """Return a received error as an exception, of its own class where it is one of those above.

    `parameters` are kept as they came, whatever the class's constructor would have made of them.
    """
    kind = _SERVICE_ERRORS.get(name, CallError)
    error = kind.__new__(kind)
    CallError.__init__(error, name, parameters)
    return error
