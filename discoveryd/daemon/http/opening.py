"""Where HTTP is answered: a path, a loopback address, sockets that were passed in, or nowhere.

A path is claimed, made and kept as the interface's is (listening.py), with the same mode and group.
An address is taken at the beginning, so that a port in use is told at once, and listened at when
there are answers. What it takes to speak HTTP is imported only where it is spoken.
"""

import importlib.util
import ipaddress
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio.abc

from discoveryd.daemon.configuration.config import Config
from discoveryd.daemon.errors import StartError
from discoveryd.daemon.http.calls import Calls
from discoveryd.daemon.socket.keeping import keep
from discoveryd.daemon.socket.listening import BACKLOG, Listener, claim
from discoveryd.daemon.writer import Writer

if TYPE_CHECKING:
    from discoveryd.daemon.http.serving import HttpServer
    from discoveryd.daemon.http.site import House

_NEEDED = ("h11", "prometheus_client")

GRACE_SECONDS = 0.3
"""How long answers that are being sent may take when the daemon ends."""


class Http:
    """The HTTP side of a daemon that goes by `config`.

    `passed` are listening, non-blocking sockets to serve besides; they stay the caller's. `calls`
    is where calls of the interface are to be counted; None where nobody would ask.
    """

    def __init__(self, config: Config, passed: Sequence[socket.socket] = ()) -> None:
        self.calls = Calls() if config.http is not None or passed else None
        self._config = config
        self._passed = passed
        self._listener: Listener | None = None
        self._bound: socket.socket | None = None
        self._server: HttpServer | None = None

    def claim(self) -> None:
        """Take the path or address, so that nobody else does; nobody is answered yet.

        Raises StartError where that cannot be, or where HTTP is asked for and cannot be spoken.
        """
        if self.calls is None:
            return
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise StartError(
                f"HTTP needs {' and '.join(missing)}, not installed here: install discoveryd with"
                " its extra http (pip install 'discoveryd[http]'), or leave http out"
            )
        where = self._config.http
        if where is None:
            return
        if where.startswith("/"):
            try:
                self._listener = claim(where, self._config.socket_mode, self._config.socket_group)
            except StartError as fault:
                # Told in the words of the interface's socket, but this path is named elsewhere.
                raise StartError(str(fault).replace("--socket", "--http")) from None
        else:
            self._bound = _bind(where)

    def serve(self, writer: Writer, house: "House", life: anyio.abc.TaskGroup) -> None:
        """Answer from now on, from the writer's answers. Raises StartError."""
        if self.calls is None:
            return
        from discoveryd.daemon.http.serving import HttpServer  # noqa: PLC0415  # with h11
        from discoveryd.daemon.http.site import Site  # noqa: PLC0415  # with prometheus_client

        self._server = server = HttpServer(Site(writer, house, self.calls))
        for passed in self._passed:
            server.serve(passed)
        if self._bound is not None:
            try:
                self._bound.listen(BACKLOG)
            except OSError as error:
                raise _taken(str(self._config.http), error) from None
            server.serve(self._bound)
        if self._listener is not None:
            server.serve(self._listener.listen())
            life.start_soon(keep, self._listener, server)

    def problems(self) -> list[str]:
        """Say why clients do not find it, and what to do, where that is so."""
        return [] if self._listener is None else self._listener.problems()

    async def end(self) -> None:
        """Answer no more; what is being sent has a moment. Again is harmless."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.close(GRACE_SECONDS)

    def close(self) -> None:
        """Give up the path or address. `end` comes before."""
        if self._listener is not None:
            self._listener.close()
        if self._bound is not None:
            self._bound.close()


def _bind(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    address = ipaddress.ip_address(host.strip("[]"))
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004  # as it is called
    try:
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _taken(where, error) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((str(address), int(port)))
    except OSError as error:
        bound.close()
        raise _taken(where, error) from None
    bound.setblocking(False)
    return bound


def _taken(where: str, error: OSError) -> StartError:
    return StartError(
        f"cannot listen at {where} for HTTP: {error.strerror}; name another port, or a path, with"
        " --http"
    )
