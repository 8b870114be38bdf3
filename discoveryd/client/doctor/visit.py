"""The visit: everything that is looked at, in which order, and what each look is judged by.

First who asks and where the daemon is, since everything else depends on them; then all the rest at
once. What is told comes in one order, whatever was seen first: sockets, the daemon, its process,
directories, ledger, limits, units, containers.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from discoveryd.client.doctor.access import Person, look_at_person
from discoveryd.client.doctor.answers import judge_status
from discoveryd.client.doctor.containers import judge_container, look_for_container
from discoveryd.client.doctor.directories import judge_directory, look_at_directory
from discoveryd.client.doctor.findings import Finding, note
from discoveryd.client.doctor.inotify import judge_inotify, look_at_inotify
from discoveryd.client.doctor.ledgers import judge_ledger, look_at_ledger
from discoveryd.client.doctor.looking import Look, Patience
from discoveryd.client.doctor.peers import Sight as ProcessSight
from discoveryd.client.doctor.peers import judge_process, look_at_process
from discoveryd.client.doctor.sockets import Sight as SocketSight
from discoveryd.client.doctor.sockets import answering, judge_sockets, look_at_sockets
from discoveryd.client.doctor.units import Units, judge_units, look_at_units
from discoveryd.client.workers.publishing import (
    ENVIRONMENT,
    DropDirectory,
    drop_directories,
    shown,
    user,
)
from discoveryd.core.places import CARDS_NAME

LOOK_SECONDS = 5.0
"""How long a look may take; several at once take no longer together."""


def examine(named: str | None, environ: Mapping[str, str], timeout: float) -> list[Finding]:
    """Return everything that is found, for the daemon at the socket `named` or at the default ones.

    The daemon may take `timeout` seconds to accept, and as many to answer. Raises nothing that the
    host is to blame for, and writes nothing.
    """
    findings: list[Finding] = []
    who = Look("this user", look_at_person)
    where = Look("the sockets", lambda: look_at_sockets(named, environ, timeout), late="wrong")
    units = _begin_units()
    person = who.seen(LOOK_SECONDS, findings) or _nameless()
    sights = where.seen(4 * timeout + LOOK_SECONDS, findings) or ()
    patience = Patience(LOOK_SECONDS)
    known = [each for look in units if (each := look.seen(patience.left, findings)) is not None]
    found = answering(sights)
    if sights:
        findings += judge_sockets(sights, person)
    if found is not None and found.status is not None:
        findings += judge_status(found.status)
    findings += _examine_places(sights, found, person, environ, known)
    for each in known:
        findings += judge_units(each)
    findings += judge_container(look_for_container(environ), found=found is not None)
    return findings


def _begin_units() -> list[Look[Units | None]]:
    """Begin to ask the host's systemd, and the user's where that is another."""
    whose = (False,) if os.geteuid() == 0 else (False, True)
    return [
        Look("systemd's units", partial(look_at_units, of_user=each, seconds=LOOK_SECONDS))
        for each in whose
    ]


def _nameless() -> Person:
    """Return who this is, where no directory of users answers."""
    gids = frozenset((os.getegid(), *os.getgroups()))
    return Person(os.geteuid(), str(os.geteuid()), gids, gids)


def _examine_places(
    sights: Sequence[SocketSight],
    found: SocketSight | None,
    person: Person,
    environ: Mapping[str, str],
    units: Sequence[Units],
) -> list[Finding]:
    """Return what is found of the daemon's process, its directories, its ledger and its limits."""
    findings: list[Finding] = []
    where = Look("the drop directories", lambda: _directories(sights, found, environ))
    places = where.seen(LOOK_SECONDS, findings) or []
    patience = Patience(LOOK_SECONDS)
    process = _begin_process(found, units, findings)
    directories = [
        Look(
            f"drop directory {shown(place.path)}",
            partial(look_at_directory, place.path, person.uid),
            late="wrong",
        )
        for place in places
    ]
    ledger = (
        None if found is None else Look("the ledger", partial(look_at_ledger, found.candidate.path))
    )
    seen = None if process is None else process.seen(patience.left, findings)
    if seen is not None and found is not None:
        findings += judge_process(seen, person, found.candidate.path)
    reader = _reader(found, seen)
    limits = Look("inotify", partial(look_at_inotify, person.uid if reader is None else reader.uid))
    for place, look in zip(places, directories, strict=True):
        sight = look.seen(patience.left, findings)
        if sight is not None:
            followed = found is not None and found.status is not None
            findings += judge_directory(sight, person, reader, followed=followed)
            if followed and place.display is None:
                findings.append(_not_followed(place.path))
    failures = len(findings)
    if ledger is not None:
        ledger_sight = ledger.seen(patience.left, findings)
        if len(findings) == failures:
            findings += judge_ledger(ledger_sight, reader)
    limit = limits.seen(LOOK_SECONDS, findings)
    return findings if limit is None else [*findings, *judge_inotify(limit)]


def _directories(
    sights: Sequence[SocketSight], found: SocketSight | None, environ: Mapping[str, str]
) -> list[DropDirectory]:
    """Return the directories where cards go; without a daemon those of the default places."""
    if found is not None and found.status is not None:
        return drop_directories(found.status, environ)
    named = [place for place in environ.get(ENVIRONMENT, "").split(os.pathsep) if place]
    beside = [str(Path(sight.candidate.path).parent / CARDS_NAME) for sight in sights]
    return [DropDirectory(str(Path(place).absolute()), None) for place in named or beside]


def _begin_process(
    found: SocketSight | None, units: Sequence[Units], findings: list[Finding]
) -> Look[ProcessSight] | None:
    """Begin to look at the daemon's process; None where it has no number here."""
    if found is None or found.peer is None:
        return None
    pid = found.peer.pid
    if pid == 0:
        findings.append(
            note(
                "the daemon's process",
                "it is in another PID namespace, so in a container, or we are; the number of a "
                "process says nothing there",
                'let cards say "liveness": {"held": true} instead of pid',
            )
        )
        return None
    if _is_systemd(pid):
        of_user = found.peer.uid != 0
        pid = next((each.main_pid for each in units if each.of_user == of_user), 0)
    if pid == 0:
        return None
    status = found.status
    paths = [] if status is None else [place.path for place in drop_directories(status, {})]
    return Look("the daemon's process", partial(look_at_process, pid, paths))


def _is_systemd(pid: int) -> bool:
    """Whether the process is systemd, which made the socket for the daemon."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return name.rstrip() in ("systemd", "init")


def _reader(found: SocketSight | None, process: ProcessSight | None) -> Person | None:
    """Return the daemon's user; None where he is not known."""
    if process is not None:
        return process.reader
    if found is None or found.peer is None or _is_systemd(found.peer.pid) or found.peer.pid == 0:
        return None
    peer = found.peer
    return Person(peer.uid, user(peer.uid), frozenset((peer.gid,)), frozenset((peer.gid,)))


def _not_followed(path: str) -> Finding:
    return note(
        f"drop directory {shown(path)}",
        f"{ENVIRONMENT} names it, and the daemon watches none of that path: right only in a "
        "container, where it is mounted from one that the daemon does watch",
        "see which those are:",
        "discoveryctl status",
    )
