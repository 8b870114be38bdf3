"""The values of io.discoveryd.Models, for both sides of the socket.

The interface file says what each member means; a test holds these shapes to it. A member that may
be absent is None here and left out on the wire. Clients ignore members that a newer daemon adds.
"""

import msgspec


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """A point in the daemon's history; revisions are only comparable within one epoch."""

    epoch: str
    revision: int


class Worker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One served card: a worker and the model it serves."""

    key: str
    file: str
    model: str
    aliases: tuple[str, ...]
    adapter: bool
    namespace: str
    component: str
    endpoint: str
    instance: str
    url: str | None = None
    accepting: bool
    model_type: str | None = None
    worker_type: str
    needs: tuple[tuple[str, ...], ...]
    context_length: int | None = None
    source_path: str | None = None
    fingerprint: str
    labels: dict[str, str] | None = None
    admission: int


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a card has its standing."""

    rule: str
    message: str
    field: str | None = None
    found: str | None = None
    expected: str | None = None
    against: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a card file's present content."""

    file: str
    key: str | None = None
    model: str | None = None
    names: tuple[str, ...]
    standing: str
    serves: str
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]
    owner_uid: int | None = None
    since: str

    @property
    def good(self) -> bool:
        """Whether the file's present content is what is served."""
        return self.serves == "current"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of what was said of a card file."""

    time: str
    key: str | None = None
    file: str
    standing: str
    reasons: tuple[Reason, ...]


class Name(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One name that is served."""

    name: str
    kind: str
    model: str
    workers: int
    ready: bool


class Directory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One directory that the daemon watches."""

    path: str
    layout: str
    watching: bool
    backend: str
    files: int
    rescan_seconds: float
    last_scan_seconds: float
    found_by_scan: int
    problem: str | None = None


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """Which workers serve a name: the accepting ones, in the order of their admission."""

    name: str
    kind: str
    model: str
    ready: bool
    workers: tuple[Worker, ...]
    cursor: Cursor


class NameList(msgspec.Struct, frozen=True, kw_only=True):
    """Every served name, all of one revision."""

    names: tuple[Name, ...]
    cursor: Cursor


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """Served workers, draining ones included, all of one revision."""

    workers: tuple[Worker, ...]
    cursor: Cursor


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why cards have their standing, all of one revision."""

    verdicts: tuple[Verdict, ...]
    cursor: Cursor


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a card would get, and whose last versions would yield to it."""

    verdict: Verdict
    would_displace: tuple[str, ...]
    cursor: Cursor


class SyncReply(msgspec.Struct, frozen=True, kw_only=True):
    """What was on disk has been applied: the verdicts asked for, and the count of each standing."""

    verdicts: tuple[Verdict, ...]
    standings: dict[str, int]
    cursor: Cursor


class HoldReply(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of all held files that are there."""

    verdicts: tuple[Verdict, ...]
    cursor: Cursor


class WatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """What changed. With `reset` it is the whole present state; with `partial` more follows."""

    cursor: Cursor
    reset: bool
    partial: bool
    changed: tuple[Worker, ...]
    removed: tuple[str, ...]
    names: tuple[Name, ...]
    gone: tuple[str, ...]

    @property
    def heartbeat(self) -> bool:
        """Whether the reply only says that the daemon is there."""
        return not (
            self.reset or self.partial or self.changed or self.removed or self.names or self.gone
        )


class HistoryReply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of cards, the latest first."""

    events: tuple[Event, ...]


class ReloadReply(msgspec.Struct, frozen=True, kw_only=True):
    """What another configuration changed, and what of it was not taken over, in words."""

    changed: tuple[str, ...]
    problems: tuple[str, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon is."""

    version: str
    cursor: Cursor
    uptime_seconds: float
    directories: tuple[Directory, ...]
    standings: dict[str, int]
    names: int
    idle_cohorts: tuple[str, ...]
    watchers: int
    connections: int
    healthy: bool
    problems: tuple[str, ...]


class NoSuchModel(msgspec.Struct, frozen=True, kw_only=True):
    """What the error NoSuchModel carries."""

    name: str
    similar: tuple[str, ...]
    waiting: tuple[Verdict, ...]
    more_waiting: int


class NoSuchFile(msgspec.Struct, frozen=True, kw_only=True):
    """What the error NoSuchFile carries."""

    file: str


class TooLarge(msgspec.Struct, frozen=True, kw_only=True):
    """What the error TooLarge carries."""

    bytes: int
    limit: int
