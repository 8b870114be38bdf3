"""Waiting until a name is served: told by Watch when to look again, and saying why not yet.

Theory
======

A watch of the name is the bell: whenever the daemon says that something of it changed, Resolve is
asked, and its answer is what counts. Nothing is polled for that. What a person waits for is another
matter: a card that is dropped and refused changes nothing that is served, and Watch is silent. So
the words, and only they, come from Explain, which is asked at each bell and every second besides.

A daemon that is not there yet, or goes, is waited for, too.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing

import anyio

from discoveryd.client.aio import AsyncClient
from discoveryd.client.ctl import show
from discoveryd.client.errors import (
    ConnectionLost,
    DiscoverydError,
    NoDaemon,
    NoSuchModel,
    Timeout,
)
from discoveryd.interface import Resolution, Verdict

_WORDS_SECONDS = 1.0
"""How old what is said may be."""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5
"""Between two looks for a daemon that is not there."""


class Wait:
    """One wait for `name`, until it is ready and has as many accepting workers.

    `say` is called with what it is waited for, in words that follow on "waiting for NAME: ",
    whenever they change; the last ones are `why`.
    """

    def __init__(
        self, client: AsyncClient, name: str, workers: int, say: Callable[[str], None]
    ) -> None:
        self.why = "the daemon has not answered yet"
        self._client = client
        self._name = name
        self._workers = workers
        self._say = say
        self._found: Resolution | None = None
        self._connected = False
        self._bell = anyio.Event()

    async def run(self) -> Resolution:
        """Return the answer that was waited for.

        Raises BadReply, and CallRefused for what the daemon does not answer a name with.
        """
        outcome: Resolution | DiscoverydError | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._keep_saying)
            try:
                outcome = await self._follow()
            except DiscoverydError as error:
                outcome = error
            group.cancel_scope.cancel()
        if isinstance(outcome, Resolution):
            return outcome
        raise outcome or AssertionError("the group ends with an outcome, or by an exception")

    async def _follow(self) -> Resolution:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                async with aclosing(self._client.watch(name=self._name)) as replies:
                    async for reply in replies:
                        pause = _FIRST_PAUSE_SECONDS
                        if reply.partial or reply.heartbeat:
                            continue
                        if (found := await self._look()) is not None:
                            return found
            except (NoDaemon, ConnectionLost, Timeout) as error:
                self._connected = False
                self._tell(_absent(error))
            await anyio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _look(self) -> Resolution | None:
        """Return the answer, if it is the one that is waited for."""
        try:
            self._found = await self._client.resolve(self._name)
        except NoSuchModel:
            self._found = None
        found = self._found
        if found is not None and found.ready and len(found.workers) >= self._workers:
            return found
        self._connected = True
        self._bell.set()
        return None

    async def _keep_saying(self) -> None:
        while True:
            with anyio.move_on_after(_WORDS_SECONDS):
                await self._bell.wait()
            self._bell = anyio.Event()
            if not self._connected:
                continue
            verdicts: Sequence[Verdict] = ()
            try:
                verdicts = (await self._client.explain(name=self._name)).verdicts
            except NoSuchModel:
                pass
            except DiscoverydError:
                # Whoever follows meets with the same, and says so.
                continue
            if self._connected:
                self._tell(self._lacking(verdicts))

    def _lacking(self, verdicts: Sequence[Verdict]) -> str:
        found = self._found
        lacking: list[str] = []
        if found is not None and len(found.workers) < self._workers:
            lacking.append(f"{len(found.workers)} of {show.count(self._workers, 'worker')}")
        if found is not None and not found.ready and found.workers:
            lacking.append(show.lack(found))
        waiting = [verdict for verdict in verdicts if not verdict.good]
        if waiting:
            more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
            lacking.append(_waits(waiting[0]) + more)
        return "; ".join(lacking) or "no card asks for it"

    def _tell(self, why: str) -> None:
        if why != self.why:
            self.why = why
            self._say(why)


def _waits(verdict: Verdict) -> str:
    file = verdict.file.rpartition("/")[2]
    reasons = "; ".join(reason.message for reason in verdict.reasons)
    state = f"{file} is {verdict.standing}"
    return f"{state}: {reasons}" if reasons else state


def _absent(error: NoDaemon | ConnectionLost | Timeout) -> str:
    if isinstance(error, NoDaemon):
        places = "; ".join(f"{path}: {problem}" for path, _, problem in error.tried)
        return f"no discoveryd answers ({places})"
    return str(error)
