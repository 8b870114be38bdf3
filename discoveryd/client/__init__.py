"""What routers, people and tests import: the clients and discoveryctl.

Imports nothing of the daemon, but for its reader of card files in `check.py`.
"""

from discoveryd.client.blocking import Client
from discoveryd.client.errors import (
    Attempt,
    BadReply,
    CallRefused,
    ConnectionLost,
    DiscoverydError,
    NoDaemon,
    NoSuchFile,
    NoSuchModel,
    Timeout,
    TooLarge,
)
from discoveryd.interface import Cursor

__all__ = [
    "Attempt",
    "BadReply",
    "CallRefused",
    "Client",
    "ConnectionLost",
    "Cursor",
    "DiscoverydError",
    "NoDaemon",
    "NoSuchFile",
    "NoSuchModel",
    "Timeout",
    "TooLarge",
]
