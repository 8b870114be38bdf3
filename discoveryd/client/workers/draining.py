"""Draining workers from outside: `accepting` in card files that the caller may rewrite.

Which workers are meant the daemon says; whose file it is the disk says. A file is rewritten whole,
in its place, with its owner and mode, and every other member as it was. Prints nothing.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from discoveryd.client.blocking import Client
from discoveryd.client.workers.cardtext import with_accepting
from discoveryd.client.workers.publishing import ENVIRONMENT, CannotWrite, read, user, write
from discoveryd.core.text import path_bytes
from discoveryd.interface import Verdict


class Untouched(msgspec.Struct, frozen=True):
    """A card file that was let be, and why."""

    file: str
    why: str


class Outcome(msgspec.Struct, frozen=True):
    """What became of the files of the workers that were meant; files as the daemon calls them.

    `verdicts` are those of the files that were changed; `unchanged` said so before.
    """

    verdicts: tuple[Verdict, ...]
    unchanged: tuple[str, ...]
    untouched: tuple[Untouched, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that say now what was asked."""
        return (*(verdict.file for verdict in self.verdicts), *self.unchanged)


def set_accepting(
    client: Client, what: str, accepting: bool, environ: Mapping[str, str]
) -> Outcome:
    """Let the workers of the name or key `what` accept, or not; return when that is applied.

    Root may do it with every file, others with their own. Raises NoSuchModel where nobody serves
    it.
    """
    files = _files(client, what)
    stores = [each.path for each in client.status().directories if each.layout == "dynamo"]
    changed: list[str] = []
    unchanged: list[str] = []
    untouched: list[Untouched] = []
    for file in files:
        if any(file.startswith(f"{store}/") for store in stores):
            why = "lies in a Dynamo store, where only Dynamo writes"
            untouched.append(Untouched(file, why))
            continue
        try:
            into = changed if _rewrite(_path(file, environ), accepting) else unchanged
            into.append(file)
        except CannotWrite as fault:
            untouched.append(Untouched(file, str(fault)))
    verdicts = client.sync(*changed).verdicts if changed else ()
    return Outcome(verdicts, tuple(unchanged), tuple(untouched))


def _files(client: Client, what: str) -> list[str]:
    found = client.workers(name=what).workers
    if not found:
        found = tuple(worker for worker in client.workers().workers if worker.key == what)
    if not found:
        # Who waits for the name, and what may have been meant, is in the error that this raises.
        client.resolve(what)
    return [worker.file for worker in found]


def _path(file: str, environ: Mapping[str, str]) -> str:
    """Return where a file lies here, by the daemon's name for it."""
    path = Path(os.fsdecode(path_bytes(file)))
    elsewhere: Iterable[str] = environ.get(ENVIRONMENT, "").split(os.pathsep)
    if not path.exists():
        for directory in filter(None, elsewhere):
            if (Path(directory) / path.name).exists():
                return str(Path(directory) / path.name)
    return str(path)


def _rewrite(path: str, accepting: bool) -> bool:
    """Let the card say whether it accepts; return whether it had said otherwise."""
    found = read(path)
    if found is None:
        raise CannotWrite("is not there any more")
    content, status = found
    if os.geteuid() not in (0, status.st_uid):
        raise CannotWrite(f"belongs to {user(status.st_uid)}")
    try:
        wanted = with_accepting(content, accepting)
    except ValueError as fault:
        raise CannotWrite(str(fault)) from None
    if wanted == content:
        return False
    write(path, wanted, like=status)
    return True
