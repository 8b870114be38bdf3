"""`discoveryctl run`, from starting the command to its end: the order in which all of it happens.

Theory
======

**The command comes first.** It runs from the beginning to the end of this, whatever becomes of the
card: that there is no daemon yet, that it restarts or cannot be reached, ends no worker. What ends
it is somebody's signal, or a card that may not serve: then starting it again would do no better,
and a worker that nobody finds should not occupy the machine.

**Its card is in between.** It is published when the worker is ready, never before, and withdrawn
when the command has ended, or hands over to another that waits; in between, following.py.

**Ending.** The first SIGTERM or SIGINT drains, if there is a card that could, and then goes on to
the command; a second one goes on at once. Where another card waits for this one, it is withdrawn
instead, so that the other serves from that moment on, while this worker finishes what it has. There
is no limit to what the command does with them: whoever supervises this has one already. Other
signals are the command's own, and go on as they are.

**One loop reads all signals,** SIGCHLD too, from before the command is started; so none is missed,
and no two of them are dealt with at once.
"""

import signal
import time
from typing import Final

import anyio
import anyio.abc

from discoveryd.client.errors import DiscoverydError
from discoveryd.client.running.command import Command
from discoveryd.client.running.following import Following
from discoveryd.client.running.planning import Plan
from discoveryd.client.running.readiness import Readiness
from discoveryd.client.running.telling import Voice
from discoveryd.client.running.verdicts import is_hopeless, refusal
from discoveryd.client.workers.holding import PASSING
from discoveryd.client.workers.worker import AsyncWorker, NotServing

FAILED: Final = 125
"""The exit status of failures of our own, as of env(1)."""

_ENDING = (signal.SIGTERM, signal.SIGINT)
_OTHERS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
"""Between two questions to a worker that is not ready."""

_GRACE_SECONDS = 10.0
"""How long a command that is to end for our sake has to do so before it is killed."""

_ALREADY_SECONDS = 1.0


async def supervise(plan: Plan, voice: Voice) -> int:
    """Run the command, with its card, and return when it has ended; under asyncio.

    Returns the command's exit status, 128+n for a signal, or 125 for a failure of our own.
    """
    return await _Supervisor(plan, voice).run()


class _Supervisor:
    """One run of one command."""

    def __init__(self, plan: Plan, voice: Voice) -> None:
        self._plan = plan
        self._voice = voice
        self._readiness = Readiness(plan.places)
        self._following: Following | None = None
        self._serving = anyio.CancelScope()
        self._draining = anyio.CancelScope()
        self._ending = self._failed = False

    async def run(self) -> int:
        """Run it; return the exit status."""
        # Whoever was told to ignore hang-ups, as by nohup, still does.
        others = [each for each in _OTHERS if signal.getsignal(each) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(signal.SIGCHLD, *_ENDING, *others) as signals:
            await self._warn_of_another()
            command = Command(self._plan.command)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._serve, command)
                    async for number in signals:
                        if number in _ENDING:
                            self._end(command, number, tasks)
                        elif number != signal.SIGCHLD:
                            command.send(number)
                        elif command.ended:
                            break
                    tasks.cancel_scope.cancel()
            finally:
                command.end(_GRACE_SECONDS)
        self._tell_of_end(command)
        return FAILED if self._failed else command.status

    async def _warn_of_another(self) -> None:
        """Say so if somebody is ready where nobody can be yet."""
        with anyio.move_on_after(_ALREADY_SECONDS):
            if await self._readiness.not_ready() is None:
                place = self._readiness.place
                self._voice.say(f"before the command is started, something answers at {place}")

    async def _serve(self, command: Command) -> None:
        """Keep the card once the worker is ready; stop the command if it may not serve."""
        with self._serving:
            try:
                await self._become_ready()
                await self._publish()
            except DiscoverydError as fault:
                self._failed = True
                self._voice.say(self._why(fault))
        if self._failed:
            command.send(signal.SIGTERM)
            await anyio.sleep(_GRACE_SECONDS)
            command.kill()

    async def _become_ready(self) -> None:
        """Return when the worker is ready; say meanwhile what it is waited for."""
        began = time.monotonic()
        trouble = "not asked yet"

        async def keep_saying() -> None:
            while True:
                await anyio.sleep(self._voice.every)
                waited = time.monotonic() - began
                # The trouble comes first: a narrow terminal shows no more than the beginning.
                place = self._readiness.place
                self._voice.wait(f"not ready after {waited:.0f} s, {trouble}: {place}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_saying)
            pause = _FIRST_PAUSE_SECONDS
            while (found := await self._readiness.not_ready()) is not None:
                trouble = found
                self._voice.state(f"waiting for {self._readiness.place}: {trouble}")
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            tasks.cancel_scope.cancel()

    async def _publish(self) -> None:
        """Keep the card published; while there is no daemon, wait for one."""
        plan = self._plan
        while True:
            try:
                async with AsyncWorker(
                    plan.card,
                    file=plan.file,
                    socket=plan.socket,
                    waiting=plan.standby,
                    patience=plan.patience,
                ) as worker:
                    if is_hopeless(worker.verdict):
                        raise NotServing(worker.verdict)
                    self._following = Following(worker, self._readiness, self._voice, plan.socket)
                    await self._following.run()
            except PASSING:
                self._voice.say("the worker is ready, but no discoveryd answers: waiting for it")
                self._voice.state("waiting for discoveryd")

    def _end(self, command: Command, number: int, tasks: anyio.abc.TaskGroup) -> None:
        """Pass on a signal that ends the command, the first one after draining."""
        first, self._ending = not self._ending, True
        if first:
            self._voice.stopping()
        if first and self._following is not None and not self._failed:
            tasks.start_soon(self._drain, self._following, command, number)
            return
        if self._following is None:
            self._serving.cancel()
        self._draining.cancel()
        command.send(number)

    async def _drain(self, following: Following, command: Command, number: int) -> None:
        with self._draining:
            if await following.awaited():
                self._voice.say(f"handing over to a worker that waits, for {self._plan.drain:g} s")
                self._serving.cancel()
                await anyio.sleep(self._plan.drain)
            else:
                await following.drain(self._plan.drain)
            command.send(number)

    def _why(self, fault: DiscoverydError) -> str:
        return refusal(fault.verdict) if isinstance(fault, NotServing) else str(fault)

    def _tell_of_end(self, command: Command) -> None:
        """Say how the command has ended, where nobody wanted it to."""
        early = self._following is None
        if not self._ending and not self._failed and (early or command.status):
            when = ", before it was ready" if early else ""
            self._voice.say(f"the command {command.how}{when}")
