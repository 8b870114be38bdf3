"""Making the default directories. A directory that somebody named is never made or judged here.

The default place may lie below a temporary directory, where anybody may create names. It is only
used if nobody else can have put it there or look into it: a directory, ours, of mode 0700.
"""

import stat
from pathlib import Path

from discoveryd.core.places import SYSTEM_PLACE, Place
from discoveryd.daemon.errors import StartError

_PRIVATE = 0o700
_ELSEWHERE = "name other places with --cards and --socket"


def make_place(place: Place, uid: int) -> None:
    """Make the default directory and its drop directory where they are missing.

    Private to the user, but for the system's, which everybody may look into. Raises StartError
    where that is not possible, or where the directory lies in public and is not `uid`'s alone.
    """
    mode = 0o755 if place == SYSTEM_PLACE else _PRIVATE
    _make(place.directory, mode)
    if place.public_parent:
        _check_private(place.directory, uid)
    _make(place.cards, mode)


def _make(path: str, mode: int) -> None:
    try:
        Path(path).mkdir(mode)
    except FileExistsError:
        pass
    except OSError as error:
        raise StartError(f"cannot make {path}: {error.strerror}; {_ELSEWHERE}") from None


def _check_private(path: str, uid: int) -> None:
    found = Path(path).lstat()
    if not stat.S_ISDIR(found.st_mode):
        fault = "is no directory"
    elif found.st_uid != uid:
        fault = f"belongs to the user {found.st_uid}"
    elif stat.S_IMODE(found.st_mode) != _PRIVATE:
        fault = f"has mode {stat.S_IMODE(found.st_mode):04o} instead of 0700"
    else:
        return
    raise StartError(f"{path} is not safe to use: it {fault}. Remove it, or {_ELSEWHERE}")
