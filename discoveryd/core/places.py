"""Where daemon and clients meet when nobody names a place.

The rule alone, over explicit arguments; looking at directories, making them and connecting is the
shell's. The daemon and its clients must agree, so neither has a rule of its own.
"""

from collections.abc import Mapping
from typing import NamedTuple

SOCKET_NAME = "io.discoveryd.Models"
CARDS_NAME = "cards"
SYSTEM_DIRECTORY = "/run/discoveryd"
SOCKET_PATH_LIMIT = 107
"""Bytes that the path of a Unix socket may have on Linux."""


class Place(NamedTuple):
    """A directory that holds a socket and, by default, a drop directory.

    `public_parent`: it lies where anybody may create names, so it may only be used if it is a
    directory (not a link), owned by the user and of mode 0700.
    """

    directory: str
    public_parent: bool

    @property
    def socket(self) -> str:
        """The path of the socket."""
        return f"{self.directory}/{SOCKET_NAME}"

    @property
    def cards(self) -> str:
        """The path of the drop directory."""
        return f"{self.directory}/{CARDS_NAME}"


SYSTEM_PLACE = Place(SYSTEM_DIRECTORY, public_parent=False)


def temporary_directory(environ: Mapping[str, str]) -> str:
    """Return the directory for temporary things: TMPDIR where it is an absolute path, else /tmp."""
    named = environ.get("TMPDIR", "")
    return named.rstrip("/") or "/" if named.startswith("/") else "/tmp"  # noqa: S108 - see public_parent


def default_directory(environ: Mapping[str, str], uid: int, tmp: str) -> Place:
    """Return where the daemon of the user `uid` lives: the system's place for root, else its own.

    Its own is in XDG_RUNTIME_DIR where that is an absolute path, else in `tmp`.
    """
    if uid == 0:
        return SYSTEM_PLACE
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Place(f"{runtime.rstrip('/')}/discoveryd", public_parent=False)
    return Place(f"{tmp.rstrip('/')}/discoveryd-{uid}", public_parent=True)
