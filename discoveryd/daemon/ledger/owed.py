"""What the ledger is owed: the files and keys whose rows are not what the registry holds.

Kept by name only, so that a ledger which cannot be written for long costs no more than the names;
and where those grow too many, everything is owed instead.
"""

import time
from collections.abc import AsyncIterator, Iterable
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

SLICE_SECONDS = 0.005
"""How long the loop may be kept from everything else by taking states out."""

_SOME = 64

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
        async for file in _in_slices(files):
            file_states[file] = file_state(registry, file)
        async for key in _in_slices(keys):
            entry_states[key] = entry_state(registry, key)
        return Writing(files=file_states, entries=entry_states, whole=whole, meta=meta)


async def _in_slices(things: Iterable[_Thing]) -> AsyncIterator[_Thing]:
    """Yield all of them, and give others their turn now and then."""
    until = time.monotonic() + SLICE_SECONDS
    for count, thing in enumerate(things, 1):
        yield thing
        if count % _SOME == 0 and time.monotonic() >= until:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            until = time.monotonic() + SLICE_SECONDS
