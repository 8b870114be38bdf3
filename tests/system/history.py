"""Random histories of a drop directory: every way in which files come, change and go.

A history is made of operations that are drawn from a seed and read what lies in the directory only
where they must (an edit keeps the rest of its card). Names and cards come from small alphabets, so
that collisions are the rule. What a card says of being alive is about this process and one that is
`mortal`; a lease of one second is never renewed but by chance.
"""

import contextlib
import json
import mmap
import os
import random
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tests.system.dropping import Json, write

FILES = [f"{letter}.json" for letter in "abcdefghijklmnop"]
NOISE = [".tmp_x", "a.json~", "b.json.swp", "README", ".c.json"]

LEASE_SECONDS = 1

_Card = Json
Operation = Callable[["Directory", str], None]


class Directory:
    """A drop directory, and chance. `operations` counts what was done, by kind."""

    def __init__(self, path: Path, seed: str, mortal: int) -> None:
        self.path = path
        self.chance = random.Random(seed)  # noqa: S311  # no secret
        self.mortal = mortal
        self.operations: dict[str, int] = {}
        self._count = 0

    def step(self) -> None:
        """Do one operation."""
        (operation,) = self.chance.choices(list(OPERATIONS), list(OPERATIONS.values()))
        name = operation.__name__
        self.operations[name] = self.operations.get(name, 0) + 1
        # What lies there may be a directory, a pipe, or gone: then nothing happens.
        with contextlib.suppress(OSError):
            operation(self, self.chance.choice(FILES))

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
        member = self.chance.choice(
            ["display_name", "aliases", "kv_cache_block_size", "labels", "accepting", "source_path"]
            + ["liveness", "instance", "component"]
        )
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


# Ways of writing


def rename_over(at: Directory, file: str) -> None:
    write(at.clear_for_writing(file), at.content())


def edit(at: Directory, file: str) -> None:
    content = at.edited(file)
    write(at.clear_for_writing(file), content)


def write_in_place(at: Directory, file: str) -> None:
    at.clear_for_writing(file).write_bytes(at.content())


def write_in_pieces(at: Directory, file: str) -> None:
    content = at.content()
    with at.clear_for_writing(file).open("wb", buffering=0) as opened:
        for start in range(0, len(content), 40):
            opened.write(content[start : start + 40])
            os.sched_yield()


def copy_over(at: Directory, file: str) -> None:
    source = at.beside()
    source.write_bytes(at.content())
    shutil.copyfile(source, at.clear_for_writing(file))
    source.unlink()


def link_and_unlink(at: Directory, file: str) -> None:
    source = at.beside()
    source.write_bytes(at.content())
    path = at.clear_for_writing(file)
    path.unlink(missing_ok=True)
    path.hardlink_to(source)
    source.unlink()


def delete_and_create(at: Directory, file: str) -> None:
    path = at.clear_for_writing(file)
    path.unlink(missing_ok=True)
    path.write_bytes(at.content())


def write_mapped(at: Directory, file: str) -> None:
    content = at.content()
    path = at.clear_for_writing(file)
    with path.open("a+b") as opened:
        opened.truncate(max(len(content), 400))
        with mmap.mmap(opened.fileno(), 0) as mapped:
            mapped[:] = content.ljust(len(mapped))[: len(mapped)]
            mapped.flush()


def keep_size_and_mtime(at: Directory, file: str) -> None:
    before = (at.path / file).lstat()
    content = at.edited(file)
    path = at.clear_for_writing(file)
    with path.open("r+b") as opened:
        opened.write(content.ljust(before.st_size)[: max(before.st_size, len(content))])
        opened.truncate()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def append_and_cut(at: Directory, file: str) -> None:
    size = (at.path / file).lstat().st_size
    with at.clear_for_writing(file).open("ab") as opened:
        opened.write(b"\n#")
        opened.flush()
        opened.truncate(size)


# Changes of several files


def burst(at: Directory, _file: str) -> None:
    for _ in range(at.chance.randint(5, 30)):
        rename_over(at, at.chance.choice(FILES))


def roll(at: Directory, _file: str) -> None:
    """Edit several, as a rolling update does."""
    for file in at.chance.sample(FILES, 4):
        with contextlib.suppress(OSError):
            edit(at, file)


def swap_files(at: Directory, file: str) -> None:
    other, aside = at.path / at.chance.choice(FILES), at.beside()
    (at.path / file).rename(aside)
    if other.exists():
        other.rename(at.path / file)
    aside.rename(other)


def swap_names(at: Directory, file: str) -> None:
    other = at.chance.choice(FILES)
    mine, its = at.card_in(file), at.card_in(other)
    for member in ("display_name", "aliases"):
        pair = its.pop(member, None), mine.pop(member, None)
        for card, value in zip((mine, its), pair, strict=True):
            if value is not None:
                card[member] = value
    write(at.path / file, mine)
    write(at.path / other, its)


def rename_away(at: Directory, file: str) -> None:
    (at.path / file).rename(at.clear_for_writing(at.chance.choice(FILES)))


def duplicate(at: Directory, file: str) -> None:
    content = at.read(file)
    write(at.clear_for_writing(at.chance.choice(FILES)), content)


def remove(at: Directory, file: str) -> None:
    at.clear_for_writing(file).unlink()


# What is no card


def tear(at: Directory, file: str) -> None:
    content = at.read(file)
    at.clear_for_writing(file).write_bytes(content[: at.chance.randrange(len(content) + 1)])


def write_garbage(at: Directory, file: str) -> None:
    garbage = [b"", b"\0\xff", b"[]", b"{}", b'{"display_name":1}', b" " * (2**20 + 1), b"[" * 9999]
    write(at.clear_for_writing(file), at.chance.choice(garbage))


def put_something_else(at: Directory, file: str) -> None:
    path = at.clear_for_writing(file)
    path.unlink(missing_ok=True)
    match at.chance.randrange(4):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to(at.chance.choice(FILES))
        case _:
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))


def make_noise(at: Directory, _file: str) -> None:
    path = at.path / at.chance.choice(NOISE)
    path.write_bytes(at.content())
    if at.chance.random() < 0.5:
        path.unlink()


# What changes no content


def touch(at: Directory, file: str) -> None:
    at.read(file)
    if at.chance.random() < 0.3:
        then = time.time() + at.chance.uniform(-1e5, 1e5)
        os.utime(at.path / file, (then, then))
    else:
        os.utime(at.path / file)


def change_owner(at: Directory, file: str) -> None:
    if os.geteuid() == 0:
        os.chown(at.path / file, at.chance.choice((0, 1, 1001)), -1, follow_symlinks=False)


# The directory


def swap_directory(at: Directory, _file: str) -> None:
    """Let another directory, which has been filled before, take its place."""
    other, aside = at.path.with_name("other"), at.path.with_name("aside")
    other.mkdir()
    for file in at.chance.sample(FILES, 8):
        write(other / file, at.content())
    at.path.rename(aside)
    other.rename(at.path)
    shutil.rmtree(aside)


def replace_directory(at: Directory, _file: str) -> None:
    """Let it be gone for a moment, or for longer."""
    aside = at.path.with_name("aside")
    at.path.rename(aside)
    if at.chance.random() < 0.5:
        aside.rename(at.path)
    else:
        shutil.rmtree(aside)
        os.sched_yield()
        at.path.mkdir()


OPERATIONS: dict[Operation, float] = {
    rename_over: 20,
    edit: 24,
    write_in_place: 5,
    write_in_pieces: 3,
    copy_over: 4,
    link_and_unlink: 4,
    delete_and_create: 4,
    write_mapped: 3,
    keep_size_and_mtime: 4,
    append_and_cut: 2,
    burst: 0.5,
    roll: 3,
    swap_files: 3,
    swap_names: 4,
    rename_away: 4,
    duplicate: 4,
    remove: 8,
    tear: 4,
    write_garbage: 3,
    put_something_else: 1,
    make_noise: 2,
    touch: 6,
    change_owner: 1,
    swap_directory: 0.2,
    replace_directory: 0.1,
}
"""Every operation, and how often it is drawn."""
