"""The liveness gate: which cards count as alive, and who hears of it when one dies or comes back.

Theory
======

**A stage of the pipeline.** Sightings pass through `judge` on their way from the directories to the
writer; a card whose conditions do not hold goes on as `Barred`. Between sightings cards die and
come back by themselves: then the stage tells `apply` a sighting of its own. `judge` is synchronous,
and whoever calls it calls `apply` before anything else runs, so what is told of one file is always
told in order.

**A life** is what is known of one file whose card says what must hold: its lease, its process, its
hold. Each condition has its reason while it fails; a card is alive while there is none. What was
told last is remembered, so only changes are told. Nothing is forgotten of the dead: when they are
renewed they come back, and arrive anew.

**A torn file** keeps its life, since its last valid card may be served: when that dies or comes
back, two sightings are told in one batch, the card as it counts now and then what is wrong with the
file.

**Which process.** A card with `pid_start` says which process it means. One without means the
process that had the number when the card was first seen, which is why that is remembered, by the
ledger too. A new file (other content, or another inode under the name) is seen anew; where the
process is gone and there is no lease to renew, a new mtime tells that the file was written anew.

**After a restart** what the ledger remembers goes in by `restore`: who was alive by a hold stays so
until `HOLD_GRACE_SECONDS` after `listening`, and who was dead stays so unless the file has changed.
How old a lease is, is told anew by the file, as at any first sight.
"""

import time
from collections.abc import Callable, Collection, Iterable

import anyio
import anyio.abc
import msgspec

from discoveryd.core.batch import Invalid, Sighting
from discoveryd.core.card import Card
from discoveryd.core.entry import FileRecord
from discoveryd.core.verdict import Standing
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.disk.following import Sink
from discoveryd.daemon.life import deaths
from discoveryd.daemon.life.holders import Holder, Holders
from discoveryd.daemon.life.leases import Leases, RunningTime, Seen
from discoveryd.daemon.life.lives import Failing, Life, modification_time
from discoveryd.daemon.life.processes import Process, Processes, own_pid_namespace
from discoveryd.daemon.life.renewals import Renewals
from discoveryd.daemon.life.ticking import Ticking

HOLD_GRACE_SECONDS = 5.0
"""How long after a restart a card that was held may go without a holder."""

LOOK_SECONDS = 1.0
"""How often processes are looked at for which there is no descriptor."""


class Liveness:
    """Judges whether cards are alive, and tells `apply` when that changes. Lives on the loop.

    `running` is ticked by `run`, and by nobody else. `look` finds a file's mtime, in a thread.
    `processes` makes what follows processes, given whom to call.
    """

    def __init__(  # noqa: PLR0913  # the outside world, an argument each, for the tests
        self,
        apply: Sink,
        *,
        running: RunningTime | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
        look: Callable[[str], Seen] = modification_time,
        processes: Callable[[Callable[[Process], None]], Processes] = Processes,
        pid_namespace: int | None = None,
        hold_grace_seconds: float = HOLD_GRACE_SECONDS,
    ) -> None:
        self.running = RunningTime() if running is None else running
        self._apply = apply
        self._wall_ns = wall_ns
        self._namespace = own_pid_namespace() if pid_namespace is None else pid_namespace
        self._lives: dict[str, Life] = {}
        self._leases: Leases[str] = Leases(wall_ns)
        self._renewals = Renewals(
            self._leases, self.running, look, touched=self.touched, over=self._lease_over
        )
        self._processes = processes(self._process_ended)
        self._holders = Holders(hold_grace_seconds)
        self.ticking = Ticking(self.running, self._leases, self._processes, self._holders)
        self._pending: dict[str, None] = {}
        self._wake = anyio.Event()
        self._told = anyio.Event()
        self._looked_at = 0.0
        self._closed = False

    # What passes through

    def judge(self, sightings: Iterable[Sighting]) -> list[Sighting]:
        """Return what `apply` is to be called with at once: the sightings, the dead `Barred`."""
        return [self._judge(sighting) for sighting in sightings]

    def touched(self, touches: Iterable[Touch]) -> None:
        """Take in new mtimes of files whose content is as it was."""
        for touch in touches:
            life = self._lives.get(touch.file)
            if life is None or life.mtime_ns == touch.mtime_ns:
                continue
            life.mtime_ns = touch.mtime_ns
            if self._leases.renew(touch.file, touch.mtime_ns, self.running.seconds):
                life.failing = life.failing._replace(lease=None)
            if touch.replaced or self._is_rewritten(life):
                self._see_process(life, anew=True)
            self._mark(life)

    def restore(self, records: Iterable[FileRecord]) -> None:
        """Take in what the ledger remembers, before the first sighting is judged."""
        for record in records:
            card, barred = record.card, record.barred
            if card is None or card.liveness is None:
                continue
            if barred is not None and barred.standing is not Standing.EXPIRED:
                continue
            life = self._lives[record.file] = Life(record.file, card, card.liveness)
            life.owner, life.mtime_ns, life.fault = record.owner, record.mtime_ns, record.fault
            life.observed, life.remembered = record.observed, True
            life.told = () if barred is None else barred.reasons
            life.failing = Failing.of(life.told)
            if barred is None and card.liveness.held:
                self._holders.grace(record.file)
            self._see_process(life, anew=False)
            self._mark(life)

    # Holds

    async def hold(self, holder: Holder, files: Collection[str]) -> None:
        """Let these files be held by one more; return when what that changed has been applied."""
        self._holders.add(holder, files)
        self._mark_held(files)
        if self._pending:
            # Not told from here: a call that is given up must not take along what others are owed.
            await self._told.wait()

    def release(self, holder: Holder, files: Collection[str]) -> None:
        """Let them be held by this one no more."""
        self._holders.remove(holder, files)
        self._mark_held(files)

    def listening(self) -> None:
        """Begin to count the time that holders have to come back after a restart."""
        self._holders.listening(self.running.seconds)

    # Life

    async def run(self) -> None:
        """Keep time, and tell of who dies and comes back, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell_on)
            await self.ticking.run(lambda: self.tick(tasks))

    def tick(self, tasks: anyio.abc.TaskGroup) -> None:
        """Let time go on, and see whose time is up."""
        on_time = self.running.tick()
        now = self.running.seconds
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._processes.look()
        self._mark_held(self._holders.end_grace(now))
        if on_time:
            self._renewals.look_at_due(tasks)

    def close(self) -> None:
        """Let nobody die or come back from now on: the daemon ends, not the workers."""
        self._closed = True
        self._pending.clear()
        self._processes.close()

    def problems(self) -> list[str]:
        """Say what keeps deaths from being noticed at once."""
        count = self._processes.looked_at
        if not count:
            return []
        problem = (
            f"the end of {count} processes that cards name is noticed within {LOOK_SECONDS:g} s"
            " only, for want of descriptors: raise the limit of open files (LimitNOFILE)"
        )
        return [problem]

    # Judging

    def _judge(self, sighting: Sighting) -> Sighting:
        file, found = sighting.file, sighting.found
        life = self._lives.get(file)
        if isinstance(found, Card) and found.liveness is not None:
            if life is None:
                life = self._lives[file] = Life(file, found, found.liveness)
            self._judge_card(life, sighting, found)
            return life.sightings()[0]
        if life is None:
            return sighting
        if isinstance(found, Invalid):
            life.fault, life.owner = found, sighting.owner
            self._see_lease(life, sighting.mtime_ns)
            self._see_hold(life)
            self._mark(life)
            return msgspec.structs.replace(sighting, observed=life.observed)
        self._leave_process(life)
        self._leases.drop(file)
        self._pending.pop(file, None)
        del self._lives[file]
        return sighting

    def _judge_card(self, life: Life, sighting: Sighting, card: Card) -> None:
        anew = life.told is None or life.card.content != card.content
        if life.mtime_ns != sighting.mtime_ns:
            anew = anew or life.remembered or self._is_rewritten(life)
        life.card, life.fault, life.owner = card, None, sighting.owner
        life.wanted = card.liveness or life.wanted
        self._see_lease(life, sighting.mtime_ns)
        self._see_process(life, anew=anew)
        self._see_hold(life)
        warning = self._warning(life)
        # What comes from the ledger may carry it already.
        if warning is not None and warning not in card.warnings:
            life.card = msgspec.structs.replace(card, warnings=(*card.warnings, warning))
        life.told = life.failing.reasons
        self._pending.pop(life.file, None)

    def _see_lease(self, life: Life, mtime_ns: int) -> None:
        """Take in the mtime that a look at the file found."""
        seconds, reason = life.wanted.lease_seconds, None
        if seconds is None:
            self._leases.drop(life.file)
        else:
            runs = self._leases.grant(life.file, seconds, mtime_ns, self.running.seconds)
            self.ticking.go_on()
            if runs and life.remembered and life.failing.lease and life.mtime_ns == mtime_ns:
                self._leases.end(life.file)
                runs = False
            if not runs:
                reason = deaths.lease_expired(life.file, seconds, mtime_ns)
        life.failing = life.failing._replace(lease=reason)
        life.mtime_ns, life.remembered = mtime_ns, False

    def _see_process(self, life: Life, *, anew: bool) -> None:
        """See whether the process lives; with `anew`, whichever has the number now is meant."""
        pid = life.wanted.pid
        if pid is None or self._is_elsewhere(life):
            self._leave_process(life)
            life.observed = None
            life.failing = life.failing._replace(process=None)
            return
        if not anew and (life.process is not None or life.failing.process is not None):
            return
        if anew:
            life.observed = None
        before = life.process
        found = life.process = self._processes.follow(pid, life.file)
        self.ticking.go_on()
        if before is not None and before is not found:
            self._processes.leave(before, life.file)
        given = life.wanted.pid_start
        expected = life.observed if given is None else given
        start = None if found is None else found.start
        if found is None or (None not in (start, expected) and start != expected):
            self._leave_process(life)
            reason = deaths.process_gone(
                life.file, life.wanted, expected=expected, found=start, now_ns=self._wall_ns()
            )
        else:
            life.observed = start if given is None else None
            reason = None
        life.failing = life.failing._replace(process=reason)

    def _see_hold(self, life: Life, *, lost: bool = False) -> None:
        if not life.wanted.held or self._holders.is_held(life.file, life.owner):
            life.failing = life.failing._replace(hold=None)
        elif life.failing.hold is None:
            reason = deaths.not_held(life.file, since_ns=self._wall_ns() if lost else None)
            life.failing = life.failing._replace(hold=reason)

    def _warning(self, life: Life) -> str | None:
        if life.wanted.pid is not None and self._is_elsewhere(life):
            return deaths.unknown_process(life.wanted, self._namespace)
        if life.process is not None and life.process.start is None:
            return deaths.unknown_start(life.wanted)
        return None

    @staticmethod
    def _is_rewritten(life: Life) -> bool:
        """Whether a new mtime tells of a new process, since there is nothing else to renew."""
        return life.failing.process is not None and life.wanted.lease_seconds is None

    def _is_elsewhere(self, life: Life) -> bool:
        """Whether the process is in a PID namespace that cannot be looked into."""
        return life.wanted.pid_namespace not in (None, self._namespace)

    def _leave_process(self, life: Life) -> None:
        process, life.process = life.process, None
        if process is not None:
            self._processes.leave(process, life.file)

    # Who dies and comes back

    def _process_ended(self, process: Process) -> None:
        now_ns = self._wall_ns()
        for file in process.cards:
            life = self._lives[file]
            life.process = None
            reason = deaths.process_gone(
                file, life.wanted, expected=None, found=None, now_ns=now_ns
            )
            life.failing = life.failing._replace(process=reason)
            self._mark(life)

    def _lease_over(self, file: str) -> None:
        life = self._lives[file]
        seconds = life.wanted.lease_seconds or 0.0
        reason = deaths.lease_expired(file, seconds, life.mtime_ns)
        life.failing = life.failing._replace(lease=reason)
        self._mark(life)

    def _mark_held(self, files: Iterable[str]) -> None:
        for file in files:
            life = self._lives.get(file)
            if life is not None:
                self._see_hold(life, lost=True)
                self._mark(life)

    def _mark(self, life: Life) -> None:
        """Tell soon what became of a card, if that is something new."""
        if life.told == life.failing.reasons:
            self._pending.pop(life.file, None)
        elif not self._closed:
            self._pending[life.file] = None
            self._wake.set()

    async def _tell_on(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            told, self._told = self._told, anyio.Event()
            await self._tell()
            told.set()

    async def _tell(self) -> None:
        lives = [self._lives[file] for file in self._pending]
        self._pending.clear()
        for life in lives:
            life.told = life.failing.reasons
        if lives:
            await self._apply([sighting for life in lives for sighting in life.sightings()])
