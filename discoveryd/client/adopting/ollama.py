"""Ollama's listings: `/api/ps`, what is loaded, and `/api/tags`, all that it has.

A name is a tag on a digest, and one digest may have many tags: they are one base, whose names come
in the order of the alphabet, since Ollama's own order changes with use. A name that ends in
`:latest` is answered without that as well, so it is served without.

How many tokens a model takes is decided when it is loaded. Ollama unloads what nobody has asked for
in a while, which takes its card away; with everything adopted the names stay, since it loads what
is asked for.
"""

from discoveryd.client.adopting.listings import Listing, Model, Reading, text, tokens

_LATEST = ":latest"


def read_ollama(loaded: object, everything: object = None) -> Listing:
    """Return what `/api/ps` says, or what `/api/tags` does, if that is given as `everything`.

    Raises Unreadable if either is no listing.
    """
    running = Reading()
    contexts = {
        digest: tokens(entry.get("context_length"))
        for entry in running.entries(loaded, "models")
        if (digest := text(entry.get("digest"))) is not None
    }
    reading = Reading()
    names: dict[tuple[str, str], list[str]] = {}
    for entry in reading.entries(loaded if everything is None else everything, "models"):
        name = reading.name(entry.get("model", entry.get("name")))
        if name is not None:
            digest = text(entry.get("digest")) or ""
            names.setdefault((digest, "" if digest else name), []).append(name)
    listed = {name for tags in names.values() for name in tags}
    for (digest, _), tags in names.items():
        answered = dict.fromkeys(
            each
            for name in sorted(tags)
            for each in (name, name.removesuffix(_LATEST))
            if each == name or each not in listed
        )
        reading.models.append(Model(tuple(answered), digest or None, contexts.get(digest)))
    return reading.listing()
