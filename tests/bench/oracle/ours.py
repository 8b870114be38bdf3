"""What discoveryd makes of a case: the same files, one batch after another.

`judged` asks the registry itself, which is fast; `Watched` a real daemon over a store. Both speak
in the words of the oracle: a card that passed compatibility is accepted, whatever came after.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from discoveryd.client import Client
from discoveryd.core.batch import Batch, Found, Invalid, Sighting
from discoveryd.core.card import Card, InvalidCard, Key
from discoveryd.core.parsing.cards import parse_card
from discoveryd.core.registry import Registry
from discoveryd.daemon.disk.store_names import is_key_name, key_of
from tests.bench.oracle.cases import Registers, Step, filled
from tests.system.dropping import write

_WORDS = {"refused": "reject", "invalid": "invalid", "duplicate": "duplicate"}


def word(standing: str) -> str:
    """Return the standing in the oracle's words."""
    return _WORDS.get(standing, "accept")


def content(step: Step, instances: Sequence[int]) -> bytes:
    """Return the bytes of a step's file."""
    return filled(step.text, list(instances), "d").encode("utf-8", "surrogatepass")


def file_name(step: Step, instances: Sequence[int]) -> bytes:
    """Return the name of a step's file."""
    return filled(step.file, list(instances), "x").encode()


def found(name: bytes, text: bytes) -> Found:
    """Read one file of a store as the daemon does."""
    key = key_of(name)
    if not isinstance(key, Key):
        return Invalid((key,))
    try:
        return parse_card(text, stem="", key=key)
    except InvalidCard as fault:
        return Invalid(fault.reasons, fault.warnings)


def read(step: Step, instances: Sequence[int]) -> Card | None:
    """Return the card of a step, if it is one."""
    card = found(file_name(step, instances), content(step, instances))
    return card if isinstance(card, Card) else None


def judged(steps: Sequence[Step], instances: Sequence[int]) -> list[str | None]:
    """Return the registry's verdict on every step that registers."""
    registry = Registry()
    verdicts: list[str | None] = []
    for place, step in enumerate(steps):
        name = file_name(step, instances)
        file = name.decode()
        if not is_key_name(name):
            verdicts.append(None)
            continue
        sighting = Sighting(
            file=file, found=found(name, content(step, instances)), mtime_ns=place, owner=0
        )
        registry.apply(Batch(sightings=(sighting,)))
        verdict = registry.verdict(file)
        assert verdict is not None
        verdicts.append(word(verdict.standing.value) if isinstance(step, Registers) else None)
    return verdicts


class Watched:
    """A daemon that follows a store, and a client of it; the store is empty between two cases."""

    def __init__(self, store: Path, client: Client) -> None:
        self.mdc = store / "v1/mdc"
        self.client = client

    def judged(self, steps: Sequence[Step], instances: Sequence[int]) -> list[str | None]:
        """Return the daemon's verdict on every step that registers."""
        verdicts: list[str | None] = []
        for step in steps:
            path = self.mdc / file_name(step, instances).decode()
            write(path, content(step, instances))
            if not isinstance(step, Registers):
                self.client.sync()
                verdicts.append(None)
                continue
            (verdict,) = self.client.sync(str(path)).verdicts
            verdicts.append(word(verdict.standing))
        for path in self.mdc.iterdir():
            path.unlink()
        self.client.sync()
        return verdicts


def members(step: Step) -> dict[str, object] | None:
    """Return the envelope of a step as plain JSON, if it is an object."""
    try:
        text = filled(step.text, [0, 0, 0], "d")
        whole = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None
    return whole if isinstance(whole, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
