"""Random histories of file operations: whatever happened, the end is what a fresh look finds."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon.dropdir import DropDirectory
from discoveryd.daemon.reading import read_directory
from tests.daemon.disk import Collector, card, following, replace

NAMES = ["a.json", "b.json", "c.json", "d.json", os.fsdecode(b"\xfe.json"), ".e.json"]


def twice(file: Path, content: bytes) -> None:
    replace(file, content)
    replace(file, content[:5])


def operations(directory: Path, dice: random.Random) -> list[Callable[[Path], object]]:
    content = dice.choice([card(f"m{dice.randrange(5)}"), b"", b"{", b"[]", card("x" * 600)])
    other = directory / dice.choice(NAMES)
    free = not os.path.lexists(other)
    return [
        lambda file: replace(file, content),
        lambda file: file.write_bytes(content),
        lambda file: file.unlink(missing_ok=True),
        lambda file: file.rename(other) if file.exists() else None,
        lambda file: other.hardlink_to(file) if file.exists() and free else None,
        lambda file: shutil.copyfile(file, other) if file.exists() and free else None,
        lambda file: os.utime(file, (1, 1)) if file.exists() else None,
        lambda file: twice(file, content),
        lambda _: other.symlink_to("../elsewhere") if free else None,
    ]


def found(sightings: list[Sighting]) -> dict[str, object]:
    return {sighting.file: sighting.found for sighting in sightings}


@pytest.mark.parametrize("seed", range(6))
async def test_after_any_history_the_end_is_what_a_fresh_look_finds(
    seed: int, tmp_path: Path
) -> None:
    dice = random.Random(seed)  # noqa: S311  # a history, not a secret
    (cards := tmp_path / "cards").mkdir()
    sink = Collector()
    directory = DropDirectory(cards, sink, step_ms=1)
    async with following(directory):
        for step in range(150):
            dice.choice(operations(cards, dice))(cards / dice.choice(NAMES))
            if step % 50 == 49 and seed % 2:
                shutil.rmtree(cards)
                cards.mkdir()
            if dice.random() < 0.3:
                await anyio.sleep(dice.random() / 200)
        await directory.scan()
        assert found(list(sink.present.values())) == found(read_directory(cards))
