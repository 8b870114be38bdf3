"""A bell that rings when anything happens in a directory: a watch of the kernel's, of our own.

Theory
======

What has changed is told by watchfiles, which must be asked: asked often enough for a change to be
known within milliseconds, it costs an idle daemon more than a hundredth of a processor for ever.
So beside each of its watches lies one of ours on the same directory, and two things only are taken
from it: **that something happened**, which a thread can sleep for, and **that the kernel's queue
overflowed**, which watchfiles keeps to itself. What the events say is not read.

It hears what watchfiles tells of and nothing else: no opening, reading or closing, or the daemon's
own looks would ring. A file system that tells nothing rings no bell either; nothing is lost
thereby, since then watchfiles has nothing to tell.

Each directory so takes two of the instances and watches that a user may have.
"""

import ctypes
import os
import select
import struct
import time
import weakref

_LIBC = ctypes.CDLL(None, use_errno=True)

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_ONLY_DIRECTORIES = 0x01000000
_HEARD = (
    _MODIFY
    | _ATTRIB
    | _MOVED_FROM
    | _MOVED_TO
    | _CREATE
    | _DELETE
    | _DELETE_SELF
    | _MOVE_SELF
    | _ONLY_DIRECTORIES
)
_OVERFLOW = 0x4000

_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class Bell:
    """Rings from the moment it is made when something happens in an open directory.

    The directory may be closed then. Raises OSError where the user's watches are used up. One
    thread at a time waits and silences; `wake` and `close` are for those who made it.
    """

    def __init__(self, directory: int) -> None:
        descriptors: list[int] = []
        # Whoever loses it without a word, such as a thread that nobody waits for, closes it too.
        self._closing = weakref.finalize(self, _close, descriptors)
        self._closing.atexit = False
        self._events = _checked(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        descriptors.append(self._events)
        path = f"/proc/self/fd/{directory}".encode()
        _checked(_LIBC.inotify_add_watch(self._events, path, _HEARD))
        self._waking = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        descriptors.append(self._waking)
        self._either, self._woken = select.poll(), select.poll()
        self._either.register(self._events, select.POLLIN)
        for poll in (self._either, self._woken):
            poll.register(self._waking, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait for a ring, so long at most; return whether it rings, or was woken."""
        return bool(self._either.poll(1e3 * seconds))

    def pause(self, seconds: float) -> None:
        """Wait whether it rings or not, until woken; what is less than a millisecond, anyway."""
        # A poll counts whole milliseconds, and would make one of any part.
        whole = int(1e3 * seconds)
        if not (whole and self._woken.poll(whole)):
            time.sleep(seconds - whole / 1e3)

    def silence(self) -> bool:
        """Let it ring for what happens from now on; return whether the queue had overflowed."""
        overflowed = False
        while True:
            try:
                events = os.read(self._events, _READ_BYTES)
            except BlockingIOError:
                return overflowed
            at = 0
            while at < len(events):
                _, mask, _, length = _EVENT.unpack_from(events, at)
                overflowed |= bool(mask & _OVERFLOW)
                at += _EVENT.size + length

    def wake(self) -> None:
        """Let whoever waits go on, now and ever after."""
        if self._closing.alive:
            os.eventfd_write(self._waking, 1)

    def close(self) -> None:
        """Hear nothing any more. Not while a thread waits; again is harmless."""
        self._closing()


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
