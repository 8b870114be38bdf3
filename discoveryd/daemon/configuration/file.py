"""The configuration file: which one, what it may hold, and what it says.

It is TOML, and every key is checked, so that a misspelt one is an error and no surprise.
"""

import difflib
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from discoveryd.core.parsing.names import MAX_NAME_BYTES
from discoveryd.core.places import SOCKET_NAME
from discoveryd.core.text import has_control
from discoveryd.daemon.configuration.settings import (
    LOG_LEVELS,
    NO_STATE,
    group_of,
    http_of,
    level_of,
    mode_of,
    path_of,
    paths_of,
    state_of,
)
from discoveryd.daemon.errors import ConfigError
from discoveryd.daemon.permit.allowing import Allow, read_allow

NO_QUOTA = "none"
SYSTEM_FILE = "/etc/discoveryd/config.toml"


class _Key(NamedTuple):
    """What a member of the configuration file must be, for msgspec and for people."""

    type: Any
    shape: str


_KEYS = {
    "cards": _Key(list[str], 'a list of directories, such as ["/srv/cards"]'),
    "dynamo": _Key(list[str], 'a list of stores, such as ["/srv/dynamo_store_kv"]'),
    "socket": _Key(str, f'a path, such as "/srv/discoveryd/{SOCKET_NAME}"'),
    "socket_mode": _Key(str, 'octal digits in quotes, such as "0660"'),
    "socket_group": _Key(str, "a group's name or number in quotes"),
    "http": _Key(str, 'a path, such as "/srv/discoveryd/http", or "127.0.0.1:9475"'),
    "state": _Key(str, f'a file, such as "/var/lib/discoveryd/ledger", or "{NO_STATE}"'),
    "allow": _Key(list[dict[str, Any]], "tables, each headed [[allow]]"),
    "owner": _Key(Literal["uid"], '"uid", or left out'),
    "quota": _Key(
        Annotated[int, msgspec.Meta(ge=1)] | Literal["none"], f'a number from 1, or "{NO_QUOTA}"'
    ),
    "follow_symlinks": _Key(bool, "true or false"),
    "aliases": _Key(dict[str, str], 'a table of names, such as "gpt-4o" = "llama-3.1-8b"'),
    "log_level": _Key(str, f"one of {', '.join(LOG_LEVELS)}"),
}


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration file says; paths are absolute."""

    cards: tuple[str, ...] = ()
    dynamo: tuple[str, ...] = ()
    socket: str | None = None
    socket_mode: int | None = None
    socket_group: int | None = None
    http: str | None = None
    state: str | None = None
    aliases: Mapping[str, str] = {}
    allow: tuple[Allow, ...] = ()
    by_owner: bool = False
    quota: int | None = None
    follow_symlinks: bool = False
    log_level: str = "info"


def read_file(named: str | None, environ: Mapping[str, str], uid: int) -> Written:
    """Return what the file says: the one named, which must be there, or else the default one.

    Raises ConfigError.
    """
    file = named if named is not None else _default_file(environ, uid)
    if file is None:
        return Written()
    try:
        content = Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if named is None:
            return Written()
        raise ConfigError(f"there is no configuration file {file}") from None
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from None
    try:
        table = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: see byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: a number of too many digits is told by int().
        raise ConfigError(f"{file} is not TOML: {error}") from None
    return _check(file, table)


def _default_file(environ: Mapping[str, str], uid: int) -> str | None:
    given = environ.get("CONFIGURATION_DIRECTORY", "").split(os.pathsep)[0]
    if given.startswith("/"):
        return f"{given.rstrip('/')}/config.toml"
    if uid == 0:
        return SYSTEM_FILE
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        base = f"{home}/.config"
    return f"{base}/discoveryd/config.toml"


def _check(file: str, table: dict[str, Any]) -> Written:
    for key, value in table.items():
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_KEYS)}"
            raise ConfigError(f"{file}: unknown key {key!r}; {hint}")
        try:
            msgspec.convert(value, _KEYS[key].type)
        except msgspec.ValidationError:
            raise ConfigError(f"{file}: {key} must be {_KEYS[key].shape}") from None
    base = Path(file).absolute().parent
    aliases = table.get("aliases", {})
    _check_aliases(file, aliases)
    return Written(
        cards=paths_of(f"{file}: cards", table.get("cards", ()), base),
        dynamo=paths_of(f"{file}: dynamo", table.get("dynamo", ()), base),
        socket=path_of(f"{file}: socket", table["socket"], base) if "socket" in table else None,
        socket_mode=mode_of(f"{file}: socket_mode", table.get("socket_mode")),
        socket_group=group_of(f"{file}: socket_group", table.get("socket_group")),
        http=http_of(f"{file}: http", table.get("http"), base),
        state=state_of(f"{file}: state", table.get("state"), base),
        aliases=aliases,
        allow=tuple(
            read_allow(f"{file}: [[allow]] {number}", entry, base)
            for number, entry in enumerate(table.get("allow", ()), 1)
        ),
        by_owner="owner" in table,
        quota=sys.maxsize if table.get("quota") == NO_QUOTA else table.get("quota"),
        follow_symlinks=table.get("follow_symlinks", False),
        log_level=level_of(f"{file}: log_level", table.get("log_level", "info")),
    )


def _check_aliases(file: str, aliases: Mapping[str, str]) -> None:
    """Hold the operator's table to its rules: servable names, and one hop to a card's name."""
    for alias, target in aliases.items():
        where = f"{file}: aliases: {alias!r}"
        for name in (alias, target):
            if fault := _name_fault(name):
                raise ConfigError(f"{where}: the name {name!r} {fault}")
        if alias == target:
            raise ConfigError(f"{where} stands for itself: remove it, or name another model")
        if target in aliases:
            raise ConfigError(
                f"{where} stands for {target!r}, which is an alias itself: "
                f"name its model, {aliases[target]!r}"
            )


def _name_fault(name: str) -> str | None:
    if not name:
        return "is empty"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    if has_control(name):
        return "has control characters"
    return None
