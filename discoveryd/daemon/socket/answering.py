"""What a method answers with: the agreement between the methods and the conversations.

A method's `answer(parameters, peer, more)` is called on the loop, must not block, and returns

- `bytes`: the reply's parameters, encoded. Written at once, together with the other replies to
  the bytes that just arrived: the hot path;
- `Lasting`: the same, and every call in the same bytes gets it until its subject changes; the
  service's `recall` is told, and answers those. A `CallError` that is `lasting`, likewise;
- an awaitable of `bytes` or of an iterator: the same, later;
- an iterator of `bytes`, at least one: pieces of one answer, for a call that set `more`. All but
  the last are sent with `continues`;
- an async iterator of `bytes`: a stream that goes on until the peer leaves, for a call that set
  `more`. Each item is sent with `continues` as soon as it comes. Where the stream ends by itself
  the connection is closed. It goes on where the peer has ended only its own side, and may read;
- `Tied` around such an iterator: one that ends with the peer's side, closed in whole or by half.

Either may raise `CallError` at any time: the error reply, which ends the answer. Any other
exception is a bug of ours: logged, and the connection is closed. What an iterator and an awaitable
hold they must release when closed or cancelled, which happens as soon as the peer is gone.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple


class Peer(NamedTuple):
    """Who opened a connection, as the kernel knows it."""

    uid: int
    gid: int
    pid: int


class Lasting(NamedTuple):
    """A whole reply but for its tail, which is the recall's."""

    subject: str
    head: bytes


class Tied(NamedTuple):
    """A stream for as long as the peer keeps its side open."""

    stream: AsyncIterator[bytes]


Answer = (
    bytes
    | Lasting
    | Awaitable[bytes | Iterator[bytes]]
    | Iterator[bytes]
    | AsyncIterator[bytes]
    | Tied
)
"""What a method's `answer` returns: see above."""


async def close(stream: AsyncIterator[bytes]) -> None:
    """Close an async generator now: left alone it would hold what it holds until collected."""
    aclose: Callable[[], Awaitable[Any]] | None = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()
