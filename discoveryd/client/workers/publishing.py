"""Where a card file goes, how it gets there whole, and how it is withdrawn.

The daemon says which directories it watches, and never are they made here: a directory that nobody
watches would swallow cards without a word. In a container they may lie elsewhere; DISCOVERYD_CARDS
says where then.

A card is written beside its place, under a name that begins with a dot, which the daemon passes
over, and renamed: whoever looks sees the old card, the new one, or none, never half of one. It is
readable for all (0644) whatever the umask, since the daemon may be another user. It is not synced
to the medium: drop directories lie in /run, and what a power cut takes along are cards of workers
that are gone by then as well.
"""

import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from discoveryd.client.errors import DiscoverydError
from discoveryd.client.workers.cardtext import encoded
from discoveryd.core.text import display_path, path_bytes
from discoveryd.interface import Status

ENVIRONMENT = "DISCOVERYD_CARDS"
MODE = 0o644
MOST_BYTES = 1 << 20
"""The largest card that the daemon reads."""


class CannotWrite(DiscoverydError):
    """A card file cannot be written, read or removed, or there is nowhere to put one."""


class DropDirectory(NamedTuple):
    """A drop directory: its path here, and how the daemon calls it.

    `display` is None where the daemon sees it under a path of its own, which is not known here.
    """

    path: str
    display: str | None

    def named(self, file: str) -> str:
        """Return how to name a file in it to the daemon: by its path, or barely."""
        bare = shown(file)
        return bare if self.display is None else f"{self.display}/{bare}"


def drop_directories(
    status: Status, environ: Mapping[str, str], named: str | None = None
) -> list[DropDirectory]:
    """Return where cards may go: the drop directories that the daemon's `status` gives, in order.

    Where a place is `named`, or are in DISCOVERYD_CARDS, these instead. None need be there.
    """
    watched = [each.path for each in status.directories if each.layout == "cards"]
    given = [named] if named else environ.get(ENVIRONMENT, "").split(os.pathsep)
    places = [str(Path(place).absolute()) for place in given if place]
    if places:
        return [DropDirectory(place, _display(place, watched)) for place in places]
    return [DropDirectory(os.fsdecode(path_bytes(path)), path) for path in watched]


def drop_directory(
    status: Status, environ: Mapping[str, str], named: str | None = None
) -> DropDirectory:
    """Return the first of the `drop_directories` in which this user may write.

    Raises CannotWrite where there is none, which says of each what to do about it.
    """
    places = drop_directories(status, environ, named)
    if not places:
        raise CannotWrite(
            "the daemon watches no drop directory, only Dynamo stores: give it one with --cards"
        )
    lines = ["there is no drop directory to write a card to; tried:"]
    for place in places:
        problem = _problem(place.path)
        if problem is None:
            return place
        lines.append(f"  {shown(place.path)}: {problem}")
    raise CannotWrite("\n".join(lines))


def publish(card: Mapping[str, object] | bytes, file: str, directory: str) -> str:
    """Put the card into the directory as `file`, whole and at once; return its path.

    A file of that name is replaced. Raises CannotWrite where that is not possible, and then leaves
    nothing behind; ValueError where `file` is no card file's name, ValueError or TypeError where
    the card cannot be JSON. Bytes are written as they are.
    """
    check_name(file)
    content = card if isinstance(card, bytes) else encoded(card)
    path = f"{directory}/{file}"
    write(path, content)
    return path


def withdraw(path: str) -> None:
    """Remove a card file; one that is gone already is none too few. Raises CannotWrite."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as fault:
        raise CannotWrite(f"cannot remove {shown(path)}: {_why(path, fault)}") from None


def check_name(file: str) -> None:
    """Raise ValueError where the daemon would pass over a file of that name."""
    if not file.endswith(".json") or file.startswith(".") or "/" in file or "\0" in file:
        raise ValueError(
            f"{file!r} is no card file's name: it must end in .json, not begin with a dot, and be "
            "without a directory"
        )


def read(path: str) -> tuple[bytes, os.stat_result] | None:
    """Return what a card file holds, 1 MiB at most, and what it is; None where there is none.

    Raises CannotWrite where it is no regular file or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as fault:
        if Path(path).is_symlink():
            raise CannotWrite(f"{shown(path)} is a link: change what it leads to") from None
        raise CannotWrite(f"cannot read {shown(path)}: {_why(path, fault)}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise CannotWrite(f"{shown(path)} is no regular file")
        return file.read(MOST_BYTES), found


def write(path: str, content: bytes, like: os.stat_result | None = None) -> None:
    """Put the content there whole and at once, with the mode and owner of `like` where given.

    Raises CannotWrite, and then leaves nothing behind.
    """
    beside = Path(path).parent / f".{secrets.token_hex(8)}.tmp"
    try:
        try:
            _write_beside(beside, content, like)
            beside.rename(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
    except OSError as fault:
        raise CannotWrite(f"cannot write {shown(path)}: {_why(path, fault)}") from None


def user(uid: int) -> str:
    """Return the user's name, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _write_beside(beside: Path, content: bytes, like: os.stat_result | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        # A card belongs to its file's owner: root, who drains it, must not take it over.
        if like is not None and like.st_uid != os.geteuid():
            os.fchown(file.fileno(), like.st_uid, like.st_gid)
        os.fchmod(file.fileno(), MODE if like is None else stat.S_IMODE(like.st_mode))


def _display(place: str, watched: Iterable[str]) -> str | None:
    """Return how the daemon calls the directory that lies here at `place`."""
    own = shown(place)
    if own in watched:
        return own
    for display in watched:
        with suppress(OSError):
            if Path(place).samefile(os.fsdecode(path_bytes(display))):
                return display
    return None


def _problem(directory: str) -> str | None:
    """Return why no card can be put there, and what to do about it; None if one can be."""
    try:
        found = Path(directory).stat()
    except FileNotFoundError:
        return f"it is not there; where it is mounted elsewhere, {ENVIRONMENT} says so"
    except OSError as fault:
        return fault.strerror or str(fault)
    if not stat.S_ISDIR(found.st_mode):
        return "it is no directory"
    if os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        return None
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return "it is mounted read-only"
    if found.st_mode & stat.S_IWGRP:
        group = _group(found.st_gid)
        me = user(os.geteuid())
        return f"only the group {group} may write there: usermod -aG {group} {me}, then log in anew"
    return f"only {user(found.st_uid)} may write there"


def _why(path: str, fault: OSError) -> str:
    """Return why an operation on a card file failed, and what to do about it."""
    if isinstance(fault, PermissionError):
        directory = str(Path(path).parent)
        problem = _problem(directory)
        if problem is not None:
            return f"{shown(directory)}: {problem}"
        with suppress(OSError):
            owner = Path(path).lstat().st_uid
            if owner != os.geteuid():
                return (
                    f"it belongs to {user(owner)}, and only owners replace or remove files there; "
                    "give yours another name"
                )
    return fault.strerror or str(fault)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path for people: text that can be encoded, different for different paths."""
    return display_path(os.fsencode(path))
