"""Listening sockets that were passed in: found, checked, and told apart from everybody else's.

Theory
======

**Whose they are.** Descriptors from 3 on are ours if LISTEN_PID is this process. The variables are
inherited by whoever is started with them, so that alone makes them mean anything; a number may have
been another process's before, so LISTEN_PIDFDID, the inode of a pidfd, says it for ever where the
kernel gives every process an inode of its own. Where it does not (before Linux 6.9), all pidfds
share one with all other descriptors that have no file, and nothing can be told by it.

**What they are for.** The name `varlink` (FileDescriptorName=, as UAPI.20 asks) says that calls of
the interface are to be answered there; the name `http`, that HTTP is, at a path or, for browsers
and scrapers, at an address of loopback. A socket that was meant for us and is of no use is a fault
of the unit, and told as one before anything else is begun: to serve at a socket of our own instead
would look well, and nobody would find it. What has other names is somebody's mistake that harms
nobody.

**They stay the manager's.** The path, its mode, its group and its end are the socket unit's:
nothing here, nor anywhere else, locks, changes or removes them. Who waits in the queue while the
daemon is started again is answered by the next one.

The variables are removed once read, so that no child takes them for its own.
"""

import ipaddress
import os
import socket
import stat
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple

from discoveryd.core.text import printable, quoted
from discoveryd.daemon.errors import StartError
from discoveryd.daemon.socket.listening import refuse_descriptors

FIRST_DESCRIPTOR = 3
NAME = "varlink"
HTTP_NAME = "http"

_VARIABLES = ("LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES")
_EVERYBODY = 0o666


class Passed(NamedTuple):
    """The sockets to serve, listening and non-blocking; they are the caller's to close.

    `path` is the first one's, None where there are no sockets, and `mode` what their modes allow
    together. `http` are those to answer HTTP at, which may be Unix sockets or TCP ones of loopback.
    `warnings` are sentences for people.
    """

    sockets: tuple[socket.socket, ...] = ()
    path: str | None = None
    mode: int = 0
    warnings: tuple[str, ...] = ()
    http: tuple[socket.socket, ...] = ()


NOTHING = Passed()


def passed(environ: MutableMapping[str, str], first: int = FIRST_DESCRIPTOR) -> Passed:
    """Take the sockets that were passed to this process, and remove the variables that tell of it.

    To be called once, before anything is opened: descriptors from `first` on are taken or closed.
    Raises StartError where what was passed cannot be served.
    """
    pid, pidfd, count, names = (environ.pop(name, "") for name in _VARIABLES)
    if not pid:
        return Passed()
    if pid != str(os.getpid()) or (pidfd and not _is_own(pidfd)):
        warning = (
            f"sockets were passed to the process {printable(pid)}, and this is {os.getpid()}:"
            " they are not used. Whoever starts the daemon for a unit must become it (exec)"
        )
        return Passed(warnings=(warning,))
    if not count.isdecimal():
        raise StartError(f"LISTEN_FDS is {quoted(count)}, and not how many sockets were passed")
    descriptors = range(first, first + int(count))
    if not descriptors:
        return Passed()
    named = names.split(":") if names else [""] * len(descriptors)
    if len(named) != len(descriptors):
        raise StartError(
            f"LISTEN_FDNAMES has {len(named)} names, and {len(descriptors)} sockets were passed"
        )
    for descriptor in descriptors:
        _keep_from_children(descriptor)
    if NAME not in named:
        raise StartError(
            f"none of the sockets that were passed in is named {NAME} (but"
            f" {', '.join(map(quoted, named))}): put FileDescriptorName={NAME} into the socket unit"
        )
    pairs = list(zip(descriptors, named, strict=True))
    sockets = _all_checked([(fd, name) for fd, name in pairs if name in _CHECKS])
    others = [(fd, name) for fd, name in pairs if name not in _CHECKS]
    for descriptor, _ in others:
        os.close(descriptor)
    own = [listening for listening, name in sockets if name == NAME]
    mode = 0
    for listening in own:
        mode |= _mode(listening.getsockname())
    return Passed(
        sockets=tuple(own),
        path=own[0].getsockname(),
        mode=mode,
        warnings=tuple(
            f"the socket passed in as descriptor {fd} is named {quoted(name)}, not {NAME}: closed"
            for fd, name in others
        ),
        http=tuple(listening for listening, name in sockets if name == HTTP_NAME),
    )


def _is_own(pidfd_id: str) -> bool:
    """Whether this is the number of this process's pidfds, or the kernel cannot tell."""
    own = os.pidfd_open(os.getpid())
    anything = os.eventfd(0)
    try:
        told, common = os.fstat(own), os.fstat(anything)
    except OSError:
        return True
    finally:
        os.close(own)
        os.close(anything)
    nameless = (told.st_dev, told.st_ino) == (common.st_dev, common.st_ino)
    return nameless or pidfd_id == str(told.st_ino)


def _keep_from_children(descriptor: int) -> None:
    try:
        os.set_inheritable(descriptor, False)
    except OSError as error:
        raise StartError(
            f"the descriptor {descriptor}, which LISTEN_FDS speaks of, cannot be used:"
            f" {error.strerror}"
        ) from None


def _all_checked(named: Sequence[tuple[int, str]]) -> list[tuple[socket.socket, str]]:
    """Return the sockets with their names. Raises StartError, and keeps none open then."""
    checked: list[tuple[socket.socket, str]] = []
    try:
        for descriptor, name in named:
            checked.append((_CHECKS[name](descriptor), name))  # those before a bad one are closed
    except StartError:
        for listening, _ in checked:
            listening.close()
        raise
    return checked


def _checked(descriptor: int) -> socket.socket:
    """Return the socket. Raises StartError, and says what the unit should say."""
    wanted = "the path of a Unix socket"
    listening = _opened(descriptor, wanted)
    if listening.family != socket.AF_UNIX:
        raise _unfit(listening, descriptor, "is no Unix socket", wanted)
    _check_fit(listening, descriptor, wanted)
    refuse_descriptors(listening)
    return listening


def _checked_for_http(descriptor: int) -> socket.socket:
    """Return the socket. Raises StartError likewise."""
    wanted = "a path, or an address of loopback such as 127.0.0.1:9475"
    listening = _opened(descriptor, wanted)
    if listening.family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        raise _unfit(listening, descriptor, "is neither a Unix socket nor one of TCP", wanted)
    _check_fit(listening, descriptor, wanted)
    if listening.family != socket.AF_UNIX:
        address = str(listening.getsockname()[0])
        if not ipaddress.ip_address(address).is_loopback:
            raise _unfit(listening, descriptor, f"listens at {address} for other hosts", wanted)
    return listening


_CHECKS = {NAME: _checked, HTTP_NAME: _checked_for_http}
"""What a socket of each name has to pass."""


def _opened(descriptor: int, wanted: str) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise _fault(descriptor, f"is no socket ({error.strerror})", wanted) from None


def _check_fit(listening: socket.socket, descriptor: int, wanted: str) -> None:
    """See that peers can be accepted there and find it, without blocking. Raises StartError."""
    if listening.type != socket.SOCK_STREAM:
        raise _unfit(listening, descriptor, "is no stream socket", wanted)
    if not listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise _unfit(listening, descriptor, "does not listen", wanted)
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX and not (isinstance(name, str) and name.startswith("/")):
        raise _unfit(listening, descriptor, "has no path in the file system", wanted)
    listening.setblocking(False)


def _unfit(listening: socket.socket, descriptor: int, fault: str, wanted: str) -> StartError:
    """Close the socket, and say why nobody can be accepted there."""
    listening.close()
    return _fault(descriptor, fault, wanted)


def _fault(descriptor: int, fault: str, wanted: str) -> StartError:
    return StartError(
        f"the socket passed in as descriptor {descriptor} {fault}: let the socket unit say"
        f" ListenStream= with {wanted}, and Accept=no"
    )


def _mode(path: str) -> int:
    """Return the socket's mode; where it cannot be seen, anybody may be able to connect."""
    try:
        return stat.S_IMODE(Path(path).stat().st_mode)
    except OSError:
        return _EVERYBODY
