"""Listening sockets that were passed in: found, checked, and told apart from everybody else's.

Theory
======

**Whose they are.** Descriptors from 3 on are ours if LISTEN_PID is this process. The variables are
inherited by whoever is started with them, so that alone makes them mean anything; a number may have
been another process's before, so LISTEN_PIDFDID, the inode of a pidfd, says it for ever where the
kernel gives every process an inode of its own. Where it does not (before Linux 6.9), all pidfds
share one with all other descriptors that have no file, and nothing can be told by it.

**What they are for.** The name `varlink` (FileDescriptorName=, as UAPI.20 asks) says that calls of
the interface are to be answered there. A socket that was meant for us and is of no use is a fault
of the unit, and told as one before anything else is begun: to serve at a socket of our own instead
would look well, and nobody would find it. What has other names is somebody's mistake that harms
nobody.

**They stay the manager's.** The path, its mode, its group and its end are the socket unit's:
nothing here, nor anywhere else, locks, changes or removes them. Who waits in the queue while the
daemon is started again is answered by the next one.

The variables are removed once read, so that no child takes them for its own.
"""

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

_VARIABLES = ("LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES")
_EVERYBODY = 0o666


class Passed(NamedTuple):
    """The sockets to serve, listening and non-blocking; they are the caller's to close.

    `path` is the first one's, None where there are no sockets, and `mode` what their modes allow
    together. `warnings` are sentences for people.
    """

    sockets: tuple[socket.socket, ...] = ()
    path: str | None = None
    mode: int = 0
    warnings: tuple[str, ...] = ()


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
    chosen = [fd for fd, name in zip(descriptors, named, strict=True) if name == NAME]
    if not chosen:
        raise StartError(
            f"none of the sockets that were passed in is named {NAME} (but"
            f" {', '.join(map(quoted, named))}): put FileDescriptorName={NAME} into the socket unit"
        )
    sockets = _all_checked(chosen)
    others = [(fd, name) for fd, name in zip(descriptors, named, strict=True) if name != NAME]
    for descriptor, _ in others:
        os.close(descriptor)
    mode = 0
    for _, path in sockets:
        mode |= _mode(path)
    return Passed(
        sockets=tuple(each for each, _ in sockets),
        path=sockets[0][1],
        mode=mode,
        warnings=tuple(
            f"the socket passed in as descriptor {fd} is named {quoted(name)}, not {NAME}: closed"
            for fd, name in others
        ),
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


def _all_checked(descriptors: Sequence[int]) -> list[tuple[socket.socket, str]]:
    """Return the sockets and their paths. Raises StartError, and keeps none open then."""
    checked: list[tuple[socket.socket, str]] = []
    try:
        for descriptor in descriptors:
            checked.append(_checked(descriptor))  # noqa: PERF401  # those before a bad one are closed
    except StartError:
        for listening, _ in checked:
            listening.close()
        raise
    return checked


def _checked(descriptor: int) -> tuple[socket.socket, str]:
    """Return the socket and its path. Raises StartError, and says what the unit should say."""
    try:
        listening = socket.socket(fileno=descriptor)
    except OSError as error:
        raise _unfit(descriptor, f"is no socket ({error.strerror})") from None
    fault = _fault(listening)
    path = "" if fault else listening.getsockname()
    if not fault and not (isinstance(path, str) and path.startswith("/")):
        fault = "has no path in the file system"
    if fault:
        listening.close()
        raise _unfit(descriptor, fault)
    listening.setblocking(False)
    refuse_descriptors(listening)
    return listening, path


def _unfit(descriptor: int, fault: str) -> StartError:
    return StartError(
        f"the socket passed in as descriptor {descriptor} {fault}: let the socket unit say"
        " ListenStream= with the path of a Unix socket, and Accept=no"
    )


def _fault(passed_in: socket.socket) -> str | None:
    """Say why nobody can be accepted there."""
    if passed_in.family != socket.AF_UNIX:
        return "is no Unix socket"
    if passed_in.type != socket.SOCK_STREAM:
        return "is no stream socket"
    if not passed_in.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "does not listen"
    return None


def _mode(path: str) -> int:
    """Return the socket's mode; where it cannot be seen, anybody may be able to connect."""
    try:
        return stat.S_IMODE(Path(path).stat().st_mode)
    except OSError:
        return _EVERYBODY
