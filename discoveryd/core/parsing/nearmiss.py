"""The members that cards have, and what a person may have meant by one that they do not have.

An unknown member is kept and harmless: newer Dynamo releases add some. Only what looks like a slip
is told, as a warning. Nothing here may change how a card is read.
"""

from difflib import get_close_matches
from enum import Enum
from functools import lru_cache

from discoveryd.core.parsing.findings import Findings, member_path

MOST_LOOKED_AT = 32
"""Unknown members of one object that are looked at; comparing is slow."""

_LONGEST = 40
_CLOSE = 0.85

CARD_MEMBERS = frozenset(
    {
        "display_name",
        "slug",
        "source_path",
        "model_info",
        "tokenizer",
        "prompt_formatter",
        "chat_template_file",
        "gen_config",
        "prompt_context",
        "architectural_max_context_length",
        "context_length",
        "kv_cache_block_size",
        "migration_limit",
        "model_type",
        "model_input",
        "worker_type",
        "needs",
        "lora",
        "aliases",
        "user_data",
        "runtime_config",
        "tensor_model_config",
        "media_decoder",
        "media_fetcher",
        "router_config",
        "indexer_identity",
        "extra_files",
    }
)
_OURS = frozenset({"url", "accepting", "labels", "liveness"})
_PLACE = frozenset({"namespace", "component", "endpoint", "model_suffix"})


class Shape(Enum):
    """A JSON object that holds members of a card: its value, and `members`, is the set of those."""

    def __init__(self, members: frozenset[str]) -> None:
        # Reading an enum's value is a call, and this one is read for every card.
        self.members = members

    FLAT = CARD_MEMBERS | _OURS | _PLACE | {"instance"}
    ENVELOPE = _OURS | _PLACE | {"type", "instance_id", "card_json"}
    INNER = CARD_MEMBERS


MEANT = {
    "alias": "aliases",
    "names": "aliases",
    "served_names": "aliases",
    "served_model_names": "aliases",
    "name": "display_name",
    "model": "display_name",
    "model_name": "display_name",
    "primary": "display_name",
    "served_name": "display_name",
    "served_model_name": "display_name",
    "base": "source_path",
    "base_model": "source_path",
    "model_path": "source_path",
    "path": "source_path",
    "root": "source_path",
    "source": "source_path",
    "address": "url",
    "api_base": "url",
    "base_url": "url",
    "host": "url",
    "port": "url",
    "uri": "url",
    "adapter": "lora",
    "lora_name": "lora",
    "lora_path": "lora",
    "suffix": "model_suffix",
    "metadata": "labels",
    "tags": "labels",
    "draining": "accepting",
    "enabled": "accepting",
    "lease": "liveness",
    "lease_seconds": "liveness",
    "held": "liveness",
    "pid": "liveness",
    "ttl": "liveness",
    "block_size": "kv_cache_block_size",
    "max_model_len": "context_length",
    "capabilities": "model_type",
    "role": "worker_type",
    "id": "instance",
    "instance_id": "instance",
    "instance": "instance_id",
    "worker_id": "instance",
    "card": "card_json",
}
"""What people write, and the member that they mean by it."""


def warn_of_slips(members: dict[str, object], shape: Shape, at: str, findings: Findings) -> None:
    """Warn of unknown members of the object at `at` that look like known ones or lie wrong."""
    if shape.members.issuperset(members):
        return
    unknown = [name for name in members if name not in shape.value]
    for name in unknown[:MOST_LOOKED_AT]:
        if shape is Shape.ENVELOPE and name in CARD_MEMBERS:
            findings.warn(member_path(at, name), "not read here: it belongs inside card_json")
        elif shape is Shape.INNER and name in Shape.ENVELOPE.value:
            findings.warn(member_path(at, name), "not read here: it belongs beside card_json")
        elif (meant := _nearest(name[: _LONGEST + 1], shape)) is not None:
            findings.warn(member_path(at, name), f"not a known member; did you mean {meant}?")


@lru_cache(maxsize=1024)
def _nearest(name: str, shape: Shape) -> str | None:
    if len(name) > _LONGEST:
        return None
    choices = {_plain(known): known for known in shape.value}
    choices |= {_plain(slip): meant for slip, meant in MEANT.items() if meant in shape.value}
    plain = _plain(name)
    if plain not in choices:
        close = get_close_matches(plain, choices, n=1, cutoff=_CLOSE)
        if not close:
            return None
        plain = close[0]
    return choices[plain]


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")
