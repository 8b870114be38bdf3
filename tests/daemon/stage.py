"""A server at a path with a toy service behind it, and clients that do as they are told."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from discoveryd.daemon.socket.answering import Lasting, Peer, Tied
from discoveryd.daemon.socket.server import Server
from discoveryd.varlink import CallError, Method, Recall, Service
from discoveryd.varlink.messages import REPLY_HEAD, REPLY_TAIL

DEADLINE = 30.0
BIG = 64 * 1024
COSTLY_SECONDS = 0.005


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    word: str = ""


def encoded(**members: object) -> bytes:
    return msgspec.json.encode(members)


class Toy:
    """A service of each kind of answer, with a gate that slow answers wait for."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.answered: list[str] = []
        self.cancelled = 0
        self.items = 0
        self.revision = 0
        self.changed = asyncio.Event()
        answers: dict[str, Callable[[Word, Peer, bool], object]] = {
            "Echo": self.echo,
            "Inflate": self.inflate,
            "Known": self.known,
            "RefuseKnown": self.refuse_known,
            "Slow": self.slow,
            "Pieces": self.pieces,
            "PiecesLater": self.pieces_later,
            "Watch": self.watch,
            "Hold": self.hold,
            "Ended": self.ended,
            "Refuse": self.refuse,
            "RefuseLater": self.refuse_later,
            "RefuseMidway": self.refuse_midway,
            "Bug": self.bug,
            "BugLater": self.bug_later,
            "Who": self.who,
            "Costly": self.costly,
        }
        self.service = Service(
            vendor="toys",
            product="toy",
            version="1",
            url="https://example.org",
            interfaces={"org.example.toy": "interface org.example.toy\n"},
            methods={
                f"org.example.toy.{name}": Method(Word, answer, more="optional")
                for name, answer in answers.items()
            },
            recall=Recall(b"}" + REPLY_TAIL),
        )

    def publish(self) -> None:
        self.revision += 1
        self.changed.set()

    def echo(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        self.answered.append(given.word)
        return encoded(word=given.word)

    def inflate(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        return encoded(word=given.word * BIG)

    def known(self, given: Word, _peer: Peer, _more: bool) -> Lasting:
        self.answered.append(given.word)
        head = self.service.recall.head(given.word)
        if head is None:
            head = REPLY_HEAD + encoded(word=given.word)[:-1]
            self.service.recall.keep(given.word, head)
        return Lasting(given.word, head)

    def refuse_known(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        self.answered.append(given.word)
        refusal = CallError("org.example.toy.No", {"word": given.word})
        refusal.lasting = True
        raise refusal

    async def slow(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.answered.append(given.word)
        return encoded(word=given.word)

    def pieces(self, given: Word, _peer: Peer, _more: bool) -> Iterator[bytes]:
        for letter in given.word:
            self.items += 1
            yield encoded(word=letter * BIG)

    async def pieces_later(self, given: Word, peer: Peer, more: bool) -> Iterator[bytes]:
        await asyncio.sleep(0)
        return self.pieces(given, peer, more)

    async def watch(self, given: Word, _peer: Peer, _more: bool) -> AsyncIterator[bytes]:
        try:
            while True:
                self.changed.clear()
                self.items += 1
                yield encoded(revision=self.revision, word=given.word * BIG)
                await self.changed.wait()
        finally:
            self.cancelled += 1

    def hold(self, given: Word, peer: Peer, more: bool) -> Tied:
        return Tied(self.watch(given, peer, more))

    async def ended(self, given: Word, _peer: Peer, _more: bool) -> AsyncIterator[bytes]:
        yield encoded(word=given.word)

    def refuse(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        raise CallError("org.example.toy.No", {"word": given.word})

    async def refuse_later(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        await asyncio.sleep(0)
        raise CallError("org.example.toy.No", {"word": given.word})

    async def refuse_midway(self, given: Word, _peer: Peer, _more: bool) -> AsyncIterator[bytes]:
        yield encoded(word=given.word)
        raise CallError("org.example.toy.No", {"word": given.word})

    def bug(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        raise ValueError(given.word)

    async def bug_later(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        await asyncio.sleep(0)
        raise ValueError(given.word)

    def costly(self, given: Word, _peer: Peer, _more: bool) -> bytes:
        until = time.monotonic() + COSTLY_SECONDS
        while time.monotonic() < until:
            pass
        self.answered.append(given.word)
        return encoded(word=given.word)

    def who(self, _given: Word, peer: Peer, more: bool) -> bytes:
        return encoded(peer=peer._asdict(), more=more)


def call(method: str, word: str | None = None, **flags: bool) -> bytes:
    members: dict[str, object] = {"method": f"org.example.toy.{method}", **flags}
    if word is not None:
        members["parameters"] = {"word": word}
    return json.dumps(members).encode() + b"\0"


class Asking:
    """A client that does as it is told, and nothing for itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, path: str) -> Self:
        return cls(*await asyncio.open_unix_connection(path, limit=16 * 1024 * 1024))

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE):
            frame = await self.reader.readuntil(b"\0")
        reply: dict[str, Any] = json.loads(frame[:-1])
        return reply

    async def words(self, count: int) -> list[str]:
        return [(await self.receive())["parameters"]["word"] for _ in range(count)]

    async def rest(self) -> bytes:
        """Return what is left until the server ends its side."""
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():
            await asyncio.sleep(0.002)


class Stage:
    """A server at a path, with the toy behind it and clients in front."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.toy = Toy()
        self.server: Server
        self.clients: list[Asking] = []
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(self.path)
        self.listening.listen(64)
        self.listening.setblocking(False)

    def begin(self, **limits: Any) -> Server:
        self.server = Server(self.toy.service, **limits)
        self.server.serve(self.listening)
        return self.server

    async def client(self) -> Asking:
        client = await Asking.open(self.path)
        self.clients.append(client)
        return client

    async def watcher(self, word: str = "", method: str = "Watch") -> Asking:
        """Return a client whose stream has begun."""
        client = await self.client()
        client.send(call(method, word, more=True))
        assert (await client.receive())["continues"]
        return client
