"""The kernel's limits of inotify, by which changes are noticed as they happen.

They count by user: instances and watches of all his processes together, which only he and root may
count.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from discoveryd.client.doctor.findings import Finding, note, ok, wrong
from discoveryd.client.workers.publishing import user

_LIMITS = Path("/proc/sys/fs/inotify")
_NEARLY = 0.9
_LEAST_EVENTS = 16384
"""The kernel's own limit of events that wait to be read; fewer are lost sooner."""

_INSTANCE = "anon_inode:inotify"


class Sight(NamedTuple):
    """The limits, and what the user `uid` uses of them; `seen`: all of that may be counted."""

    uid: int
    seen: bool
    watches: int
    most_watches: int
    instances: int
    most_instances: int
    most_events: int


def look_at_inotify(uid: int) -> Sight:
    """Count what the user `uid` uses. Raises OSError or ValueError where there is no such table."""
    instances = watches = 0
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        # Processes end, and those of others are closed to us.
        with suppress(OSError):
            if process.stat().st_uid != uid:
                continue
            for number in _instances(process):
                instances += 1
                watches += _watches(process / "fdinfo" / number)
    return Sight(
        uid,
        os.geteuid() in (0, uid),
        watches,
        _limit("max_user_watches"),
        instances,
        _limit("max_user_instances"),
        _limit("max_queued_events"),
    )


def _limit(name: str) -> int:
    return int((_LIMITS / name).read_text(encoding="ascii"))


def _instances(process: Path) -> Iterator[str]:
    """Yield the descriptors of a process that are instances of inotify."""
    with os.scandir(process / "fd") as descriptors:
        for each in descriptors:
            with suppress(OSError):
                if os.readlink(each.path) == _INSTANCE:  # noqa: PTH115 - no path
                    yield each.name


def _watches(descriptor: Path) -> int:
    return descriptor.read_bytes().count(b"inotify wd:")


def judge_inotify(sight: Sight) -> list[Finding]:
    """Return what is found of the limits."""
    findings = [
        *_judge_limit(sight, "watches", sight.watches, sight.most_watches),
        *_judge_limit(sight, "instances", sight.instances, sight.most_instances),
    ]
    if sight.most_events < _LEAST_EVENTS:
        findings.append(
            note(
                f"inotify keeps {sight.most_events} events",
                "when many cards change at once some are only found by the next scan",
                *_raise("max_queued_events", _LEAST_EVENTS),
            )
        )
    if not findings and not sight.seen:
        limits = f"{sight.most_instances} instances and {sight.most_watches} watches"
        findings.append(ok(f"inotify: {limits} a user", "only root sees how many are in use"))
    elif not findings:
        used = f"{sight.instances} of {sight.most_instances} instances"
        watched = f"{sight.watches} of {sight.most_watches} watches"
        findings.append(ok(f"inotify: {user(sight.uid)} uses {used}, {watched}"))
    return findings


def _judge_limit(sight: Sight, what: str, used: int, most: int) -> Iterator[Finding]:
    if used < _NEARLY * most:
        return
    remedy = _raise(f"max_user_{what}", 4 * most or 128)
    said = f"inotify: {user(sight.uid)} uses {used} of {most} {what}"
    if used >= most:
        yield wrong(said, "directories can only be scanned now and then, or not watched", *remedy)
    else:
        yield note(said, "when none is left, directories are only scanned now and then", *remedy)


def _raise(name: str, value: int) -> tuple[str, ...]:
    setting = f"fs.inotify.{name}={value}"
    return (
        f"sudo sysctl -w {setting}",
        f"echo {setting} | sudo tee /etc/sysctl.d/60-inotify-{name.replace('_', '-')}.conf",
    )
