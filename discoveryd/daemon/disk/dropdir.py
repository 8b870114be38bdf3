"""The drop directory: card files in, batches of sightings out.

Theory
======

**Truth lies on disk.** Whatever happens, the registry must end up with what the files say now.
Events of the kernel are only hints that a name is worth a look: their kinds lie (a rename over a
file reads "added", a touch "modified"), they are merged, reordered, and on overflow lost. So an
event is reduced to a name, and the name is looked at: stat, open, read, compare.

**Arm, then scan.** A change before the scan looked at its file is seen by the scan; a change after
it is announced, because the watch was armed before. Nothing falls between, only some files are
looked at twice. The same holds whenever a watch is set up again, so each arming is followed by a
full scan.

**One at a time.** All looks of one directory are made by one task, in rounds. A round takes what
was asked for until it began (names heard of, names and scans that Sync asked for, the clock's
scan), looks at the disk in a worker thread, and hands the sink one batch. Since a round begins only
when the one before has been applied, results are never applied out of order, and whoever asks for a
look before a round begins knows at its end that his writes were seen. A scan is one batch, so that
a file that vanishes under one name and appears under another is seen as moved.

**Arrivals come in order.** Of two cards that exclude each other the one that came first is to win,
and within a batch that is the older file. But looks take time: one that is made before a file came,
and another that is made after a second one came, would put the second into an earlier batch. So
where a round has found a file that was not known, it looks once more at those that it found absent,
a scan at the names that there are by now, until there is nothing new, three times at most. A round
of names does not look further than that: two files of which no event names the first, or names it
later, are in order only as far as the kernel's news are.

**Looking again.** Events get lost, which is not always told, and some changes raise none: so
everything is scanned every five seconds, or as seldom as keeps it under 0.4 % of a processor. A
scan reads only files whose stamp (inode, size, mtime, ctime) changed. Nobody can set ctime, so a
copy with the old mtime and size is seen. But clocks tick coarsely: a file written twice within a
tick has the same stamp twice, so a stamp whose ctime was young when the content was read is not
believed by the next scan. And writes through mmap may leave no trace in the stamp: so a file that
is no valid card, or could not be read, is read at each scan until it is one; and of those that are,
each scan reads a few again in turn, whatever their stamps say. Content is compared by digest: a
touch or a rewrite of equal bytes is no sighting.

**Torn files.** Writers who write in place are seen half done. What is read while its stamp changes
is read again, at most three times, and then passed on as it is: half a card is `invalid`, which
withdraws nothing, and the rest of the write is announced or found by a scan.

**The directory may be another one.** A watch follows the inode, the path may lead elsewhere by now:
it was deleted and made again, renamed, or mounted over, and no event says so reliably. So each
round opens the path afresh and compares device, inode and the inode's generation (the number alone
is soon used again): names are looked at below that descriptor; if it is not the directory of the
round before, everything is looked at, no stamp is believed, files that are not in the new directory
are gone; and if it is not the one that is watched, or the watch heard that its directory was
deleted, the watch is dropped and set up again, followed by a scan. No descriptor is kept, since
that would keep a file system from being unmounted. A missing directory is an empty one that is
looked for every half second. One that cannot be listed tells nothing: what was known stays, and the
status says why.

**The watch may die, be refused, or be deaf**: of a file name that is not UTF-8, of a limit of
inotify's, on a file system that others change too. It is set up again, at once the first time, then
ever more slowly up to five seconds. For as long as events cannot be relied on, the backend is
*polling*: everything is scanned every half second, or as seldom as keeps it under 2 % of a
processor. The status says so, and what to do where something can be done.

**Links** are invalid, unless the configuration lets them be followed. Then a link is the file that
it leads to, and no file where it leads nowhere. What happens at its other end raises no event: the
scans look there. But a directory of links is often changed whole, by turning the one link that all
others lead through (so Kubernetes does): so an event that names a link which is no card file itself
is followed by a scan, and one batch has all that it changed.
"""

import os
from collections.abc import Collection, Sequence
from typing import Literal

from discoveryd.core.batch import Invalid, Sighting
from discoveryd.core.text import display_path
from discoveryd.daemon.disk.folder import Folder
from discoveryd.daemon.disk.following import RESCAN_SECONDS, STEP_MS, Follower, Sink, Touched
from discoveryd.daemon.disk.hearing import Arm, native
from discoveryd.daemon.disk.reading import Look, absolute, is_card_name, judge, sighting, stem_of


class DropDirectory(Follower):
    """Follows the card files in one directory; see `Follower` for how to use it.

    With `follow_symlinks` a link stands for the regular file that it leads to; else it is invalid.
    """

    def __init__(  # noqa: PLR0913  # limits are arguments
        self,
        path: str | os.PathLike[str],
        sink: Sink,
        *,
        follow_symlinks: bool = False,
        arm: Arm | None = native,
        step_ms: int = STEP_MS,
        rescan_seconds: float = RESCAN_SECONDS,
        touched: Touched | None = None,
    ) -> None:
        root = absolute(path)
        layout = _Cards(root, follow_symlinks=follow_symlinks)
        super().__init__(
            root,
            sink,
            layout,
            arm=arm,
            step_ms=step_ms,
            rescan_seconds=rescan_seconds,
            touched=touched,
        )


class _Cards:
    """One folder, in which every file stands for itself."""

    name: Literal["cards"] = "cards"

    def __init__(self, root: bytes, *, follow_symlinks: bool) -> None:
        self._folder = Folder(root, is_card_name, follow_symlinks=follow_symlinks, shared=True)
        self.folders = (self._folder,)

    @property
    def files(self) -> int:
        return len(self._folder)

    def expect(self, names: Collection[bytes]) -> None:
        self._folder.expect(names)

    def widen(self, names: Sequence[set[bytes]]) -> None:
        pass

    def sightings(self, looks: Sequence[dict[bytes, Look]]) -> list[Sighting]:
        folder = self._folder
        sightings: list[Sighting] = []
        for name, seen in looks[0].items():
            if folder.stopped:
                break
            found = judge(seen, stem_of(name))
            if isinstance(found, Invalid) and isinstance(seen.content, bytes):
                folder.doubt(name)
            sightings.append(sighting(f"{folder.display}/{display_path(name)}", seen, found))
        return sightings

    def patience(self) -> float:
        return float("inf")
