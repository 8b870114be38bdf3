"""llama.cpp's listing: `/v1/models`, and `/props` for what that leaves out.

A server of one model has its path and its context in `/props`; `n_ctx` is what a request may use,
`n_ctx_train` what the model was trained on, which says nothing of this server. The listing's
`aliases` have the primary among them.

A *router* starts a server for each model as it is asked for. Its entries have a `status`, and only
some of them are loaded; a sleeping one wakes when it is asked. What a model's path is the router
tells late or never, so its own name for it, a repository or a preset, is the source: a source that
changed with the loading would be another worker.
"""

from discoveryd.client.adopting.listings import Listing, Model, Reading, text, tokens
from discoveryd.core.parsing.findings import is_list, is_object

_LOADED = frozenset({"loaded", "sleeping"})


def is_router(document: object) -> bool:
    """Whether a listing is a router's."""
    entries = document.get("data") if is_object(document) else None
    return is_list(entries) and any(is_object(entry) and "status" in entry for entry in entries)


def read_llamacpp(document: object, props: object, *, everything: bool) -> Listing:
    """Return what a listing says; `props` is None for a router's, or where they are not to be had.

    Of a router's models those that are loaded, unless `everything`. Raises Unreadable if it is no
    listing.
    """
    reading = Reading()
    for entry in reading.entries(document, "data"):
        if not everything and not _loaded(entry):
            continue
        name = reading.name(entry.get("id"))
        if name is None:
            continue
        others = entry.get("aliases")
        aliases = [
            alias
            for other in (others if is_list(others) else ())
            if other != name and (alias := reading.name(other)) is not None
        ]
        meta = entry.get("meta")
        context = tokens(meta.get("n_ctx")) if is_object(meta) else None
        source = name if "status" in entry else None
        if is_object(props):
            source = text(props.get("model_path"))
            settings = props.get("default_generation_settings")
            context = (tokens(settings.get("n_ctx")) if is_object(settings) else None) or context
        reading.models.append(Model((name, *aliases), source, context))
    return reading.listing()


def _loaded(entry: dict[str, object]) -> bool:
    if "status" not in entry:
        return True
    status = entry["status"]
    return is_object(status) and status.get("value") in _LOADED
