"""The program between `discoveryctl run` and the command: it becomes the command.

It has the kernel send SIGTERM to the command should `discoveryctl run` die without a word, as by
kill -9, so that no worker lives on unwatched. That belongs to a process and stays through exec, so
it has to be asked for after fork; and between fork and exec no Python may run where there are
threads. So a small interpreter is started first, which has none. It imports nothing of this package
and is run by its path, with its arguments as: the pid of who starts it, the command's words.

Exit status 126 if the command cannot be started and 127 if there is none, as of env(1).
"""

import ctypes
import errno
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> int:
    """Become the command; return only if that fails, with the exit status."""
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        # What Python has changed for itself.
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the kernel was asked.
        return 128 + signal.SIGTERM
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command is the caller's
    except (OSError, ValueError) as fault:
        # A ValueError means that the command is an empty word, and nothing is called that.
        absent = isinstance(fault, (FileNotFoundError, NotADirectoryError, ValueError))
        strerror = fault.strerror if isinstance(fault, OSError) else os.strerror(errno.ENOENT)
        reason = (strerror or str(fault)).lower()
        print(f"discoveryctl run: cannot start {command[0]!a}: {reason}", file=sys.stderr)  # noqa: T201 - there is nothing else to say it with
        return 127 if absent else 126


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
