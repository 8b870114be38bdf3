"""Judging card files before anybody drops them: offline, or by the daemon that runs.

Offline it is the daemon's own reader and its own registry, over one batch of all that was named: as
if a daemon started with these files and nothing else. This is the one module of the client that
imports something of the daemon, and it is imported only when it is needed.
"""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import click
import msgspec

from discoveryd.client.blocking import Client
from discoveryd.client.ctl import show
from discoveryd.client.errors import NoSuchFile
from discoveryd.core.batch import Batch, Sighting
from discoveryd.core.card import Card
from discoveryd.core.registry import Registry
from discoveryd.core.text import display_path, printable
from discoveryd.daemon.disk.reading import is_card_name, open_directory, read_card, read_directory
from discoveryd.interface import CheckReply, Verdict


class Check(msgspec.Struct, frozen=True):
    """What a card file would get, and the files whose last versions would yield to it."""

    verdict: Verdict
    would_displace: tuple[str, ...] = ()


def judge(sightings: Sequence[Sighting]) -> list[Check]:
    """Judge these files as if there were no others; return what each gets, in order."""
    registry = Registry()
    registry.apply(Batch(sightings=tuple(sightings), now=time.time()))
    found = (registry.verdict(sighting.file) for sighting in sightings)
    return [Check(_as_answered(verdict)) for verdict in found if verdict is not None]


def ask(client: Client, sightings: Sequence[Sighting]) -> list[Check]:
    """Let the daemon judge each card alone: as the next content of its file, or as if dropped.

    What is no card at all is judged here.
    """
    checks: list[Check] = []
    for sighting in sightings:
        if isinstance(sighting.found, Card):
            reply = _ask_one(client, msgspec.Raw(sighting.found.content), sighting.file)
            checks.append(Check(reply.verdict, reply.would_displace))
        else:
            checks += judge([sighting])
    return checks


def _ask_one(client: Client, card: msgspec.Raw, file: str) -> CheckReply:
    # A file that lies elsewhere is judged as if it were dropped under its name.
    for name in (file, file.rpartition("/")[2]):
        try:
            return client.check(card, name)
        except NoSuchFile:
            continue
    return client.check(card)


def lines_of(checks: Sequence[Check]) -> list[str]:
    """Return what each file would get, with a line between them."""
    lines: list[str] = []
    for check in checks:
        lines += [""] if lines else []
        lines += show.verdict(check.verdict, supposed=True)
        lines += (f"  displaces: {printable(file)}" for file in check.would_displace)
    return lines


def read(paths: Sequence[str]) -> list[Sighting]:
    """Look at card files, and at all card files of directories; each file once, in order.

    Raises click.FileError for what cannot be listed or is gone, and UsageError for a file whose
    name no daemon would look at.
    """
    seen: dict[str, Sighting] = {}
    for path in paths:
        try:
            found = read_directory(path) if os.path.isdir(path) else [_read_file(path)]  # noqa: PTH112 - pathlib is slow to import
        except OSError as fault:
            raise click.FileError(path, fault.strerror) from None
        seen.update((sighting.file, sighting) for sighting in sorted(found, key=_file))
    return list(seen.values())


def _read_file(path: str) -> Sighting:
    absolute = os.fsencode(os.path.abspath(path))  # noqa: PTH100 - a link must not be followed
    folder, name = os.path.split(absolute)
    if not is_card_name(name):
        raise click.UsageError(
            f"{path} is no name of a card file: they end in .json and do not begin with a dot."
        )
    dir_fd = open_directory(folder)
    try:
        return read_card(dir_fd, display_path(folder), name).sighting
    finally:
        os.close(dir_fd)


def _file(sighting: Sighting) -> str:
    return sighting.file


def _as_answered(verdict: msgspec.Struct) -> Verdict:
    """Return a verdict of the core as the interface words it."""
    members = msgspec.to_builtins(verdict)
    since = datetime.fromtimestamp(members["since"], UTC).isoformat()
    return msgspec.convert({**members, "since": since}, Verdict)
