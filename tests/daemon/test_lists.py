"""Long answers: of one revision each, and made without keeping the others waiting."""

import json
from collections.abc import Awaitable, Iterator
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon.methods import lists
from discoveryd.daemon.methods.lists import Lists, Whole
from discoveryd.daemon.methods.parameters import ListWorkers, Nothing
from discoveryd.daemon.socket.answering import Peer
from discoveryd.daemon.writer import Writer
from tests.core.cards import card

PEER = Peer(0, 0, 0)
MANY = 3 * lists.SLICE


def sightings(count: int, start: int = 0) -> list[Sighting]:
    return [
        Sighting(file=f"/cards/{n}.json", found=card(f"m{n}", at=f"ns/c{n}/e/1"), mtime_ns=n)
        for n in range(start, start + count)
    ]


async def serving(count: int) -> Writer:
    writer = Writer("epoch", {})
    await writer.apply(sightings(count))
    return writer


def said(reply: Whole) -> tuple[int, list[str]]:
    """Return the revision and the names, or the workers' models, of one reply or of pieces."""
    replies = [json.loads(one) for one in ([reply] if isinstance(reply, bytes) else list(reply))]
    (revision,) = {one["cursor"]["revision"] for one in replies}
    items = [item for one in replies for item in one.get("names") or one.get("workers")]
    return revision, [item.get("model") for item in items]


def asked(writer: Writer, what: str, *, more: bool = True) -> Whole | Awaitable[Whole]:
    if what == "names":
        return Lists(writer).names(Nothing(), PEER, more)
    return Lists(writer).workers(ListWorkers(), PEER, more)


@pytest.mark.parametrize("what", ["names", "workers"])
async def test_a_short_list_is_there_at_once(what: str) -> None:
    reply = asked(await serving(lists.SLICE - 1), what, more=False)
    assert isinstance(reply, bytes)
    assert said(reply) == (1, [f"m{n}" for n in range(lists.SLICE - 1)])


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("what", ["names", "workers"])
@pytest.mark.parametrize("count", [lists.SLICE, lists.SLICE + 1, MANY])
async def test_a_long_list_is_whole_and_leaves_turns_to_the_others(
    what: str, count: int, more: bool
) -> None:
    writer = await serving(count)
    turns = 0
    listed: list[Whole] = []

    async def make() -> None:
        listed.append(await cast("Awaitable[Whole]", asked(writer, what, more=more)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make)
        while not listed:
            turns += 1
            await anyio.lowlevel.checkpoint()
    assert turns > count // lists.SLICE
    assert isinstance(listed[0], Iterator) == more
    assert said(listed[0]) == (1, [f"m{n}" for n in range(count)])


@pytest.mark.parametrize("changes", [1, lists.ATTEMPTS + 2])
async def test_a_list_is_that_of_one_revision_however_often_others_are_published(
    changes: int,
) -> None:
    writer = await serving(MANY)
    listed: list[Whole] = []

    async def make() -> None:
        listed.append(await cast("Awaitable[Whole]", asked(writer, "names")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make)
        for change in range(changes):
            await anyio.lowlevel.checkpoint()
            await writer.apply(sightings(1, start=MANY + change))
    revision, names = said(listed[0])
    assert names == [f"m{n}" for n in range(MANY + revision - 1)]


async def test_a_list_is_made_in_the_end_where_something_changes_all_the_time() -> None:
    writer = await serving(MANY)
    listed: list[Whole] = []

    async def make() -> None:
        listed.append(await cast("Awaitable[Whole]", asked(writer, "names")))
        changing.cancel()

    changing = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make)
        with changing:
            for change in range(10_000):
                await writer.apply(sightings(1, start=MANY + change))
    revision, names = said(listed[0])
    assert len(names) == MANY + revision - 1
