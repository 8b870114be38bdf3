"""One adopted card, kept by a task of its own: published, held, brought up to date, withdrawn.

The worker's own rules are AsyncWorker's. What is added here is that nobody minds failing: a card
that cannot be published now, since the drop directory is full, or another worker holds the file, is
tried again until its server has gone or adopting ends. What the daemon says of it is told as it
changes, never twice.

Whether the server answers is somebody else's business (keeping.py); here `accept` is only told. It
touches the file when the answer changes and at no other time, so a card that an operator drained
by hand stays so.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import anyio

from discoveryd.client.adopting.listings import Card
from discoveryd.client.errors import ConnectionLost, DiscoverydError, NoDaemon, Timeout
from discoveryd.client.workers.worker import AsyncWorker
from discoveryd.core.parsing.findings import is_list
from discoveryd.interface import Verdict

AGAIN_SECONDS: Final = 5.0
"""How long until a card that could not be published is tried again."""


class Place(NamedTuple):
    """Which daemon the cards are for, and how long each of its answers may take, in seconds."""

    socket: str | None
    patience: float


class Teller(Protocol):
    """Whoever wants to know what happens. Texts are not escaped for a terminal."""

    def card(
        self, url: str, change: str, names: Sequence[str], verdict: Verdict | None, why: str | None
    ) -> None:
        """Hear what happened to the card of these names: what the daemon says of it, or why."""
        ...

    def server(self, url: str, sentence: str) -> None:
        """Hear something about a server, or about what it lists."""
        ...


class Adopted:
    """The card of one model of the server at `url`. `keep` runs until `leave` or cancellation.

    `settled` is set once the daemon has judged it, or it could not be published. An adapter's is
    published when that of its `base` has settled, so that it does not wait for it in public.
    """

    def __init__(
        self, url: str, card: Card, place: Place, tell: Teller, base: "Adopted | None" = None
    ) -> None:
        self.settled = anyio.Event()
        self._base = base
        self._url = url
        self._card = self._written = card
        self._place = place
        self._tell = tell
        self._accepting = True
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self._said: object = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the card in the file asks for, the primary first."""
        aliases = self._written.get("aliases")
        others = map(str, aliases) if is_list(aliases) else ()
        return (str(self._written["display_name"]), *others)

    def want(self, card: Card) -> None:
        """Make this the card, soon. The same again changes nothing."""
        self._card = card
        self._news.set()

    def accept(self, accepting: bool) -> None:
        """Let the card accept requests or drain, soon. The same again changes nothing."""
        self._accepting = accepting
        self._news.set()

    def leave(self, why: str) -> None:
        """Withdraw the card, and end keeping it; `why` is told."""
        self._tell.card(self._url, "withdrew", self.names, None, why)
        self._scope.cancel()
        self.settled.set()

    async def keep(self) -> None:
        """Publish the card and keep it; withdraw it at the end."""
        with self._scope:
            if self._base is not None:
                await self._base.settled.wait()
            while True:
                try:
                    await self._keep_published()
                except DiscoverydError as fault:
                    self._say("cannot adopt", None, str(fault))
                self.settled.set()
                await anyio.sleep(AGAIN_SECONDS)

    async def _keep_published(self) -> None:
        self._written, accepting = self._card, self._accepting
        card = self._written if accepting else {**self._written, "accepting": False}
        socket, patience = self._place
        async with AsyncWorker(card, socket=socket, waiting=True, patience=patience) as worker:
            self._say("adopted", worker.verdict)
            self.settled.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, worker)
                await self._bring_up_to_date(worker, accepting)

    async def _follow(self, worker: AsyncWorker) -> None:
        while True:
            self._say("now", await worker.changed())

    async def _bring_up_to_date(self, worker: AsyncWorker, accepting: bool) -> None:
        """Carry over to the file what is wanted, whenever that changes."""
        while True:
            was = self._written, accepting
            longest = math.inf
            try:
                if self._written != self._card:
                    self._written = self._card
                    self._say("now", await worker.update(self._written))
                if self._accepting != accepting:
                    accepting = self._accepting
                    await worker.accept(accepting)
            except (NoDaemon, ConnectionLost, Timeout):
                # It is in the file, where the daemon finds it when it is back.
                pass
            except DiscoverydError as fault:
                self._say("cannot change", None, str(fault))
                self._written, accepting = was
                longest = AGAIN_SECONDS
            with anyio.move_on_after(longest):
                await self._news.wait()
            self._news = anyio.Event()

    def _say(self, change: str, verdict: Verdict | None, why: str | None = None) -> None:
        """Tell of the card, unless it is what has just been told."""
        if verdict is None:
            said: object = why
        else:
            said = (self._written, verdict.standing, verdict.serves, verdict.reasons)
        if said != self._said:
            self._said = said
            self._tell.card(self._url, change, self.names, verdict, why)
