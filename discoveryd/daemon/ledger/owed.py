"""What the ledger is owed: the files and keys whose rows are not what the registry holds.

Kept by name only, so that a ledger which cannot be written for long costs no more than the names;
and where those grow too many, everything is owed instead.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import anyio.lowlevel

from discoveryd.core.batch import Change
from discoveryd.core.card import Key
from discoveryd.core.registry import Registry
from discoveryd.core.state import EntryState, FileState, entry_state, file_state
from discoveryd.daemon.ledger.rows import Meta
from discoveryd.daemon.ledger.tables import Writing

MOST_NAMES = 10_000
"""How many names may be owed, and besides two for each file that there is."""

_SOME = 256
"""How many states are taken out before everybody else gets a turn: it takes a millisecond."""

_Thing = TypeVar("_Thing")


class Owed:
    """The names of what is owed, or everything; everything at first."""

    def __init__(self) -> None:
        self._whole = True
        self._files: dict[str, None] = {}
        self._keys: dict[Key, None] = {}

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self._whole or self._files or self._keys)

    def everything(self) -> None:
        """Owe everything."""
        self._whole, self._files, self._keys = True, {}, {}

    def nothing(self) -> None:
        """Owe nothing: what is written is what the registry holds."""
        self._whole, self._files, self._keys = False, {}, {}

    def change(self, change: Change, registry: Registry) -> None:
        """Owe what a change of the registry touched."""
        if self._whole:
            return
        self._files.update(dict.fromkeys(change.files))
        self._keys.update(dict.fromkeys(change.keys))
        if len(self._files) + len(self._keys) > MOST_NAMES + 2 * len(registry.files):
            self.everything()

    def again(self, writing: Writing) -> None:
        """Owe what was to be written."""
        if writing.whole:
            self.everything()
        elif not self._whole:
            self._files.update(dict.fromkeys(writing.files))
            self._keys.update(dict.fromkeys(writing.entries))

    async def take(self, registry: Registry, meta: Meta) -> Writing:
        """Return what is owed, with its state in the registry. Nothing is owed then.

        It takes its time in slices; the registry must be at rest until it returns.
        """
        whole, files, keys = self._whole, self._files, self._keys
        if whole:
            files = dict.fromkeys(record.file for record in registry.files)
            keys = dict.fromkeys(registry.arbiter.entries)
        self.nothing()
        file_states: dict[str, FileState | None] = {}
        entry_states: dict[Key, EntryState | None] = {}
        for some in _slices(files):
            if file_states:
                await anyio.lowlevel.cancel_shielded_checkpoint()
            file_states.update((file, file_state(registry, file)) for file in some)
        for few in _slices(keys):
            if entry_states:
                await anyio.lowlevel.cancel_shielded_checkpoint()
            entry_states.update((key, entry_state(registry, key)) for key in few)
        return Writing(files=file_states, entries=entry_states, whole=whole, meta=meta)


def _slices(things: Iterable[_Thing]) -> Iterator[list[_Thing]]:
    """Yield all of them, as many at once as the loop may be kept for."""
    rest = iter(things)
    while some := list(islice(rest, _SOME)):
        yield some
