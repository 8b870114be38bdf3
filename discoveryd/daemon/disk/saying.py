"""What is logged about a directory: what is wrong with it, when that has changed.

The status says how it is at any moment; the log tells a story, and must stay readable where
something flickers.
"""

import logging

MUTE_SECONDS = 5.0
"""How long nothing more is logged about what is wrong, once something was."""

_log = logging.getLogger(__name__)


class Saying:
    """What was logged about the directory at `path`, and what is news. Times are of one clock."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._said: str | None = None
        self._mute_until = 0.0
        self._silent: set[str | None] = set()

    def problem(self, problem: str | None, now: float) -> None:
        """Log what is wrong, when that has changed, but not each time that it flickers."""
        if problem == self._said or now < self._mute_until:
            return
        self._said = problem
        self._mute_until = now + MUTE_SECONDS
        if problem is None:
            _log.info("all is well again with %s", self._path)
        else:
            _log.warning("%s", problem)

    def silent(self, file_systems: set[str | None], rescan_seconds: float) -> None:
        """Log which file systems may raise no events, where some are new."""
        for file_system in file_systems - self._silent:
            _log.info(
                "%s is on %s, where changes may raise no event: it is scanned every %.1f s",
                self._path,
                file_system,
                rescan_seconds,
            )
        self._silent = file_systems
