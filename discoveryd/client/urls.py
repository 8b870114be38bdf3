"""Which URLs can be asked over HTTP how a server is; what a card's url may be is the core's."""

from urllib.parse import urlsplit

import msgspec

from discoveryd.core.card import InvalidCard
from discoveryd.core.parsing.cards import parse_card

_ASKED_BY_HTTP = ("http://", "https://", "unix://")


def url_problem(url: str) -> str | None:
    """Return why no card may have a URL, or why it cannot be asked; None if both may be."""
    try:
        parse_card(msgspec.json.encode({"display_name": "x", "url": url}), stem="x")
    except InvalidCard as fault:
        return fault.reasons[0].message.removeprefix("$.url ")
    except UnicodeEncodeError:
        return "is not UTF-8"
    return None if can_be_asked(url) else "cannot be asked over HTTP"


def can_be_asked(url: str) -> bool:
    """Whether a URL that a card may have can be asked over HTTP."""
    try:
        urlsplit(url)
    except ValueError:
        return False
    return url.startswith(_ASKED_BY_HTTP)
