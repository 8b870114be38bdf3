"""The sockets where a daemon may be: which ones a client tries, and why each does not answer."""

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from socket import SO_PEERCRED, SOL_SOCKET
from struct import Struct
from typing import NamedTuple

from discoveryd.client.asking import calls
from discoveryd.client.asking.locate import Candidate, candidates, connect
from discoveryd.client.asking.wire import Wire
from discoveryd.client.doctor.access import (
    ENTER,
    WRITE,
    Entry,
    Person,
    Refusal,
    above,
    entry_at,
    first_refusal,
)
from discoveryd.client.doctor.findings import Finding, note, ok, word, wrong
from discoveryd.client.errors import DiscoverydError, NoDaemon
from discoveryd.client.workers.publishing import shown, user
from discoveryd.core.places import SYSTEM_PLACE
from discoveryd.interface import Status

_CREDENTIALS = Struct("3i")
_MOUNTS = "/proc/self/mountinfo"


class Peer(NamedTuple):
    """Who made a socket listen, as the kernel says: the daemon, or systemd in its stead.

    `pid` is 0 where that process cannot be seen from here.
    """

    pid: int
    uid: int
    gid: int


class Sight(NamedTuple):
    """One socket that was tried: why it would not do, or who answered there and what.

    `directories` lead to it, as far as they can be seen; `entry` is itself. `alone` says that it
    was mounted by itself, not with its directory.
    """

    candidate: Candidate
    problem: str | None
    entry: Entry | None = None
    directories: tuple[Entry, ...] = ()
    alone: bool = False
    peer: Peer | None = None
    status: Status | None = None
    fault: str | None = None


def look_at_sockets(
    named: str | None, environ: Mapping[str, str], timeout: float
) -> tuple[Sight, ...]:
    """Try the sockets as every client does, up to the first that accepts; ask that one how it is.

    Connecting and asking may take `timeout` seconds each.
    """
    sights: list[Sight] = []
    for candidate in candidates(named, environ, os.getuid()):
        sights.append(_look(candidate, timeout))
        if sights[-1].problem is None:
            break
    return tuple(sights)


def _look(candidate: Candidate, timeout: float) -> Sight:
    path = os.path.abspath(candidate.path)  # noqa: PTH100 - links in it stay as they are
    entry: Entry | None = None
    with suppress(OSError, ValueError):
        entry = entry_at(path)
    sight = Sight(candidate, None, entry, tuple(above(path)), _is_mounted(path))
    try:
        connection, _ = connect((candidate,), timeout)
    except NoDaemon as missing:
        return sight._replace(problem=missing.tried[0].problem)
    except DiscoverydError as fault:
        return sight._replace(fault=str(fault))
    peer = Peer(*_CREDENTIALS.unpack(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)))
    sight = sight._replace(peer=peer)
    call = calls.status()
    deadline = time.monotonic() + timeout
    with Wire(connection, candidate.path) as wire:
        try:
            wire.send(call, deadline)
            return sight._replace(status=call.method.read(wire.receive(deadline)))
        except DiscoverydError as fault:
            return sight._replace(fault=str(fault))


def answering(sights: Sequence[Sight]) -> Sight | None:
    """Return the one that accepted, if any did."""
    return next((sight for sight in sights if sight.problem is None), None)


def judge_sockets(sights: Sequence[Sight], person: Person) -> list[Finding]:
    """Return what is found of the sockets: where the daemon is, or why there is none to be had."""
    found = answering(sights)
    findings = [_judge(sight, person, found=found is not None) for sight in sights]
    if found is None and not any(finding.level == "wrong" for finding in findings):
        findings.append(wrong("no daemon answers", "", *_how_to_start(sights[-1].candidate)))
    if found is not None and found.alone:
        directory = os.path.dirname(found.candidate.path)  # noqa: PTH120 - kept as it was named
        findings.append(
            wrong(
                f"{shown(found.candidate.path)} is mounted by itself",
                "when the daemon starts again it makes another, and this one is dead",
                "mount its directory instead:",
                f"docker run -v {word(directory)}:{word(directory)}:z ...",
            )
        )
    return findings


def _judge(sight: Sight, person: Person, *, found: bool) -> Finding:
    path, origin, _ = sight.candidate
    what = f"{shown(path)} ({origin})"
    if sight.fault is not None:
        return wrong(
            what,
            f"it accepts, but {sight.fault}",
            "see what it does, or whether another program listens there:",
            f"sudo ss -xlp src {word(path)}",
        )
    if sight.problem is None:
        return ok(what, "a daemon answers")
    problem = sight.problem
    if sight.entry is not None and stat.S_ISSOCK(sight.entry.mode) and "nobody" in problem:
        problem = "nobody listens there, so its daemon was killed or hangs at its start"
    refused = first_refusal(person, _way(sight))
    if problem.startswith("not to be trusted"):
        return wrong(
            what,
            problem,
            "if it is yours, close it; else see whose it is, and set XDG_RUNTIME_DIR or TMPDIR:",
            f"chmod 0700 {word(os.path.dirname(path))}",  # noqa: PTH120 - kept as it was named
        )
    if "permission denied" in problem and refused is not None:
        say = note if found else wrong
        return say(what, f"you may not connect: {refused.why}", *_how_to_get_in(sight, refused))
    if found or sight.entry is None:
        return note(what, problem)
    return wrong(what, problem, *_how_to_start(sight.candidate))


def _way(sight: Sight) -> Iterator[tuple[Entry, int]]:
    for directory in sight.directories:
        yield directory, ENTER
    if sight.entry is not None:
        yield sight.entry, WRITE


def _how_to_get_in(sight: Sight, refused: Refusal) -> tuple[str, ...]:
    """Return what lets somebody connect. A socket is made anew, so only its mode's maker can."""
    if refused.entry != sight.entry or refused.group is not None:
        return refused.remedy
    owner = user(refused.entry.uid)
    return (
        'let the operator set socket_mode = "0666", or socket_group, in the configuration, and',
        "restart the daemon; or ask as its user:",
        f"sudo -u {owner} discoveryctl doctor --socket {word(sight.candidate.path)}",
    )


def _how_to_start(candidate: Candidate) -> tuple[str, ...]:
    service = "sudo systemctl enable --now discoveryd.socket discoveryd.service"
    if candidate.path == SYSTEM_PLACE.socket:
        return ("start one, as a service or by hand:", service, "discoveryd serve")
    return (
        "start one there, or name another with --socket or DISCOVERYD_SOCKET:",
        f"discoveryd serve --socket {word(candidate.path)}",
    )


def _is_mounted(path: str) -> bool:
    """Whether the path itself, not a directory above it, is where something is mounted."""
    try:
        with open(_MOUNTS, "rb") as mounts:  # noqa: PTH123 - lines are read as they come
            points = {line.split(b" ")[4] for line in mounts if line.count(b" ") > 4}  # noqa: PLR2004 - the fifth field
    except OSError:
        return False
    wanted = os.fsencode(os.path.realpath(path)).replace(b"\\", b"\\134").replace(b" ", b"\\040")
    return wanted in points
