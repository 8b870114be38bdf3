"""Random histories of file operations: whatever happened, the end is what a fresh look finds."""

import mmap
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.reading import read_directory
from tests.daemon.disk import Collector, card, following, replace

NAMES = ["a.json", "b.json", "c.json", "d.json", os.fsdecode(b"\xfe.json"), ".e.json"]
OLD_NS = 10**18


def twice(file: Path, content: bytes) -> None:
    replace(file, content)
    replace(file, content[:5])


def as_old(file: Path, content: bytes) -> None:
    if not file.is_symlink():
        file.write_bytes(content)
        os.utime(file, ns=(OLD_NS, OLD_NS))


def mapped(file: Path, content: bytes) -> None:
    if file.is_symlink() or not file.exists() or file.stat().st_size == 0:
        return
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as memory:
        memory[:] = content[: len(memory)].ljust(len(memory))


def in_pieces(file: Path, content: bytes) -> None:
    if not file.is_symlink():
        with file.open("wb", buffering=0) as opened:
            for at in range(0, len(content), 7):
                opened.write(content[at : at + 7])


def operations(directory: Path, dice: random.Random) -> list[Callable[[Path], object]]:
    content = dice.choice([card(f"m{dice.randrange(5)}"), b"", b"{", b"[]", card("x" * 600)])
    other = directory / dice.choice(NAMES)
    free = not os.path.lexists(other)
    outside = directory.parent / dice.choice(["one", "two", "nothing"])
    return [
        lambda file: replace(file, content),
        lambda file: file.write_bytes(content),
        lambda file: file.unlink(missing_ok=True),
        lambda file: file.rename(other) if file.exists() else None,
        lambda file: other.hardlink_to(file) if file.exists() and free else None,
        lambda file: shutil.copyfile(file, other) if file.exists() and free else None,
        lambda file: os.utime(file, (1, 1)) if file.exists() else None,
        lambda file: twice(file, content),
        lambda file: as_old(file, content),
        lambda file: mapped(file, content),
        lambda file: in_pieces(file, content),
        lambda _: other.symlink_to(f"../{outside.name}") if free else None,
        lambda _: outside.write_bytes(content) if outside.name != "nothing" else None,
        lambda _: outside.unlink(missing_ok=True),
    ]


def replace_directory(cards: Path, dice: random.Random) -> None:
    """Put another directory in the place of this one, in one of the ways that there are."""
    if dice.random() < 0.5:
        shutil.rmtree(cards)
        cards.mkdir()
        return
    fresh = cards.with_name("fresh")
    shutil.copytree(cards, fresh, symlinks=True)
    cards.rename(cards.with_name("old"))
    fresh.rename(cards)
    shutil.rmtree(cards.with_name("old"))


def found(sightings: list[Sighting]) -> dict[str, object]:
    return {sighting.file: sighting.found for sighting in sightings}


async def fresh_look(cards: Path, *, follow_symlinks: bool) -> dict[str, object]:
    sink = Collector()
    async with following(DropDirectory(cards, sink, follow_symlinks=follow_symlinks)):
        return found(list(sink.present.values()))


@pytest.mark.parametrize("follow_symlinks", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_after_any_history_the_end_is_what_a_fresh_look_finds(
    seed: int, follow_symlinks: bool, tmp_path: Path
) -> None:
    dice = random.Random(seed)  # noqa: S311  # a history, not a secret
    (cards := tmp_path / "cards").mkdir()
    sink = Collector()
    directory = DropDirectory(cards, sink, follow_symlinks=follow_symlinks, step_ms=1)
    async with following(directory):
        for step in range(150):
            dice.choice(operations(cards, dice))(cards / dice.choice(NAMES))
            if step % 50 == 49 and seed % 2:
                replace_directory(cards, dice)
            if dice.random() < 0.3:
                await anyio.sleep(dice.random() / 200)
        await directory.scan()
        # A link that has come to lead nowhere is gone first, and told by the scan after that.
        await directory.scan()
        held = found(list(sink.present.values()))
        assert held == await fresh_look(cards, follow_symlinks=follow_symlinks)
        if not follow_symlinks:
            assert held == found(read_directory(cards))
