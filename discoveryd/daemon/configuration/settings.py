"""How single settings are written, in flags, environment and file alike: texts in, values out.

`where` names the setting for people, in the errors that all of these raise: ConfigError.
"""

import grp
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from discoveryd.daemon.errors import ConfigError

LOG_LEVELS = ("debug", "info", "warning", "error")
MODE_BITS = 0o777
MOST_PORT = 65_535
NO_STATE = "none"


def level_of(where: str, level: str) -> str:
    """Return a level of the log, in small letters."""
    if level.lower() not in LOG_LEVELS:
        raise ConfigError(f"{where}: {level!r} is no level; there are {', '.join(LOG_LEVELS)}")
    return level.lower()


def state_of(where: str, state: str | None, base: Path | None = None) -> str | None:
    """Return the ledger's path, or the word for none; `base` as for `path_of`."""
    return state if state in (None, NO_STATE) else path_of(where, state, base)


def mode_of(where: str, mode: str | None) -> int | None:
    """Return the mode that octal digits tell."""
    if mode is None:
        return None
    if not re.fullmatch("(0o)?[0-7]{3,4}", mode) or int(mode, 8) > MODE_BITS:
        raise ConfigError(f"{where}: {mode!r} is no mode of a socket; write it like 0660")
    return int(mode, 8)


def http_of(where: str, http: str | None, base: Path | None = None) -> str | None:
    """Return where HTTP is answered: a path, or an address of loopback and a port.

    What has no slash and ends in a port is an address, and what looks like half of one, or like
    `none`, is nothing: nobody means a socket of that name. `base` is as for `path_of`.
    """
    if http is None:
        return None
    named = re.fullmatch(r"([^/]*):([0-9]{1,5})", http)
    if named is None:
        if re.fullmatch(r"[^/]*:[^/]*|[0-9.]+|localhost|none", http, re.IGNORECASE):
            raise ConfigError(
                f"{where}: {http} is no address with a port, such as 127.0.0.1:9475; leave it out"
                f" to answer nowhere, or say ./{http} for a socket of that name"
            )
        return path_of(where, http, base)
    host, port = named[1].strip("[]").lower(), int(named[2])
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback or not 0 < port <= MOST_PORT:
        raise ConfigError(
            f"{where}: {http} is no address of loopback with a port, such as 127.0.0.1:9475, and"
            " others are not listened at: put a proxy before it, or name a path"
        )
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"  # noqa: PLR2004  # as it is called


def group_of(where: str, group: str | None) -> int | None:
    """Return the number of a group that is named or numbered. May ask the host, and block."""
    if group is None:
        return None
    if re.fullmatch("[0-9]{1,9}", group):
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise ConfigError(f"{where}: there is no group {group!r} on this host") from None


def paths_of(where: str, paths: Sequence[str], base: Path | None = None) -> tuple[str, ...]:
    """Return each path once; `base` as for `path_of`."""
    return tuple(dict.fromkeys(path_of(where, path, base) for path in paths))


def path_of(where: str, path: str, base: Path | None = None) -> str:
    """Return the path, absolute; a relative one starts at `base`, or at the working directory."""
    if not path or "\0" in path:
        raise ConfigError(f"{where}: {path!r} is no path")
    try:
        # Without dots: clients name files by such paths.
        return os.path.abspath(path if base is None else base / path)  # noqa: PTH100  # resolve() follows links
    except FileNotFoundError:
        raise ConfigError(
            f"{where}: {path} starts at the working directory, which is gone: name a whole path"
        ) from None
