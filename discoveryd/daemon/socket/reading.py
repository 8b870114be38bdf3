"""Whether one connection is read, and how much of it at once. What is read is others' business.

An event loop reads as much as it likes, and hands over bytes: that costs least, and is right for
as long as all peers together have sent little. Once they have sent too much (pressure.py) each
connection is *squeezed*: read through a small buffer, which the loop must ask for each time.
"""

import asyncio
from collections.abc import Callable

from discoveryd.daemon.socket.pressure import Intake
from discoveryd.varlink import ServerConnection


class Reading:
    """The reading of one connection: to `protocol`, for `connection`, and as `intake` has room.

    It has nothing to read from before `begin`.
    """

    def __init__(
        self, protocol: asyncio.Protocol, connection: ServerConnection, intake: Intake
    ) -> None:
        self.protocol = protocol
        self._connection = connection
        self._intake = intake
        self._transport: asyncio.Transport | None = None
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._held = 0
        self._held_back = False
        self._ends = False
        self._squeezed = False
        self.on = True
        """Whether the connection is read."""

    def begin(self, transport: asyncio.Transport) -> None:
        """Read on, now that there is something to read from."""
        self._transport = transport
        self.squeeze(tight=self._intake.squeezed)

    def squeeze(self, *, tight: bool) -> None:
        """Read little at once from now on, or as much as the loop likes."""
        transport = self._transport
        if tight == self._squeezed or transport is None or transport.is_closing():
            return
        self._squeezed = tight
        # A loop looks at what kind of protocol it has when it begins to read.
        if self.on:
            transport.pause_reading()
        transport.set_protocol(_Squeezed(self.protocol, self._intake) if tight else self.protocol)
        if self.on:
            transport.resume_reading()

    def hold_back(self) -> None:
        """Read no more until `let_on`."""
        self._held_back = True
        self._steer()

    def let_on(self) -> None:
        """Read again, if there is room for it."""
        self._held_back = False
        self._steer()

    def go_on(self) -> bool:
        """Read as long as there is room for what is read; return whether nothing is held."""
        held = self._connection.held
        if held != self._held:
            self._held = held
            self._intake.note(self, held, self._now())
        self._steer()
        return not held

    def wait_for_the_end(self) -> None:
        """Read whatever comes from now on: only that it ends is of interest."""
        self._ends = True
        if not self.on:
            self._turn(on=True)

    def end(self) -> None:
        """Be done with it."""
        self._intake.forget(self, self._now())

    def _steer(self) -> None:
        wanted = self._connection.want_data and not self._held_back
        if wanted != self.on and not self._ends:
            self._turn(on=wanted)

    def _turn(self, *, on: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.on = on
        if on:
            transport.resume_reading()
        else:
            transport.pause_reading()


class _Squeezed(asyncio.BufferedProtocol):
    """Stands before a protocol, and reads little at once."""

    def __init__(self, protocol: asyncio.Protocol, intake: Intake) -> None:
        self._intake = intake
        self._protocol = protocol
        # What is called by the loop goes through, but for what was read.
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]  # the same
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]  # the same
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]  # the same
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]  # the same

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to read to; called by the loop."""
        del sizehint  # an event loop's guess at what it does not know
        return self._intake.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over what was read; called by the loop."""
        self._protocol.data_received(self._intake.was_read(nbytes))
