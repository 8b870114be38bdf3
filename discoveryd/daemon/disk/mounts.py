"""What something is mounted from: whether its events can be relied on, and who else sees it.

The kernel tells of what is done through it. What another machine, the host of a virtual machine, or
a server in user space does to the same files raises no event here.

A service with a temporary directory of its own (systemd's PrivateTmp=) sees none of the files that
others put into the host's, and nothing fails: a drop directory there is empty for ever. So the
mount is asked: its root lies in a directory that systemd makes for one service, or on a file system
of the service's own (PrivateTmp=disconnected).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from discoveryd.core.text import display_path, printable

_SILENT = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2",
        "panfs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
    }
)  # fmt: skip
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_TEMPORARY = {b"/tmp": b"/tmp", b"/var/tmp": b"/var-tmp"}
"""The temporary directories, each with the root that it has on a service's own file system."""


class _Mount(NamedTuple):
    """One line of the table of mounts: where it is, and what of which file system is there."""

    device: bytes
    root: bytes
    point: bytes
    type: str
    options: bytes


def file_system_of(device: int) -> str | None:
    """Return the type of the mounted file system with this `st_dev`, None if there is none."""
    wanted = f"{os.major(device)}:{os.minor(device)}".encode()
    return next((mount.type for mount in _mounts() if mount.device == wanted), None)


def tells_nothing(file_system: str | None) -> bool:
    """Whether files on such a file system may change without an event."""
    if file_system is None:
        return False
    return file_system in _SILENT or file_system == "fuse" or file_system.startswith("fuse.")


def private_temporary(path: bytes) -> str | None:
    """Say that `path`, absolute, lies where nobody but this service sees it, and what to do.

    None where that is not so, or cannot be told. Looks at the path, which may hang.
    """
    real = os.path.realpath(path)
    base = next((each for each in _TEMPORARY if _within(each, real)), None)
    if base is None:
        return None
    mounts = {mount.point: mount for mount in _mounts() if _within(mount.point, real)}
    mount = mounts.get(max(mounts, key=len, default=b""))
    if mount is None or mount.point != base or not _is_of_one_service(mount):
        return None
    shown, where = printable(display_path(path)), display_path(base)
    return (
        f"{where} is this service's own here (PrivateTmp=), so nobody else can put anything into"
        f" {shown}. Choose a directory elsewhere, or let the service see the host's: PrivateTmp=no"
        " in a drop-in of its unit"
    )


def _is_of_one_service(mount: _Mount) -> bool:
    """Whether this is how systemd mounts a temporary directory that is one service's."""
    if any(part.startswith(b"systemd-private-") for part in mount.root.split(b"/")):
        return True
    if mount.type != "tmpfs":
        return False
    if mount.root == b"/":
        # One that many users share is never closed to all but its owner.
        return b"mode=700" in mount.options.split(b",")
    return mount.root == _TEMPORARY[mount.point] and _has_sibling(mount)


def _has_sibling(mount: _Mount) -> bool:
    """Whether both temporary directories are on this file system, side by side."""
    roots = {each.point: each.root for each in _mounts() if each.device == mount.device}
    return all(roots.get(point) == root for point, root in _TEMPORARY.items())


def _within(directory: bytes, path: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def _mounts() -> Iterator[_Mount]:
    """Read the table of mounts, the one that covers others later; nothing where it is not there."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        before, _, after = line.partition(b" - ")
        _, _, device, root, point, *_ = before.split(b" ")
        kind, _, options = after.split(b" ", 2)
        yield _Mount(device, _plain(root), _plain(point), kind.decode(errors="replace"), options)


def _plain(name: bytes) -> bytes:
    """Return a name as it is, with nothing escaped."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), name)
