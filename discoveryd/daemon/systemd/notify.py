"""Telling the service manager how the daemon is: sd_notify(3), without blocking and without faults.

A message is one datagram of lines `NAME=VALUE`. The manager may be gone, or have no room for a
moment; the daemon serves its clients regardless. What the manager waits for (that the daemon is
ready, that a reload is over) must not be lost to a full queue, though: what could not be sent is
owed, in order, and sent with the next message. A status or a sign of life is worth nothing later,
and is not owed.

**Reload.** Under Type=notify-reload the manager sends SIGHUP and waits for RELOADING=1 with the
time at which the daemon noticed, in one datagram, and then for READY=1. Without that time, or
without the end, `systemctl reload` hangs; so `reloading` and `ready` are the only two halves. Once
the daemon is `stopping` there is neither: a reload that is still being made then is over with it.
"""

import errno
import logging
import socket
import time
from collections.abc import MutableMapping

from discoveryd.core.text import printable

OWED_LIMIT = 16
"""How many messages are kept for a manager that has no room; the oldest are given up first."""

_ABSTRACT = "@"
_NO_ROOM = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM})

_log = logging.getLogger(__name__)


class Notifier:
    """Tells the manager that listens at `address`; None: there is nobody to tell.

    `address` is a path, or begins with `@` and is a name in the abstract namespace. No method
    raises or blocks. That a message cannot be sent is logged once. All methods are one thread's.

    `told_ready` is whether `ready` was called.
    """

    def __init__(self, address: str | None) -> None:
        self._address = None if address is None else _socket_address(address)
        self.told_ready = False
        self._status: str | None = None
        self._owed: list[bytes] = []
        self._complained = False
        self._stopping = False
        self._socket: socket.socket | None = None
        if address is not None and self._address is None:
            self._complain(f"its address {printable(address)} is of no kind that is known here")

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> "Notifier":
        """Return the notifier that NOTIFY_SOCKET asks for, and remove the variable."""
        return cls(environ.pop("NOTIFY_SOCKET", None) or None)

    @property
    def heard(self) -> bool:
        """Whether there is anybody to tell."""
        return self._address is not None

    def ready(self, status: str) -> None:
        """Say that the daemon serves, for the first time or again after `reloading`."""
        self.told_ready = True
        self._status = status
        if not self._stopping:
            self._tell("READY=1", _status_line(status), owed=True)

    def status(self, text: str) -> None:
        """Say how the daemon is, in one line for people; sent only where it is another than before.

        Called now and again, it also sends what is owed.
        """
        if self._owed:
            self._pay()
        if text != self._status and self._tell(_status_line(text)):
            self._status = text

    def reloading(self) -> None:
        """Say that the configuration is being read again. `ready` must follow."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        if not self._stopping:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={now}", owed=True)

    def stopping(self) -> None:
        """Say that the daemon is about to end."""
        self._stopping = True
        self._tell("STOPPING=1", owed=True)

    def watchdog(self) -> None:
        """Give a sign of life."""
        self._tell("WATCHDOG=1")

    def close(self) -> None:
        """Let go of the socket, and tell nobody anything any more."""
        self._address = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, *lines: str, owed: bool = False) -> bool:
        """Send one message after all that are owed; return whether it was sent."""
        if self._address is None:
            return False
        message = "\n".join(lines).encode(errors="replace")
        if (not self._owed or self._pay()) and self._send(message):
            return True
        if owed:
            self._owed = [*self._owed, message][-OWED_LIMIT:]
        return False

    def _pay(self) -> bool:
        """Send what is owed; return whether that is all sent."""
        while self._owed and self._send(self._owed[0]):
            del self._owed[0]
        return not self._owed

    def _send(self, message: bytes) -> bool:
        if self._address is None:
            return False
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(message, self._address)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self._complain((error.strerror or "unknown error").lower())
            return False
        return True

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("the service manager cannot be told how the daemon is: %s", why)


def _status_line(text: str) -> str:
    return f"STATUS={printable(text)}"


def _socket_address(address: str) -> str | None:
    if address.startswith(_ABSTRACT):
        return f"\0{address.removeprefix(_ABSTRACT)}"
    return address if address.startswith("/") else None
