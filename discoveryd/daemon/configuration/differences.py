"""Two configurations compared: what may change in a running daemon, and what does, in words.

Pure. The socket with its mode and group, HTTP's, and the ledger are for the whole life of a daemon;
the rest is taken over at a reload. The words are for people who have just edited a file, so they
name each setting as the file does, and say what it was before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from discoveryd.core.text import quoted
from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.configuration.settings import NO_STATE
from discoveryd.daemon.permit.allowing import Allow


class Difference(NamedTuple):
    """What becomes of a running daemon that is told something else.

    `config` is what it goes by from now on; `changed` says what is different, `kept` what would
    be and is not.
    """

    config: Config
    changed: tuple[str, ...]
    kept: tuple[str, ...]


def compare(before: Config, told: Config) -> Difference:
    """Return what becomes of a daemon that goes by `before` and is told `told`."""
    kept = [
        f"{name} = {wanted} needs a restart: until then it stays {present}"
        for name, present, wanted in _pairs(_LASTING, before, told)
    ]
    config = msgspec.structs.replace(
        told,
        socket=before.socket,
        socket_mode=before.socket_mode,
        socket_group=before.socket_group,
        http=before.http,
        state=before.state,
    )
    changed = [
        *_directories("cards", before.cards, config.cards),
        *_directories("dynamo", before.dynamo, config.dynamo),
        *_aliases(before.aliases, config.aliases),
        *_entries(before.allow, config.allow),
        *(
            f"{name} is {wanted} now; it was {present}"
            for name, present, wanted in _pairs(_SINGLE, before, config)
        ),
    ]
    return Difference(config, tuple(changed), tuple(kept))


_LASTING: dict[str, Callable[[Config], str]] = {
    "socket": lambda config: config.socket,
    "socket_mode": lambda config: f"{config.socket_mode:04o}",
    "socket_group": lambda config: _number(config.socket_group),
    "http": lambda config: config.http or "left out",
    "state": lambda config: config.state or NO_STATE,
}

_SINGLE: dict[str, Callable[[Config], str]] = {
    "owner": lambda config: '"uid"' if config.by_owner else "left out",
    "quota": lambda config: _number(config.quota),
    "follow_symlinks": lambda config: str(config.follow_symlinks).lower(),
    "log_level": lambda config: config.log_level,
}
"""How the value of a setting reads."""


def _pairs(
    settings: Mapping[str, Callable[[Config], str]], before: Config, after: Config
) -> Iterator[tuple[str, str, str]]:
    for name, read in settings.items():
        if read(before) != read(after):
            yield name, read(before), read(after)


def _number(value: int | None) -> str:
    return "left out" if value is None else str(value)


def _directories(name: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for path in after:
        if path not in before:
            yield f"{name}: {path} is followed now"
    for path in before:
        if path not in after:
            yield f"{name}: {path} is followed no longer"


def _aliases(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for alias in dict.fromkeys((*before, *after)):
        was, now = before.get(alias), after.get(alias)
        if was == now:
            continue
        name = f"aliases: {quoted(alias)}"
        if now is None:
            yield f"{name} is none any longer; it stood for {quoted(was or '')}"
        elif was is None:
            yield f"{name} stands for {quoted(now)} now"
        else:
            yield f"{name} stands for {quoted(now)} now; it stood for {quoted(was)}"


def _entries(before: Sequence[Allow], after: Sequence[Allow]) -> Iterator[str]:
    came = [entry for entry in after if entry not in before]
    went = [entry for entry in before if entry not in after]
    for entry in came:
        yield f"[[allow]]: there is an entry for {entry.in_words} now"
    for entry in went:
        yield f"[[allow]]: the entry for {entry.in_words} is gone"
    if not (came or went) and tuple(before) != tuple(after):
        yield "[[allow]]: the entries stand in another order, or another number of times"
