"""Why a card file cannot be read, or a directory, in words that say what to do about it.

Here live the reasons only; who meets with them is reading.py, or folder.py where it is about a
directory. `file` and `directory` are always paths for people.
"""

import errno
import os
import stat

from discoveryd.core.batch import Invalid
from discoveryd.core.parsing.document import MAX_BYTES
from discoveryd.core.verdict import Reason

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def not_a_file(kind: int, file: str) -> Invalid:
    """Say that `file` is something else; `kind` is its `S_IFMT`."""
    found = _KINDS.get(kind, "of an unknown kind")
    link = kind == stat.S_IFLNK
    advice = "Move it elsewhere, or rename it."
    if link:
        advice = "Put the file itself there, or set follow_symlinks = true in the configuration."
    reason = Reason(
        rule="symbolic_link" if link else "not_a_file",
        message=f"{file} is {found}: a card is a regular file. {advice}",
        found=found,
        expected="a regular file",
    )
    return Invalid((reason,))


def leads_nowhere(file: str) -> Invalid:
    """Say that `file` is a link to nothing."""
    reason = Reason(
        rule="symbolic_link",
        message=f"{file} is a symbolic link to a file that does not exist, as the daemon sees it."
        " Restore the file, or remove the link.",
        found="a symbolic link to nothing",
        expected="a regular file",
    )
    return Invalid((reason,))


def too_large(file: str) -> Invalid:
    """Say that `file` is larger than a card may be."""
    reason = Reason(
        rule="too_large",
        message=f"{file} is larger than {MAX_BYTES} bytes, the most a card may hold. Shorten it.",
        expected=f"at most {MAX_BYTES} bytes",
    )
    return Invalid((reason,))


def unreadable(error: OSError, file: str) -> Invalid:
    """Say that `file` cannot be read, and what to do if that is for want of permission."""
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = f"Let the user with uid {os.geteuid()} read it: chmod a+r {file}"
    else:
        advice = "It is tried again at every look at the directory."
    what = (error.strerror or "unknown error").lower()
    reason = Reason(rule="unreadable", message=f"{file} cannot be read: {what}. {advice}")
    return Invalid((reason,))


def no_directory(error: OSError, directory: str) -> str:
    """Say that there is no such directory, or none any more."""
    if error.errno == errno.ENOENT:
        return f"waiting for directory {directory}: it does not exist"
    return f"waiting for directory {directory}: something else is there"


def unlistable(error: OSError, directory: str) -> str:
    """Say that a directory cannot be listed, and what to do if that is for want of permission."""
    what = (error.strerror or "unknown error").lower()
    advice = ""
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = f". Let the user with uid {os.geteuid()} read and enter it"
    return f"the directory {directory} cannot be listed: {what}{advice}"
