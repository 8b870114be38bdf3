"""The single writer: one batch at a time, in slices, published whole."""

import anyio
import anyio.lowlevel
import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon import writer as writing
from discoveryd.daemon.writer import Writer
from tests.core.cards import card


def sightings(count: int, start: int = 0) -> list[Sighting]:
    return [
        Sighting(file=f"/cards/{n}.json", found=card(f"m{n}", at=f"ns/c{n}/e/1"), mtime_ns=n)
        for n in range(start, start + count)
    ]


async def test_a_batch_is_one_revision_however_long() -> None:
    writer = Writer("epoch", {})
    await writer.apply(sightings(500))
    assert writer.answers.cursor.revision == 1
    assert len(writer.answers) == 500
    assert writer.standings == {"serving": 500}


async def test_others_get_their_turn_while_a_long_batch_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "SLICE_SECONDS", 0.0)
    writer = Writer("epoch", {})
    await writer.apply(sightings(1))
    revisions: list[int] = []
    names: list[int] = []

    async def look() -> None:
        while len(writer.answers) < 201:
            if writer.busy:
                revisions.append(writer.answers.cursor.revision)
                names.append(len(writer.answers))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        tasks.start_soon(writer.apply, sightings(200, start=1))
    assert len(revisions) > 10
    assert set(revisions) == {1}
    assert set(names) == {1}
    assert writer.answers.cursor.revision == 2


async def test_the_registry_is_lent_only_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SLICE_SECONDS", 0.0)
    writer = Writer("epoch", {})
    seen: list[int] = []

    async def ask() -> None:
        while not writer.busy:
            await anyio.lowlevel.checkpoint()
        async with writer.settled() as registry:
            seen.append(len(registry.served))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(writer.apply, sightings(50))
    assert seen == [50]


async def test_whoever_waits_hears_of_the_next_revision_and_of_nothing_else() -> None:
    writer = Writer("epoch", {})
    heard: list[int] = []

    async def wait() -> None:
        await writer.wait_published()
        heard.append(writer.answers.cursor.revision)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await writer.apply([])
        await writer.apply([Sighting(file="/cards/none.json", found=None)])
        assert heard == []
        await writer.apply(sightings(1))
    assert heard == [1]


async def test_what_was_rendered_of_a_name_is_forgotten_when_the_name_changes() -> None:
    writer = Writer("epoch", {})
    await writer.apply(sightings(2))
    writer.recall.keep("m0", b"rendered")
    writer.recall.keep("m1", b"rendered")
    await writer.apply([Sighting(file="/cards/1.json", found=None)])
    assert writer.recall.head("m0") == b"rendered"
    assert writer.recall.head("m1") is None
    assert writer.recall.tail == b',"cursor":{"epoch":"epoch","revision":2}}}\0'


async def test_owners_come_to_count_in_one_revision_with_the_batch_that_brings_it() -> None:
    writer = Writer("epoch", {})
    shared = [
        Sighting(file=f"/cards/{owner}", found=card("m", at=f"ns/c/e/{owner}"), owner=owner)
        for owner in (1000, 1001)
    ]
    await writer.apply(shared[:1])
    await writer.apply(shared[1:])
    answered: list[int] = []

    async def look() -> None:
        while writer.answers.cursor.revision == 2:
            found = writer.answers.resolve("m")
            answered.append(0 if found is None else len(found[0].workers))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await writer.apply(sightings(1), {"gpt": "m"}, by_owner=True)
    assert set(answered) == {2}
    assert writer.answers.cursor.revision == 3
    assert writer.standings == {"serving": 2, "blocked": 1}
    found = writer.answers.resolve("gpt")
    assert found is not None
    assert [served.file for served in found[0].workers] == ["/cards/1000"]
    await writer.apply(by_owner=True)
    assert writer.answers.cursor.revision == 3
