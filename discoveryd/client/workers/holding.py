"""One hold of a worker's card: lying where the daemon looks, held, and told what becomes of it.

Which hold follows which, and how long to try, is worker.py's; the file's text and whose it is are
publication.py's. Nothing here is remembered from one hold to the next but where the card was put.
"""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import anyio

from discoveryd.client.aio import AsyncClient
from discoveryd.client.errors import ConnectionLost, NoDaemon, NoSuchFile, Timeout
from discoveryd.client.workers.publication import Lying, Publication, Taken
from discoveryd.client.workers.publishing import CannotWrite, DropDirectory, drop_directory, shown
from discoveryd.interface import Cursor, Reason, Verdict

PASSING = (NoDaemon, ConnectionLost, Timeout, NoSuchFile)
"""What is worth another try."""

_LOOK_SECONDS = 0.05
"""How often to look whether another worker has given up the file."""

_UNHELD = frozenset({"expired", "invalid", "forbidden"})
"""Standings of a file that nobody is known to hold."""


class Holding:
    """Holds a publication at the daemon that listens at `socket`.

    `directory` is where it is put, if not where the daemon or DISCOVERYD_CARDS says. `patience`
    bounds each answer, in seconds.
    """

    def __init__(
        self,
        publication: Publication,
        socket: str | None,
        directory: str | None,
        patience: float | None,
    ) -> None:
        self._publication = publication
        self._socket = socket
        self._directory = directory
        self._patience = patience
        self._place: DropDirectory | None = None
        self._named = publication.file

    async def verdicts(self, deadline: float) -> AsyncGenerator[tuple[Verdict, Cursor], None]:
        """Hold the card until closed; yield what the daemon says of it, again at each change.

        First it is put where the daemon looks, if it does not lie there. The card of another worker
        that lives is let go until `deadline`, in the event loop's time; then Taken. Ends by an
        exception only: one of `PASSING`, CannotWrite, CallRefused or BadReply.
        """
        async with self._client() as client:
            place = self._place
            if place is None:
                status = await client.status()
                place = drop_directory(status, os.environ, self._directory)
            self._named = place.named(self._publication.file)
            await self._put(client, f"{place.path}/{self._publication.file}", deadline)
            self._place = place
            try:
                async with aclosing(client.hold(self._named)) as replies:
                    async for reply in replies:
                        yield self._own(reply.verdicts), reply.cursor
            except NoSuchFile:
                # It went, or the daemon looks elsewhere now.
                self._place = None
                if self._publication.lying() is Lying.OWN:
                    where = shown(place.path)
                    raise CannotWrite(
                        f"the daemon does not look into {where}: see discoveryctl status"
                    ) from None
                raise

    async def look(self) -> tuple[Verdict, Cursor]:
        """Let the daemon look at the file now; return what it says. Raises one of `PASSING`."""
        async with self._client() as client:
            looked = await client.sync(self._named)
        return self._own(looked.verdicts), looked.cursor

    def _client(self) -> AsyncClient:
        return AsyncClient(self._socket, timeout=self._patience)

    async def _put(self, client: AsyncClient, path: str, deadline: float) -> None:
        """Put the card there if it does not lie there; first let another worker's go."""
        publication = self._publication
        if publication.path == path and publication.lying() is Lying.OWN:
            return
        while publication.is_occupied(path) and await self._is_held(client):
            if anyio.current_time() >= deadline:
                raise Taken(
                    f"{shown(path)} is the card of another worker, which lives: stop that one, or "
                    "give this one a url or file name of its own"
                )
            await anyio.sleep(_LOOK_SECONDS)
        publication.put(path)

    async def _is_held(self, client: AsyncClient) -> bool:
        """Whether what lies in this card's place is alive."""
        try:
            looked = await client.sync(self._named)
        except NoSuchFile:
            return False
        return any(verdict.standing not in _UNHELD for verdict in looked.verdicts)

    def _own(self, verdicts: Sequence[Verdict]) -> Verdict:
        if len(verdicts) > 1:
            raise CannotWrite(
                f"the daemon knows {len(verdicts)} files {self._named}: give this one another name"
            )
        return verdicts[0] if verdicts else _gone(self._named)


def _gone(file: str) -> Verdict:
    """Return the verdict on a file that was removed while it was held."""
    reason = Reason(
        rule="removed",
        message=f"{file} was removed by somebody else; it is published again by an update, or when "
        "the daemon has started again",
        against=(),
    )
    return Verdict(
        file=file,
        names=(),
        standing="gone",
        serves="nothing",
        reasons=(reason,),
        warnings=(),
        since=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
