"""What the operator allows: the `[[allow]]` entries of the configuration, and whom they cover.

An entry covers a card if all its parts match: whose the file is, where it lies, what it asks for.
Once there is an entry, what none covers is forbidden. Reading entries and matching them is all that
is done here; which groups a user is in is for the caller to know.
"""

import fnmatch
import grp
import os
import pwd
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from discoveryd.core.card import Card
from discoveryd.core.text import quoted
from discoveryd.core.verdict import Reason
from discoveryd.daemon.errors import ConfigError

_LONGEST_LIST = 10


class Allow(msgspec.Struct, frozen=True, kw_only=True):
    """One entry; a part that is None matches everything.

    `user` and `group` are numbers, `directory` is an absolute path. `names`, `endpoints` and `urls`
    are patterns with the wildcards of file names, case-sensitive.
    """

    user: int | None = None
    group: int | None = None
    directory: str | None = None
    names: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    urls: tuple[str, ...] | None = None

    @property
    def whom(self) -> str:
        """Whom the entry is for, for people."""
        parts = {"uid": self.user, "gid": self.group, "directory": self.directory}
        return ", ".join(f"{part} {value}" for part, value in parts.items() if value is not None)

    @property
    def in_words(self) -> str:
        """The whole entry, for people."""
        parts = {"names": self.names, "endpoints": self.endpoints, "urls": self.urls}
        said = [f"{part} {_listed(value)}" for part, value in parts.items() if value is not None]
        return "; ".join([*([self.whom] if self.whom else []), *said])


class Claimant(NamedTuple):
    """Whose a card file is: the owner's uid and groups, and the directory that it lies in."""

    uid: int | None
    groups: Collection[int]
    directory: str


class _Miss(NamedTuple):
    """A part of an entry that a card does not match: what the card says, and what would match."""

    part: str
    found: str
    expected: str


# Reading them


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry as it is written."""

    user: str | int | None = None
    group: str | int | None = None
    directory: str | None = None
    names: list[str] | None = None
    endpoints: list[str] | None = None
    urls: list[str] | None = None


def read_allow(where: str, table: Mapping[str, Any], base: Path) -> Allow:
    """Read an entry; `where` names it for people, relative paths start at `base`.

    Raises ConfigError.
    """
    try:
        written = msgspec.convert(table, _Written)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{where}: {error}. An entry has user, group, directory, and the lists of patterns"
            " names, endpoints and urls"
        ) from None
    if not table:
        raise ConfigError(
            f'{where} says nothing. To allow every card write names = ["*"], or no entry at all'
        )
    directory = written.directory
    return Allow(
        user=None if written.user is None else _user(where, written.user),
        group=None if written.group is None else _group(where, written.group),
        # Without dots, as the directories are named.
        directory=None if directory is None else os.path.abspath(base / directory),  # noqa: PTH100  # resolve() follows links
        names=_patterns(written.names),
        endpoints=_patterns(written.endpoints),
        urls=_patterns(written.urls),
    )


def _patterns(written: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if written is None else tuple(written)


def _user(where: str, user: str | int) -> int:
    if isinstance(user, int) or user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        raise ConfigError(f"{where}: there is no user {user!r} on this host") from None


def _group(where: str, group: str | int) -> int:
    if isinstance(group, int) or group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise ConfigError(f"{where}: there is no group {group!r} on this host") from None


# Matching them


class Permits:
    """All entries, in order."""

    def __init__(self, entries: Iterable[Allow]) -> None:
        self._entries = [_Compiled(entry) for entry in entries]

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def by_group(self) -> bool:
        """Whether it matters which groups a user is in."""
        return any(each.entry.group is not None for each in self._entries)

    def refusal(self, card: Card, claimant: Claimant) -> Reason | None:
        """Return why no entry covers the card; None where one does, or where there are none.

        The reason speaks of the entry that comes closest: one for this user, if there is one, and
        of those the one with the fewest parts that do not match.
        """
        if not self._entries or any(each.covers(card, claimant) for each in self._entries):
            return None
        closest: tuple[bool, int, int] | None = None
        missed: list[_Miss] = []
        for number, each in enumerate(self._entries):
            misses = each.misses(card, claimant)
            rank = misses[0].part in ("user", "group", "directory"), len(misses), number
            if closest is None or rank < closest:
                closest, missed = rank, misses
        number = 0 if closest is None else closest[2]
        return _refusal(number, self._entries[number].entry, missed[0], claimant)


class _Compiled:
    """An entry that is ready to be matched."""

    def __init__(self, entry: Allow) -> None:
        self.entry = entry
        self._names = _expression(entry.names)
        self._endpoints = _expression(entry.endpoints)
        self._urls = _expression(entry.urls)

    def covers(self, card: Card, claimant: Claimant) -> bool:
        """Whether the card matches every part of the entry."""
        entry, names, endpoints, urls = self.entry, self._names, self._endpoints, self._urls
        return (
            entry.user in (None, claimant.uid)
            and (entry.group is None or entry.group in claimant.groups)
            and entry.directory in (None, claimant.directory)
            and (names is None or all(map(names.match, card.names)))
            and (endpoints is None or bool(endpoints.match("/".join(card.key.place))))
            and (urls is None or bool(card.url and urls.match(card.url)))
        )

    def misses(self, card: Card, claimant: Claimant) -> list[_Miss]:
        """Return what of the entry the card does not match, which it does not cover."""
        entry = self.entry
        misses: list[_Miss] = []
        if entry.user not in (None, claimant.uid):
            misses.append(_Miss("user", f"uid {claimant.uid}", f"uid {entry.user}"))
        if entry.group is not None and entry.group not in claimant.groups:
            found = ", ".join(map(str, sorted(claimant.groups))) or "none"
            misses.append(_Miss("group", f"gids {found}", f"gid {entry.group}"))
        if entry.directory not in (None, claimant.directory):
            misses.append(_Miss("directory", claimant.directory, entry.directory))
        if self._names is not None:
            for name in card.names:
                if not self._names.match(name):
                    misses.append(_Miss("names", name, _listed(entry.names)))
                    break
        place = "/".join(card.key.place)
        if self._endpoints is not None and not self._endpoints.match(place):
            misses.append(_Miss("endpoints", place, _listed(entry.endpoints)))
        if self._urls is not None and not (card.url and self._urls.match(card.url)):
            misses.append(_Miss("urls", card.url or "no url", _listed(entry.urls)))
        return misses


def _expression(patterns: Sequence[str] | None) -> re.Pattern[str] | None:
    if patterns is None:
        return None
    # Where there is no pattern, nothing matches.
    return re.compile("|".join(map(fnmatch.translate, patterns)) or "(?!)")


def _listed(patterns: Sequence[str] | None) -> str:
    shown = list(patterns or ())[:_LONGEST_LIST]
    more = len(patterns or ()) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") or "nothing"


def _refusal(number: int, entry: Allow, miss: _Miss, claimant: Claimant) -> Reason:
    whom = f" ({entry.whom})" if entry.whom else ""
    if miss.part in ("user", "group", "directory"):
        what = f"is for {miss.expected}"
        advice = f"for a new one for uid {claimant.uid}"
    else:
        what = f"does not allow {quoted(miss.found)}: its {miss.part} are {miss.expected}"
        advice = f"to add a pattern to its {miss.part}, or change the card"
    return Reason(
        rule="not_allowed",
        message=(
            f"no [[allow]] entry of the configuration covers this card of uid {claimant.uid} in "
            f"{claimant.directory}. Entry {number + 1}{whom} comes closest, but {what}. Ask the "
            f"operator {advice}"
        ),
        field=_FIELDS[miss.part],
        found=miss.found,
        expected=miss.expected,
    )


_FIELDS = {
    "user": "owner",
    "group": "owner",
    "directory": "file",
    "names": "names",
    "endpoints": "endpoint",
    "urls": "url",
}
