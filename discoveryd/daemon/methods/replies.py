"""From the core's values to the interface's, and to bytes.

Shapes only: which values are asked for is api.py's business. Everything here is pure.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from discoveryd import interface
from discoveryd.core.answer import NameLine
from discoveryd.core.batch import Served
from discoveryd.core.history import Cursor
from discoveryd.core.verdict import Reason, Verdict
from discoveryd.daemon.ledger.rows import Event
from discoveryd.varlink import CallError
from discoveryd.varlink.messages import REPLY_TAIL

PIECE_BYTES = 1024 * 1024
"""The most that one piece of a long answer holds, if its items allow it."""

GONE = "gone"
"""The standing of a file that is not there any more, in an event."""

NO_SUCH_MODEL = "io.discoveryd.Models.NoSuchModel"
"""The error of Resolve for a name that nobody serves."""

encode = msgspec.json.Encoder().encode


def worker(served: Served) -> interface.Worker:
    """Return a served card as the interface has it."""
    card = served.card
    return interface.Worker(
        key=str(card.key),
        file=served.file,
        model=card.display_name,
        aliases=card.alternates,
        adapter=card.adapter,
        namespace=card.key.namespace,
        component=card.key.component,
        endpoint=card.key.endpoint,
        instance=card.key.instance,
        url=card.url,
        accepting=card.accepting,
        model_type=card.model_type,
        worker_type=card.worker_type,
        needs=card.needs,
        context_length=card.context_length,
        source_path=card.source_path,
        fingerprint=card.fingerprint,
        labels=card.labels,
        admission=served.admission,
    )


def verdict(said: Verdict) -> interface.Verdict:
    """Return a verdict as the interface has it."""
    return interface.Verdict(
        file=said.file,
        key=said.key,
        model=said.model,
        names=said.names,
        standing=said.standing,
        serves=said.serves,
        reasons=tuple(map(reason, said.reasons)),
        warnings=said.warnings,
        owner_uid=said.owner_uid,
        since=moment(said.since),
    )


def event(told: Event) -> interface.Event:
    """Return an event as the interface has it."""
    return interface.Event(
        time=moment(told.time),
        key=None if told.key is None else str(told.key),
        file=told.file,
        standing=GONE if told.standing is None else told.standing,
        reasons=tuple(map(reason, told.reasons)),
    )


def reason(why: Reason) -> interface.Reason:
    """Return a reason as the interface has it."""
    return interface.Reason(
        rule=why.rule,
        message=why.message,
        field=why.field,
        found=why.found,
        expected=why.expected,
        against=why.against,
    )


def moment(seconds: float) -> str:
    """Return a wall-clock time, in seconds since the epoch, as the interface has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def cursor(at: Cursor) -> interface.Cursor:
    """Return a cursor as the interface has it."""
    return interface.Cursor(at.epoch, at.revision)


def name(line: NameLine) -> interface.Name:
    """Return a name as the interface has it."""
    return interface.Name(
        name=line.name, kind=line.kind, model=line.model, workers=line.workers, ready=line.ready
    )


def tail(at: Cursor) -> bytes:
    """Return the end of a reply that has members before its cursor."""
    return b',"cursor":' + encode(cursor(at)) + b"}"


def whole_tail(at: Cursor) -> bytes:
    """Return the end of a whole reply, NUL included, that has members before its cursor."""
    return tail(at) + REPLY_TAIL


def pieces(member: str, items: Iterable[msgspec.Struct], at: Cursor) -> Iterator[bytes]:
    """Yield one reply or several: `member` with the items, each about `PIECE_BYTES` at most."""
    head, end = b'{"' + member.encode() + b'":[', b"]" + tail(at)
    held: list[bytes] = []
    size = 0
    for item in items:
        encoded = encode(item)
        if held and size + len(encoded) > PIECE_BYTES:
            yield head + b",".join(held) + end
            held, size = [], 0
        held.append(encoded)
        size += len(encoded) + 1
    yield head + b",".join(held) + end


def whole(member: str, items: Iterable[msgspec.Struct], at: Cursor, limit: int) -> bytes:
    """Return one reply with all the items. Raises TooLarge where it is over `limit` bytes."""
    reply = b'{"' + member.encode() + b'":' + encode(list(items)) + tail(at)
    if len(reply) > limit:
        raise too_large(len(reply), limit)
    return reply


def too_large(size: int, limit: int) -> CallError:
    """Return the error for an answer that a call without `more` may not carry."""
    return _error(interface.TooLarge(bytes=size, limit=limit))


def no_such_file(file: str) -> CallError:
    """Return the error for a file that is no card file here."""
    return _error(interface.NoSuchFile(file=file))


def no_such_model(missing: interface.NoSuchModel) -> CallError:
    """Return the error for a name that nobody serves."""
    return _error(missing)


def _error(carried: msgspec.Struct) -> CallError:
    name = f"io.discoveryd.Models.{type(carried).__name__}"
    return CallError(name, msgspec.structs.asdict(carried))
