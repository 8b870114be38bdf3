import mmap
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

import anyio
import pytest

from discoveryd.core.batch import Invalid
from discoveryd.core.card import Card
from discoveryd.daemon.disk.dropdir import DropDirectory
from tests.daemon.disk import Collector, Deaf, card, following, replace, until


@pytest.fixture
def sink() -> Collector:
    return Collector()


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    (directory := tmp_path / "cards").mkdir()
    return directory


async def test_the_first_scan_is_handed_out_and_then_followed(cards: Path, sink: Collector) -> None:
    replace(cards / "a.json", card("a"))
    directory = DropDirectory(cards, sink)
    sink.take(await directory.first_scan())
    assert sink.models() == {"a.json": "a"}
    replace(cards / "between.json", card("b"))
    async with following(directory):
        await sink.expect_card("between.json")
        assert sink.batches[0][0].file == f"{cards}/a.json"


async def test_the_first_scan_is_one_batch(cards: Path, sink: Collector) -> None:
    for number in range(50):
        replace(cards / f"{number}.json", card(f"m{number}"))
    async with following(DropDirectory(cards, sink)):
        assert [len(batch) for batch in sink.batches] == [50]


async def test_an_empty_directory_is_no_batch(cards: Path, sink: Collector) -> None:
    async with following(DropDirectory(cards, sink)):
        assert sink.batches == []


def rename_over(file: Path, content: bytes) -> None:
    replace(file, content)


def in_place(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def copy(file: Path, content: bytes) -> None:
    source = file.parent.parent / "source"
    source.write_bytes(content)
    shutil.copyfile(source, file)


def link_and_unlink(file: Path, content: bytes) -> None:
    beside = file.with_name(".beside")
    beside.write_bytes(content)
    file.unlink(missing_ok=True)
    file.hardlink_to(beside)
    beside.unlink()


def delete_and_create(file: Path, content: bytes) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes(content)


def rename_in_from_outside(file: Path, content: bytes) -> None:
    outside = file.parent.parent / "outside"
    outside.write_bytes(content)
    outside.rename(file)


WAYS = [
    rename_over, in_place, copy, link_and_unlink, delete_and_create, rename_in_from_outside,
]  # fmt: skip


@pytest.mark.parametrize("write", WAYS)
async def test_every_way_to_write_is_seen_again_and_again(
    write: Callable[[Path, bytes], None], cards: Path, sink: Collector
) -> None:
    """B18, B19, B20."""
    async with following(DropDirectory(cards, sink)):
        for version in range(5):
            write(cards / "a.json", card(f"v{version}"))
            await sink.expect({"a.json": f"v{version}"})


async def test_a_slow_writer_is_seen_when_done(cards: Path, sink: Collector) -> None:
    """B01."""
    content = card("slow")
    async with following(DropDirectory(cards, sink)):
        with (cards / "a.json").open("wb") as file:
            file.write(content[:7])
            file.flush()
            await until(lambda: sink.rule("a.json") is not None)
            file.write(content[7:])
        await sink.expect({"a.json": "slow"})


async def test_the_same_size_with_the_old_mtime_is_seen(cards: Path, sink: Collector) -> None:
    """B26."""
    file = cards / "a.json"
    replace(file, card("m1"))
    os.utime(file, ns=(10**18, 10**18))
    async with following(DropDirectory(cards, sink, arm=Deaf, rescan_seconds=0.05)):
        file.write_bytes(card("m2"))
        os.utime(file, ns=(10**18, 10**18))
        await sink.expect({"a.json": "m2"})


async def test_a_file_filled_through_mmap_is_seen_without_an_event(
    cards: Path, sink: Collector
) -> None:
    """B32."""
    content = card("mapped")
    with (cards / "a.json").open("w+b") as file:
        file.truncate(len(content))
        async with following(DropDirectory(cards, sink, arm=Deaf, rescan_seconds=0.05)):
            assert sink.rule("a.json") is not None
            with mmap.mmap(file.fileno(), len(content)) as memory:
                memory[:] = content
                await sink.expect({"a.json": "mapped"})


@pytest.mark.parametrize("how", ["unlink", "rename_out", "rename_to_ignored"])
async def test_every_way_to_leave_is_seen(how: str, cards: Path, sink: Collector) -> None:
    """B20."""
    file = cards / "a.json"
    replace(file, card("m"))
    async with following(DropDirectory(cards, sink)):
        if how == "unlink":
            file.unlink()
        elif how == "rename_out":
            file.rename(cards.parent / "a.json")
        else:
            file.rename(cards / "a.json.off")
        await until(lambda: not sink.present)


async def test_a_scan_tells_a_rename_as_one_batch(cards: Path, sink: Collector) -> None:
    replace(cards / "a.json", card("m"))
    directory = DropDirectory(cards, sink, arm=Deaf)
    async with following(directory):
        (cards / "a.json").rename(cards / "b.json")
        await directory.scan()
        assert {s.file.rsplit("/", 1)[1] for s in sink.batches[-1]} == {"a.json", "b.json"}


async def test_foreign_files_and_subdirectories_are_no_news(cards: Path, sink: Collector) -> None:
    """B14, B22, B49."""
    directory = DropDirectory(cards, sink)
    async with following(directory):
        for name in (".a.json", "#a.json#", "a.json~", "a.json.bak", "4913", "x.txt"):
            (cards / name).write_bytes(card("no"))
        (cards / "sub").mkdir()
        (cards / "sub" / "b.json").write_bytes(card("no"))
        replace(cards / "good.json", card("good"))
        await directory.scan()
        assert sink.models() == {"good.json": "good"}
        assert directory.status.files == 1


async def test_bad_files_harm_no_other(cards: Path, sink: Collector) -> None:
    """B04, B13."""
    os.mkfifo(cards / "pipe.json")
    (cards / "dir.json").mkdir()
    (cards / "link.json").symlink_to("/dev/zero")
    (cards / "torn.json").write_bytes(b'{"display_name"')
    with (cards / "huge.json").open("wb") as file:
        file.truncate(8 << 30)
    replace(cards / "good.json", card("good"))
    async with following(DropDirectory(cards, sink)):
        assert sink.models() == {"good.json": "good"}
        bad = {name: sink.rule(name) for name in sink.present if name != "good.json"}
        assert bad.keys() == {"pipe.json", "dir.json", "link.json", "torn.json", "huge.json"}
        assert bad["huge.json"] == "too_large"


async def test_touches_and_equal_rewrites_are_no_news(cards: Path, sink: Collector) -> None:
    """B25."""
    file = cards / "a.json"
    replace(file, card("m"))
    directory = DropDirectory(cards, sink)
    async with following(directory):
        os.utime(file)
        await directory.look([b"a.json"])
        replace(file, card("m"))
        await directory.look([b"a.json"])
        file.chmod(0o640)
        await directory.scan()
        assert len(sink.batches) == 1


async def test_put_delete_put_ends_with_the_last_put(cards: Path, sink: Collector) -> None:
    """B29."""
    directory = DropDirectory(cards, sink)
    async with following(directory):
        for number in range(200):
            replace(cards / "a.json", card(f"old{number}"))
            (cards / "a.json").unlink()
            replace(cards / "a.json", card(f"new{number}"))
            if number % 20 == 0:
                await anyio.sleep(0.003)
        await sink.expect({"a.json": "new199"})
        await directory.scan()
        assert sink.models() == {"a.json": "new199"}


async def test_look_returns_when_the_file_is_applied(cards: Path, sink: Collector) -> None:
    directory = DropDirectory(cards, sink, arm=Deaf)
    async with following(directory):
        for version in range(20):
            replace(cards / "a.json", card(f"v{version}"))
            await directory.look([b"a.json"])
            assert sink.models() == {"a.json": f"v{version}"}


async def test_look_waits_for_the_sink(cards: Path, sink: Collector) -> None:
    directory = DropDirectory(cards, sink, arm=Deaf)
    async with following(directory):
        sink.delay = 0.05
        replace(cards / "a.json", card("m"))
        await directory.look([b"a.json"])
        assert sink.models() == {"a.json": "m"}


async def test_look_at_a_name_that_does_not_count_returns(cards: Path, sink: Collector) -> None:
    directory = DropDirectory(cards, sink, arm=Deaf)
    (cards.parent / "outside.json").write_bytes(card("no"))
    async with following(directory):
        await directory.look([b"../outside.json", b"no\0.json", b"gone.json"])
        assert sink.batches == []


async def test_scan_sees_what_was_written_before_the_call(cards: Path, sink: Collector) -> None:
    directory = DropDirectory(cards, sink, arm=Deaf)
    async with following(directory):
        sink.delay = 0.02

        async def write_and_scan(number: int) -> None:
            await anyio.sleep(0.003 * number)
            replace(cards / f"{number}.json", card(f"m{number}"))
            await directory.scan()
            assert f"{number}.json" in sink.models()

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(write_and_scan, number)


async def test_callers_share_a_scan(cards: Path, sink: Collector) -> None:
    directory = DropDirectory(cards, sink, arm=Deaf)
    async with following(directory):
        replace(cards / "a.json", card("m"))
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(directory.scan)
        assert len(sink.batches) == 1


async def test_batches_are_applied_one_after_another(cards: Path) -> None:
    busy = False
    versions: list[str] = []

    async def slow(sightings: object) -> None:
        nonlocal busy
        assert not busy
        busy = True
        await anyio.sleep(0.01)
        busy = False
        for sighting in sightings:  # type: ignore[attr-defined]  # a list of sightings
            assert isinstance(sighting.found, Card)
            versions.append(sighting.found.display_name)

    directory = DropDirectory(cards, slow)
    async with following(directory):
        for version in range(40):
            replace(cards / "a.json", card(f"{version:03}"))
            await anyio.sleep(0.002)
        await directory.scan()
    assert versions == sorted(versions)
    assert versions[-1] == "039"


class Writer:
    """Writes a new card every millisecond."""

    def __init__(self, directory: Path) -> None:
        self.written = 0
        self._directory = directory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    async def write_more(self, number: int) -> None:
        wanted = self.written + number
        await until(lambda: self.written >= wanted)

    def _write(self) -> None:
        while not self._stop.wait(0.001):
            replace(self._directory / f"{self.written}.json", card(f"m{self.written}"))
            self.written += 1


async def test_nothing_is_lost_between_arming_and_the_first_scan(cards: Path) -> None:
    """B35."""
    with Writer(cards) as writer:
        for _ in range(5):
            sink = Collector()
            directory = DropDirectory(cards, sink, rescan_seconds=3600)
            sink.take(await directory.first_scan())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(directory.run)
                await writer.write_more(20)
                written = {f"{number}.json" for number in range(writer.written)}
                await until(partial(written.issubset, sink.present))
                tasks.cancel_scope.cancel()


async def test_names_that_are_not_utf8_are_served_and_end_no_service(
    cards: Path, sink: Collector
) -> None:
    directory = DropDirectory(cards, sink, rescan_seconds=0.2)
    async with following(directory):
        (cards / os.fsdecode(b"\xff.json")).write_bytes(card("strange"))
        await sink.expect_card("\\xff.json")
        replace(cards / "a.json", card("after"))
        await sink.expect_card("a.json")
        problem = directory.status.problem
        assert problem is not None
        assert "\\xff.json" in problem
        assert "/proc/" not in problem
        (cards / os.fsdecode(b"\xff.json")).unlink()
        await sink.expect({"a.json": "after"})


async def test_many_names_of_one_model_stay_apart(cards: Path, sink: Collector) -> None:
    """B16, B17."""
    names = ["org%2Fmodel", "org_model", "org-model", "x.tmp"]
    for name in names:
        replace(cards / f"{name}.json", card(name))
    async with following(DropDirectory(cards, sink)):
        assert set(sink.models().values()) == set(names)


async def test_a_relative_path_is_named_absolutely(
    cards: Path, sink: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cards.parent)
    replace(cards / "a.json", card("m"))
    async with following(DropDirectory("cards/", sink)):
        assert sink.batches[0][0].file == f"{cards}/a.json"
        replace(cards / "b.json", card("m2"))
        await sink.expect_card("b.json")


async def test_a_torn_file_is_one_sighting_with_its_faults(cards: Path, sink: Collector) -> None:
    (cards / "a.json").write_bytes(b"\0" * 40)
    directory = DropDirectory(cards, sink, arm=Deaf)
    async with following(directory):
        await directory.scan()
        await directory.scan()
        assert len(sink.batches) == 1
        assert isinstance(sink.batches[0][0].found, Invalid)
