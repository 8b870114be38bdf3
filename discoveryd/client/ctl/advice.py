"""Why not: what `explain`, `sync` and an answer of NoSuchModel say, and which file is meant.

Asks the daemon and words the answer; prints nothing.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from discoveryd.client.blocking import Client
from discoveryd.client.ctl import show
from discoveryd.client.ctl.mending import in_shell
from discoveryd.client.errors import NoSuchFile, NoSuchModel
from discoveryd.core.text import display_path, path_bytes
from discoveryd.interface import Explanation, HistoryReply, SyncReply, Verdict

T = TypeVar("T")


def reads_as_file(what: str) -> bool:
    """Whether a word on the command line is rather a card file than a name.

    A name may have slashes too: with one it is a file only if there is one. What ends in .json
    is a file even if it is gone.
    """
    return what.endswith(".json") or ("/" in what and os.path.lexists(what) and not _is_dir(what))


def card_file(what: str) -> str:
    """Return how the daemon calls the card file that was named on the command line.

    A bare name of no file here is one in the drop directory, and a path of no file here may be
    what the daemon once printed: both stay as they are.
    """
    relative = "/" in what and not what.startswith("/")
    if not relative and not os.path.lexists(what) and _is_text(what):
        return what
    # Path.resolve would follow links, and the daemon knows its directories as they were named.
    return display_path(os.fsencode(os.path.abspath(what)))  # noqa: PTH100


def ask_of_files(client: Client, files: Sequence[str], ask: Callable[[Sequence[str]], T]) -> T:
    """Return what `ask` returns, called with the daemon's names of the files.

    A path that the daemon does not know may lead into one of its directories all the same, by a
    link in it: then that directory's name is tried.
    """
    named = [card_file(file) for file in files]
    try:
        return ask(named)
    except NoSuchFile:
        if not any("/" in file for file in named):
            raise
        directories = [directory.path for directory in client.status().directories]
        again = [_through_links(file, directories) for file in named]
        if again == named:
            raise
        return ask(again)


def _through_links(file: str, directories: Iterable[str]) -> str:
    folder, _, name = file.rpartition("/")
    for directory in directories:
        try:
            if Path(os.fsdecode(path_bytes(folder))).samefile(os.fsdecode(path_bytes(directory))):
                return f"{directory}/{name}"
        except OSError:
            continue
    return file


def sync(client: Client, files: Sequence[str]) -> SyncReply:
    """Wait until these files, or everything, have been applied."""
    return ask_of_files(client, files, lambda named: client.sync(*named))


def explain(client: Client, what: str) -> tuple[Explanation, str | None]:
    """Return the verdicts on a card file, or on the cards that ask for a name.

    What it is is guessed first, then tried the other way. With them comes the name of the model
    where `what` is the operator's name for it. Raises NoSuchFile or NoSuchModel.
    """

    def by_file() -> Explanation:
        return ask_of_files(client, [what], lambda named: client.explain(file=named[0]))

    def by_name() -> Explanation:
        return client.explain(name=what)

    tries: list[Callable[[], Explanation]] = [by_name, by_file]
    if reads_as_file(what):
        tries.reverse()
    try:
        return tries[0](), None
    except (NoSuchFile, NoSuchModel) as first:
        try:
            return tries[1](), None
        except (NoSuchFile, NoSuchModel):
            if isinstance(first, NoSuchModel):
                return _behind(client, what)
            raise first from None


def history(client: Client, what: str | None, limit: int | None) -> HistoryReply:
    """Return what became of a card file, or of the cards that asked for a name, or of all.

    What it is is guessed first; where there is nothing to tell, it is tried the other way.
    """
    if what is None:
        return client.history(limit=limit)

    def by_file() -> HistoryReply:
        file = card_file(what)
        told = client.history(file=file, limit=limit)
        if not told.events and "/" in file:
            directories = [directory.path for directory in client.status().directories]
            told = client.history(file=_through_links(file, directories), limit=limit)
        return told

    def by_name() -> HistoryReply:
        return client.history(name=what, limit=limit) if _is_text(what) else HistoryReply(events=())

    tries: list[Callable[[], HistoryReply]] = [by_name, by_file]
    if reads_as_file(what):
        tries.reverse()
    told = tries[0]()
    return told if told.events else tries[1]()


def _behind(client: Client, name: str) -> tuple[Explanation, str]:
    """Return the verdicts on the model that a name which no card asks for stands for."""
    model = client.resolve(name).model
    return client.explain(name=model), model


def nobody_serves(error: NoSuchModel) -> list[str]:
    """Return who waits for a name that nobody serves and why, and what may have been meant."""
    lines: list[str] = []
    if error.similar:
        lines.append(f"did you mean: {', '.join(error.similar)}")
    for verdict in error.waiting:
        why = "; ".join(reason.message for reason in verdict.reasons)
        lines.append(f"waiting: {verdict.file} ({verdict.standing}): {why}")
    if error.more_waiting:
        lines.append(f"and {error.more_waiting} more cards that ask for it")
    if error.waiting:
        lines.append(f"what to do about it: discoveryctl explain {in_shell(error.model)}")
    elif not error.similar:
        lines.append("no card asks for this name: drop one, or see discoveryctl list")
    return lines


def lines_of(verdicts: Iterable[Verdict]) -> list[str]:
    """Return all verdicts, with a line between them."""
    lines: list[str] = []
    for verdict in verdicts:
        lines += ["", *show.verdict(verdict)] if lines else show.verdict(verdict)
    return lines


def _is_dir(path: str) -> bool:
    return Path(path).is_dir()


def _is_text(what: str) -> bool:
    """Whether every byte of a word of the command line was UTF-8."""
    return what.isascii() or os.fsencode(what).decode(errors="replace") == what
