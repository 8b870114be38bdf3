"""Telling systemd how a program of the client is: sd_notify(3), in as few lines as that takes.

What the daemon tells is daemon/systemd's, and more. Here nothing is owed and nothing is an error:
without a manager, or with one that does not listen, a message goes nowhere.
"""

import os
import socket

_ABSTRACT = "@"


def notify(message: str) -> None:
    """Send lines `NAME=VALUE` to the manager in NOTIFY_SOCKET, if there is one. Never blocks."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith(_ABSTRACT):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(), address)
    except (OSError, UnicodeEncodeError):
        # The program does not depend on who listens to it.
        return
