"""One HTTP question to a server, with a deadline that holds: GET, over TCP, TLS or a Unix socket.

The question runs in a thread, by the standard library's client. A timeout of its own would bound
each read, not the whole: a server that drips a byte now and then would be waited for for ever. So
at the deadline, or when whoever asked is cancelled, the connection is shut down under the thread,
which then ends.

Redirects are not followed, so that a header meant for one server reaches no other, and the
environment's proxies are not asked: it is this server that is asked how it is.

A Unix socket's URL is unix:// and its path, and the request's path is written behind that; the
socket is the part of it that is one.
"""

import http.client
import io
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

import anyio
import anyio.to_thread

MOST_BYTES: Final = 1 << 20
"""How long an answer may be, unless said otherwise."""

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_ASCII = bytes(range(0x21, 0x7F)).decode()
_PORTS = {"http": 80, "https": 443}
_CUT_SHORT = "it ends the connection before its answer is whole"


class Answer(NamedTuple):
    """A whole answer: its HTTP status and its body."""

    status: int
    body: bytes


class Unreachable(Exception):
    """There is no connection. The text says why; `refused`: nobody listens there."""

    def __init__(self, why: str, *, refused: bool) -> None:
        super().__init__(why)
        self.refused = refused


class NoAnswer(Exception):
    """There was a connection, but no whole answer in time. The text says what there was instead."""


async def fetch(
    url: str,
    *,
    seconds: float,
    headers: Mapping[str, str] = _NO_HEADERS,
    most_bytes: int = MOST_BYTES,
) -> Answer:
    """Return what the server at an http, https or unix URL answers to a GET, whatever its status.

    All of it, looking up the host included, has to be over within `seconds`. Raises Unreachable;
    NoAnswer if it is late, cut short, longer than `most_bytes`, or no HTTP. Raises ValueError for a
    URL of another kind.
    """
    question = _Question(urlsplit(url), headers, seconds, most_bytes)
    try:
        with anyio.fail_after(seconds):
            return await anyio.to_thread.run_sync(question.ask, abandon_on_cancel=True)
    except TimeoutError:
        raise NoAnswer(f"no answer within {seconds:g} s") from None
    finally:
        question.give_up()


class _Lines(io.BufferedReader):
    """What a server sends, of which every line must be whole."""

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line, or its first `size` bytes. Raises IncompleteRead where it has no end."""
        line = super().readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        raise http.client.IncompleteRead(line)


class _Response(http.client.HTTPResponse):
    """A response; the library would take the end of a connection for the end of the head."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - whatever the library gives
        super().__init__(*given, **named)
        self.fp = _Lines(self.fp.detach())


class _Connection(http.client.HTTPConnection):
    response_class = _Response


class _Question:
    """One question. `ask` is the thread's, `give_up` the asker's, at any time."""

    def __init__(
        self, url: SplitResult, headers: Mapping[str, str], seconds: float, most_bytes: int
    ) -> None:
        if url.scheme not in ("http", "https", "unix"):
            raise ValueError(f"cannot ask a URL of the kind {url.scheme!r}")
        self._url = url
        self._headers = {"Connection": "close", **headers}
        self._deadline = time.monotonic() + seconds
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._over = False

    def give_up(self) -> None:
        """Shut the connection down, if there is one, and let there be no other."""
        with self._lock:
            self._over = True
            if self._socket is not None:
                _shut_down(self._socket)

    def ask(self) -> Answer:
        """Return the answer. Raises Unreachable, NoAnswer, or TimeoutError where it is late."""
        connected, target = self._connected()
        with connected:
            connection = _Connection(self._url.netloc or "localhost")
            connection.sock = connected
            try:
                connection.request("GET", quote(target, safe=_ASCII), headers=self._headers)
                with connection.getresponse() as response:
                    body = response.read(self._most_bytes + 1)
                    if len(body) > self._most_bytes:
                        raise NoAnswer(f"it answers with more than {self._most_bytes} bytes")
                    if response.length:
                        raise NoAnswer(_CUT_SHORT)
                    return Answer(response.status, body)
            except (http.client.RemoteDisconnected, http.client.IncompleteRead):
                raise NoAnswer(_CUT_SHORT) from None
            except http.client.HTTPException:
                raise NoAnswer("it answers something that is no HTTP") from None
            except TimeoutError:
                raise
            except OSError as fault:
                raise NoAnswer(f"it breaks the connection ({_reason(fault)})") from None
            finally:
                with self._lock:
                    self._socket = None

    def _connected(self) -> tuple[socket.socket, str]:
        """Return a connection to the server, and what to ask it for."""
        try:
            if self._url.scheme == "unix":
                path, target = _unix_socket(self._url.path)
                return self._connect(socket.AF_UNIX, path), target
            return self._connected_by_name(), (self._url.path or "/") + (
                f"?{self._url.query}" if self._url.query else ""
            )
        except ConnectionRefusedError:
            raise Unreachable("the connection is refused", refused=True) from None
        except FileNotFoundError:
            raise Unreachable("there is no such socket", refused=True) from None
        except (OSError, UnicodeError) as fault:
            raise Unreachable(_reason(fault), refused=False) from None

    def _connected_by_name(self) -> socket.socket:
        """Return a connection to the first of the host's addresses that accepts one."""
        port = self._url.port or _PORTS[self._url.scheme]
        faults: list[OSError] = []
        for family, _, _, _, address in socket.getaddrinfo(
            self._url.hostname, port, type=socket.SOCK_STREAM
        ):
            try:
                connected = self._connect(family, address)
                return self._secured(connected) if self._url.scheme == "https" else connected
            except OSError as fault:
                faults.append(fault)
        # That nobody listens is known only if no address says anything else.
        raise next((f for f in faults if not isinstance(f, ConnectionRefusedError)), faults[0])

    def _connect(self, family: int, address: Any) -> socket.socket:  # noqa: ANN401 - as families have it
        connected = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._keep(connected)
            connected.settimeout(max(self._deadline - time.monotonic(), 0.001))
            connected.connect(address)
            # Whoever asked may have given up while there was nothing to shut down yet.
            self._keep(connected)
        except BaseException:
            connected.close()
            raise
        return connected

    def _secured(self, connected: socket.socket) -> socket.socket:
        """Return the connection under TLS; it is closed where that fails."""
        import ssl  # noqa: PLC0415 - local servers seldom have it, and it is not small

        try:
            context = ssl.create_default_context()
            secured = context.wrap_socket(connected, server_hostname=self._url.hostname)
        except BaseException:
            connected.close()
            raise
        self._keep(secured)
        return secured

    def _keep(self, connected: socket.socket) -> None:
        """Let `give_up` know the connection; end it if that has been called."""
        with self._lock:
            self._socket = connected
            if self._over:
                _shut_down(connected)


def _shut_down(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Not connected yet, which its timeout ends, or not any more.
        return


def _unix_socket(path: str) -> tuple[str, str]:
    """Return the part of the path that is a socket, and the rest, for which it is asked.

    Raises FileNotFoundError if no part is one.
    """
    for part in _parts(path):
        try:
            found = os.stat(part)  # noqa: PTH116 - what Path would do, without normalising
        except OSError:
            continue
        if stat.S_ISSOCK(found.st_mode):
            return part, path[len(part) :] or "/"
    raise FileNotFoundError(path)


def _parts(path: str) -> Iterator[str]:
    """Give the path and those above it, the longest first."""
    while path.strip("/"):
        yield path
        path = path.rpartition("/")[0]


def _reason(fault: Exception) -> str:
    strerror = fault.strerror if isinstance(fault, OSError) else None
    return (strerror or str(fault) or type(fault).__name__).lower()
