"""Where the daemon is: which sockets to try, in which order, and the connection to the first.

A socket that somebody named, as argument or in DISCOVERYD_SOCKET, is the only one tried. Else the
user's own daemon comes before the system's. The rule for the user's own place is the daemon's too
(core/places.py).
"""

import errno
import os
import socket as sockets
import stat
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from discoveryd.client.errors import Attempt, NoDaemon, Timeout
from discoveryd.core.places import (
    SOCKET_PATH_LIMIT,
    SYSTEM_PLACE,
    Place,
    default_directory,
    temporary_directory,
)

_PROBLEMS = {
    errno.ENOENT: "there is no such socket",
    errno.ENOTDIR: "there is no such socket",
    errno.ECONNREFUSED: "nobody listens there",
    errno.EACCES: "you may not connect to it (permission denied)",
    errno.EPERM: "you may not connect to it (permission denied)",
    errno.EPROTOTYPE: "it is a socket of another kind",
}


_LONGEST_WAIT_SECONDS = 1e9
"""30 years. The kernel's seconds are an integer, and know no infinity."""


class Busy(Exception):
    """A daemon is there, but has too many connections waiting already."""


class Candidate(NamedTuple):
    """A socket that may be the daemon's.

    `private`: a directory that must be the user's own, or the socket is not to be trusted.
    """

    path: str
    origin: str
    private: str | None = None


def candidates(named: str | None, environ: Mapping[str, str], uid: int) -> tuple[Candidate, ...]:
    """Return the sockets to try, in order: the one that is named, else the default ones."""
    if named is not None:
        return (Candidate(named, "as you said"),)
    if from_environment := environ.get("DISCOVERYD_SOCKET"):
        return (Candidate(from_environment, "from DISCOVERYD_SOCKET"),)
    own = default_directory(environ, uid, temporary_directory(environ))
    return tuple(
        Candidate(place.socket, origin, place.directory if place.public_parent else None)
        for place, origin in _distinct(own, SYSTEM_PLACE)
    )


def _distinct(own: Place, system: Place) -> list[tuple[Place, str]]:
    """Return the places with their origins, without saying the same place twice."""
    places = [(own, "your default")] if own != system else []
    return [*places, (system, "the system's")]


def connect(tried: tuple[Candidate, ...], timeout: float | None) -> tuple[sockets.socket, str]:
    """Return a blocking connection to the first candidate that accepts one, and its path.

    Where the daemon has too many connections waiting, wait up to `timeout` seconds; then Timeout.
    NoDaemon where no candidate accepts. The caller owns the socket.
    """
    try:
        return _first(tried, partial(limit_waiting, seconds=timeout))
    except Busy as busy:
        raise Timeout(str(busy)) from None


def connect_now(tried: tuple[Candidate, ...]) -> tuple[sockets.socket, str]:
    """Return a connection that does not block, as `connect` does, without waiting.

    Raises Busy where the daemon has too many connections waiting: try again later.
    """
    return _first(tried, lambda connection: connection.setblocking(False))


def _first(
    tried: tuple[Candidate, ...], prepare: Callable[[sockets.socket], None]
) -> tuple[sockets.socket, str]:
    attempts: list[Attempt] = []
    for path, origin, private in tried:
        problem = _obstacle(path, private)
        if problem is None:
            connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
            try:
                prepare(connection)
                connection.connect(path)
            except BlockingIOError:
                connection.close()
                raise Busy(f"{path} accepted no connection in time; it is busy") from None
            except OSError as fault:
                connection.close()
                problem = _PROBLEMS.get(fault.errno or 0) or fault.strerror or str(fault)
            except BaseException:
                connection.close()
                raise
            else:
                return connection, path
        attempts.append(Attempt(path, origin, problem))
    raise NoDaemon(tuple(attempts))


def limit_waiting(connection: sockets.socket, seconds: float | None) -> None:
    """Let each send, receive and connect on a blocking socket fail with EAGAIN after `seconds`.

    The kernel's own timeouts cost no system call per operation, as Python's would, and let a
    connect wait for a place in a full backlog instead of trying again and again.
    """
    if seconds is None:
        period = struct.pack("@ll", 0, 0)
    else:
        # Zero would mean for ever.
        whole, part = divmod(min(max(seconds, 1e-6), _LONGEST_WAIT_SECONDS), 1)
        period = struct.pack("@ll", int(whole), max(int(part * 1e6), 0 if whole else 1))
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDTIMEO, period)
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVTIMEO, period)


def _obstacle(path: str, private: str | None) -> str | None:
    """Return why this path must not or cannot be connected to; None if nothing is in the way."""
    if not path:
        return "the path is empty"
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        return f"the path has {length} bytes, a Unix socket's at most {SOCKET_PATH_LIMIT}"
    if private is None:
        return None
    try:
        found = os.lstat(private)
    except OSError:
        return "there is no such socket"
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return f"not to be trusted: {private} is no directory of yours"
    if stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
        return f"not to be trusted: {private} is not of mode 0700"
    return None
