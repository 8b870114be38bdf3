"""Which file system something lies on, and whether its events can be relied on.

The kernel tells of what is done through it. What another machine, the host of a virtual machine, or
a server in user space does to the same files raises no event here.
"""

import os
from pathlib import Path

_SILENT = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2",
        "panfs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
    }
)  # fmt: skip
_MOUNTS = Path("/proc/self/mountinfo")


def file_system_of(device: int) -> str | None:
    """Return the type of the mounted file system with this `st_dev`, None if there is none."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = _MOUNTS.read_text(errors="replace")
    except OSError:
        return None
    for mount in mounts.splitlines():
        before, _, after = mount.partition(" - ")
        if before.split(" ")[2] == wanted:
            return after.split(" ")[0]
    return None


def tells_nothing(file_system: str | None) -> bool:
    """Whether files on such a file system may change without an event."""
    if file_system is None:
        return False
    return file_system in _SILENT or file_system == "fuse" or file_system.startswith("fuse.")
