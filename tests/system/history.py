"""A drop directory under a random history: which cards are drawn; operations.py says what for.

Names and cards come from small alphabets, so that collisions are the rule. What a card says of
being alive is about this process and one that is `mortal`; a lease of one second is never renewed
but by chance.
"""

import json
import os
import random
from pathlib import Path

from tests.system.dropping import Json

FILES = [f"{letter}.json" for letter in "abcdefghijklmnop"]

LEASE_SECONDS = 1

MEMBERS = (
    *("display_name", "aliases", "source_path", "kv_cache_block_size", "labels", "accepting"),
    *("liveness", "instance", "component"),
)
"""What an edit may change."""

_Card = Json


class Directory:
    """A drop directory, and chance."""

    def __init__(self, path: Path, seed: str, mortal: int) -> None:
        self.path = path
        self.chance = random.Random(seed)  # noqa: S311  # no secret
        self.mortal = mortal
        self._count = 0

    # What cards say

    def card(self) -> _Card:
        """Draw a card."""
        self._count += 1
        draw = self.chance.choice
        card: _Card = {
            "display_name": draw("mnox"),
            "namespace": "k",
            "component": draw("ccq"),
            "endpoint": "e",
            "instance": draw("1234"),
            "labels": {"version": str(self._count)},
            "kv_cache_block_size": draw((16, 16, 32)),
        }
        if aliases := draw(((), (), ("x",), ("o",), ("m",), ("n", "x"), ("y", "z"))):
            card["aliases"] = aliases
        if (source := draw(("S", "S", "S", "T", "", None))) is not None:
            card["source_path"] = source
        if self.chance.random() < 0.2:
            card |= {"lora": {}, "display_name": draw("llrx"), "source_path": source or "S"}
            card["model_suffix"] = draw("12")
        if self.chance.random() < 0.1:
            card["accepting"] = False
        if self.chance.random() < 0.15:
            card["liveness"] = draw(
                (
                    {"lease_seconds": LEASE_SECONDS},
                    {"lease_seconds": 3600},
                    {"pid": os.getpid()},
                    {"pid": self.mortal},
                    {"held": True},
                )
            )
        return card

    def content(self) -> bytes:
        """Draw a card's bytes."""
        return json.dumps(self.card()).encode()

    def edited(self, file: str) -> bytes:
        """Return the card in the file with something else in it."""
        card = self.card_in(file)
        other = self.card()
        member = self.chance.choice(MEMBERS)
        card["labels"] = other["labels"]
        card.pop(member, None)
        if member in other:
            card[member] = other[member]
        return json.dumps(card).encode()

    def read(self, file: str) -> bytes:
        """Return what a file holds. Raises OSError where it is none; does not wait for a pipe."""
        descriptor = os.open(self.path / file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as opened:  # noqa: PTH123  # a descriptor has no path
            return opened.read()

    def card_in(self, file: str) -> _Card:
        """Return the card that a file holds. Raises OSError where it holds none."""
        try:
            card = json.loads(self.read(file))
        except (ValueError, RecursionError):
            card = None
        if not isinstance(card, dict):
            raise FileNotFoundError(file)
        return card

    def beside(self) -> Path:
        """Return a path in the directory that nobody looks at."""
        self._count += 1
        return self.path / f".{self._count}.tmp"

    def clear_for_writing(self, file: str) -> Path:
        """Return the file's path, with whatever would swallow writes out of the way."""
        path = self.path / file
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif path.is_symlink() or path.is_fifo() or path.is_socket():
            path.unlink()
        return path
