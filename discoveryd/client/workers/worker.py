"""A worker's card for as long as the worker lives: published, held, followed, withdrawn.

Theory
======

**One task keeps it.** Entering an `AsyncWorker` starts a task that asks the daemon where cards go,
puts the card there, calls Hold on it and takes in every verdict, until the worker is left. Whatever
ends the hold, the task begins again from what it finds, after a pause of 50 ms that grows to half a
second: a daemon that restarts gives holders five seconds, so the card serves on. Once entered, no
trouble with the daemon or the file ends the worker: a name service that is gone is no reason to
stop serving. `connected` says whether the card is held now; `verdict` stays what was said last.

**The first verdict decides.** Entering returns when the daemon has judged the card. Unless told to
wait, a worker that does not get to serve raises NotServing with the reasons, and leaves nothing
behind. Without a daemon it waits for one as long as its patience lasts.

**Whose file it is.** The name of the file follows from the model and the url, so that a worker that
starts again finds what it left behind when it was killed, and replaces it. The card of a worker
that lives is not replaced: two servers cannot have one url, so either that one is about to go, and
is waited for, or one of the two is a mistake, and it must not be the one that serves. What drains
may be replaced: it has said that it is going. While a worker is connected, it leaves alone what
others do to its file, and the verdict says it (a file that was removed: standing `gone`). Only
after the connection was lost is a missing file published again, since with the daemon's directory
in /run all files may have gone; and where a file is no longer watched, it moves to where the daemon
looks now (see holding.py). Leaving removes the file only while it is the worker's own (see
publication.py), and before the hold ends, since a held card whose hold ends is told as dead.

**Which verdict is the latest.** Verdicts come over the hold, and, after an update, by Sync. Within
one epoch the higher revision counts, but the first verdict of a new hold always does: a daemon that
was killed may have forgotten its last revisions.
"""

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

from discoveryd.client.errors import DiscoverydError
from discoveryd.client.workers.cardtext import file_name
from discoveryd.client.workers.holding import PASSING, Holding
from discoveryd.client.workers.publication import Publication, process_name
from discoveryd.client.workers.publishing import CannotWrite
from discoveryd.interface import Cursor, Verdict

_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_PARTING_SECONDS = 1.0


class NotServing(DiscoverydError):
    """The card does not get to serve; `verdict` says why, as the text does."""

    def __init__(self, verdict: Verdict) -> None:
        why = "; ".join(reason.message for reason in verdict.reasons)
        super().__init__(f"{verdict.file} is {verdict.standing}" + (f": {why}" if why else ""))
        self.verdict = verdict


class AsyncWorker:
    """Publishes `card` and holds it between entering and leaving; under asyncio or trio.

    `file` is the name of the card file, made from the card where it is None. `directory` is where
    it goes; where it is None, DISCOVERYD_CARDS says, else the daemon at `socket` (as for a client).
    `waiting`: a card that does not get to serve waits, instead of raising NotServing. `patience`:
    for how many seconds a first start waits for the daemon, or for another worker to give up the
    file, and how long each answer may take; None is for ever.

    A card without `liveness` is given `{"held": true}`. Raises ValueError where `file` is no card
    file's name, ValueError or TypeError where the card cannot be JSON of at most 1 MiB.

    A worker is entered once, and left in the task that entered it. A child that is forked meanwhile
    and runs no other program keeps the connection open, and so the card alive: fork before.
    """

    def __init__(  # noqa: PLR0913  # a worker's choices, all by keyword
        self,
        card: Mapping[str, object],
        *,
        file: str | None = None,
        socket: str | None = None,
        directory: str | None = None,
        waiting: bool = False,
        patience: float | None = 10.0,
    ) -> None:
        if patience is not None and not patience > 0:
            raise ValueError(f"patience is {patience}, but must be more than 0 seconds")
        name = file_name(card, process_name()) if file is None else file
        self._publication = Publication(card, name)
        self._holding = Holding(self._publication, socket, directory, patience)
        self._waiting = waiting
        self._patience = patience
        self._verdict: Verdict | None = None
        self._cursor: Cursor | None = None
        self._connected = False
        self._failure: DiscoverydError | None = None
        self._version = self._seen = 0
        self._entered = self._left = False

    @property
    def path(self) -> str:
        """The card file."""
        path = self._publication.path
        if path is None:
            raise RuntimeError("this worker has not been entered")
        return path

    @property
    def verdict(self) -> Verdict:
        """What the daemon said of the card last."""
        if self._verdict is None:
            raise RuntimeError("this worker has not been entered")
        return self._verdict

    @property
    def connected(self) -> bool:
        """Whether the card is held now, so that the verdict is the present one."""
        return self._connected

    async def __aenter__(self) -> Self:
        """Publish the card, hold it, and wait for the first verdict.

        Raises NotServing; NoDaemon or Timeout where no daemon came in time; CannotWrite where the
        card cannot be put anywhere, and Taken where its file is another worker's; CallRefused. Then
        nothing is left behind.
        """
        if self._entered:
            raise RuntimeError("this worker has been entered before")
        self._entered = True
        self._news, self._keeping = anyio.Event(), anyio.CancelScope()
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._keeping.cancel)
            stack.push_async_callback(self._withdraw_quietly)
            await tasks.start(self._keep)
            failure = self._failure
            if failure is None and not (self._waiting or self.verdict.good):
                failure = NotServing(self.verdict)
            if failure is None:
                self._seen = self._version
                # Who is cancelled withdraws the card before the hold ends, as who leaves does.
                self._keeping.shield = True
                self._stack = stack.pop_all()
                return self
        # Only here, since a task group would have wrapped it.
        raise failure

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Withdraw the card, and end the hold. Raises CannotWrite where the file stays behind."""
        fault: CannotWrite | None = None
        try:
            self._publication.withdraw()
        except CannotWrite as refused:
            fault = refused
        if self._connected:
            await self._part()
        self._left = True
        self._connected = False
        self._tell()
        # Told of no exception, since a task group would wrap it.
        await self._stack.aclose()
        if fault is not None and error is None:
            raise fault

    async def changed(self) -> Verdict:
        """Return the verdict when it, or `connected`, has changed since this returned last."""
        seen = self._seen
        while self._version == seen:
            self._check_entered()
            await self._news.wait()
        self._check_entered()
        self._seen = self._version
        return self.verdict

    async def serving(self) -> None:
        """Return once the card serves its present content.

        Raises NotServing where it does not, unless it was told to wait.
        """
        while not (self._connected and self.verdict.good):
            self._check_entered()
            if self._connected and not self._waiting:
                raise NotServing(self.verdict)
            await self._news.wait()

    async def update(self, card: Mapping[str, object]) -> Verdict:
        """Make `card` the card, in the same file, and return what becomes of it.

        A card that does not say whether it accepts stays as `accept` left it. Raises CannotWrite,
        and Taken where the file is another's by now; then nothing has changed. Raises NoDaemon,
        ConnectionLost, Timeout or NoSuchFile where the daemon does not judge it while patience
        lasts: it will, when it is back.
        """
        self._check_entered()
        self._publication.replace(card)
        deadline = self._deadline()
        while True:
            try:
                self._take(*await self._holding.look())
            except PASSING:
                if anyio.current_time() >= deadline:
                    raise
                await anyio.sleep(_SHORTEST_PAUSE)
                self._check_entered()
            else:
                return self.verdict

    async def accept(self, accepting: bool) -> None:
        """Let the worker take new requests, or drain; every other member of the card stays.

        Returns when the daemon has taken it in, or at once where there is none at the moment: it
        reads the file when it comes. A file that is another's by now is let be. Raises CannotWrite.
        """
        self._check_entered()
        if self._publication.accept(accepting) and self._connected:
            with suppress(*PASSING):
                self._take(*await self._holding.look())

    async def _keep(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Hold the card, again and again. Failures before the first verdict are `_failure`."""
        deadline = self._deadline()
        pause = _SHORTEST_PAUSE
        with self._keeping:
            while True:
                try:
                    await self._hold_on(deadline, task_status)
                except DiscoverydError as fault:
                    passing = isinstance(fault, PASSING) and anyio.current_time() < deadline
                    if self._verdict is None and not passing:
                        self._failure = fault
                        task_status.started()
                        return
                if self._connected:
                    self._connected = False
                    self._tell()
                    pause = _SHORTEST_PAUSE
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _hold_on(self, deadline: float, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Hold the card until that ends."""
        async with aclosing(self._holding.verdicts(deadline)) as said:
            async for verdict, cursor in said:
                first = self._verdict is None
                self._take(verdict, cursor, held=True)
                if first:
                    task_status.started()

    def _take(self, verdict: Verdict, cursor: Cursor, *, held: bool = False) -> None:
        """Take in what the daemon says, and tell of it if it is news."""
        known = self._cursor
        anew = held and not self._connected
        older = known and known.epoch == cursor.epoch and known.revision > cursor.revision
        if older and not anew:
            return
        self._cursor = cursor
        if verdict != self._verdict or anew:
            self._verdict = verdict
            self._connected = self._connected or held
            self._tell()

    def _tell(self) -> None:
        self._version += 1
        news, self._news = self._news, anyio.Event()
        news.set()

    def _deadline(self) -> float:
        patience = self._patience
        return math.inf if patience is None else anyio.current_time() + patience

    def _check_entered(self) -> None:
        if self._left or not self._entered:
            raise RuntimeError("this worker is not entered, or has been left")

    async def _part(self) -> None:
        """Let the daemon see that the card is gone while it is held, for a moment at most.

        Else it learns of the hold's end first, and tells it as a death: `expired`, with a warning.
        """
        with (
            anyio.move_on_after(_PARTING_SECONDS, shield=True),
            suppress(DiscoverydError),
        ):
            await self._holding.look()

    async def _withdraw_quietly(self) -> None:
        with suppress(CannotWrite):
            self._publication.withdraw()
        if self._connected:
            await self._part()
