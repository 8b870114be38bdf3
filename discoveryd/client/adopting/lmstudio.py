"""LM Studio's listings: `/api/v1/models`, and `/api/v0/models` of versions before 0.4.

A model has a key, and any number of loaded instances, each of which is asked for by its own name:
they are one base, with the smallest of their contexts, which every one of them takes. A model that
is not loaded is loaded when it is asked for by its key, if LM Studio is set to. The old listing has
an entry for each instance and tells no key, so each is a base.
"""

from discoveryd.client.adopting.listings import (
    CHAT,
    EMBEDDING,
    Listing,
    Model,
    Reading,
    text,
    tokens,
)
from discoveryd.core.parsing.findings import is_list, is_object

_TYPES = {"llm": CHAT, "vlm": CHAT, "embedding": EMBEDDING, "embeddings": EMBEDDING}


def read_lmstudio(document: object, *, everything: bool) -> Listing:
    """Return what `/api/v1/models` says: what is loaded, unless `everything`.

    Raises Unreadable if it is no listing.
    """
    reading = Reading()
    for entry in reading.entries(document, "models"):
        found = entry.get("loaded_instances")
        instances = (
            [instance for instance in found if is_object(instance)] if is_list(found) else []
        )
        if not instances and not everything:
            continue
        key = text(entry.get("key"))
        given = [instance.get("id") for instance in instances]
        if everything and key not in given:
            given.append(key)
        names = [name for each in given if (name := reading.name(each)) is not None]
        if names:
            context = min(filter(None, map(_context, instances)), default=None)
            reading.models.append(Model(tuple(names), key, context, _model_type(entry)))
    return reading.listing()


def read_lmstudio_v0(document: object, *, everything: bool) -> Listing:
    """Return what `/api/v0/models` says, likewise."""
    reading = Reading()
    for entry in reading.entries(document, "data"):
        loaded = entry.get("state") == "loaded"
        if not loaded and not everything:
            continue
        name = reading.name(entry.get("id"))
        if name is not None:
            context = tokens(entry.get("loaded_context_length")) if loaded else None
            reading.models.append(Model((name,), name, context, _model_type(entry)))
    return reading.listing()


def _context(instance: dict[str, object]) -> int | None:
    config = instance.get("config")
    return tokens(config.get("context_length")) if is_object(config) else None


def _model_type(entry: dict[str, object]) -> str | None:
    kind = entry.get("type")
    return _TYPES.get(kind) if isinstance(kind, str) else None
