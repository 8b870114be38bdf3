"""Everything that can go wrong between a client and the daemon, by whose doing it is.

No daemon, no answer in time, a connection that broke; or an answer that is an error: `CallRefused`
and its kinds, which carry the error's parameters. Their texts are not escaped for a terminal.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from discoveryd import interface

INTERFACE = "io.discoveryd.Models"


class DiscoverydError(Exception):
    """The base of all errors of this package."""


class Attempt(NamedTuple):
    """A socket that was tried: its path, why it was tried, and why it would not do."""

    path: str
    origin: str
    problem: str


class NoDaemon(DiscoverydError):
    """No daemon accepts connections.

    `tried` holds every place that was looked at, in order; `lines` says so, as the text does.
    """

    def __init__(self, tried: tuple[Attempt, ...]) -> None:
        places = [f"  {path} ({origin}): {problem}" for path, origin, problem in tried]
        self.lines = ["no discoveryd answers; tried:", *places]
        super().__init__("\n".join(self.lines))
        self.tried = tried


class Timeout(DiscoverydError, TimeoutError):
    """The daemon did not answer in time. What it was asked may or may not have happened."""


class ConnectionLost(DiscoverydError, ConnectionError):
    """The daemon ended the connection without a whole answer; it was stopped or restarted."""


class Unanswered(ConnectionLost):
    """The connection ended before anything of the answer came, so the call may be sent again."""


class BadReply(DiscoverydError):
    """What listens on the socket does not speak the interface."""


class CallRefused(DiscoverydError):
    """The daemon answered with an error. `name` is the qualified one, `parameters` its members."""

    def __init__(self, text: str, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.name = name
        self.parameters = parameters


class NoSuchModel(CallRefused):
    """Nobody serves the name `model`.

    `similar` holds served names that may have been meant, `waiting` the verdicts of cards that ask
    for the name but do not serve, `more_waiting` how many more of them there are.
    """

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        members = msgspec.convert(parameters, interface.NoSuchModel)
        super().__init__(f"nobody serves {members.name}", name, parameters)
        self.model = members.name
        self.similar = members.similar
        self.waiting = members.waiting
        self.more_waiting = members.more_waiting


class NoSuchFile(CallRefused):
    """The daemon knows no card file `file`."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.file = msgspec.convert(parameters, interface.NoSuchFile).file
        super().__init__(f"there is no card file {self.file}", name, parameters)


class TooLarge(CallRefused):
    """The answer has `bytes` bytes, more than the `limit` for one reply."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        members = msgspec.convert(parameters, interface.TooLarge)
        text = f"the answer has {members.bytes} bytes; one reply holds {members.limit}"
        super().__init__(text, name, parameters)
        self.bytes = members.bytes
        self.limit = members.limit


_KINDS = {f"{INTERFACE}.{kind.__name__}": kind for kind in (NoSuchModel, NoSuchFile, TooLarge)}


def refusal(name: str, parameters: Mapping[str, Any]) -> CallRefused | BadReply:
    """Return the exception for the error `name`; BadReply where its members are not as promised."""
    kind = _KINDS.get(name)
    if kind is None:
        members = ", ".join(f"{member}: {value}" for member, value in parameters.items())
        text = f"the daemon refused: {name}" + (f" ({members})" if members else "")
        return CallRefused(text, name, parameters)
    try:
        return kind(name, parameters)
    except msgspec.ValidationError as fault:
        return BadReply(f"the error {name} is not as the interface says: {fault}")
