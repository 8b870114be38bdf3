"""The drop directories: whether this user can put cards there, the daemon read them, clocks agree.

Nothing is written into them: the kernel is asked what it would allow, and files that lie there tell
what writers really do.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from discoveryd.client.doctor.access import ENTER, READ, WRITE, Entry, Person, entry_at, refusal
from discoveryd.client.doctor.findings import Finding, note, ok, word, wrong
from discoveryd.client.workers.publishing import shown, user

SKEW_SECONDS = 2.0
"""How far in the future an mtime may lie: some file systems keep time in steps of that length."""

_MOST_NAMES = 5
"""Files that are named one by one."""

_STICKY, _SETGID = stat.S_ISVTX, stat.S_ISGID
_EVERYBODY_WRITES, _OTHERS_READ, _GROUP_WRITES = stat.S_IWOTH, stat.S_IROTH, stat.S_IWGRP


class Sight(NamedTuple):
    """One drop directory as this user sees it. `fault` says why it cannot be looked at.

    `own` are the card files of this user. `ahead` holds names whose mtime lies in the future, with
    by how many seconds; the directory's own name is the empty one.
    """

    path: str
    entry: Entry | None = None
    fault: str | None = None
    absent: bool = False
    writable: bool = False
    read_only: bool = False
    cards: int = 0
    own: tuple[Entry, ...] = ()
    ahead: tuple[tuple[str, float], ...] = ()


def look_at_directory(path: str, uid: int) -> Sight:
    """Look at a directory and at the files in it. May hang with its file system."""
    try:
        entry = entry_at(path)
    except OSError as fault:
        why = (fault.strerror or str(fault)).lower()
        return Sight(path, fault=why, absent=isinstance(fault, FileNotFoundError))
    if not entry.is_directory:
        return Sight(path, entry)
    writable = os.access(path, os.W_OK | os.X_OK, effective_ids=True)
    read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    sight = Sight(path, entry, writable=writable, read_only=read_only)
    try:
        return _look_inside(sight, uid)
    except OSError as fault:
        return sight._replace(fault=(fault.strerror or str(fault)).lower())


def _look_inside(sight: Sight, uid: int) -> Sight:
    now = time.time()
    ahead = [("", os.stat(sight.path).st_mtime - now)]  # noqa: PTH116 - as the entries below
    own: list[Entry] = []
    cards = 0
    with os.scandir(sight.path) as entries:
        for each in entries:
            if not each.name.endswith(".json") or each.name.startswith("."):
                continue
            with suppress(FileNotFoundError):
                found = each.stat()
                cards += 1
                ahead.append((each.name, found.st_mtime - now))
                if found.st_uid == uid:
                    own.append(Entry(each.path, found.st_mode, found.st_uid, found.st_gid))
    late = tuple((name, seconds) for name, seconds in ahead if seconds > SKEW_SECONDS)
    return sight._replace(cards=cards, own=tuple(own), ahead=late)


def judge_directory(
    sight: Sight, person: Person, reader: Person | None, *, followed: bool
) -> list[Finding]:
    """Return what is found of a drop directory.

    `reader` is the daemon's user, None where he is not known. `followed`: a daemon watches it, and
    says itself what is wrong with the directory as such.
    """
    what = f"drop directory {shown(sight.path)}"
    if sight.absent:
        return [_absent(what, followed=followed)]
    if sight.entry is None:
        return [note(what, f"it cannot be looked at from here: {sight.fault}")]
    if not sight.entry.is_directory:
        return [wrong(what, "it is no directory", f"ls -ld {word(sight.path)}")]
    findings = [_judge_writing(what, sight, sight.entry, person)]
    findings += _judge_sharing(what, sight.entry, followed=followed)
    if sight.fault is not None:
        findings.append(note(what, f"you cannot list it: {sight.fault}"))
    if reader is not None and reader.uid not in (0, person.uid):
        findings += _judge_reading(what, sight, person, reader)
    if sight.ahead:
        findings.append(_judge_clock(what, sight))
    return findings


def _absent(what: str, *, followed: bool) -> Finding:
    if followed:
        return wrong(
            what,
            "it is not there for you",
            "if that is a container: mount it at the same path, or say where it is:",
            "export DISCOVERYD_CARDS=DIRECTORY",
        )
    return note(what, "it is not there; the daemon makes its default one when it starts")


def _judge_writing(what: str, sight: Sight, entry: Entry, person: Person) -> Finding:
    if sight.writable:
        return ok(what, f"you can put cards there; {sight.cards} are there, {len(sight.own)} yours")
    if sight.read_only:
        return wrong(what, "it is mounted read-only", f"findmnt --target {word(sight.path)}")
    refused = refusal(person, entry, WRITE | ENTER)
    if refused is None:
        return note(what, "you cannot put cards there, for a reason that its mode does not tell")
    say = wrong if refused.listed else note
    return say(what, f"you cannot put cards there: {refused.why}", *refused.remedy)


def _judge_sharing(what: str, entry: Entry, *, followed: bool) -> Iterator[Finding]:
    """Yield what of the mode lets users into each other's way."""
    mode, path = entry.mode, word(entry.path)
    if mode & _EVERYBODY_WRITES and not mode & _STICKY and not followed:
        yield wrong(
            what,
            "everybody can remove or replace everybody's cards",
            f"sudo chmod +t {path}",
        )
    if mode & _GROUP_WRITES and not mode & (_OTHERS_READ | _SETGID):
        yield note(
            what,
            "cards do not get its group (setgid), so others of the group may not read them",
            f"sudo chmod g+s {path}",
        )


def _judge_reading(what: str, sight: Sight, person: Person, reader: Person) -> Iterator[Finding]:
    """Yield which of this user's cards the daemon's user cannot read, or will not."""
    closed = [entry for entry in sight.own if not reader.may(entry, READ)]
    if closed:
        named = [f"chmod 0644 {word(entry.path)}" for entry in closed[:_MOST_NAMES]]
        more = len(closed) - len(named)
        yield wrong(
            what,
            f"the daemon's user {reader.name} cannot read {len(closed)} of your cards",
            *named,
            *([f"and {more} more"] if more else []),
        )
    if not closed and sight.writable and person.umask is not None and person.umask & _OTHERS_READ:
        yield note(
            what,
            f"with your umask, {person.umask:04o}, the daemon's user {user(reader.uid)} cannot "
            "read the cards that you write by hand",
            "let discoveryctl write them, which gives them mode 0644:",
            "discoveryctl publish FILE",
        )


def _judge_clock(what: str, sight: Sight) -> Finding:
    """Say which mtimes lie in the future: a clock is wrong, here or where the file system is."""
    most = max(seconds for _, seconds in sight.ahead)
    files = [name for name, _ in sight.ahead if name]
    subject = f"{len(files)} of its cards" if files else "the directory itself"
    touched = [f"touch {word(f'{sight.path}/{name}')}" for name in files[:_MOST_NAMES]]
    return note(
        what,
        f"the mtime of {subject} lies up to {most:.0f} s in the future: a clock differs, of this "
        "host, of the file system's or of who wrote it. Leases do not suffer",
        "compare them, and when they agree touch what is ahead:",
        "date; timedatectl timesync-status",
        *touched,
    )
