"""What the daemon is told: flags over environment over file, and what holds when nobody says.

Each setting is taken whole from the first that gives it. Without any cards or stores the drop
directory is the one in the default place; the socket likewise. Only the configuration file is read
here; no directory is looked at or made (directories.py).
"""

import difflib
import grp
import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from discoveryd.core.parsing.names import MAX_NAME_BYTES
from discoveryd.core.places import SOCKET_NAME, Place, default_directory, temporary_directory
from discoveryd.core.text import has_control
from discoveryd.daemon.errors import ConfigError
from discoveryd.daemon.permit.allowing import Allow, read_allow

LOG_LEVELS = ("debug", "info", "warning", "error")
MODE_BITS = 0o777
PRIVATE_MODE = 0o600
GROUP_MODE = 0o660
NO_STATE = "none"
NO_QUOTA = "none"
SYSTEM_FILE = "/etc/discoveryd/config.toml"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the daemon is told. All paths are absolute.

    `place` is the default directory where `socket` or a drop directory lies in it, to be made or
    checked before use; None where every place was named. `aliases` are the operator's. The socket
    gets the mode `socket_mode` and, unless it is None, the group with the number `socket_group`.
    `state` is the ledger's file; None is to do without. `allow`, `by_owner` and `quota` are what
    the permission gate holds cards to: see there.
    """

    cards: tuple[str, ...]
    dynamo: tuple[str, ...] = ()
    socket: str
    socket_mode: int = PRIVATE_MODE
    socket_group: int | None = None
    state: str | None = None
    aliases: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    allow: tuple[Allow, ...] = ()
    by_owner: bool = False
    quota: int | None = None
    follow_symlinks: bool = False
    log_level: str = "info"
    place: Place | None = None

    @property
    def default_socket(self) -> bool:
        """Whether clients of the same user find the socket without being told."""
        return self.place is not None and self.socket == self.place.socket

    @property
    def many_users(self) -> bool:
        """Whether others than the daemon's own user may connect, by the socket's mode."""
        return bool(self.socket_mode & (stat.S_IWGRP | stat.S_IWOTH))


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


def configure(  # noqa: PLR0913 - one a setting, all by keyword
    *,
    cards: Sequence[str] = (),
    dynamo: Sequence[str] = (),
    socket: str | None = None,
    socket_mode: str | None = None,
    socket_group: str | None = None,
    state: str | None = None,
    log_level: str | None = None,
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    uid: int | None = None,
) -> Config:
    """Join flags (the arguments), environment and file into one configuration.

    `file` must be readable if named; else the default one is read if it exists. Relative paths
    start at the working directory, those in the file at the file's directory. Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    written = _read(file, environ, uid)
    listed = [part for part in environ.get("DISCOVERYD_CARDS", "").split(os.pathsep) if part]
    cards = _paths("--cards", cards) or _paths("DISCOVERYD_CARDS", listed) or written.cards
    dynamo = _paths("--dynamo", dynamo) or written.dynamo
    place = default_directory(environ, uid, temporary_directory(environ))
    if socket is not None:
        socket = _path("--socket", socket)
    elif environ.get("DISCOVERYD_SOCKET"):
        socket = _path("DISCOVERYD_SOCKET", environ["DISCOVERYD_SOCKET"])
    else:
        socket = written.socket or place.socket
    cards = cards or (() if dynamo else (place.cards,))
    group = _group("--socket-group", socket_group)
    group = written.socket_group if group is None else group
    mode = _mode("--socket-mode", socket_mode)
    mode = written.socket_mode if mode is None else mode
    if mode is None:
        mode = PRIVATE_MODE if group is None else GROUP_MODE
    _check_allow(written.allow, (*cards, *dynamo))
    used = socket == place.socket or place.cards in cards
    return Config(
        cards=tuple(cards),
        dynamo=tuple(dynamo),
        socket=socket,
        socket_mode=mode,
        socket_group=group,
        state=_state(_state_path("--state", state) or written.state, socket, environ),
        aliases=written.aliases,
        allow=written.allow,
        by_owner=written.by_owner,
        quota=written.quota,
        follow_symlinks=written.follow_symlinks,
        log_level=_level("--log-level", log_level or written.log_level),
        place=place if used else None,
    )


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration file says; paths are absolute."""

    cards: tuple[str, ...] = ()
    dynamo: tuple[str, ...] = ()
    socket: str | None = None
    socket_mode: int | None = None
    socket_group: int | None = None
    state: str | None = None
    aliases: Mapping[str, str] = {}
    allow: tuple[Allow, ...] = ()
    by_owner: bool = False
    quota: int | None = None
    follow_symlinks: bool = False
    log_level: str = "info"


def _read(named: str | None, environ: Mapping[str, str], uid: int) -> _Written:
    file = named if named is not None else _default_file(environ, uid)
    if file is None:
        return _Written()
    try:
        content = Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if named is None:
            return _Written()
        raise ConfigError(f"there is no configuration file {file}") from None
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from None
    try:
        table = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: see byte {error.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    return _check(file, table)


def _default_file(environ: Mapping[str, str], uid: int) -> str | None:
    if uid == 0:
        return SYSTEM_FILE
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        base = f"{home}/.config"
    return f"{base}/discoveryd/config.toml"


def _check(file: str, table: dict[str, Any]) -> _Written:
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
    return _Written(
        cards=_paths(f"{file}: cards", table.get("cards", ()), base),
        dynamo=_paths(f"{file}: dynamo", table.get("dynamo", ()), base),
        socket=_path(f"{file}: socket", table["socket"], base) if "socket" in table else None,
        socket_mode=_mode(f"{file}: socket_mode", table.get("socket_mode")),
        socket_group=_group(f"{file}: socket_group", table.get("socket_group")),
        state=_state_path(f"{file}: state", table.get("state"), base),
        aliases=aliases,
        allow=tuple(
            read_allow(f"{file}: [[allow]] {number}", entry, base)
            for number, entry in enumerate(table.get("allow", ()), 1)
        ),
        by_owner="owner" in table,
        quota=sys.maxsize if table.get("quota") == NO_QUOTA else table.get("quota"),
        follow_symlinks=table.get("follow_symlinks", False),
        log_level=_level(f"{file}: log_level", table.get("log_level", "info")),
    )


def _check_allow(entries: Sequence[Allow], directories: Sequence[str]) -> None:
    """Hold the entries to the directories that are followed."""
    for number, entry in enumerate(entries, 1):
        if entry.directory is not None and entry.directory not in directories:
            raise ConfigError(
                f"[[allow]] {number}: {entry.directory} is no directory that is followed; there "
                f"are {', '.join(directories)}. Name it in cards, or take the entry out"
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


def _level(where: str, level: str) -> str:
    if level.lower() not in LOG_LEVELS:
        raise ConfigError(f"{where}: {level!r} is no level; there are {', '.join(LOG_LEVELS)}")
    return level.lower()


def _state(named: str | None, socket: str, environ: Mapping[str, str]) -> str | None:
    """Return where the ledger is: where named, in systemd's state directory, beside the socket."""
    if named is not None:
        return None if named == NO_STATE else named
    given = environ.get("STATE_DIRECTORY", "").split(os.pathsep)[0]
    if given.startswith("/"):
        return f"{given.rstrip('/')}/ledger"
    directory, _, name = socket.rpartition("/")
    return f"{directory}/.{name}.ledger"


def _state_path(where: str, state: str | None, base: Path | None = None) -> str | None:
    return state if state in (None, NO_STATE) else _path(where, state, base)


def _mode(where: str, mode: str | None) -> int | None:
    if mode is None:
        return None
    if not re.fullmatch("(0o)?[0-7]{3,4}", mode) or int(mode, 8) > MODE_BITS:
        raise ConfigError(f"{where}: {mode!r} is no mode of a socket; write it like 0660")
    return int(mode, 8)


def _group(where: str, group: str | None) -> int | None:
    if group is None:
        return None
    if re.fullmatch("[0-9]{1,9}", group):
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise ConfigError(f"{where}: there is no group {group!r} on this host") from None


def _paths(where: str, paths: Sequence[str], base: Path | None = None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_path(where, path, base) for path in paths))


def _path(where: str, path: str, base: Path | None = None) -> str:
    if not path or "\0" in path:
        raise ConfigError(f"{where}: {path!r} is no path")
    # Without dots: clients name files by such paths.
    return os.path.abspath((base or Path.cwd()) / path)  # noqa: PTH100  # resolve() follows links
