"""The daemon's own socket in the file system: claimed early, there late, removed only if ours.

A path has one owner at a time, proven by a lock on a file beside the socket, which the kernel gives
up when the owner dies. So a socket found under the lock is either a dead daemon's, and taken over,
or somebody's who knows nothing of the lock: that one is asked by connecting.

`claim` makes nothing but the lock, so that a second daemon gives up before it scans anything; the
socket appears with `listen`, when there is something to answer.

The socket has its mode from birth: on Linux a Unix socket is born with the mode of its descriptor,
less the umask. What the umask took is given back afterwards, so that the mode only ever widens.
"""

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path

from discoveryd.core.places import SOCKET_PATH_LIMIT
from discoveryd.daemon.errors import StartError

BACKLOG = 4096
_SO_PASSRIGHTS = 83  # Linux 6.16; the socket module does not know it yet


class Listener:
    """A claimed path, and once `listen` was called the socket there. Made by `claim`."""

    def __init__(self, path: str, mode: int, lock: int) -> None:
        self.path = path
        self._mode = mode
        self._lock = lock
        self._socket: socket.socket | None = None
        self._born: tuple[int, int] | None = None

    def listen(self) -> socket.socket:
        """Make the socket and return it, listening and non-blocking. It stays the listener's.

        Raises StartError where the path was taken meanwhile or cannot be bound.
        """
        _refuse_if_taken(self.path)
        path = Path(self.path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            os.fchmod(listening.fileno(), self._mode)
            listening.bind(self.path)
            born = path.lstat()
            if stat.S_IMODE(born.st_mode) != self._mode:
                path.chmod(self._mode)
            _refuse_descriptors(listening)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            raise StartError(f"cannot listen at {self.path}: {error.strerror}") from None
        listening.setblocking(False)
        self._socket, self._born = listening, (born.st_dev, born.st_ino)
        return listening

    def close(self) -> None:
        """Remove the socket if the path still leads to it, and give up the claim."""
        if self._socket is not None:
            # Removed before it is closed: an inode in use has a number that nobody else has.
            if _identity(self.path) == self._born:
                Path(self.path).unlink(missing_ok=True)
            self._socket.close()
            self._socket = None
        if self._lock >= 0:
            _unlock(_lock_path(self.path), self._lock)
            self._lock = -1


def claim(path: str, mode: int = 0o600) -> Listener:
    """Claim `path` for a socket of mode `mode`; the socket appears later, with `listen`.

    Raises StartError where somebody else is serving there, something there is no socket, or no
    socket can be there.
    """
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        raise StartError(
            f"the socket's path has {length} bytes, and a Unix socket's may have "
            f"{SOCKET_PATH_LIMIT}: name a shorter one than {path} with --socket"
        )
    lock = _take_lock(path)
    try:
        _refuse_if_taken(path)
    except StartError:
        _unlock(_lock_path(path), lock)
        raise
    return Listener(path, mode, lock)


def _lock_path(path: str) -> str:
    directory, name = os.path.split(path)
    return f"{directory}/.{name}.lock"


def _take_lock(path: str) -> int:
    lock_path = _lock_path(path)
    while True:
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise StartError(
                f"there is no directory {Path(path).parent} for the socket: make it, or name "
                "another socket with --socket"
            ) from None
        except OSError as error:
            raise StartError(
                f"cannot open the lock file {lock_path}: {error.strerror}; name another socket "
                "with --socket"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise StartError(
                f"another discoveryd is serving {path} (process {owner or 'unknown'}): stop it, or "
                "name another socket with --socket"
            ) from None
        held = os.fstat(lock)
        if _identity(lock_path) == (held.st_dev, held.st_ino):
            os.truncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
            return lock
        # Its last owner removed the file between our opening and locking it.
        os.close(lock)


def _unlock(lock_path: str, lock: int) -> None:
    held = os.fstat(lock)
    if _identity(lock_path) == (held.st_dev, held.st_ino):
        Path(lock_path).unlink(missing_ok=True)
    os.close(lock)


def _refuse_if_taken(path: str) -> None:
    """Raise StartError unless `path` is free or holds a socket that nobody serves."""
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartError(f"cannot look at {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise StartError(
            f"{path} exists and is no socket: remove it, or name another socket with --socket"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        answer = probe.connect_ex(path)
    if answer in (errno.ECONNREFUSED, errno.ENOENT):
        return
    if answer in (0, errno.EAGAIN):
        raise StartError(
            f"somebody is serving {path} already: stop it, or name another socket with --socket"
        )
    raise StartError(
        f"cannot tell whether somebody serves {path}: {os.strerror(answer)}; name another socket "
        "with --socket"
    )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _refuse_descriptors(listening: socket.socket) -> None:
    """Have the kernel refuse file descriptors that peers send (UAPI.20), where it can."""
    try:
        listening.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    except OSError:
        # An older kernel. Nothing here receives them, so they are dropped with the message.
        return
