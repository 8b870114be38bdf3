"""What has stopped ticking, told apart from what waits for a file system (B103)."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon.disk import reading
from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.hearing import Notifier, native
from discoveryd.daemon.disk.store import DynamoStore
from tests.daemon.disk import Collector, Deaf, Heard, card, following, replace, until

MUCH_LATER = 100.0
"""After which every round is overdue that does not come."""


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    (directory := tmp_path / "cards").mkdir()
    return directory


class Stuck(Deaf):
    """Never comes back, and asks nobody whether it should, until it is let go."""

    freed = threading.Event()

    def watch(self, _debounce: int, _step: int, _timeout: int, _stop: threading.Event, /) -> Heard:
        self.freed.wait()
        return "stop"


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    freed = threading.Event()
    monkeypatch.setattr(Stuck, "freed", freed)
    return freed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a watch be silent soon."""
    for module in ("following", "watching"):
        monkeypatch.setattr(f"discoveryd.daemon.disk.{module}.SILENT_SECONDS", 0.5)


def now() -> float:
    return anyio.current_time()


@pytest.mark.usefixtures("impatient")
async def test_a_living_watch_ticks_though_nothing_happens(cards: Path) -> None:
    directory = DropDirectory(cards, Collector())
    async with following(directory):
        began = now()
        # Had it ticked only when it was armed, it would be silent by then.
        await until(lambda: now() - began > 1.5)
        await until(lambda: directory.silent(now()) is None)


@pytest.mark.usefixtures("impatient")
async def test_a_watch_whose_thread_is_stuck_is_silent(cards: Path, stuck: threading.Event) -> None:
    directory = DropDirectory(cards, Collector(), arm=Stuck)
    async with following(directory):
        assert directory.silent(now()) is None
        await until(lambda: directory.silent(now()) is not None)
        assert f"the watch of {cards} has not looked for news" in (directory.silent(now()) or "")
        assert directory.status.watching
        stuck.set()


@pytest.mark.usefixtures("impatient")
async def test_each_folder_of_a_store_has_a_watch_that_must_tick(
    tmp_path: Path, stuck: threading.Event
) -> None:
    for folder in ("v1/mdc", "v1/instances"):
        (tmp_path / folder).mkdir(parents=True)

    def arm(path: str) -> Notifier:
        armed.append(path)
        return native(path) if len(armed) == 1 else Stuck(path)

    armed: list[str] = []
    store = DynamoStore(tmp_path, Collector(), arm=arm)
    async with following(store):
        await until(lambda: f"the watch of {tmp_path}/v1/instances" in (store.silent(now()) or ""))
        stuck.set()
    assert len(armed) == 2


async def test_a_batch_that_is_never_applied_makes_the_next_look_overdue(cards: Path) -> None:
    applied = anyio.Event()

    async def sink(_sightings: Sequence[Sighting]) -> None:
        await applied.wait()

    directory = DropDirectory(cards, sink, arm=None, rescan_seconds=0.02)
    await directory.first_scan()
    async with following(directory):
        replace(cards / "a.json", card("a"))
        await until(lambda: directory.status.files == 1)
        assert directory.silent(now()) is None
        await until(lambda: directory.silent(now() + MUCH_LATER) is not None)
        assert f"{cards} should have been looked at" in (directory.silent(now() + MUCH_LATER) or "")
        applied.set()


async def test_a_look_that_hangs_in_the_file_system_is_a_problem_and_no_silence(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process could not even be killed, and a new one would hang at the same place."""
    monkeypatch.setattr("discoveryd.daemon.disk.pulse.SLOW_SECONDS", 0.05)
    answers = threading.Event()
    hanging = False

    def opened(path: bytes) -> int:
        if hanging:
            answers.wait()
        return reading.open_directory(path)

    monkeypatch.setattr("discoveryd.daemon.disk.folder.open_directory", opened)
    directory = DropDirectory(cards, Collector(), arm=None, rescan_seconds=0.02)
    async with following(directory):
        hanging = True
        await until(lambda: "has taken" in (directory.status.problem or ""))
        assert directory.silent(now() + MUCH_LATER) is None
        hanging = False
        answers.set()
        await until(lambda: directory.status.problem is None)


async def test_a_watch_that_cannot_be_set_up_for_a_file_system_that_hangs_is_no_silence(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr("discoveryd.daemon.disk.pulse.SLOW_SECONDS", 0.05)
    arming = threading.Event()

    hanging = False

    def arm(path: str) -> Notifier:
        if hanging:
            arming.set()
            answers.wait()
        raise OSError(f"{path} is refused")

    directory = DropDirectory(cards, Collector(), arm=arm, rescan_seconds=0.02)
    async with following(directory):
        hanging = True
        await until(arming.is_set)
        await until(lambda: "has taken" in (directory.status.problem or ""))
        assert directory.silent(now() + MUCH_LATER) is None
        answers.set()
        await until(lambda: "has taken" not in (directory.status.problem or ""))


async def test_an_end_does_not_wait_for_a_watch_that_hangs_while_it_is_set_up(cards: Path) -> None:
    """B104."""
    answers = threading.Event()
    arming = threading.Event()

    def arm(path: str) -> Notifier:
        arming.set()
        answers.wait()
        return Deaf(path)

    directory = DropDirectory(cards, Collector(), arm=arm)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(directory.run)
            await until(arming.is_set)
            tasks.cancel_scope.cancel()
    answers.set()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("arm", [None, Deaf], ids=["polling", "watched"])
async def test_a_missing_directory_is_looked_for_and_not_silent(tmp_path: Path, arm: Any) -> None:
    directory = DropDirectory(tmp_path / "missing", Collector(), arm=arm, rescan_seconds=0.02)
    async with following(directory):
        await directory.scan()
        assert "waiting for directory" in (directory.status.problem or "")
        began = now()
        await until(lambda: now() - began > 1)
        assert directory.silent(now()) is None


async def test_nothing_is_expected_before_it_runs(cards: Path, stuck: threading.Event) -> None:
    directory = DropDirectory(cards, Collector(), arm=Stuck)
    await directory.first_scan()
    assert directory.silent(now() + MUCH_LATER) is None
    async with following(directory):
        await until(lambda: directory.silent(now() + MUCH_LATER) is not None)
        stuck.set()
