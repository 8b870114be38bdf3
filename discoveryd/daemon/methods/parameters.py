"""What each method of the interface takes. A test holds these shapes to the interface file."""

import msgspec


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every method's parameters: what is unknown is refused."""


class Nothing(Parameters, frozen=True):
    """Of a method that takes none."""


class Resolve(Parameters, frozen=True):
    """Of Resolve."""

    name: str


class ListWorkers(Parameters, frozen=True):
    """Of ListWorkers: all, unless narrowed."""

    name: str | None = None
    namespace: str | None = None


class Explain(Parameters, frozen=True):
    """Of Explain: one of them, or neither."""

    file: str | None = None
    name: str | None = None


class Check(Parameters, frozen=True):
    """Of Check. The card is kept as it came."""

    card: msgspec.Raw
    file: str | None = None


class Sync(Parameters, frozen=True):
    """Of Sync: everything, unless narrowed."""

    files: list[str] | None = None


class Hold(Parameters, frozen=True):
    """Of Hold: at least one."""

    files: list[str]


class Cursor(Parameters, frozen=True):
    """A cursor that a client was given."""

    epoch: str
    revision: int


class Watch(Parameters, frozen=True):
    """Of Watch."""

    since: Cursor | None = None
    name: str | None = None


class History(Parameters, frozen=True):
    """Of History: one of file and name, or neither."""

    file: str | None = None
    name: str | None = None
    limit: int | None = None
