"""One HTTP connection: requests read by h11, pages written, and what a peer may not do.

Only GET and HEAD are answered, and no body is read. The whole head of a request has to come within
`HEAD_SECONDS` of the connection's beginning or of the answer before it, however it trickles, and in
`HEAD_BYTES`; each piece of an answer has to be taken within `STALL_SECONDS`. Requests that come
before the answer to the one before them wait in the kernel, or in the head's bytes.

A browser that was led to a loopback address by a name of somebody's own (DNS rebinding) says that
name in Host. So over TCP only loopback's own names are answered.
"""

import asyncio
import contextlib
import http
import ipaddress
import logging
import re
import socket
from typing import cast

import h11

from discoveryd.daemon.http import pages
from discoveryd.daemon.http.pages import Page
from discoveryd.daemon.http.site import Long, Site

HEAD_BYTES = 8 * 1024
HEAD_SECONDS = 20.0
STALL_SECONDS = 30.0

_READ_BYTES = 2048
_LINGER_SECONDS = 1.0
_LINGER_READS = 32
_METHODS = (b"GET", b"HEAD")
_ALWAYS = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))

_log = logging.getLogger(__name__)


class Exchange:
    """Answers the requests of one connection from `site`.

    `connected` is non-blocking, and stays the caller's.

    `host_checked` says whether Host must be a name of loopback. `head_seconds` and `stall_seconds`
    are as the constants above.
    """

    def __init__(
        self,
        connected: socket.socket,
        site: Site,
        *,
        host_checked: bool,
        head_seconds: float = HEAD_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self.waiting = True
        """Whether nothing is being answered."""
        self._socket = connected
        self._site = site
        self._host_checked = host_checked
        self._head_seconds = head_seconds
        self._stall_seconds = stall_seconds
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._loop = asyncio.get_running_loop()
        self._last = False

    def finish(self) -> None:
        """Let the answer that is being sent be the last."""
        self._last = True

    async def run(self) -> None:
        """Answer until the connection is of no more use."""
        try:
            while await self._answer_next():
                self._http.start_next_cycle()
            await self._linger()
        except OSError:
            return  # a peer that leaves, or reads nothing in time, is nothing to report
        except Exception:  # noqa: BLE001 - whatever it is, it must not reach the others
            _log.exception("answering over HTTP failed: this is a bug; the connection is closed")

    async def _answer_next(self) -> bool:
        """Read a request and answer it; return whether another one may follow."""
        self.waiting = True
        try:
            request = await self._request()
        except TimeoutError:
            if not self._http.trailing_data[0]:
                return False
            slow = f"a request has to come within {self._head_seconds:.0f} s"
            await self._send(pages.fault(408, slow))
            return False
        except h11.RemoteProtocolError as error:
            await self._send(pages.fault(error.error_status_hint, f"no proper request: {error}"))
            return False
        if request is None:
            return False
        self.waiting = False
        await self._send(await self._page(request), bare=request.method == b"HEAD")
        both = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return both and not self._last

    async def _request(self) -> h11.Request | None:
        """Return the next request, None if the peer has ended.

        Raises TimeoutError and h11.RemoteProtocolError.
        """
        async with asyncio.timeout(self._head_seconds):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._loop.sock_recv(self._socket, _READ_BYTES))
        return event if isinstance(event, h11.Request) else None

    async def _page(self, request: h11.Request) -> Page | Long:
        if request.method not in _METHODS:
            return pages.fault(405, "there is only reading here", allow="GET, HEAD")
        if not self._is_all():
            return pages.fault(413, "a request to read has no body")
        if self._host_checked and not _is_loopback(_host(request)):
            return pages.fault(421, "this answers to the names of loopback only, such as localhost")
        target = request.target.decode("latin-1")
        if not target.startswith("/"):
            return pages.fault(400, "a request names a path, which begins with a slash")
        return await self._site.get(target)

    def _is_all(self) -> bool:
        """Whether the request that was read has no body, not even the beginning of a broken one."""
        try:
            return isinstance(self._http.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError:
            return False

    async def _send(self, page: Page | Long, *, bare: bool = False) -> None:
        """Send a page, with `bare` its head only."""
        if isinstance(page, Page):
            length = ("content-length", str(len(page.body)))
            told = self._begin(page.status, page.content_type, (length, *page.headers))
            if not bare:
                told += self._encode(h11.Data(page.body))
        else:
            async with contextlib.aclosing(page.pieces) as pieces:
                told = self._begin(200, page.content_type, ())
                if not bare:
                    async for piece in pieces:
                        await self._write(told + self._encode(h11.Data(piece)))
                        told = b""
        await self._write(told + self._encode(h11.EndOfMessage()))

    def _begin(self, status: int, content_type: str, headers: tuple[tuple[str, str], ...]) -> bytes:
        reason = http.HTTPStatus(status).phrase
        ends = self._last or self._http.their_state is not h11.DONE
        closing = (("connection", "close"),) if ends else ()
        told = [("content-type", content_type), *headers, *_ALWAYS, *closing]
        return self._encode(h11.Response(status_code=status, headers=told, reason=reason))

    def _encode(self, event: h11.Event) -> bytes:
        return cast("bytes", self._http.send(event))

    async def _write(self, told: bytes) -> None:
        """Raises TimeoutError where the peer does not take it in time."""
        async with asyncio.timeout(self._stall_seconds):
            await self._loop.sock_sendall(self._socket, told)
        # What the kernel takes at once gives nobody else a turn.
        await asyncio.sleep(0)

    async def _linger(self) -> None:
        """Half-close, and let the peer end its side: with input unread it might lose the answer."""
        self._socket.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LINGER_SECONDS):
            for _ in range(_LINGER_READS):
                if not await self._loop.sock_recv(self._socket, _READ_BYTES):
                    return


def _host(request: h11.Request) -> str:
    """Return what the request says that it was sent to; nothing where it does not say."""
    said = [value for name, value in request.headers if name == b"host"]
    return said[0].decode("latin-1") if said else ""


def _is_loopback(host: str) -> bool:
    named = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:[0-9]*)?", host)
    if named is None:
        return False
    name = named[1].strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
