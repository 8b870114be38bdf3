"""What a format is made of: the names that can be routed to, their workers, the workers' addresses.

What one format writes for it lives beside it. Nothing here may open, resolve or ask anything.

Theory
======

**Who can be routed to.** These routers send a request to one worker, and know nothing of workers
that share the work. So a name is exported while it is ready, and with those of its workers that
take a request from its beginning: `aggregated` and `decode`. `prefill` and `encode` ones, asked by
their peers, would answer it with half of the work.

**Only who answers a name.** A worker answers its model and the aliases that it has itself. A name
of kind `operator` is answered by the workers of its model, and they know only that: a format that
can rename requests asks for it, another leaves the name out.

**Untrusted text.** Whoever may drop a card decides its names, labels and URL. A router reads one
file as a whole, so a single text that it cannot take would keep it from reading all the others.
Each format therefore writes only what it can write safely, and leaves out the rest, in a comment
where it has them.

**The order** is that of names, and for each that of admission. So what is the same is written the
same, by a view that followed for days and by one that has just begun.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from discoveryd.core.text import printable, shortened
from discoveryd.interface import Name, Worker

MOST_WEIGHT = 65_535

_LONGEST_COMMENT = 1000
_ASKED_FIRST = ("aggregated", "decode")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?\.?")
_PORT = re.compile(r"[0-9]{1,5}")
_WEIGHT = re.compile(r"[1-9][0-9]{0,4}")


class Address(NamedTuple):
    """Where a worker listens for HTTP: `host` without brackets, `path` without a slash at its end.

    `numeric` says whether `host` is an IP address.
    """

    scheme: str
    host: str
    numeric: bool
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The host and the port, as URLs have them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Route(NamedTuple):
    """A name that is ready: what workers have to be asked for, and who can be asked.

    `workers` holds draining ones, too.
    """

    name: str
    asked_as: str
    workers: tuple[Worker, ...]


class Served(NamedTuple):
    """Everything that is served, of one revision."""

    names: tuple[Name, ...]
    workers: tuple[Worker, ...]

    @classmethod
    def of(cls, names: Iterable[Name], workers: Iterable[Worker]) -> "Served":
        """Return these in the order in which they are written."""
        return cls(
            tuple(sorted(names, key=lambda name: name.name)),
            tuple(sorted(workers, key=lambda worker: worker.admission)),
        )

    def routes(self) -> Iterator[Route]:
        """Yield every name that is ready, with the workers that take requests for it."""
        answering: dict[str, list[Worker]] = {}
        for worker in self.workers:
            if worker.worker_type in _ASKED_FIRST:
                for name in dict.fromkeys((worker.model, *worker.aliases)):
                    answering.setdefault(name, []).append(worker)
        for line in self.names:
            if line.ready:
                asked_as = line.model if line.kind == "operator" else line.name
                yield Route(line.name, asked_as, tuple(answering.get(asked_as, ())))


def address(url: str | None) -> Address | None:
    """Return where a worker with this url is asked over HTTP, and TCP; None if it is not.

    None, too, for a host that can be none.
    """
    scheme, separator, rest = (url or "").partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    authority, slash, path = rest.partition("/")
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    numeric = _is_numeric(host)
    if not numeric and (":" in host or _HOST.fullmatch(host) is None):
        return None
    if not port:
        port = _DEFAULT_PORTS[scheme]
    if _PORT.fullmatch(port) is None:
        return None
    return Address(scheme, host, numeric, int(port), f"{slash}{path}".rstrip("/"))


def weight(worker: Worker) -> int | None:
    """Return the worker's label `weight`; None where it has none that is 1 to 65535."""
    given = (worker.labels or {}).get("weight", "")
    if _WEIGHT.fullmatch(given) is None:
        return None
    number = int(given)
    return number if number <= MOST_WEIGHT else None


def comment(sentence: str) -> str:
    """Return a line of comment, in ASCII, whatever is in it, and cut where it is long.

    No reader stumbles over that; nginx does over lines of 4096 bytes, be they comments.
    """
    line = printable(sentence).encode("ascii", "backslashreplace").decode()
    return f"# {shortened(line, _LONGEST_COMMENT)}"


def _is_numeric(host: str) -> bool:
    if "%" in host:
        # A zone, which means nothing to others.
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
