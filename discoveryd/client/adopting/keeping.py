"""A server's cards, kept in step with what it lists for as long as it answers.

The server is asked every few seconds, and the listing is the probe: a server that cannot say what
it serves would not serve it. What comes back decides:

- *A listing*: what is new in it is published, what has changed is rewritten in its file, what is
  gone from it is withdrawn. The same listing again touches no file.
- *A refused connection*: nobody is there, so everything is withdrawn. Whoever listens there next is
  recognised anew.
- *No answer in time, half an answer, a status that says "not now"*: a miss. Some in a row drain its
  cards, one answer takes them back (running/probing.py).
- *Any other answer*: it lives, but what it lists is not to be had. The cards stay as they are, and
  what the matter is, is told.
"""

from collections.abc import Mapping
from typing import Final

import anyio
import anyio.abc

from discoveryd.client.adopting.adopted import Adopted, Place, Teller
from discoveryd.client.adopting.listings import (
    NOTHING_KNOWN,
    Ambiguous,
    Identity,
    Listing,
    Override,
    Unreadable,
    cards,
    decoded,
    overridden,
)
from discoveryd.client.adopting.recognising import Kind, Rejected, recognise
from discoveryd.client.fetch import NoAnswer, Unreachable, fetch
from discoveryd.client.running.probing import ANSWER_SECONDS, EVERY_SECONDS, Misses

MOST_BYTES: Final = 16 << 20
"""The longest listing that is read: some ten thousand models."""

_FAILED = 500
_DENIED = (401, 403)


class Server:
    """The server at `url`, and its cards.

    `everything`: its models that are not loaded count too. `headers` go with each question. It is
    asked every `every` seconds, and has `patience` seconds to answer; both start anew with each
    question.
    """

    def __init__(  # noqa: PLR0913  # what is adopted, for whom and how, by keyword
        self,
        url: str,
        *,
        place: Place,
        tell: Teller,
        everything: bool = False,
        override: Override = NOTHING_KNOWN,
        headers: Mapping[str, str] | None = None,
        every: float = EVERY_SECONDS,
        patience: float = ANSWER_SECONDS,
    ) -> None:
        self.url = url
        self.asked = anyio.Event()
        self._place = place
        self._tell = tell
        self._everything = everything
        self._override = override
        self._headers = dict(headers or {})
        self._every = every
        self._patience = patience
        self._kind: Kind | None = None
        self._cards: dict[Identity, Adopted] = {}
        self._misses = Misses()
        self._skipped: frozenset[str] = frozenset()
        self._said = ""

    async def keep(self, tasks: anyio.abc.TaskGroup) -> None:
        """Keep the cards, each in one of the `tasks`, until cancelled.

        `asked` is set after the first round, once its cards have been judged. Raises Ambiguous
        where the first listing has several bases and something is known better of one.
        """
        while True:
            await self._round(tasks)
            if not self.asked.is_set():
                with anyio.move_on_after(self._patience):
                    for adopted in list(self._cards.values()):
                        await adopted.settled.wait()
                self.asked.set()
            await anyio.sleep(self._every)

    async def _round(self, tasks: anyio.abc.TaskGroup) -> None:
        try:
            with anyio.fail_after(self._patience):
                listing = await self._listing()
        except Unreachable as fault:
            if fault.refused:
                self._nobody()
            else:
                self._missed(str(fault))
        except (NoAnswer, TimeoutError) as fault:
            self._missed(str(fault) or f"no answer within {self._patience:g} s")
        except Rejected as fault:
            if fault.status >= _FAILED:
                self._missed(f"it answers with {fault}")
            else:
                self._evaded(_advice(fault))
        except Unreadable as fault:
            self._evaded(str(fault))
        else:
            self._answered()
            self._bring_in_step(listing, tasks)

    async def _listing(self) -> Listing:
        """Ask the server, recognised before if it has not been, what it serves."""
        if self._kind is None:
            self._kind = await recognise(self._ask)
        return await self._kind.listing(self._ask, self._everything)

    async def _ask(self, path: str, /) -> object:
        answer = await fetch(
            f"{self.url}{path}",
            seconds=self._patience,
            headers=self._headers,
            most_bytes=MOST_BYTES,
        )
        if not 200 <= answer.status < 300:  # noqa: PLR2004  # HTTP's own success
            raise Rejected(answer.status)
        return decoded(answer.body)

    def _bring_in_step(self, listing: Listing, tasks: anyio.abc.TaskGroup) -> None:
        label = "" if self._kind is None else self._kind.label
        try:
            listing = overridden(listing, self._override)
        except Ambiguous as fault:
            if not self.asked.is_set():
                raise
            self._say(f"its cards stay as they are: {fault}")
            return
        wanted, skipped = cards(listing, self.url, label)
        for sentence in skipped:
            if sentence not in self._skipped:
                self._tell.server(self.url, sentence)
        self._skipped = frozenset(skipped)
        self._say(f"{label} with {len(wanted)} {'model' if len(wanted) == 1 else 'models'}")
        for identity in self._cards.keys() - wanted.keys():
            self._cards.pop(identity).leave("it is no longer listed")
        for identity, card in wanted.items():
            if identity in self._cards:
                self._cards[identity].want(card)
            else:
                source, adapter = identity
                base = self._cards.get((source, "")) if adapter else None
                adopted = Adopted(self.url, card, self._place, self._tell, base)
                self._cards[identity] = adopted
                tasks.start_soon(adopted.keep)

    def _nobody(self) -> None:
        """Withdraw everything: nobody listens."""
        self._kind = None
        self._misses = Misses()
        for adopted in self._cards.values():
            adopted.leave("the connection is refused")
        self._cards.clear()
        self._say("nobody listens there; it is asked again")

    def _evaded(self, how: str) -> None:
        """Take note that it lives, but is not what it was taken for, or does not tell us."""
        self._kind = None
        self._answered()
        self._say(f"it does not tell what it serves: {how}")

    def _missed(self, why: str) -> None:
        self._say(f"{why}; it is asked again")
        if self._misses.missed() and self._cards:
            self._tell.server(self.url, "three probes in a row have failed: its cards drain")
            self._accept(False)

    def _answered(self) -> None:
        if self._misses.answered() and self._cards:
            self._tell.server(self.url, "it answers again: its cards accept")
            self._accept(True)

    def _accept(self, accepting: bool) -> None:
        for adopted in self._cards.values():
            adopted.accept(accepting)

    def _say(self, sentence: str) -> None:
        """Tell of the server, unless it is what has just been told."""
        if sentence != self._said:
            self._said = sentence
            self._tell.server(self.url, sentence)


def _advice(fault: Rejected) -> str:
    if fault.status in _DENIED:
        return f"{fault}. Name the variable that holds its key with --api-key-env"
    return str(fault)
