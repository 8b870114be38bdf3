"""What workers, routers, people and tests import: the clients, the live view, publishing.

Imports nothing of the daemon, but for its reader of card files in `check.py`. A name's module is
imported when the name is first used: who has use for the blocking client alone needs no anyio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discoveryd.client.aio import AsyncClient
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
    from discoveryd.client.view import Models
    from discoveryd.client.workers.blocking_worker import Worker
    from discoveryd.client.workers.publication import Taken
    from discoveryd.client.workers.publishing import CannotWrite, publish, withdraw
    from discoveryd.client.workers.worker import AsyncWorker, NotServing
    from discoveryd.interface import Cursor

__all__ = [
    "AsyncClient",
    "AsyncWorker",
    "Attempt",
    "BadReply",
    "CallRefused",
    "CannotWrite",
    "Client",
    "ConnectionLost",
    "Cursor",
    "DiscoverydError",
    "Models",
    "NoDaemon",
    "NoSuchFile",
    "NoSuchModel",
    "NotServing",
    "Taken",
    "Timeout",
    "TooLarge",
    "Worker",
    "publish",
    "withdraw",
]

_HOMES = {
    "AsyncClient": "discoveryd.client.aio",
    "AsyncWorker": "discoveryd.client.workers.worker",
    "CannotWrite": "discoveryd.client.workers.publishing",
    "Client": "discoveryd.client.blocking",
    "Cursor": "discoveryd.interface",
    "Models": "discoveryd.client.view",
    "NotServing": "discoveryd.client.workers.worker",
    "Taken": "discoveryd.client.workers.publication",
    "Worker": "discoveryd.client.workers.blocking_worker",
    "publish": "discoveryd.client.workers.publishing",
    "withdraw": "discoveryd.client.workers.publishing",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES.get(name, "discoveryd.client.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
