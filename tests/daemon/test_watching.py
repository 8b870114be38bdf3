import itertools
import shutil
import threading
import time
from pathlib import Path

import anyio
import pytest

from discoveryd.daemon.dropdir import DropDirectory
from discoveryd.daemon.watching import Notifier, native
from tests.daemon.disk import Collector, Deaf, Dying, Heard, card, following, replace, until


@pytest.fixture
def sink() -> Collector:
    return Collector()


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    (directory := tmp_path / "cards").mkdir()
    return directory


def move_away(directory: Path) -> None:
    directory.rename(directory.with_name("moved"))


def remake(directory: Path) -> None:
    directory.mkdir(parents=True)


class Mortal:
    """Arms real notifiers whose watch dies when told."""

    def __init__(self) -> None:
        self.armed = 0
        self.killed = threading.Event()
        self.refused = False

    def __call__(self, path: str) -> Notifier:
        if self.refused:
            raise RuntimeError("Too many open files (os error 24)")
        self.armed += 1
        return _Mortal(native(path), self.killed)


class _Mortal:
    def __init__(self, notifier: Notifier, killed: threading.Event) -> None:
        self._notifier = notifier
        self._killed = killed

    def watch(self, debounce: int, step: int, _timeout: int, stop: threading.Event, /) -> Heard:
        while True:
            if self._killed.is_set():
                self._killed.clear()
                raise RuntimeError("killed")
            heard = self._notifier.watch(debounce, step, 5, stop)
            if heard != "timeout":
                return heard

    def close(self) -> None:
        self._notifier.close()


async def test_a_healthy_watch_has_no_problem(cards: Path, sink: Collector) -> None:
    directory = DropDirectory(cards, sink)
    replace(cards / "a.json", card("m"))
    async with following(directory):
        status = directory.status
        assert status.path == str(cards)
        assert (status.layout, status.backend, status.watching) == ("cards", "native", True)
        assert (status.files, status.found_by_scan, status.problem) == (1, 0, None)
        assert status.rescan_seconds == 5.0
        assert 0 < status.last_scan_seconds < 5


async def test_a_rescan_finds_what_no_event_announced_and_counts_it(
    cards: Path, sink: Collector
) -> None:
    directory = DropDirectory(cards, sink, arm=Deaf, rescan_seconds=0.05)
    replace(cards / "a.json", card("a"))
    async with following(directory):
        assert directory.status.watching
        replace(cards / "b.json", card("b"))
        await sink.expect_card("b.json")
        (cards / "a.json").unlink()
        replace(cards / "b.json", card("b2"))
        await sink.expect({"b.json": "b2"})
        await until(lambda: directory.status.found_by_scan >= 2)


async def test_what_events_announce_is_not_counted(cards: Path, sink: Collector) -> None:
    directory = DropDirectory(cards, sink, rescan_seconds=0.01)
    async with following(directory):
        for number in range(30):
            replace(cards / f"{number}.json", card(f"m{number}"))
            await directory.scan()
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 1.2)
        assert directory.status.found_by_scan == 0


async def test_a_watch_that_dies_is_set_up_again_and_nothing_is_missed(
    cards: Path, sink: Collector
) -> None:
    arm = Mortal()
    directory = DropDirectory(cards, sink, arm=arm, rescan_seconds=3600)
    async with following(directory):
        arm.killed.set()
        replace(cards / "a.json", card("a"))
        await until(lambda: arm.armed == 2)
        await sink.expect_card("a.json")
        replace(cards / "b.json", card("b"))
        await sink.expect_card("b.json")
        status = directory.status
        assert status.watching
        assert status.problem == f"the watch of {cards} ended (killed) and was set up again"


async def test_a_watch_that_keeps_dying_is_set_up_ever_more_slowly(
    cards: Path, sink: Collector
) -> None:
    armed: list[float] = []

    def arm(path: str) -> Notifier:
        armed.append(time.monotonic())
        return Dying(path)

    directory = DropDirectory(cards, sink, arm=arm, rescan_seconds=0.1)
    async with following(directory):
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")
        await until(lambda: len(armed) >= 5)
        await until(lambda: not directory.status.watching)
        assert "no ears" in (directory.status.problem or "")
    pauses = [later - earlier for earlier, later in itertools.pairwise(armed)]
    assert pauses[3] > 2 * pauses[1]


async def test_a_refused_watch_is_a_problem_and_scans_go_on(cards: Path, sink: Collector) -> None:
    arm = Mortal()
    arm.refused = True
    directory = DropDirectory(cards, sink, arm=arm, rescan_seconds=0.05)
    async with following(directory):
        status = directory.status
        assert not status.watching
        assert "is not watched (Too many open files" in (status.problem or "")
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")
        arm.refused = False
        await until(lambda: directory.status.watching)


async def test_a_missing_directory_is_waited_for(tmp_path: Path, sink: Collector) -> None:
    cards = tmp_path / "later" / "cards"
    directory = DropDirectory(cards, sink, rescan_seconds=3600)
    assert await directory.first_scan() == []
    async with following(directory):
        status = directory.status
        assert not status.watching
        assert status.problem == f"waiting for directory {cards}: it does not exist"
        cards.mkdir(parents=True)
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")
        await until(lambda: directory.status.watching)
        assert directory.status.problem is None
        assert directory.status.found_by_scan == 0
        replace(cards / "b.json", card("b"))
        await sink.expect_card("b.json")


async def test_a_removed_directory_has_no_cards(cards: Path, sink: Collector) -> None:
    replace(cards / "a.json", card("a"))
    directory = DropDirectory(cards, sink, rescan_seconds=3600)
    async with following(directory):
        shutil.rmtree(cards)
        await until(lambda: not sink.present)
        await until(lambda: "waiting for directory" in (directory.status.problem or ""))
        assert not directory.status.watching


@pytest.mark.parametrize("gap", [0.0, 0.3])
async def test_a_directory_made_again_is_followed(gap: float, cards: Path, sink: Collector) -> None:
    replace(cards / "old.json", card("old"))
    async with following(DropDirectory(cards, sink, rescan_seconds=3600)):
        for number in range(3):
            shutil.rmtree(cards)
            await anyio.sleep(gap)
            remake(cards)
            replace(cards / f"new{number}.json", card(f"new{number}"))
            await sink.expect({f"new{number}.json": f"new{number}"})
        replace(cards / "after.json", card("after"))
        await sink.expect_card("after.json")


async def test_a_directory_renamed_away_and_replaced_is_followed(
    cards: Path, sink: Collector
) -> None:
    replace(cards / "old.json", card("old"))
    async with following(DropDirectory(cards, sink, rescan_seconds=3600)):
        move_away(cards)
        remake(cards)
        replace(cards / "new.json", card("new"))
        await sink.expect({"new.json": "new"})
        replace(cards.with_name("moved") / "stray.json", card("stray"))
        replace(cards / "after.json", card("after"))
        await sink.expect({"new.json": "new", "after.json": "after"})


async def test_a_replaced_parent_is_noticed_by_a_rescan(cards: Path, sink: Collector) -> None:
    replace(cards / "old.json", card("old"))
    directory = DropDirectory(cards / "deep", sink, rescan_seconds=0.1)
    (cards / "deep").mkdir()
    async with following(directory):
        move_away(cards)
        remake(cards / "deep")
        replace(cards / "deep" / "new.json", card("new"))
        await sink.expect({"new.json": "new"})
        replace(cards / "deep" / "after.json", card("after"))
        await sink.expect_card("after.json")


async def test_a_link_to_a_directory_is_followed_where_it_leads_now(
    cards: Path, sink: Collector
) -> None:
    (other := cards.with_name("other")).mkdir()
    link = cards.with_name("link")
    link.symlink_to(cards)
    replace(cards / "a.json", card("a"))
    replace(other / "b.json", card("b"))
    async with following(DropDirectory(link, sink, rescan_seconds=0.1)):
        assert sink.models() == {"a.json": "a"}
        (beside := cards.with_name("beside")).symlink_to(other)
        beside.rename(link)
        await sink.expect({"b.json": "b"})
        replace(other / "c.json", card("c"))
        await sink.expect_card("c.json")


async def test_it_ends_promptly_and_leaves_no_watch(cards: Path, sink: Collector) -> None:
    notifiers: list[Deaf] = []

    def arm(path: str) -> Notifier:
        notifiers.append(Deaf(path))
        return notifiers[-1]

    began = time.monotonic()
    async with following(DropDirectory(cards, sink, arm=arm)):
        pass
    assert time.monotonic() - began < 2
    assert [notifier.closed for notifier in notifiers] == [True]


async def test_it_ends_in_the_middle_of_a_burst(cards: Path, sink: Collector) -> None:
    async with following(DropDirectory(cards, sink, step_ms=1)):
        for number in range(300):
            replace(cards / f"{number}.json", card(f"m{number}"))
    assert len(sink.present) <= 300


async def test_it_ends_during_the_first_scan(cards: Path, sink: Collector) -> None:
    for number in range(1500):
        (cards / f"{number}.json").write_bytes(card(f"m{number}"))
    before = threading.active_count()
    with anyio.move_on_after(0.02) as scope:
        await DropDirectory(cards, sink).run()
    assert scope.cancelled_caught
    # The thread of the look goes back to its pool; that of the watch ends.
    await until(lambda: threading.active_count() <= before + 2)
    assert sink.batches == []


async def test_a_sink_that_fails_ends_the_run(cards: Path) -> None:
    async def broken(_: object) -> None:
        raise ZeroDivisionError

    replace(cards / "a.json", card("a"))
    with pytest.raises(ExceptionGroup) as caught:
        await DropDirectory(cards, broken).run()
    assert caught.group_contains(ZeroDivisionError)


async def test_constant_noise_delays_no_card(cards: Path, sink: Collector) -> None:
    stop = threading.Event()

    def noise() -> None:
        number = 0
        while not stop.wait(0.002):
            (cards / f"noisy{number % 100}.json").write_bytes(card(f"n{number}"))
            number += 1

    async with following(DropDirectory(cards, sink)):
        writer = threading.Thread(target=noise)
        writer.start()
        try:
            await until(lambda: len(sink.present) > 20)
            for number in range(5):
                replace(cards / f"{number}.json", card(f"m{number}"))
                await sink.expect_card(f"{number}.json", seconds=2)
        finally:
            stop.set()
            writer.join()
