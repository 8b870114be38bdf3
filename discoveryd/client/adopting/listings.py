"""What a server's listing comes to: models, and the card of each.

Every kind of server lists its models in its own way, which openai.py, llamacpp.py, ollama.py and
lmstudio.py read; what they find is the same. A *base* is weights under one or more names, an
*adapter* one name on a base. Bases are told apart by their source, so one server may have several,
and what is listed under several names is one card, not a quarrel about a key.

A listing is written by somebody else's program. What cannot be read in it is skipped and told, one
entry at a time: an odd name must not take its neighbours out of service. A listing as a whole is
`Unreadable` only where there is no list. Names are taken as they are; which ones may be served is
the card's rule, so each card is tried on the parser before it counts.

Nothing here may ask a server or touch a file.
"""

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from discoveryd.core.card import InvalidCard
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.parsing.findings import U32, is_list, is_object, is_unsigned
from discoveryd.core.parsing.names import name_problem
from discoveryd.core.text import quoted

CHAT: Final = "Chat | Completions"
EMBEDDING: Final = "Embedding"

MOST_MODELS: Final = 256
"""Models of one server that get a card: each has connections of its own to the daemon."""

_LONGEST_INTEGER = 20

Card = dict[str, object]
"""A card as JSON has it."""

Identity = tuple[str, str]
"""A base's source, or name where that is unknown; and the adapter's name, empty for the base."""


class Unreadable(Exception):
    """What the server answered is no listing. The text says why not, without the server's name."""


class Model(NamedTuple):
    """A base, or an adapter on one.

    `names` has the primary first. `source` is where the weights come from, for an adapter its
    base's identity; None where the server does not tell. `context_length` is what the server is set
    to, in tokens, not what the model could take.
    """

    names: tuple[str, ...]
    source: str | None = None
    context_length: int | None = None
    model_type: str | None = None
    adapter: bool = False

    @property
    def identity(self) -> Identity:
        """What tells the model from the others of its server, however its names change."""
        base = self.names[0] if self.source is None else self.source
        return base, self.names[0] if self.adapter else ""


class Listing(NamedTuple):
    """What a server has, in its own order, and a sentence for each entry that is no model."""

    models: tuple[Model, ...]
    skipped: tuple[str, ...] = ()


class Override(NamedTuple):
    """What the person who adopts knows better than the server."""

    name: str | None = None
    aliases: tuple[str, ...] = ()
    source: str | None = None


NOTHING_KNOWN: Final = Override()


class Ambiguous(Exception):
    """The override is for one base, but the server has `bases` of them."""

    def __init__(self, bases: int) -> None:
        super().__init__(f"the server has {bases} models")
        self.bases = bases


class Reading:
    """A listing while it is read: what has been found so far, and what has been skipped."""

    def __init__(self) -> None:
        self.models: list[Model] = []
        self._skipped: list[str] = []
        self._names: set[str] = set()
        self._at = 0

    def entries(self, document: object, member: str) -> Iterator[dict[str, object]]:
        """Give the objects in the document's list `member`. Raises Unreadable without one."""
        found = document.get(member) if is_object(document) else None
        if found is None and is_object(document) and member in document:
            return
        if not is_list(found):
            raise Unreadable(f'its listing has no list "{member}"')
        for self._at, entry in enumerate(found, 1):
            if is_object(entry):
                yield entry
            else:
                self.skip("it is no object")

    def skip(self, why: str, of: str | None = None) -> None:
        """Tell why the entry of that name, or the one at hand, is no model."""
        which = f"entry {self._at} of its listing" if of is None else quoted(of)
        self._skipped.append(f"{which} is skipped: {why}")

    def name(self, given: object) -> str | None:
        """Return a name of the entry at hand; None, told, if it is none or listed already."""
        if not isinstance(given, str) or not given:
            self.skip("it has no name")
        elif not _is_text(given):
            self.skip(f"its name {quoted(given)} is no Unicode text")
        elif problem := name_problem(given):
            self.skip(f"its name {quoted(given)} {problem}")
        elif given in self._names:
            self.skip(f"its name {quoted(given)} is listed already")
        else:
            self._names.add(given)
            return given
        return None

    def listing(self) -> Listing:
        """Return what has been read."""
        return Listing(tuple(self.models), tuple(self._skipped))


def decoded(body: bytes) -> object:
    """Return the JSON value in the bytes. Raises Unreadable if they hold none."""
    try:
        return json.loads(body, parse_int=_integer)
    except (ValueError, RecursionError):
        raise Unreadable("its answer is no JSON") from None


def text(given: object) -> str | None:
    """Return a string that a card may hold; None for anything else, the empty string included."""
    return given if isinstance(given, str) and given and _is_text(given) else None


def tokens(given: object) -> int | None:
    """Return a context length; None for anything else, and for 0, which says that it is unknown."""
    return given if is_unsigned(given, U32) and given > 0 else None


def overridden(listing: Listing, override: Override) -> Listing:
    """Return the listing with what is known better. Raises Ambiguous unless it is of one base.

    A name takes the place of the listed ones, further aliases come after them; adapters keep their
    names and follow the source.
    """
    bases = [model for model in listing.models if not model.adapter]
    if override == NOTHING_KNOWN or not listing.models:
        return listing
    if len(bases) != 1:
        raise Ambiguous(len(bases))
    names = bases[0].names if override.name is None else (override.name,)
    names = tuple(dict.fromkeys((*names, *override.aliases)))
    base = bases[0]._replace(names=names)
    if override.source is not None:
        base = base._replace(source=override.source)
    models = tuple(
        model._replace(source=base.identity[0]) if model.adapter else base
        for model in listing.models
    )
    return listing._replace(models=models)


def cards(listing: Listing, url: str, label: str) -> tuple[dict[Identity, Card], list[str]]:
    """Return the card of each model by its identity, and a sentence for whatever has none.

    `url` is the server's base, `label` the kind of server, which the card's labels tell.
    """
    found: dict[Identity, Card] = {}
    skipped = list(listing.skipped)
    for model in listing.models[:MOST_MODELS]:
        name = quoted(model.names[0])
        if model.identity in found:
            skipped.append(f"{name} is skipped: its source is listed already")
            continue
        try:
            found[model.identity] = _valid_card(model, url, label)
        except InvalidCard as fault:
            skipped.append(f"{name} is skipped: {fault}")
    if len(listing.models) > MOST_MODELS:
        count = len(listing.models)
        skipped.append(f"it lists {count} models, of which the first {MOST_MODELS} are adopted")
    return found, skipped


def _valid_card(model: Model, url: str, label: str) -> Card:
    """Return the card. Raises InvalidCard where there can be none."""
    card: Card = {"display_name": model.names[0], "url": url}
    if model.source is not None:
        card["source_path"] = model.source
    if model.adapter:
        card["lora"] = {"name": model.names[0]}
    if model.model_type is not None:
        card["model_type"] = model.model_type
    if model.context_length is not None:
        card["context_length"] = model.context_length
    card["labels"] = {"adopted": label}
    if model.names[1:]:
        card["aliases"] = list(model.names[1:])
    parse_card(msgspec.json.encode(card), stem=label)
    return card


def _integer(digits: str) -> int | None:
    """Return an integer of JSON; None for one that is too long to be anything."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else None


def _is_text(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True
