"""Keeping the garbage collector from what stays, and giving back what does not.

A registry is a million objects that live as long as the daemon, in no cycles. The collector would
look at all of them again and again while they are made, and stop the loop for it each time after.

So it is kept away while many cards are taken in: at the start, and whenever as many come at once.
What there is afterwards is called lasting, what happens to be garbage in cycles just then included:
too little, and too seldom, to matter.

Taking in many cards also needs memory that nobody needs afterwards: sightings, rows, tables that
were outgrown. The C library keeps it, in pieces, for a growth that may never come. `give_back`
lets the system have it.

What goes after all, such as a directory that a reload leaves, must go without the collector: hence
no cycles there, or such as are broken at the end.
"""

import ctypes
import gc
from collections.abc import Generator
from contextlib import contextmanager

_LIBC = ctypes.CDLL(None)


@contextmanager
def without_collecting() -> Generator[None]:
    """Make many objects that stay: nothing of them is garbage, now or at any later collection.

    One within another is nothing by itself: the outer one ends it.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def give_back() -> None:
    """Give memory back to the system that was needed only once. It takes some milliseconds.

    Nothing happens where the C library cannot: GNU's can.
    """
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)
