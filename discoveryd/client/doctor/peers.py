"""The daemon's process, seen from outside: where it lives, what it sees, what it may open.

Theory
======

**Which process.** A socket says who made it listen. That is the daemon, or systemd where it passed
the socket in; then the unit knows the process (`units.py`). In another PID namespace than ours it
has no number here.

**What it sees.** Two processes in different mount namespaces may mean different directories by one
path: a service with PrivateTmp=, a container. /proc/PID/root leads through the other's eyes; only
root and, mostly, the same user may look.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from discoveryd.client.doctor.access import Person
from discoveryd.client.doctor.findings import Finding, note, ok, word, wrong
from discoveryd.client.doctor.units import drop_in
from discoveryd.client.workers.publishing import shown, user

_NAMESPACES = ("mnt", "pid", "user")
_SCARCE = 0.9
"""The share of descriptors from which on they are scarce."""

_CONTAINERS = "see discoveryctl help containers: directories, urls and liveness differ there"

Place = tuple[int, int]
"""What tells one directory from all others: device and inode number."""


class Sight(NamedTuple):
    """What is seen of the daemon's process. `reader` is its user, with its groups.

    `foreign` names the namespaces that are other ones than ours, None where that may not be seen.
    `places` holds for each directory what is there for us and for the daemon; None is nothing.
    `limit` is how many descriptors it may have, `descriptors` how many are open; None is not seen.
    `stopped` is whether a signal or a debugger has stopped it.
    """

    pid: int
    reader: Person
    foreign: tuple[str, ...] | None
    places: tuple[tuple[str, Place | None, Place | None], ...] | None
    limit: int | None
    descriptors: int | None
    stopped: bool = False


def look_at_process(pid: int, directories: Sequence[str]) -> Sight:
    """Look at the process `pid`, and at the directories as it sees them. Raises OSError.

    May hang with the file system of a directory.
    """
    told = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    fields = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
    uid, gid = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
    gids = frozenset((gid, *map(int, fields["Groups"].split())))
    foreign: tuple[str, ...] | None = None
    places: tuple[tuple[str, Place | None, Place | None], ...] | None = None
    descriptors: int | None = None
    with suppress(PermissionError):
        foreign = tuple(
            kind
            for kind in _NAMESPACES
            if os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115 - no path
        )
        places = tuple((path, *_places(pid, path)) for path in directories)
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only how many
    reader = Person(uid, user(uid), gids, gids)
    stopped = fields["State"].split()[0] in {"T", "t"}
    return Sight(pid, reader, foreign, places, _limit(pid), descriptors, stopped)


def _places(pid: int, path: str) -> tuple[Place | None, Place | None]:
    """Return what is there for us, and for the process.

    Absolute links would lead back to our own root, so the path goes there without any.
    """
    real = os.path.realpath(path)
    return _place(real), _place(f"/proc/{pid}/root{real}")


def _place(path: str) -> Place | None:
    try:
        found = Path(path).stat()
    except PermissionError:
        raise
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _limit(pid: int) -> int | None:
    """Return how many descriptors the process may have; None where it is not bounded or seen."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines():
            if line.startswith("Max open files"):
                return int(line.removeprefix("Max open files").split()[0])
    return None


def judge_process(sight: Sight, person: Person, socket: str) -> list[Finding]:
    """Return what is found of the process of the daemon that answers at `socket`."""
    what = f"the daemon's process {sight.pid}, of {sight.reader.name}"
    findings: list[Finding] = []
    if sight.stopped:
        stopped = "it is stopped, by SIGSTOP or a debugger, and answers nobody; let it go on:"
        findings.append(wrong(what, stopped, f"sudo kill -CONT {sight.pid}"))
    if sight.foreign is None or sight.places is None:
        seen = note(
            what,
            f"{person.name} may not see whether it sees the same directories",
            f"sudo discoveryctl doctor --socket {word(socket)}",
        )
        return [*findings, seen, *_judge_descriptors(sight)]
    differing = [place for place in sight.places if place[1] != place[2]]
    if "mnt" not in sight.foreign:
        findings.append(ok(what, "it sees the same file systems as you"))
    elif not differing:
        findings.append(ok(what, "it sees the same drop directories as you"))
    if "mnt" in sight.foreign:
        findings += [_judge_place(*place) for place in differing]
    if "pid" in sight.foreign:
        findings.append(
            note(
                what,
                "it is in another PID namespace: a process has another number there, or none",
                'let cards say "liveness": {"held": true} instead of pid',
            )
        )
    if "user" in sight.foreign:
        findings.append(
            note(
                what,
                "it is in another user namespace, so users that are not mapped look alike to it",
                _CONTAINERS,
            )
        )
    return [*findings, *_judge_descriptors(sight)]


def _judge_place(path: str, ours: Place | None, theirs: Place | None) -> Finding:
    what = f"drop directory {shown(path)}"
    temporary = path.startswith(("/tmp/", "/var/tmp/"))  # noqa: S108  # as PrivateTmp= has them
    if theirs is None:
        why = "the daemon sees none there, though you do"
    elif ours is None:
        why = "you see none there, though the daemon does"
    else:
        why = "the daemon sees another directory there than you do"
    return wrong(
        what,
        f"{why}: it runs with file systems of its own (PrivateTmp=, or a container)",
        "choose a directory elsewhere (--cards), or let the service see it:",
        *(drop_in("PrivateTmp", "no") if temporary else drop_in("BindPaths", shown(path))),
        "or, in a container, mount it at the same path:",
        f"docker run -v {word(path)}:{word(path)}:z ...",
    )


def _judge_descriptors(sight: Sight) -> list[Finding]:
    if sight.limit is None or sight.descriptors is None:
        return []
    what = f"{sight.descriptors} of {sight.limit} descriptors are open in the daemon"
    if sight.descriptors < _SCARCE * sight.limit:
        return [ok(what)]
    return [
        wrong(
            what,
            "soon nobody else can connect",
            *drop_in("LimitNOFILE", str(2 * sight.limit)),
        )
    ]
