"""The garbage collector is kept away from what stays, and comes back after."""

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon import collecting
from discoveryd.daemon.collecting import give_back, without_collecting
from discoveryd.daemon.gates import MANY, Gates
from discoveryd.daemon.life.liveness import Liveness
from discoveryd.daemon.writer import Writer
from tests.core.cards import card


class Watched(Writer):
    """A writer that notes whether the collector may run while it applies a batch."""

    def __init__(self) -> None:
        super().__init__("epoch", {})
        self.collecting: list[bool] = []

    async def apply(
        self,
        sightings: Sequence[Sighting] = (),
        operator_aliases: Mapping[str, str] | None = None,
        *,
        by_owner: bool | None = None,
    ) -> None:
        self.collecting.append(gc.isenabled())
        await super().apply(sightings, operator_aliases, by_owner=by_owner)


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """What a test froze is garbage like any other after it."""
    assert gc.isenabled()
    yield
    gc.unfreeze()


def sightings(count: int) -> list[Sighting]:
    return [Sighting(file=f"/cards/{n}.json", found=card(f"m{n}")) for n in range(count)]


async def test_many_cards_at_once_are_taken_in_without_the_collector() -> None:
    writer = Watched()
    gates = Gates(writer, Liveness(writer.apply), many_writers=lambda: False)
    frozen = gc.get_freeze_count()
    await gates.pass_on(sightings(MANY))
    assert writer.collecting == [False]
    assert gc.get_freeze_count() > frozen + MANY


async def test_few_cards_are_none_of_its_business() -> None:
    writer = Watched()
    gates = Gates(writer, Liveness(writer.apply), many_writers=lambda: False)
    frozen = gc.get_freeze_count()
    await gates.pass_on(sightings(MANY - 1))
    assert writer.collecting == [True]
    assert gc.get_freeze_count() == frozen


def test_one_within_another_leaves_the_end_to_the_outer() -> None:
    with without_collecting():
        with without_collecting():
            assert not gc.isenabled()
        assert not gc.isenabled()
        assert not gc.get_freeze_count()
    assert gc.get_freeze_count()


def test_the_collector_comes_back_after_a_failure() -> None:
    with pytest.raises(ValueError, match="broken"), without_collecting():
        raise ValueError("broken")
    assert gc.isenabled()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_that_is_free_between_what_stays_is_given_back() -> None:
    mebibytes = 64
    blocks = [b"x" * (1 << 14) for _ in range(mebibytes << 6)]
    del blocks[:-1]
    before = resident_bytes()
    give_back()
    assert before - resident_bytes() > mebibytes << 19
    assert blocks


def test_where_memory_cannot_be_given_back_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_LIBC", object())
    give_back()
    assert gc.isenabled()
