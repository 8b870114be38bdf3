"""The daemon's own socket in the file system: claimed early, there late, removed only if ours.

A path has one owner at a time, proven by a lock on a file beside the socket, which the kernel gives
up when the owner dies. So a socket found under the lock is either a dead daemon's, and taken over,
or somebody's who knows nothing of the lock: that one is asked by connecting.

`claim` makes nothing but the lock, so that a second daemon gives up before it scans anything; the
socket appears with `listen`, when there is something to answer.

It is listened at before it has its name, so that whoever finds the path can connect.

The socket is never open to more than it should be: on Linux a Unix socket is born with the mode of
its descriptor, less the umask. What the umask took is given back afterwards, and what a group may
do only once it is that group's, so that the mode only ever widens; and nobody can connect before it
is as it should be. The umask is the whole process's, and threads make files meanwhile: it is left
alone. What is changed after birth is held by a descriptor, since a path may lead elsewhere by then.

Both files may be removed, or their directory replaced, while the daemon runs. The path is then lost
to clients, not to those who are connected. `mend`, called now and again, notices and makes them
anew, unless another daemon has: whoever was first there then keeps it, and this one waits.
"""

import errno
import fcntl
import os
import socket
import stat
import time
from pathlib import Path

from discoveryd.core.places import SOCKET_PATH_LIMIT
from discoveryd.daemon.errors import StartError

BACKLOG = 4096
_SO_PASSRIGHTS = 83  # Linux 6.16; the socket module does not know it yet
_DYING_SECONDS = 0.5
_DYING_LOOKS = 0.02


class Listener:
    """A claimed path, and once `listen` was called the socket there. Made by `claim`.

    Not safe to use from two threads at once, but from one after the other.
    """

    def __init__(self, path: str, mode: int, group: int | None, lock: int) -> None:
        self.path = path
        self._mode = mode
        self._group = group
        self._lock = lock
        self._socket: socket.socket | None = None
        self._old: socket.socket | None = None
        self._born: tuple[int, int] | None = None
        self._problem: str | None = None

    def problems(self) -> list[str]:
        """Say why clients do not find the daemon at its path, and what to do, where that is so."""
        return [] if self._problem is None else [self._problem]

    def listen(self) -> socket.socket:
        """Make the socket and return it, listening and non-blocking. It stays the listener's.

        Raises StartError where the path was taken meanwhile or cannot be bound.
        """
        birthplace = _birthplace(self.path)
        if _refuse_if_taken(self.path) and birthplace == self.path:
            Path(self.path).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if birthplace != self.path:
                Path(birthplace).unlink(missing_ok=True)
            born = self._bind(listening, birthplace)
            refuse_descriptors(listening)
            listening.listen(BACKLOG)
            Path(birthplace).rename(self.path)
        except OSError as error:
            listening.close()
            raise StartError(f"cannot listen at {self.path}: {error.strerror}") from None
        except StartError:
            listening.close()
            raise
        listening.setblocking(False)
        self._socket, self._born = listening, born
        return listening

    def mend(self) -> tuple[socket.socket, socket.socket] | None:
        """See that the path still leads to the socket, and make it anew where it does not.

        Returns the old socket and the new one, None where there is no new one. The old one is open
        until the next call, for those who have knocked there. Where no new one can be made although
        the path is lost, `problems` says why. `listen` comes before.
        """
        self._close_old()
        old = self._socket
        if old is None:
            return None
        try:
            if not _leads_to(_lock_path(self.path), self._lock):
                lock = _take_lock(self.path, patience=0.0)
                os.close(self._lock)
                self._lock = lock
            new = None if identity_at(self.path) == self._born else self.listen()
        except StartError as error:
            self._problem = f"clients cannot connect any more: {error}"
            return None
        self._problem = None
        if new is None:
            return None
        self._old = old
        return old, new

    def close(self) -> None:
        """Remove the socket if the path still leads to it, and give up the claim."""
        if self._socket is not None:
            # Removed before it is closed: an inode in use has a number that nobody else has.
            if identity_at(self.path) == self._born:
                Path(self.path).unlink(missing_ok=True)
            self._socket.close()
            self._socket = None
        self._close_old()
        if self._lock >= 0:
            _unlock(_lock_path(self.path), self._lock)
            self._lock = -1

    def _close_old(self) -> None:
        if self._old is not None:
            self._old.close()
            self._old = None

    def _bind(self, listening: socket.socket, path: str) -> tuple[int, int]:
        """Bind it to `path`, and give the file the right mode and group; return its identity."""
        narrow = self._mode if self._group is None else self._mode & ~stat.S_IRWXG
        os.fchmod(listening.fileno(), narrow)
        listening.bind(path)
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            born = os.fstat(file)
            held = f"/proc/self/fd/{file}"
            if not stat.S_ISSOCK(born.st_mode):
                raise StartError(f"{path} was replaced while it was made: see who does that")
            if self._group is not None and born.st_gid != self._group:
                os.chown(held, -1, self._group)
            if stat.S_IMODE(born.st_mode) != self._mode:
                Path(held).chmod(self._mode)
        except PermissionError:
            Path(path).unlink(missing_ok=True)
            raise StartError(
                f"cannot give {self.path} to the group {self._group}: only root may do that, and "
                "members of the group; name another one with --socket-group"
            ) from None
        finally:
            os.close(file)
        return born.st_dev, born.st_ino


def claim(path: str, mode: int = 0o600, group: int | None = None) -> Listener:
    """Claim `path` for a socket; the socket appears later, with `listen`.

    It will have the mode `mode`, and belong to the group with the number `group`, if that is given.
    Raises StartError where somebody else is serving there, something there is no socket, or no
    socket can be there.
    """
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        raise StartError(
            f"the socket's path has {length} bytes, and a Unix socket's may have "
            f"{SOCKET_PATH_LIMIT}: name a shorter one than {path} with --socket"
        )
    lock = _take_lock(path, patience=_DYING_SECONDS)
    try:
        _refuse_if_taken(path)
    except StartError:
        _unlock(_lock_path(path), lock)
        raise
    return Listener(path, mode, group, lock)


def _birthplace(path: str) -> str:
    """Return where to make the socket: under a name beside its own, if there is one short enough.

    A path that is bound but not listened at refuses whoever knocks. So the socket is made elsewhere
    and renamed: who finds the path can connect.
    """
    directory, name = os.path.split(path)
    beside = f"{directory}/.{name}.new"
    return beside if len(os.fsencode(beside)) <= SOCKET_PATH_LIMIT else path


def _lock_path(path: str) -> str:
    directory, name = os.path.split(path)
    return f"{directory}/.{name}.lock"


def _take_lock(path: str, patience: float) -> int:
    """Open and lock the lock file; return its descriptor.

    Waits for `patience` seconds where it is locked, since a daemon that was just killed holds its
    lock a moment longer. Raises StartError where it cannot be had.
    """
    lock_path = _lock_path(path)
    until = time.monotonic() + patience
    while True:
        lock = _open_lock(path, lock_path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            if time.monotonic() < until:
                time.sleep(_DYING_LOOKS)
                continue
            raise StartError(
                f"another discoveryd is serving {path} (process {owner or 'unknown'}): stop it, or "
                "name another socket with --socket"
            ) from None
        except OSError as error:
            os.close(lock)
            raise StartError(
                f"cannot lock {lock_path}: {error.strerror}; name a socket on another file system "
                "with --socket"
            ) from None
        if _leads_to(lock_path, lock):
            os.truncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
            return lock
        # Its last owner removed the file between our opening and locking it.
        os.close(lock)


def _open_lock(path: str, lock_path: str) -> int:
    try:
        return os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        directory = Path(path).parent
        if isinstance(error, FileNotFoundError) and not directory.exists():
            fault = f"there is no directory {directory} for the socket: make it"
        elif isinstance(error, NotADirectoryError):
            fault = f"{directory}, where the socket should be, is no directory"
        else:
            fault = f"cannot open the lock file {lock_path}: {error.strerror}"
    raise StartError(f"{fault}, or name another socket with --socket")


def _unlock(lock_path: str, lock: int) -> None:
    if _leads_to(lock_path, lock):
        Path(lock_path).unlink(missing_ok=True)
    os.close(lock)


def _refuse_if_taken(path: str) -> bool:
    """Return whether `path` holds a socket that nobody serves.

    Raises StartError where it holds anything else.
    """
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        return False
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
        return True
    if answer in (0, errno.EAGAIN):
        raise StartError(
            f"somebody is serving {path} already: stop it, or name another socket with --socket"
        )
    raise StartError(
        f"cannot tell whether somebody serves {path}: {os.strerror(answer)}; name another socket "
        "with --socket"
    )


def _leads_to(path: str, descriptor: int) -> bool:
    held = os.fstat(descriptor)
    return identity_at(path) == (held.st_dev, held.st_ino)


def identity_at(path: str) -> tuple[int, int] | None:
    """Return what tells one file from all others, of what lies at a path; None where nothing is."""
    try:
        found = Path(path).lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def refuse_descriptors(listening: socket.socket) -> None:
    """Have the kernel refuse file descriptors that peers send (UAPI.20), where it can."""
    try:
        listening.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    except OSError:
        # An older kernel. Nothing here receives them, so they are dropped with the message.
        return
