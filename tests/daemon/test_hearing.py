"""When the notifier is asked for news, and what becomes of them."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import anyio
import pytest

from discoveryd.daemon.disk import hearing, watching
from discoveryd.daemon.disk.bell import Bell
from discoveryd.daemon.disk.dropdir import DropDirectory
from discoveryd.daemon.disk.hearing import Pace
from tests.daemon.disk import Collector, Deaf, Heard, card, following, replace, until

STEP = 0.004


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    (directory := tmp_path / "cards").mkdir()
    return directory


@pytest.fixture
def bell(cards: Path) -> Iterator[Bell]:
    descriptor = os.open(cards, os.O_RDONLY)
    bell = Bell(descriptor)
    os.close(descriptor)
    yield bell
    bell.close()


class Asking:
    """A thread that asks a pace as a notifier does, and notes when it was answered."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.answers: list[float] = []
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pace.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _ask(self) -> None:
        while not self.pace.is_set():
            self.answers.append(time.monotonic())


async def test_nobody_asks_while_nothing_happens_but_for_a_sign_of_life(bell: Bell) -> None:
    with Asking(Pace(bell, STEP, 0.2)) as asking:
        await until(lambda: len(asking.answers) >= 14)
    # Two answers each time, and a few times at the beginning.
    quiet = asking.answers[8:14]
    assert quiet[-1] - quiet[0] > 0.3


async def test_one_ring_is_asked_about_again_but_not_for_ever(cards: Path, bell: Bell) -> None:
    with Asking(Pace(bell, STEP, 3600)) as asking:
        await until(lambda: asking.pace.asked_at > 0 and len(asking.answers) >= 6)
        before = len(asking.answers)
        replace(cards / "a.json", card("a"))
        await until(lambda: len(asking.answers) >= before + 8)
        await anyio.sleep(0.2)
        assert len(asking.answers) <= before + 12


async def test_who_never_stops_ringing_is_asked_about_once_a_step(
    cards: Path, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "QUIET_SECONDS", 60)  # a busy machine makes pauses of its own
    with Asking(Pace(bell, 0.05, 3600)) as asking:
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            replace(cards / "a.json", card("a"))
        taken = time.monotonic() - began
    assert len(asking.answers) / 2 < taken / 0.05 + 15


async def test_who_sleeps_stops_at_once(bell: Bell) -> None:
    with Asking(Pace(bell, STEP, 3600)) as asking:
        await until(lambda: len(asking.answers) >= 6)
        began = time.monotonic()
    assert time.monotonic() - began < 5


class Late(Deaf):
    """A notifier whose news of a file come only when it is asked for the third time."""

    awaited = Path()

    def watch(self, _debounce: int, _step: int, _timeout: int, stop: threading.Event, /) -> Heard:
        asked = 0
        while not (stop.is_set() or stop.is_set()):
            asked += self.awaited.exists()
            if asked == 3:
                return {(1, f"{self.path}/{self.awaited.name}")}
        return "stop"


async def test_news_that_are_later_than_the_bell_are_heard(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SILENT_SECONDS", 3600)
    monkeypatch.setattr(Late, "awaited", cards / "a.json")
    sink = Collector()
    async with following(DropDirectory(cards, sink, arm=Late, rescan_seconds=3600)):
        replace(cards / "a.json", card("a"))
        await sink.expect_card("a.json")


async def test_where_news_were_lost_everything_is_looked_at_at_once(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither counts as found by accident, nor the watch as deaf."""
    sink = Collector()
    silence = Bell.silence

    def overflowed(bell: Bell) -> bool:
        silence(bell)
        return True

    class Hears(Deaf):
        def watch(
            self, _debounce: int, _step: int, _timeout: int, stop: threading.Event, /
        ) -> Heard:
            return "stop" if stop.is_set() or stop.is_set() else {(1, f"{self.path}/other.json")}

    monkeypatch.setattr(Bell, "silence", overflowed)
    directory = DropDirectory(cards, sink, arm=Hears, rescan_seconds=3600)
    async with following(directory):
        for number in range(5):
            replace(cards / f"{number}.json", card(f"m{number}"))
            await sink.expect_card(f"{number}.json")
        await anyio.sleep(1.2)
        assert directory.status.found_by_scan == 0
        assert directory.status.watching
