import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from discoveryd.daemon.disk import folder as folder_module
from discoveryd.daemon.disk import reading
from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.hearing import Notifier, native
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


def allow(directory: Path, mode: int) -> None:
    directory.chmod(mode)


def remake(directory: Path) -> None:
    directory.mkdir(parents=True)


class Mortal:
    """Arms real notifiers whose watch dies when told."""

    def __init__(self) -> None:
        self.armed = 0
        self.killed = threading.Event()
        self.refused: Exception | None = None

    def __call__(self, path: str) -> Notifier:
        if self.refused is not None:
            raise self.refused
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
    """B34."""
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
    """B37."""
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
    # They may be longer than meant, but no shorter.
    assert all(pause >= meant for pause, meant in zip(pauses[1:4], (0.1, 0.2, 0.4), strict=True))


async def test_a_refused_watch_is_a_problem_and_polled(cards: Path, sink: Collector) -> None:
    """B43."""
    arm = Mortal()
    arm.refused = RuntimeError("Too many open files (os error 24)")
    directory = DropDirectory(cards, sink, arm=arm, rescan_seconds=0.05)
    async with following(directory):
        status = directory.status
        assert not status.watching
        assert status.backend == "polling"
        assert "is not watched (Too many open files" in (status.problem or "")
        assert "sysctl fs.inotify.max_user_instances" in (status.problem or "")
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")
        arm.refused = None
        await until(lambda: directory.status.watching)
        assert directory.status.backend == "native"


async def test_a_missing_directory_is_waited_for(tmp_path: Path, sink: Collector) -> None:
    """B40."""
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
    """B38."""
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
    """B40."""
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

    with anyio.fail_after(30):
        async with following(DropDirectory(cards, sink, arm=arm, rescan_seconds=3600)):
            pass
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
    """B23."""
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
                await sink.expect_card(f"{number}.json")
        finally:
            stop.set()
            writer.join()


async def test_polling_is_twice_a_second_where_rescans_are_seldom(
    cards: Path, sink: Collector
) -> None:
    """B44: inotify's other limit."""
    arm = Mortal()
    arm.refused = OSError("OS file watch limit reached. about [...]")
    directory = DropDirectory(cards, sink, arm=arm, rescan_seconds=3600)
    async with following(directory):
        assert directory.status.rescan_seconds == 0.5
        assert "sysctl fs.inotify.max_user_watches" in (directory.status.problem or "")
        for number in range(3):
            replace(cards / "a.json", card(f"m{number}"))
            await sink.expect({"a.json": f"m{number}"})
        arm.refused = None
        await until(lambda: directory.status.watching)
        assert directory.status.rescan_seconds == 3600
        assert directory.status.problem is None


async def test_polling_can_be_asked_for(cards: Path, sink: Collector) -> None:
    """B34: forced."""
    directory = DropDirectory(cards, sink, arm=None)
    async with following(directory):
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")
        status = directory.status
        assert (status.backend, status.watching, status.rescan_seconds) == ("polling", False, 0.5)
        assert status.problem is None
        await until(lambda: directory.status.found_by_scan == 1)


async def test_a_file_system_known_to_tell_nothing_is_polled(
    cards: Path, sink: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B34: noticed by its type; changes without events are expected there, and no problem."""
    monkeypatch.setattr(folder_module, "file_system_of", lambda _: "nfs4")
    caplog.set_level("INFO")
    directory = DropDirectory(cards, sink, arm=Deaf)
    async with following(directory):
        assert f"{cards} is on nfs4, where changes may raise no event" in caplog.text
        for number in range(4):
            replace(cards / f"{number}.json", card(f"m{number}"))
        await until(lambda: directory.status.found_by_scan == 4)
        status = directory.status
        assert (status.backend, status.watching, status.problem) == ("polling", False, None)
        assert status.rescan_seconds == 0.5


class Silent(Deaf):
    """Arms real notifiers that hear nothing from the moment they are told to be dead inside."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = False
        self.armed = 0

    def arm(self, path: str) -> Notifier:
        self.armed += 1
        self.dead = False
        return _Silent(native(path), self)


class _Silent:
    def __init__(self, notifier: Notifier, master: Silent) -> None:
        self._notifier = notifier
        self._master = master
        self._number = master.armed

    def watch(self, debounce: int, step: int, timeout: int, stop: threading.Event, /) -> Heard:
        while True:
            heard = self._notifier.watch(debounce, step, timeout, stop)
            if heard == "stop" or not (self._master.dead and self._number == self._master.armed):
                return heard

    def close(self) -> None:
        self._notifier.close()


async def test_a_watch_that_is_dead_inside_is_found_out_and_set_up_again(
    cards: Path, sink: Collector
) -> None:
    """B37: its thread is gone and nobody says so."""
    silent = Silent()
    directory = DropDirectory(cards, sink, arm=silent.arm, rescan_seconds=0.1)
    async with following(directory):
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")
        assert silent.armed == 1
        silent.dead = True
        for number in range(3):
            replace(cards / f"{number}.json", card(f"m{number}"))
            await sink.expect_card(f"{number}.json")
        await until(lambda: silent.armed == 2)
        status = directory.status
        assert status.backend == "polling"
        assert "that the watch does not hear of" in (status.problem or "")
        replace(cards / "b.json", card("b"))
        await sink.expect_card("b.json")
        await until(lambda: directory.status.watching)
        assert directory.status.problem is None


async def test_a_watch_that_hears_nothing_is_set_up_again_only_once(
    cards: Path, sink: Collector
) -> None:
    """B34: a file system that tells nothing, of no known type."""
    armed: list[Deaf] = []

    def arm(path: str) -> Notifier:
        armed.append(Deaf(path))
        return armed[-1]

    directory = DropDirectory(cards, sink, arm=arm, rescan_seconds=0.1)
    async with following(directory):
        for number in range(12):
            replace(cards / "a.json", card(f"m{number}"))
            await sink.expect({"a.json": f"m{number}"})
        await until(lambda: len(armed) > 1)
        assert len(armed) == 2
        assert not directory.status.watching
        assert directory.status.backend == "polling"


async def test_a_look_that_takes_too_long_is_a_problem(
    cards: Path, sink: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that answers no more: what is known is served, and the status says it may be old."""
    monkeypatch.setattr("discoveryd.daemon.disk.pulse.SLOW_SECONDS", 0.05)
    hung, go_on = threading.Event(), threading.Event()
    scan = reading.scan

    def hanging(*args: Any, **named: Any) -> Any:
        if hung.is_set():
            go_on.wait(20)
        return scan(*args, **named)

    monkeypatch.setattr(folder_module, "scan", hanging)
    replace(cards / "a.json", card("a"))
    directory = DropDirectory(cards, sink, rescan_seconds=0.1)
    async with following(directory):
        hung.set()
        await until(lambda: f"a look at {cards} has taken" in (directory.status.problem or ""))
        assert sink.models() == {"a.json": "a"}
        hung.clear()
        go_on.set()
        await until(lambda: directory.status.problem is None)


async def test_a_directory_whose_path_is_not_utf8_is_watched(
    tmp_path: Path, sink: Collector
) -> None:
    (cards := tmp_path / os.fsdecode(b"\xff")).mkdir()
    directory = DropDirectory(cards, sink, rescan_seconds=3600)
    async with following(directory):
        assert directory.status.watching
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")


async def test_a_removal_that_no_event_told_of_is_found_though_the_inode_is_used_again(
    cards: Path, sink: Collector
) -> None:
    """B38: a lost event must not leave the watch on a directory that is no more."""
    lost = threading.Event()

    class Losing(_Mortal):
        def watch(self, debounce: int, step: int, _timeout: int, stop: threading.Event, /) -> Heard:
            while True:
                heard = self._notifier.watch(debounce, step, 0, stop)
                if heard == "stop" or not lost.is_set():
                    return heard

    directory = DropDirectory(
        cards, sink, arm=lambda path: Losing(native(path), lost), rescan_seconds=0.1
    )
    async with following(directory):
        lost.set()
        shutil.rmtree(cards)
        remake(cards)
        await directory.scan()
        lost.clear()
        await until(lambda: directory.status.watching)
        found = directory.status.found_by_scan
        replace(cards / "new.json", card("new"))
        await sink.expect_card("new.json")
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 1.2)
        assert directory.status.found_by_scan == found


async def test_links_are_followed_and_a_turned_one_is_one_batch(
    cards: Path, sink: Collector
) -> None:
    """B46, B47: a Kubernetes mount, and its update, which also removes a card."""
    for generation, names in (("..1", "abc"), ("..2", "ab")):
        (cards / generation).mkdir()
        for name in names:
            (cards / generation / f"{name}.json").write_bytes(card(f"{name}{generation}"))
    (cards / "..data").symlink_to("..1")
    for name in "abc":
        (cards / f"{name}.json").symlink_to(f"..data/{name}.json")
    directory = DropDirectory(cards, sink, follow_symlinks=True, rescan_seconds=3600)
    async with following(directory):
        assert sink.models() == {f"{name}.json": f"{name}..1" for name in "abc"}
        (cards / "..data_tmp").symlink_to("..2")
        (cards / "..data_tmp").rename(cards / "..data")
        shutil.rmtree(cards / "..1")
        await sink.expect({"a.json": "a..2", "b.json": "b..2"})
        assert len(sink.batches) == 2
        assert len(sink.batches[1]) == 3
        (cards / "c.json").unlink()
        await directory.scan()
        assert directory.status.files == 2
        assert directory.status.found_by_scan == 0


async def test_the_other_end_of_a_link_is_watched_by_the_rescan(
    cards: Path, sink: Collector
) -> None:
    """B48."""
    (cards.parent / "real").write_bytes(card("v1"))
    (cards / "a.json").symlink_to("../real")
    directory = DropDirectory(cards, sink, follow_symlinks=True, rescan_seconds=0.1)
    async with following(directory):
        assert sink.models() == {"a.json": "v1"}
        for version in ("v2", "v3", "v4", "v5"):
            replace(cards.parent / "real", card(version))
            await sink.expect({"a.json": version})
        assert directory.status.watching
        assert directory.status.problem is None


async def test_problems_are_logged_when_they_come_and_when_they_go(
    cards: Path, sink: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with following(DropDirectory(cards, sink, rescan_seconds=0.1)):
        allow(cards, 0o777)
        await until(lambda: f"chmod +t {cards}" in caplog.text)
        allow(cards, 0o1777)
        await until(lambda: f"all is well again with {cards}" in caplog.text)
        assert caplog.text.count("chmod +t") == 1
