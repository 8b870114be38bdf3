"""The way of a sighting, from a directory to the registry: permission, liveness, and the writer.

The first two are gates that need more than the cards: who owns them, what the host knows of their
processes. What one of them lets pass the next is told before anything else runs, so that of one
file everything is told in order; and what they have taken in is told to the writer for certain,
whoever gives up meanwhile.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext

import anyio

from discoveryd.core.batch import Sighting
from discoveryd.daemon.collecting import without_collecting
from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.disk.folder import Touch
from discoveryd.daemon.life.liveness import Liveness
from discoveryd.daemon.permit.allowing import Allow
from discoveryd.daemon.permit.membership import unmapped_uid
from discoveryd.daemon.permit.permission import Permission
from discoveryd.daemon.writer import Writer

MANY = 1000
"""Cards that come at once, of which the garbage collector had better know nothing."""


class Gates:
    """The gates before a writer's registry. All methods are the loop's; call `begin` first.

    `many_writers` says whether several users can write into what is followed. `unmapped` is as
    whom everybody appears who has no number in the daemon's user namespace, if there are such.
    """

    def __init__(
        self, writer: Writer, liveness: Liveness, *, many_writers: Callable[[], bool]
    ) -> None:
        self.unmapped = unmapped_uid()
        self._writer = writer
        self._liveness = liveness
        self._permission = Permission(many_writers=many_writers, unmapped=self.unmapped)

    def problems(self) -> list[str]:
        """Say what keeps cards from being judged rightly."""
        return [*self._permission.problems(), *self._liveness.problems()]

    async def begin(self, config: Config, folders: Mapping[str, str]) -> None:
        """Take in what the registry remembers, and judge that by this configuration.

        `folders` maps the folder of card files, as their sightings name it, to its directory as the
        configuration does. `pass_on` must follow at once.
        """
        self._permission.restore(self._writer.registry)
        self._liveness.restore(self._writer.registry.files)
        await self._permission.prepare(config.allow, ())
        self._hold_to(config, folders)

    def files_in(self, folders: Collection[str]) -> list[str]:
        """Return the files of these folders that have passed and are not gone."""
        return self._permission.files_in(folders)

    async def pass_on(
        self,
        sightings: Sequence[Sighting],
        operator_aliases: Mapping[str, str] | None = None,
        *,
        heeded: Callable[[], bool] = lambda: True,
    ) -> None:
        """Let one batch through and have it applied, unless nobody heeds its source any more."""
        await self._permission.look_up(seen.owner for seen in sightings)
        if heeded():
            await self._apply(sightings, operator_aliases)

    async def prepare(self, allow: Iterable[Allow], owners: Iterable[int | None]) -> None:
        """Ask the host for what `change` must know; `owners` are those of cards that come with it.

        Whoever calls `change` does so at once.
        """
        await self._permission.prepare(allow, owners)

    async def change(
        self, config: Config, folders: Mapping[str, str], sightings: Sequence[Sighting]
    ) -> None:
        """Judge everything by another configuration, and let through what came with it: one batch.

        Nothing runs before the batch has its place in the row. `folders` as for `begin`.
        """
        self._hold_to(config, folders)
        await self._apply(sightings, config.aliases, by_owner=config.by_owner)

    async def forecast(self, sighting: Sighting) -> Sighting:
        """Return the sighting of a card as the gates would let it through, alone."""
        await self._permission.look_up((sighting.owner,))
        return self._permission.forecast(sighting)

    def touched(self, touches: Collection[Touch]) -> None:
        """Take in new mtimes of files whose content is as it was."""
        self._permission.touched(touches)
        self._liveness.touched(touches)

    def _hold_to(self, config: Config, folders: Mapping[str, str]) -> None:
        self._permission.change(
            config.allow, by_owner=config.by_owner, quota=config.quota, folders=folders
        )

    async def _apply(
        self,
        sightings: Sequence[Sighting],
        operator_aliases: Mapping[str, str] | None,
        *,
        by_owner: bool | None = None,
    ) -> None:
        with without_collecting() if len(sightings) >= MANY else nullcontext():
            judged = self._liveness.judge(self._permission.judge(sightings))
            with anyio.CancelScope(shield=True):
                await self._writer.apply(judged, operator_aliases, by_owner=by_owner)
