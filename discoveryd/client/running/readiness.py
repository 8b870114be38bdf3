"""Whether a worker answers: which URLs are asked, and what counts as an answer.

Before it is ready the question is whether it can serve: a status of success counts. A server that
has no /health is asked for its models instead; there a demand for a key counts as well, since only
one that is up makes it. What fails on its side (5xx, 503 above all) says "not yet".

Once it was ready the question is only whether it lives, and everything but a failure on its side is
an answer. It is asked where it was ready: that it has that place is known.
"""

from collections.abc import Sequence
from typing import Final

from discoveryd.client.fetch import NoAnswer, Unreachable, fetch
from discoveryd.client.running.probing import ANSWER_SECONDS

MOST_BYTES: Final = 16 << 20
"""The longest answer: a list of some ten thousand models."""

_SUCCESS = range(200, 300)
_DENIED = (401, 403)
_FAILED = range(500, 600)
_NOT_IMPLEMENTED = 501


def usual_places(url: str) -> tuple[str, ...]:
    """Return where a worker with this url is asked if nobody says where."""
    base = url.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{base}/health", f"{base}/v1/models"


class Readiness:
    """How one worker is asked. `places` are URLs: the next one counts where there is none before.

    `place` is the one that was asked last.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self._places = places
        self.place = places[0]

    async def not_ready(self) -> str | None:
        """Return why it is not ready, in words; None if it is."""
        *others, last = self._places
        for place in others:
            trouble, status = await self._ask(place)
            if status is None or (status in _FAILED and status != _NOT_IMPLEMENTED):
                return trouble
            if status in _SUCCESS:
                return None
        trouble, status = await self._ask(last)
        ready = status is not None and (status in _SUCCESS or status in _DENIED)
        return None if ready else trouble

    async def not_answering(self) -> str | None:
        """Return why nothing was heard of it, in words; None if it answers."""
        trouble, status = await self._ask(self.place)
        return trouble if status is None or status in _FAILED else None

    async def _ask(self, place: str) -> tuple[str, int | None]:
        """Return what it answers: in words, and the status if there is a whole answer."""
        self.place = place
        try:
            answer = await fetch(place, seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES)
        except (Unreachable, NoAnswer) as fault:
            return str(fault), None
        return f"it answers {answer.status}", answer.status
