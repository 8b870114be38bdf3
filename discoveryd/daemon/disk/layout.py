"""What a directory's layout must say, for its files to be followed: which folders, what is in them.

Here lives the contract only. There are two layouts: card files (dropdir.py) and Dynamo's store
(store.py).
"""

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

from discoveryd.core.batch import Sighting
from discoveryd.daemon.disk.folder import Folder
from discoveryd.daemon.disk.reading import Look


class Layout(Protocol):
    """Which folders make up a directory, the one with the cards first, and what is in them.

    All but `name` and `files` is used in a thread, by one round at a time.
    """

    @property
    def name(self) -> Literal["cards", "dynamo"]:
        """What the layout is called."""
        ...

    @property
    def folders(self) -> Sequence[Folder]:
        """The folders to follow."""
        ...

    @property
    def files(self) -> int:
        """How many card files there are, good or bad."""
        ...

    def expect(self, names: Collection[bytes]) -> None:
        """Count these card files as known: where they are not there, they are gone."""
        ...

    def widen(self, names: Sequence[set[bytes]]) -> None:
        """Add the names that must be looked at together with these."""
        ...

    def sightings(self, looks: Sequence[dict[bytes, Look]]) -> list[Sighting]:
        """Say what is new, given the news of each folder. Called once each round."""
        ...

    def patience(self) -> float:
        """Return in how many seconds another round is due even if nothing happens."""
        ...
