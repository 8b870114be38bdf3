"""Touches: heard of by whoever keeps leases, and news to nobody else."""

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.folder import Touch
from tests.daemon.disk import Collector, Deaf, card, following, replace, until

TOUCHED_NS = 1_700_000_000_123_456_789


class Heard:
    def __init__(self) -> None:
        self.touches: list[Touch] = []

    def __call__(self, touches: Collection[Touch]) -> None:
        self.touches += touches


@pytest.fixture
def sink() -> Collector:
    return Collector()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_bytes(card("a"))
    return path


def touch(path: Path) -> None:
    os.utime(path, ns=(TOUCHED_NS, TOUCHED_NS))


async def test_a_touch_is_heard_at_once_and_is_no_sighting(
    file: Path, sink: Collector, heard: Heard
) -> None:
    directory = DropDirectory(file.parent, sink, touched=heard, rescan_seconds=3600)
    async with following(directory):
        touch(file)
        await until(lambda: bool(heard.touches))
        assert heard.touches == [Touch(str(file), TOUCHED_NS)]
        assert len(sink.batches) == 1


async def test_a_touch_that_nobody_announced_is_found_by_the_next_scan(
    file: Path, sink: Collector, heard: Heard
) -> None:
    directory = DropDirectory(file.parent, sink, touched=heard, arm=Deaf, rescan_seconds=0.05)
    async with following(directory):
        touch(file)
        await until(lambda: heard.touches == [Touch(str(file), TOUCHED_NS)])


async def test_equal_bytes_in_another_file_say_that_it_was_replaced(
    file: Path, sink: Collector, heard: Heard
) -> None:
    async with following(DropDirectory(file.parent, sink, touched=heard)):
        replace(file, card("a"))
        touch(file)
        await until(lambda: any(each.replaced for each in heard.touches))
        await until(lambda: heard.touches[-1].mtime_ns == TOUCHED_NS)
        assert len(sink.batches) == 1


async def test_other_content_is_a_sighting_and_no_touch(
    file: Path, sink: Collector, heard: Heard
) -> None:
    async with following(DropDirectory(file.parent, sink, touched=heard)):
        replace(file, card("b"))
        await until(lambda: sink.models() == {"a.json": "b"})
        assert heard.touches == []
