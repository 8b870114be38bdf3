"""Listings in OpenAI's shape, `/v1/models`, as vLLM, SGLang and their kin extend it.

vLLM lists each served name as an entry of its own: those with one `root` are one base, whose first
name is the primary; an entry with a `parent` is an adapter on the base that has this name, and its
`root` is where the adapter's own weights lie. Servers that give no `root` have one base a name.

SGLang gives its served name for a root; the weights' path it tells elsewhere. It lists an adapter
by its bare name, but a request that asks for this name is answered by the base, without a word:
the adapter is reached as base:adapter. So that is its name, and where the base's name has a colon
itself, which SGLang would take for that one, the adapter has none.
"""

from collections.abc import Callable

from discoveryd.client.adopting.listings import (
    CHAT,
    EMBEDDING,
    Listing,
    Model,
    Reading,
    text,
    tokens,
)
from discoveryd.core.parsing.findings import is_object
from discoveryd.core.text import quoted


def read_openai(document: object) -> Listing:
    """Return what a listing says. Raises Unreadable if it is none."""
    return _read(document, _barely)


def read_sglang(document: object, model_info: object) -> Listing:
    """Return what SGLang's listing says, with its `/model_info`, None where that is not to be had.

    Raises Unreadable if it is no listing.
    """
    path, model_type = None, None
    if is_object(model_info):
        path = text(model_info.get("model_path"))
        if isinstance(generates := model_info.get("is_generation"), bool):
            model_type = CHAT if generates else EMBEDDING
    return _read(document, _behind_colon, path, model_type)


def _barely(adapter: str, _base: str) -> str:
    return adapter


def _behind_colon(adapter: str, base: str) -> str | None:
    return None if ":" in base else f"{base}:{adapter}"


def _read(
    document: object,
    reached_as: Callable[[str, str], str | None],
    path: str | None = None,
    model_type: str | None = None,
) -> Listing:
    """Read a listing.

    `reached_as` says by which name the server answers for an adapter, given that and its base's;
    `path` is the source of its one base where that is known otherwise.
    """
    reading = Reading()
    bases: dict[str, Model] = {}
    identities: dict[str, str] = {}
    adapters: list[tuple[str, str]] = []
    for entry in reading.entries(document, "data"):
        name = reading.name(entry.get("id"))
        if name is None:
            continue
        if (parent := text(entry.get("parent"))) is not None:
            adapters.append((name, parent))
            continue
        source = path or text(entry.get("root"))
        known = Model((), source, tokens(entry.get("max_model_len")), model_type)
        identities[name] = source or name
        base = bases.get(identities[name], known)
        bases[identities[name]] = base._replace(names=(*base.names, name))
    reading.models.extend(bases.values())
    for name, parent in adapters:
        identity = identities.get(parent)
        reached = reached_as(name, parent)
        if identity is None:
            reading.skip(f"its base {quoted(parent)} is not listed", of=name)
        elif reached is None:
            reading.skip(f"SGLang finds no adapter on {quoted(parent)}, which has a colon", of=name)
        else:
            adapter = bases[identity]._replace(names=(reached,), source=identity, adapter=True)
            reading.models.append(adapter)
    return reading.listing()
