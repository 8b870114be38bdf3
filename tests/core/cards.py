"""Cards built by hand for tests of the registry: no JSON, no parser, defaults that say nothing.

A fingerprint here is a function of the judged fields, as the real one is, but readable.
"""

from collections.abc import Mapping

import msgspec

from discoveryd.core.batch import Barred, Batch, Found, Invalid, Sighting
from discoveryd.core.card import Card, Key
from discoveryd.core.verdict import Reason, Standing

TORN = Invalid(reasons=(Reason(rule="json", message="The file ends in the middle.", field="$"),))
"""Content that is no card."""


def key(at: str) -> Key:
    """`"ns/c/e/1"` or, for an adapter, `"ns/c/e/1/suffix"`."""
    return Key(*at.split("/"))


def card(  # noqa: PLR0913  # one parameter per member that a test may care about
    name: str,
    aliases: tuple[str, ...] = (),
    *,
    source: str | None = None,
    at: str = "ns/c/e/1",
    lora: bool = False,
    block: int = 16,
    url: str | None = None,
    anchored: bool = True,
    model_type: str | None = None,
    worker_type: str | None = None,
    needs: tuple[tuple[str, ...], ...] = (),
    context_length: int | None = None,
    accepting: bool = True,
    labels: dict[str, str] | None = None,
) -> Card:
    """Build a card. With a suffix in `at` or with `lora` it is an adapter, with one only a half."""
    where = key(at)
    is_adapter = lora or where.suffix is not None
    judged = {
        "display_name": name,
        "source_path": source,
        "aliases": list(aliases),
        "kv_cache_block_size": block,
        "worker_type": worker_type,
        "needs": [list(alternative) for alternative in needs],
        "context_length": context_length,
    }
    ignored = {
        **dict(zip(("namespace", "component", "endpoint", "instance"), where, strict=False)),
        "model_suffix": where.suffix,
        "lora": {"name": name} if lora else None,
        "url": url,
        "model_type": model_type,
        "accepting": accepting,
        "labels": labels,
    }
    return Card(
        key=where,
        display_name=name,
        aliases=() if is_adapter else aliases,
        source_path=source,
        adapter=is_adapter,
        half_adapter=lora != (where.suffix is not None),
        anchored=anchored,
        model_type=model_type,
        worker_type=worker_type or "aggregated",
        legacy=worker_type is None,
        needs=needs,
        context_length=context_length,
        fingerprint=msgspec.json.encode(judged).decode(),
        url=url,
        accepting=accepting,
        labels=labels,
        content=msgspec.json.encode(judged | ignored),
    )


def adapter(name: str, *, source: str | None = None, at: str, accepting: bool = True) -> Card:
    """Build a whole adapter; `at` has the suffix."""
    return card(name, source=source, at=at, lora=True, accepting=accepting)


def forbidden(content: Card) -> Barred:
    """Build a card that may not count, for its owner."""
    reasons = (Reason(rule="not_allowed", message="Its owner may not publish this."),)
    return Barred(card=content, standing=Standing.FORBIDDEN, reasons=reasons)


def expired(content: Card) -> Barred:
    """Build a card that may not count, for its lease."""
    reasons = (Reason(rule="lease_expired", message="Its lease ran out."),)
    return Barred(card=content, standing=Standing.EXPIRED, reasons=reasons)


def batch(
    found: Mapping[str, Found] | None = None,
    *,
    operator_aliases: dict[str, str] | None = None,
    mtimes: dict[str, int] | None = None,
    owners: dict[str, int] | None = None,
) -> Batch:
    """Build a batch: `batch({"a": card("m"), "b": None})`. Files of equal mtime arrive by name."""
    return Batch(
        sightings=tuple(
            Sighting(
                file=file,
                found=content,
                mtime_ns=(mtimes or {}).get(file, 0),
                owner=(owners or {}).get(file, 1000),
            )
            for file, content in (found or {}).items()
        ),
        operator_aliases=operator_aliases,
    )
