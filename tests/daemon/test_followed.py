"""The directories that are followed, with followers that look when they are told to."""

from collections.abc import Callable, Collection, Sequence
from typing import cast

import anyio
import pytest

from discoveryd.core.batch import Sighting
from discoveryd.daemon.disk.followed import Directory, Followed
from discoveryd.daemon.disk.following import Follower, Sink
from tests.daemon.disk import until


class Slow(Follower):
    """Answers nobody before `answering` is set."""

    def __init__(self, directory: Directory) -> None:
        self.display = directory.path
        self.asked = 0
        self.answering = anyio.Event()

    def expect(self, names: Collection[bytes]) -> None:
        assert not names

    async def look(self, names: Collection[bytes]) -> None:
        assert names == [b"a.json"]
        await self.scan()

    async def scan(self) -> None:
        self.asked += 1
        await self.answering.wait()


async def nowhere(sightings: Sequence[Sighting], *, heeded: Callable[[], bool]) -> None:
    raise AssertionError((sightings, heeded))


@pytest.mark.parametrize("files", [["/cards/a.json"], None], ids=["files", "everything"])
async def test_who_asks_a_directory_that_is_remade_is_answered_by_the_new_one(
    files: list[str] | None,
) -> None:
    def make(directory: Directory, _: Sink) -> Follower:
        return Slow(directory)

    followed = Followed(make, nowhere, lambda _: [])

    def follow(directories: list[Directory]) -> Slow:
        made = followed.make(directories)
        followed.replace(directories, made)
        return cast("Slow", next(iter(followed)))

    async def ask() -> None:
        await (followed.scan() if files is None else followed.look(files))
        answered.set()

    answered = anyio.Event()
    former = follow([Directory("/cards", "cards")])
    async with anyio.create_task_group() as asking:
        asking.start_soon(ask)
        await until(lambda: former.asked == 1)
        latter = follow([Directory("/cards", "cards", follow_symlinks=True)])
        await until(lambda: latter.asked == 1)
        assert not answered.is_set()
        latter.answering.set()
    assert answered.is_set()


async def test_who_asks_a_directory_that_is_left_is_let_go() -> None:
    followed = Followed(lambda directory, _: Slow(directory), nowhere, lambda _: [])
    followed.replace(there := [Directory("/cards", "cards")], followed.make(there))
    former = cast("Slow", next(iter(followed)))
    async with anyio.create_task_group() as asking:
        asking.start_soon(followed.look, ["/cards/a.json"])
        await until(lambda: former.asked == 1)
        followed.replace([], [])
