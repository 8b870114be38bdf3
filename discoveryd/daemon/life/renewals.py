"""The look that is taken at a card file before its lease is called over.

When to look is told by leases.py, what a death means by liveness.py.
"""

from collections.abc import Callable, Iterable, Sequence

import anyio
import anyio.abc
import anyio.to_thread

from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.life.leases import Leases, RunningTime, Seen


class Renewals:
    """Looks at the files whose leases seem due.

    `look` finds a file's mtime, in a thread. A file that was touched is told to `touched`, one that
    was not, or is not there, to `over`. What cannot be looked at is tried again.
    """

    def __init__(
        self,
        leases: Leases[str],
        running: RunningTime,
        look: Callable[[str], Seen],
        *,
        touched: Callable[[Iterable[Touch]], None],
        over: Callable[[str], None],
    ) -> None:
        self._leases = leases
        self._running = running
        self._look = look
        self._touched = touched
        self._over = over
        self._looking: set[str] = set()

    def look_at_due(self, tasks: anyio.abc.TaskGroup) -> None:
        """Look at the files, each directory for itself: one that hangs must not keep the others."""
        now = self._running.seconds
        folders: dict[str, list[str]] = {}
        for file in self._leases.due(now):
            folders.setdefault(file.rpartition("/")[0], []).append(file)
        for folder, files in folders.items():
            if folder in self._looking:
                for file in files:
                    self._leases.settle(file, None, now)
            else:
                self._looking.add(folder)
                tasks.start_soon(self._settle, folder, files)

    async def _settle(self, folder: str, files: Sequence[str]) -> None:
        def look() -> list[Seen]:
            return [self._look(file) for file in files]

        try:
            found = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
        finally:
            self._looking.discard(folder)
        now, late = self._running.seconds, self._running.late
        for file, seen in zip(files, found, strict=True):
            if not late and isinstance(seen, int):
                self._touched((Touch(file, seen),))
            if self._leases.settle(file, None if late else seen, now):
                self._over(file)
