"""What the daemon is told: flags over environment over file, and what holds when nobody says.

Each setting is taken whole from the first that gives it. Without any cards or stores the drop
directory is the one in the default place; the socket likewise. The configuration file is read by
file.py; no directory is looked at or made here (directories.py).
"""

import os
import stat
from collections.abc import Mapping, Sequence

import msgspec

from discoveryd.core.places import CARDS_NAME, Place, default_directory, temporary_directory
from discoveryd.daemon.configuration.file import read_file
from discoveryd.daemon.configuration.settings import (
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
from discoveryd.daemon.permit.allowing import Allow

PRIVATE_MODE = 0o600
GROUP_MODE = 0o660


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the daemon is told. All paths are absolute.

    `place` is the default directory where `socket` or a drop directory lies in it, to be made or
    checked before use; None where every place was named. `aliases` are the operator's. The socket
    gets the mode `socket_mode` and, unless it is None, the group with the number `socket_group`.
    Where the socket was passed in, both are what it has. `http` is a path, or an address of
    loopback with a port, where HTTP is answered besides; None is nowhere. `state` is the ledger's
    file; None is to do without. `allow`, `by_owner` and `quota` are what the permission gate holds
    cards to: see there.
    """

    cards: tuple[str, ...]
    dynamo: tuple[str, ...] = ()
    socket: str
    socket_mode: int = PRIVATE_MODE
    socket_group: int | None = None
    http: str | None = None
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


def configure(  # noqa: PLR0913 - one a setting, all by keyword
    *,
    cards: Sequence[str] = (),
    dynamo: Sequence[str] = (),
    socket: str | None = None,
    socket_mode: str | None = None,
    socket_group: str | None = None,
    http: str | None = None,
    state: str | None = None,
    log_level: str | None = None,
    file: str | None = None,
    passed_socket: str | None = None,
    passed_mode: int = PRIVATE_MODE,
    environ: Mapping[str, str] | None = None,
    uid: int | None = None,
) -> Config:
    """Join flags (the arguments), environment and file into one configuration.

    `file` must be readable if named; else the default one is read if it exists. Relative paths
    start at the working directory, those in the file at the file's directory.

    `passed_socket` is the path of a socket that was passed in, which has `passed_mode`: it is the
    socket, whatever environment and file say, and the drop directory is by default beside it.

    Raises ConfigError, also for flags that speak of another socket than the one passed in.
    """
    environ = os.environ if environ is None else environ
    uid = os.geteuid() if uid is None else uid
    written = read_file(file, environ, uid)
    listed = [part for part in environ.get("DISCOVERYD_CARDS", "").split(os.pathsep) if part]
    cards = paths_of("--cards", cards) or paths_of("DISCOVERYD_CARDS", listed) or written.cards
    dynamo = paths_of("--dynamo", dynamo) or written.dynamo
    place = default_directory(environ, uid, temporary_directory(environ))
    socket = None if socket is None else path_of("--socket", socket)
    mode = mode_of("--socket-mode", socket_mode)
    group = group_of("--socket-group", socket_group)
    if passed_socket is not None:
        _check_passed(passed_socket, socket, mode, group)
        socket, mode, group = passed_socket, passed_mode, None
        default_cards = f"{passed_socket.rpartition('/')[0]}/{CARDS_NAME}"
    else:
        told = environ.get("DISCOVERYD_SOCKET")
        named = path_of("DISCOVERYD_SOCKET", told) if told else written.socket
        socket = socket or named or place.socket
        group = written.socket_group if group is None else group
        mode = written.socket_mode if mode is None else mode
        mode = (PRIVATE_MODE if group is None else GROUP_MODE) if mode is None else mode
        default_cards = place.cards
    cards = cards or (() if dynamo else (default_cards,))
    _check_allow(written.allow, (*cards, *dynamo))
    http = http_of("--http", http) or written.http
    if http == socket:
        raise ConfigError(f"http and the socket are both at {http}: name another path for one")
    used = passed_socket is None and (socket == place.socket or place.cards in cards)
    return Config(
        cards=tuple(cards),
        dynamo=tuple(dynamo),
        socket=socket,
        socket_mode=mode,
        socket_group=group,
        http=http,
        state=_state(state_of("--state", state) or written.state, socket, environ),
        aliases=written.aliases,
        allow=written.allow,
        by_owner=written.by_owner,
        quota=written.quota,
        follow_symlinks=written.follow_symlinks,
        log_level=level_of("--log-level", log_level or written.log_level),
        place=place if used else None,
    )


def _check_passed(passed: str, socket: str | None, mode: int | None, group: int | None) -> None:
    """Refuse flags that a socket which was passed in cannot follow."""
    if socket not in (None, passed):
        raise ConfigError(
            f"--socket names {socket}, but the socket {passed} was passed in: leave the flag out, "
            "or change ListenStream= in the socket unit"
        )
    for flag, given, key in (
        ("--socket-mode", mode, "SocketMode="),
        ("--socket-group", group, "SocketGroup="),
    ):
        if given is not None:
            raise ConfigError(
                f"{flag} cannot change the socket {passed}, which was passed in: leave the flag "
                f"out, and set {key} in the socket unit"
            )


def _check_allow(entries: Sequence[Allow], directories: Sequence[str]) -> None:
    """Hold the entries to the directories that are followed."""
    for number, entry in enumerate(entries, 1):
        if entry.directory is not None and entry.directory not in directories:
            raise ConfigError(
                f"[[allow]] {number}: {entry.directory} is no directory that is followed; there "
                f"are {', '.join(directories)}. Name it in cards, or take the entry out"
            )


def _state(named: str | None, socket: str, environ: Mapping[str, str]) -> str | None:
    """Return where the ledger is: where named, in systemd's state directory, beside the socket."""
    if named is not None:
        return None if named == NO_STATE else named
    given = environ.get("STATE_DIRECTORY", "").split(os.pathsep)[0]
    if given.startswith("/"):
        return f"{given.rstrip('/')}/ledger"
    directory, _, name = socket.rpartition("/")
    return f"{directory}/.{name}.ledger"
