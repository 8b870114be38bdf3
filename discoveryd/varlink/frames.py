"""Frames: the byte stream cut at NUL bytes.

A valid JSON document holds no raw NUL, so the terminator needs no escaping and the cut needs no
look at the content. Two properties matter and are kept here:

- *Linear cost.* New bytes are searched once, and what is held of an unfinished frame is never
  searched or copied again until its end arrives (a bytearray grows by a constant factor). A
  frame of n bytes costs O(n) whether it comes whole or byte by byte.
- *Bounded memory.* A frame that outgrows the limit is not stored any further. The frames before
  it are still whole and good, and their calls have to be answered before the connection closes;
  so crossing the limit is a state that the connection looks at when it gets there, not an
  exception that would take the good frames with it.

What a frame means is messages.py's business.
"""


class Framer:
    """Cuts received bytes into frames of at most `limit` bytes (without their NUL)."""

    __slots__ = ("_held", "_limit", "overrun")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self.overrun = False
        """Whether a frame exceeded the limit: nothing after it can be read any more."""

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._held)

    @property
    def first(self) -> int | None:
        """The first byte of the unfinished frame, if there is one."""
        return self._held[0] if self._held else None

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream; return the frames they complete, without NULs.

        Where a frame exceeds the limit, those before it are returned, `overrun` is set, and every
        later byte is dropped.
        """
        if self.overrun:
            return []
        frames = data.split(b"\0")
        rest = frames.pop()
        held = self._held
        suspicious = len(held) + len(data) > self._limit
        if held and frames:
            held += frames[0]
            frames[0] = bytes(held)
            held.clear()
        if suspicious:
            for index, frame in enumerate(frames):
                if len(frame) > self._limit:
                    self._stop()
                    return frames[:index]
            if len(held) + len(rest) > self._limit:
                self._stop()
                return frames
        held += rest
        return frames

    def _stop(self) -> None:
        self.overrun = True
        self._held.clear()
