"""What is to be run, worked out before anything is: the card, its file, where the worker answers.

A model may take minutes to load, so what can be known before is said before: that the card is none,
that there is nowhere to put it, that it would not get to serve. The last is the daemon's forecast
(Check); what it is worth, verdicts.py says.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from discoveryd.client.blocking import Client
from discoveryd.client.errors import NoSuchFile
from discoveryd.client.workers.cardtext import file_name
from discoveryd.client.workers.publication import Publication, process_name
from discoveryd.client.workers.publishing import drop_directory
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.parsing.document import MAX_BYTES, read_object
from discoveryd.interface import Verdict


class Plan(NamedTuple):
    """What is to be run, and which card is put into which `file` once one of `places` is ready.

    `patience` bounds each answer of the daemon at `socket`. `standby`: the card may wait for its
    turn. `drain`: how long to drain. Both times are seconds.
    """

    command: Sequence[str]
    card: Mapping[str, object]
    file: str
    places: Sequence[str]
    socket: str | None
    patience: float
    standby: bool
    drain: float


def read_card(file: str) -> dict[str, object]:
    """Return the card in a file. Raises InvalidCard where it is no JSON object; OSError."""
    with Path(file).open("rb") as card:
        return read_object(card.read(MAX_BYTES + 1))


def held(card: Mapping[str, object]) -> dict[str, object]:
    """Return the card with the liveness that it has here, whatever it says itself."""
    return {**card, "liveness": {"held": True}}


def named(card: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Return what the card's file is called, and what is odd about the card.

    Raises InvalidCard with everything that is wrong with it; ValueError where it is too long.
    """
    file = file_name(card, process_name())
    # Refused here what would be refused when it is to be published.
    Publication(card, file)
    parsed = parse_card(msgspec.json.encode(card), stem=file.removesuffix(".json"))
    return file, parsed.warnings


def forecast(client: Client, plan: Plan) -> Verdict:
    """Return what the card would get now, by the daemon.

    Raises CannotWrite where there is nowhere to put it, and what a client raises.
    """
    place = drop_directory(client.status(), os.environ)
    # Nobody holds it yet, and that is not asked.
    card = {name: value for name, value in plan.card.items() if name != "liveness"}
    try:
        return client.check(card, place.named(plan.file)).verdict
    except NoSuchFile:
        return client.check(card).verdict
