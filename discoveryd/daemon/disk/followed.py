"""The directories that are followed: who comes, who is left, and what all of them are asked.

Theory
======

**A course.** Each directory has a task of its own, from its first look to its end. It arms and
scans (`join`), and waits, since what it found is to be applied together with what others found and
with what is said of those that are left; then it follows (`begin`). One that cannot finish its
first scan in time begins without, and passes on by itself what it finds once it does.

**Left** is a directory from one moment to the next: from then on nothing that it saw is heeded,
whatever its threads are still doing in a file system that does not answer. Its watch ends soon
after. What becomes of its cards is the caller's to say.

**Remade** is one that is left and joined in one step, to be read in another way. Whatever the
former told in between, the latter counts as known, so that it tells what is gone. Who asked the
former and has no answer yet is answered by the latter, whose first look may have been before that.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import anyio
import anyio.abc

from discoveryd.core.batch import Invalid, Sighting
from discoveryd.core.text import path_bytes
from discoveryd.daemon.disk.following import Follower, Sink


class Directory(NamedTuple):
    """A directory to follow, as the configuration names it, and how."""

    path: str
    layout: Literal["cards", "dynamo"]
    follow_symlinks: bool = False


class Heeding(Protocol):
    """Applies one batch of sightings, if `heeded()` still when it is about to."""

    def __call__(
        self, sightings: Sequence[Sighting], *, heeded: Callable[[], bool]
    ) -> Awaitable[None]:
        """Return when it is applied."""
        ...


Question = Callable[[Follower], Awaitable[None]]
"""Asks a follower for a look; returns when what was found has been applied."""

Known = Callable[[Collection[str]], list[str]]
"""Returns the files of these folders, named as sightings name them, that are told and not gone."""

Make = Callable[[Directory, Sink], Follower]
"""Makes what follows a directory and tells the sink."""


class _Heeded:
    """The sink of one directory, for as long as that is heeded.

    Apart from the course, so that what follows the directory knows no way back to it: see
    collecting.py.
    """

    def __init__(self, sink: Heeding) -> None:
        self._sink = sink
        self._left = False

    def __bool__(self) -> bool:
        return not self._left

    def leave(self) -> None:
        self._left = True

    async def tell(self, sightings: Sequence[Sighting]) -> None:
        await self._sink(sightings, heeded=self.__bool__)


class Course:
    """One directory, from the first look to the end.

    `found` is what the first scan found, once `seen` is set. `remade` says that the same directory
    was followed in another way before.
    """

    def __init__(self, directory: Directory, make: Make, sink: Heeding) -> None:
        self.directory = directory
        self.remade = False
        self._heeded = _Heeded(sink)
        self.follower = make(directory, self._heeded.tell)
        self.found: list[Sighting] = []
        self.seen = anyio.Event()
        self.ended = anyio.Event()
        self._begun = anyio.Event()
        self._scope = anyio.CancelScope()
        self._asking: set[anyio.CancelScope] = set()

    def take(self) -> list[Sighting]:
        """Take what the first scan found; the course itself will not tell it.

        Where links are not followed any more, the cards that they led to are gone first.
        """
        found, self.found = self.found, []
        if not self.remade or self.directory.follow_symlinks:
            return found
        gone = [Sighting(file=seen.file, found=None) for seen in found if _is_link(seen)]
        return [*gone, *found]

    def begin(self) -> None:
        """Let it follow from now on."""
        self._begun.set()

    def leave(self) -> None:
        """Heed it no more, let it end, and keep nobody waiting for it."""
        self._heeded.leave()
        for scope in (self._scope, *self._asking):
            scope.cancel()

    async def run(self, known: Known) -> None:
        """Look, wait for `begin`, and follow until left or cancelled."""
        try:
            with self._scope:
                self.found = await self.follower.first_scan()
                self.seen.set()
                try:
                    await self._begun.wait()
                    if self.remade:
                        self.expect(known({self.follower.display}))
                    if found := self.take():
                        await self._heeded.tell(found)
                except BaseException:
                    self.follower.stop()
                    raise
                await self.follower.run()
        finally:
            self.ended.set()

    def expect(self, files: Collection[str]) -> None:
        """Count these files, which lie in the directory, as known. Not while it is looked at."""
        self.follower.expect([path_bytes(file.rpartition("/")[2]) for file in files])

    async def ask(self, question: Question) -> bool:
        """Ask the follower; return when it has answered, or False once the directory is left."""
        if not self._heeded:
            return False
        with anyio.CancelScope() as scope:
            self._asking.add(scope)
            try:
                await question(self.follower)
            finally:
                self._asking.discard(scope)
        return bool(self._heeded)


class Followed:
    """All directories that are followed, in the order of the configuration. Lives on the loop.

    `sink` is told what they see.
    """

    def __init__(self, make: Make, sink: Heeding, known: Known) -> None:
        self._make = make
        self._sink = sink
        self._known = known
        self._courses: list[Course] = []

    def __iter__(self) -> Iterator[Follower]:
        return (course.follower for course in self._courses)

    @property
    def folders(self) -> dict[str, str]:
        """The folder of card files of each, as sightings name it, to its path as configured."""
        return {each.follower.display: each.directory.path for each in self._courses}

    # Who comes and who is left

    def make(self, directories: Sequence[Directory]) -> list[Course]:
        """Return a course for each of these directories that is not followed so already."""
        known = {course.directory for course in self._courses}
        former = {course.follower.display for course in self._courses}
        made: list[Course] = []
        for directory in dict.fromkeys(directories):
            if directory in known:
                continue
            course = Course(directory, self._make, self._sink)
            course.remade = course.follower.display in former
            if course.remade:
                course.expect(self._known({course.follower.display}))
            made.append(course)
        return made

    async def join(
        self,
        tasks: anyio.abc.TaskGroup,
        courses: Sequence[Course],
        patience_seconds: float = float("inf"),
    ) -> list[Course]:
        """Watch and scan these for the first time; return those that were through in time.

        They go on in `tasks`; nothing of them is told before `begin`.
        """
        for course in courses:
            tasks.start_soon(course.run, self._known)
        with anyio.move_on_after(patience_seconds):
            for course in courses:
                await course.seen.wait()
        return [course for course in courses if course.seen.is_set()]

    def replace(self, directories: Sequence[Directory], joined: Sequence[Course]) -> list[Course]:
        """Follow just these directories from now on, and return those that are left thereby.

        `joined` are the courses of those that were not followed so before.
        """
        courses = {course.directory: course for course in (*self._courses, *joined)}
        before, self._courses = (
            self._courses,
            [courses[each] for each in dict.fromkeys(directories)],
        )
        left = [course for course in before if course not in self._courses]
        for course in left:
            course.leave()
        return left

    # What all are asked

    def named(self, file: str) -> list[str]:
        """Return the card files that a path or bare name may mean, present or not."""
        if "/" not in file:
            return [f"{follower.display}/{file}" for follower in self]
        folder = file.rpartition("/")[0]
        return [file for follower in self if follower.display == folder][:1]

    def holding(self, file: str) -> Follower | None:
        """Return what follows the folder that a card file lies in."""
        folder = file.rpartition("/")[0]
        return next((follower for follower in self if follower.display == folder), None)

    async def look(self, files: Sequence[str]) -> None:
        """Look at these files; return when what was found has been applied."""
        wanted: dict[str, list[bytes]] = {}
        for file in files:
            for known in self.named(file):
                folder, _, name = known.rpartition("/")
                wanted.setdefault(folder, []).append(path_bytes(name))
        asked = [
            (course, _look_at(names))
            for course in self._courses
            if (names := wanted.get(course.follower.display))
        ]
        if len(asked) == 1:
            # What a worker waits for when it publishes itself: tasks would cost as much again.
            await self._ask(*asked[0])
            return
        async with anyio.create_task_group() as looks:
            for each in asked:
                looks.start_soon(self._ask, *each)

    async def scan(self, patience_seconds: float = float("inf")) -> list[str]:
        """Look at everything; return when what was found has been applied, or patience is over.

        Returns which directories were not through by then.
        """
        late = {course.follower.display: None for course in self._courses}

        async def scan(course: Course) -> None:
            await self._ask(course, _scan)
            del late[course.follower.display]

        with anyio.move_on_after(patience_seconds):
            async with anyio.create_task_group() as scans:
                for course in self._courses:
                    scans.start_soon(scan, course)
        return list(late)

    async def _ask(self, course: Course, question: Question) -> None:
        """Ask a course, or those that came in its place meanwhile."""
        if not await course.ask(question):
            for other in self._courses:
                if other.directory[:2] == course.directory[:2]:
                    await self._ask(other, question)


def _look_at(names: Sequence[bytes]) -> Question:
    async def look(follower: Follower) -> None:
        await follower.look(names)

    return look


async def _scan(follower: Follower) -> None:
    await follower.scan()


def _is_link(seen: Sighting) -> bool:
    return isinstance(seen.found, Invalid) and seen.found.reasons[0].rule == "symbolic_link"
