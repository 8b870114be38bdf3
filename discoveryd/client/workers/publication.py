"""One worker's card in its file: written, changed and withdrawn, as long as the file is its own.

Files only; who holds the card, and what becomes of it, is worker.py's. Whether a file is a worker's
own is said by the mark in it (see cardtext.py). What another put in its place is let be, and so is
the place of a file that another removed: a worker does not fight over its name.
"""

import os
import secrets
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from discoveryd.client.workers.cardtext import encoded, marked, with_accepting, written
from discoveryd.client.workers.publishing import (
    MOST_BYTES,
    CannotWrite,
    check_name,
    read,
    shown,
    user,
    withdraw,
    write,
)

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""The inode that Linux gives the PID namespace which it starts with: the host's."""


class Taken(CannotWrite):
    """The file is the card of another worker."""


class Lying(Enum):
    """What lies where a card was put."""

    OWN = "the card that was put there, maybe edited since"
    OTHER = "something that another put there"
    NOTHING = "nothing"


class Publication:
    """A card, and the file that it is put into.

    Raises ValueError where `file` is no card file's name, and ValueError or TypeError where the
    card cannot be JSON of at most 1 MiB. Methods that touch the file raise CannotWrite.
    """

    def __init__(self, card: Mapping[str, object], file: str) -> None:
        check_name(file)
        self.file = file
        self.path: str | None = None
        self._mark = secrets.token_hex(8)
        self._accepting: bool | None = None
        self._over = False
        self._content = self._text(card)
        self._card = dict(card)

    def lying(self) -> Lying:
        """Return what lies where the card was put."""
        found = None if self.path is None else read(self.path)
        if found is None:
            return Lying.NOTHING
        return Lying.OWN if written(found[0]).mark == self._mark else Lying.OTHER

    def is_occupied(self, path: str) -> bool:
        """Whether the file is the card of another worker, which lives as far as the file says.

        A card that depends on no life is nobody's, and one that drains is about to go. Raises
        CannotWrite where the file is another user's, even for root: its card is that user's.
        """
        found = read(path)
        if found is None:
            return False
        content, status = found
        if status.st_uid != os.geteuid():
            owner = user(status.st_uid)
            raise CannotWrite(
                f"{shown(path)} belongs to {owner}: give yours another name, or remove that one"
            )
        said = written(content)
        return said.mark != self._mark and said.lives and said.accepting

    def put(self, path: str) -> None:
        """Write the card there, in place of whatever it is, and remove it where it was before.

        Nothing is put after `withdraw`.
        """
        if self._over:
            return
        write(path, self._content)
        before = self.path
        if before not in (None, path) and self.lying() is Lying.OWN:
            withdraw(before)
        self.path = path

    def replace(self, card: Mapping[str, object]) -> None:
        """Make `card` the card. Raises Taken where the file is another's, and changes nothing then.

        Where the card does not say whether it accepts, it stays as `accept` left it.
        """
        content = self._text(card)
        if self.path is not None:
            if self.lying() is Lying.OTHER:
                raise Taken(f"{shown(self.path)} has been replaced: it is no longer this worker's")
            write(self.path, content)
        self._card, self._content = dict(card), content

    def accept(self, accepting: bool) -> bool:
        """Let the card say whether it accepts; return whether the file was changed for it.

        What others edited in the file meanwhile is kept. A file that is another's, or gone, is let
        be, but should the card be put again, it says so.
        """
        self._accepting = accepting
        self._card.pop("accepting", None)
        self._content = self._text(self._card)
        found = None if self.path is None else read(self.path)
        if self.path is None or found is None or written(found[0]).mark != self._mark:
            return False
        content = with_accepting(found[0], accepting)
        if content == found[0]:
            return False
        write(self.path, content)
        return True

    def withdraw(self) -> None:
        """Remove the file if it is still this card's, for good."""
        self._over = True
        if self.path is not None and self.lying() is Lying.OWN:
            withdraw(self.path)

    def _text(self, card: Mapping[str, object]) -> bytes:
        content = encoded(marked(card, self._mark, accepting=self._accepting))
        if len(content) > MOST_BYTES:
            raise ValueError(f"the card has {len(content)} bytes; the daemon reads {MOST_BYTES}")
        return content


def process_name() -> str:
    """Return what tells this process from all others of the host, those in containers too."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = _FIRST_PID_NAMESPACE
    number = os.getpid()
    return str(number) if namespace == _FIRST_PID_NAMESPACE else f"{number}.{namespace}"
