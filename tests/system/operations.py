"""Random operations on a drop directory: every way in which files come, change and go.

They read what lies there only where they must: an edit keeps the rest of its card.
"""

import contextlib
import mmap
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable

from tests.system.dropping import write
from tests.system.history import FILES, Directory

NOISE = [".tmp_x", "a.json~", "b.json.swp", "README", ".c.json"]

Operation = Callable[[Directory, str], None]


def step(at: Directory, done: Counter[str]) -> None:
    """Do one operation, and count it by its name."""
    (operation,) = at.chance.choices(list(OPERATIONS), list(OPERATIONS.values()))
    done[operation.__name__] += 1
    # What lies there may be a directory, a pipe, or gone: then nothing happens.
    with contextlib.suppress(OSError):
        operation(at, at.chance.choice(FILES))


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
