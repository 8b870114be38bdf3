"""Who asks, and what the modes of files and directories let a user do, and why not.

The kernel's own answer counts where it can be asked (`os.access`); here is the reason behind it, as
far as modes tell it, which know nothing of access control lists.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from discoveryd.client.doctor.findings import word
from discoveryd.client.workers.publishing import shown, user

READ, WRITE, ENTER = 4, 2, 1


class Person(NamedTuple):
    """A user with the groups that count: effective uid, and the gids of this login session.

    `listed` are the gids that a new session of the same user would have; `umask` is None where it
    cannot be seen.
    """

    uid: int
    name: str
    gids: frozenset[int]
    listed: frozenset[int]
    umask: int | None = None

    def may(self, entry: "Entry", wanted: int) -> bool:
        """Whether the mode gives all of the `wanted` bits (READ, WRITE, ENTER) to this user."""
        if self.uid == 0:
            return True
        if entry.uid == self.uid:
            given = entry.mode >> 6
        elif entry.gid in self.gids:
            given = entry.mode >> 3
        else:
            given = entry.mode
        return given & wanted == wanted


class Entry(NamedTuple):
    """What lies at a path: `mode` as in a stat result, with the kind; links are followed."""

    path: str
    mode: int
    uid: int
    gid: int

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    def __str__(self) -> str:
        bits = stat.S_IMODE(self.mode)
        return f"mode {bits:04o} of {user(self.uid)}:{group(self.gid)}"


class Refusal(NamedTuple):
    """Why the mode of an entry refuses somebody, and what to do about it.

    `group` is the one that it would let in, None where there is none; `listed` says that he is in
    it, but not yet in this login session.
    """

    entry: Entry
    why: str
    remedy: tuple[str, ...]
    group: int | None = None
    listed: bool = False


def look_at_person() -> Person:
    """Return who runs this. May wait for a directory service. Raises OSError."""
    uid = os.geteuid()
    gids = frozenset((os.getegid(), *os.getgroups()))
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Person(uid, str(uid), gids, gids, _umask())
    listed = frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Person(uid, entry.pw_name, gids, listed, _umask())


def entry_at(path: str) -> Entry:
    """Return what lies at the path. Raises OSError."""
    found = Path(path).stat()
    return Entry(path, found.st_mode, found.st_uid, found.st_gid)


def above(path: str) -> list[Entry]:
    """Return the directories that lead to the path, from the root, as far as they can be seen."""
    entries: list[Entry] = []
    for directory in reversed(Path(path).absolute().parents):
        try:
            entries.append(entry_at(str(directory)))
        except OSError:
            break
    return entries


def refusal(person: Person, entry: Entry, wanted: int) -> Refusal | None:
    """Return why the mode keeps the person from what is wanted of the entry; None if it does not.

    What is proposed never opens more than what it takes: a group where the mode knows one.
    """
    if person.may(entry, wanted):
        return None
    where = shown(entry.path)
    of_group = (entry.mode >> 3) & wanted == wanted
    if not of_group:
        letters = "".join(letter for bit, letter in _LETTERS if wanted & bit)
        return Refusal(
            entry,
            f"{where} has {entry}",
            (
                f"if {user(entry.uid)} wants that, he lets you:",
                f"setfacl -m u:{person.name}:{letters} {word(entry.path)}",
            ),
        )
    name = group(entry.gid)
    why = f"{where} has {entry}, so it takes the group {name}"
    if entry.gid in person.listed:
        return Refusal(
            entry,
            f"{why}, which you got after this login session had begun",
            ("log in again, or for one shell:", f"newgrp {name}"),
            group=entry.gid,
            listed=True,
        )
    command = f"sudo usermod -aG {name} {person.name}"
    return Refusal(entry, f"{why}, which you are not in", (command, "and log in again"), entry.gid)


def first_refusal(person: Person, entries: Iterator[tuple[Entry, int]]) -> Refusal | None:
    """Return the first refusal on a way through entries, each with what is wanted of it."""
    for entry, wanted in entries:
        refused = refusal(person, entry, wanted)
        if refused is not None:
            return refused
    return None


def group(gid: int) -> str:
    """Return the group's name, or the number where there is none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


_LETTERS = ((READ, "r"), (WRITE, "w"), (ENTER, "x"))


def _umask() -> int | None:
    """Return the umask, which could only be asked by setting it: so the kernel's table is read."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)
    except (OSError, ValueError, IndexError):
        return None
