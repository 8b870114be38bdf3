"""The ledger's file, where it is by default: whose it is, and what was moved aside.

Whether the daemon can keep it, it says itself. A ledger that is elsewhere (--state), or that this
user may not see, is no fault.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from discoveryd.client.doctor.access import Person
from discoveryd.client.doctor.findings import Finding, note, ok, word, wrong
from discoveryd.client.workers.publishing import shown, user
from discoveryd.core.places import SYSTEM_PLACE

STATE = "/var/lib/discoveryd/ledger"
"""Where systemd's unit keeps it."""


class Sight(NamedTuple):
    """A ledger: its size with its journals in bytes, its owner, and what lies aside of it."""

    path: str
    bytes: int
    uid: int
    broken: tuple[str, ...]


def look_at_ledger(socket: str) -> Sight | None:
    """Return the ledger of the daemon at this socket; None where none can be seen. May hang."""
    path = Path(socket)
    beside = path.parent / f".{path.name}.ledger"
    places = [Path(STATE), beside] if socket == SYSTEM_PLACE.socket else [beside]
    for place in places:
        with suppress(OSError):
            found = place.stat()
            size = found.st_size
            for journal in ("-wal", "-shm"):
                with suppress(OSError):
                    size += Path(f"{place}{journal}").stat().st_size
            aside = sorted(str(each) for each in place.parent.glob(f"{place.name}.broken-*"))
            return Sight(str(place), size, found.st_uid, tuple(aside))
    return None


def judge_ledger(sight: Sight | None, reader: Person | None) -> list[Finding]:
    """Return what is found of the ledger; `reader` is the daemon's user, None if not known."""
    if sight is None:
        return [
            note(
                "no ledger is seen",
                "it is elsewhere (--state), or you may not look where it is",
            )
        ]
    what = f"ledger {shown(sight.path)}"
    findings: list[Finding] = []
    if reader is not None and reader.uid not in (0, sight.uid):
        findings.append(
            wrong(
                what,
                f"it belongs to {user(sight.uid)}, and the daemon runs as {reader.name}",
                f"sudo chown {reader.name} {word(sight.path)}",
                "sudo systemctl restart discoveryd.service",
            )
        )
    else:
        findings.append(ok(what, f"{sight.bytes / 1024:.0f} KiB, of {user(sight.uid)}"))
    findings += [
        note(
            f"{shown(broken)} was moved aside",
            "it was no ledger any more",
            "when you have seen to it:",
            f"sudo rm {word(broken)}",
        )
        for broken in sight.broken
    ]
    return findings
