"""The Varlink protocol (UAPI.20), bytes in and bytes out. Pure: knows nothing of models."""

from discoveryd.varlink.connection import (
    CLOSED,
    NEED_DATA,
    PAUSED,
    ClientConnection,
    ServerConnection,
    Signal,
)
from discoveryd.varlink.errors import (
    CallError,
    ExpectedMore,
    ExpectedUpgrade,
    InterfaceNotFound,
    InvalidParameter,
    LocalProtocolError,
    MethodNotFound,
    MethodNotImplemented,
    PermissionDenied,
    ProtocolError,
    RemoteProtocolError,
)
from discoveryd.varlink.messages import Call, Parameters, Reply
from discoveryd.varlink.recall import Recall
from discoveryd.varlink.service import Method, Prepared, Service

__all__ = [
    "CLOSED",
    "NEED_DATA",
    "PAUSED",
    "Call",
    "CallError",
    "ClientConnection",
    "ExpectedMore",
    "ExpectedUpgrade",
    "InterfaceNotFound",
    "InvalidParameter",
    "LocalProtocolError",
    "Method",
    "MethodNotFound",
    "MethodNotImplemented",
    "Parameters",
    "PermissionDenied",
    "Prepared",
    "ProtocolError",
    "Recall",
    "RemoteProtocolError",
    "Reply",
    "ServerConnection",
    "Service",
    "Signal",
]
