"""Whether clients still find the sockets that were passed in: nobody else would notice.

A path that is removed, or whose directory is replaced, is the socket unit's to make again; all that
can be done here is to say so. A path that could not be seen from the first is never missed.
"""

import socket
from collections.abc import Iterable

from discoveryd.daemon.socket.listening import identity_at


class PassedPaths:
    """The paths of sockets that were passed in, as they are when this is made."""

    def __init__(self, sockets: Iterable[socket.socket]) -> None:
        paths = [str(each.getsockname()) for each in sockets]
        self._born = {path: born for path in paths if (born := identity_at(path)) is not None}

    def problems(self) -> list[str]:
        """Say which paths lead elsewhere by now, and what to do."""
        return [
            f"clients cannot connect any more: {path}, which was passed in, was removed or"
            " replaced. Restart the socket unit and the service together"
            for path, born in self._born.items()
            if identity_at(path) != born
        ]
