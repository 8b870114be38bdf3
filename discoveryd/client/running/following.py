"""A published worker, followed: what its card says when it does not answer, and what becomes of it.

The worker is asked every few seconds. Some misses in a row drain it, one answer takes that back
(probing.py); nothing that is heard of it withdraws the card. Whatever the daemon or the drop
directory refuse is told, and tried again: the worker serves on.

**Leaving.** A worker that drains keeps its place in its group and its names, so that whatever waits
for it waits on; where it is the only one, nobody would serve meanwhile. So it is asked beforehand
whether a card waits for this one (`awaited`): then the card is better withdrawn than drained.

Whoever drains a worker by hand, by `discoveryctl drain`, is not overruled: what was draining when
the misses began is not taken back by an answer.
"""

import anyio

from discoveryd.client.aio import AsyncClient
from discoveryd.client.errors import DiscoverydError
from discoveryd.client.running.probing import EVERY_SECONDS, MOST_MISSES, Misses
from discoveryd.client.running.readiness import Readiness
from discoveryd.client.running.telling import Voice
from discoveryd.client.running.verdicts import card_state
from discoveryd.client.workers.cardtext import written
from discoveryd.client.workers.publishing import read
from discoveryd.client.workers.worker import AsyncWorker

_ASKING_SECONDS = 1.0
"""How long a daemon may take to say who waits; that is time in which nobody drains yet."""


class Following:
    """Follows one entered worker, which answers as `readiness` says, and tells `voice` of it.

    `socket` is the daemon's, as for a client.
    """

    def __init__(
        self, worker: AsyncWorker, readiness: Readiness, voice: Voice, socket: str | None
    ) -> None:
        self._socket = socket
        self._worker = worker
        self._readiness = readiness
        self._voice = voice
        self._probing = anyio.CancelScope()
        self._drained = False
        self._told = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        self._voice.ready()
        self._tell()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._probe)
            while True:
                await self._worker.changed()
                self._tell()

    async def awaited(self) -> bool:
        """Whether a card waits for this one to go, as far as the daemon says so in a second."""
        ours = self._worker.verdict
        try:
            with anyio.fail_after(_ASKING_SECONDS):
                async with AsyncClient(self._socket, timeout=_ASKING_SECONDS) as client:
                    found = [await client.explain(name=name) for name in ours.names]
        except (DiscoverydError, TimeoutError):
            return False
        return any(
            ours.file in reason.against
            for told in found
            for verdict in told.verdicts
            for reason in verdict.reasons
        )

    async def drain(self, seconds: float) -> None:
        """Drain for good: say so in the card at once, and return after so many seconds."""
        self._probing.cancel()
        self._voice.say(f"draining for {seconds:g} s")
        self._voice.state("draining before it stops")
        # The file is written before anything is waited for.
        with anyio.move_on_after(seconds):
            await self._accept(False)
            await anyio.sleep(seconds)

    async def _probe(self) -> None:
        misses = Misses()
        silent = False
        with self._probing:
            while True:
                await anyio.sleep(EVERY_SECONDS)
                trouble = await self._readiness.not_answering()
                if trouble is None:
                    misses.answered()
                    silent = False
                elif misses.missed():
                    silent = True
                if silent != self._drained:
                    await self._set_drained(silent, trouble)

    async def _set_drained(self, drained: bool, trouble: str | None) -> None:
        """Drain or take that back. What did not succeed is to be tried again."""
        if drained and not self._accepts():
            return
        if await self._accept(not drained):
            self._drained = drained
            if drained:
                self._voice.say(f"drained: {MOST_MISSES} probes missed, the last one: {trouble}")
            else:
                self._voice.say("it answers again, and accepts")
            self._tell()

    def _accepts(self) -> bool:
        """Whether the card in the file says that it accepts."""
        try:
            found = read(self._worker.path)
        except DiscoverydError as fault:
            self._voice.say(str(fault))
            return False
        return found is None or written(found[0]).accepting

    async def _accept(self, accepting: bool) -> bool:
        """Let the card accept or drain; return whether that worked."""
        try:
            await self._worker.accept(accepting)
        except DiscoverydError as fault:
            self._voice.say(str(fault))
            return False
        return True

    def _tell(self) -> None:
        """Say how the card is, where that has changed."""
        verdict = self._worker.verdict
        state = card_state(verdict)
        if not self._worker.connected:
            state = f"the daemon is gone, and waited for; last heard: {state}"
        if state != self._told:
            self._told = state
            self._voice.say(state)
        drained = f", drained: {MOST_MISSES} probes missed" if self._drained else ""
        self._voice.state(state + drained)
