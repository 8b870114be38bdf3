"""From a card file's bytes to a `Card`, or to everything that is wrong with it.

Reading is Dynamo's: what it reads past (a `source_path` that is no string, aliases that are no
list, null) is read past here too, and told as a warning, so that no card is refused that it would
take. The parts are read in modules of their own, by what they mean; here they are put together.
Where a part is faulty, reading goes on with a placeholder, so that all faults are told at once.

This room knows no files: what the name of a file has to say comes in as arguments.
"""

from typing import NamedTuple, NoReturn

from discoveryd.core.card import Card, Key
from discoveryd.core.fingerprint import effective_context, fingerprint
from discoveryd.core.parsing.document import Doubled, find_doubled, read_object
from discoveryd.core.parsing.extras import read_accepting, read_labels, read_liveness
from discoveryd.core.parsing.findings import U32, Findings, is_object, is_unsigned, member_path
from discoveryd.core.parsing.keys import Facts, Place, envelope_place, flat_place, store_place
from discoveryd.core.parsing.names import (
    read_aliases,
    read_display_name,
    read_lora,
    read_source_path,
)
from discoveryd.core.parsing.nearmiss import Shape, warn_of_slips
from discoveryd.core.parsing.roles import read_role
from discoveryd.core.parsing.urls import read_url

_NUMBERS = ("architectural_max_context_length", "context_length", "kv_cache_block_size")


class _Parts(NamedTuple):
    """The outermost object, the object with the card's members, its path, and its shape."""

    outer: dict[str, object]
    card: dict[str, object]
    at: str
    shape: Shape


def parse_card(
    content: bytes, *, stem: str, key: Key | None = None, url: str | None = None
) -> Card:
    """Return the card that the bytes hold.

    `stem` is the file's name without `.json`, as os.fsdecode gives it: a flat card's instance where
    it gives neither instance nor url. `key` is given for a card of a Dynamo store, where the file's
    name decides it: then the content must be an envelope. `url` is the address from the store's
    instance record, taken unchecked if the card gives none.

    Raises InvalidCard, with every fault and warning, if they hold none; raises nothing else,
    whatever the bytes.
    """
    root = read_object(content)
    findings = Findings()
    parts = _take_apart(root, key, findings)
    outer, card, at, _ = parts
    _warn_of_oddities(content, parts, findings)

    own_url = read_url(outer, findings)
    display_name = read_display_name(card, at, findings)
    source_path = read_source_path(card, at, findings)
    lora = read_lora(card, at, findings)
    place = _place(parts, key, Facts(display_name, source_path, lora, own_url, stem), findings)
    adapter = lora or place.suffixed
    aliases = read_aliases(card, at, findings, adapter=adapter)
    role = read_role(card, at, findings)
    _check_numbers(card, at, findings)
    accepting = read_accepting(outer, findings)
    labels = read_labels(outer, findings)
    liveness = read_liveness(outer, findings)
    if findings.faults:
        raise findings.invalid()

    return Card(
        key=place.key,
        display_name=display_name,
        aliases=aliases,
        source_path=source_path,
        adapter=adapter,
        half_adapter=lora != place.suffixed,
        model_type=role.model_type,
        worker_type=role.worker_type,
        legacy=role.declared is None,
        needs=role.needs,
        context_length=effective_context(card),
        fingerprint=fingerprint(card, role),
        url=url if own_url is None else own_url,
        accepting=accepting,
        labels=labels,
        liveness=liveness,
        warnings=findings.all_warnings(),
        content=content,
    )


def _take_apart(root: dict[str, object], key: Key | None, findings: Findings) -> _Parts:
    if "card_json" not in root and key is None:
        return _Parts(root, root, "$", Shape.FLAT)
    inner = root.get("card_json")
    if not is_object(inner):
        _refuse_envelope(root, inner, key, findings)
    return _Parts(root, inner, "$.card_json", Shape.ENVELOPE)


def _refuse_envelope(
    root: dict[str, object], inner: object, key: Key | None, findings: Findings
) -> NoReturn:
    """Report what is wrong with an envelope that holds no card, besides that."""
    if "card_json" in root:
        findings.wrong_type("$.card_json", inner, "an object: the card")
    else:
        findings.fault(
            "missing",
            "$.card_json",
            "is missing: in a Dynamo store a card lies in an envelope, as Dynamo writes it",
        )
    if key is None:
        envelope_place(root, findings)
    else:
        store_place(root, key, findings)
    raise findings.invalid()


def _place(parts: _Parts, key: Key | None, facts: Facts, findings: Findings) -> Place:
    if parts.shape is Shape.FLAT:
        return flat_place(parts.card, facts, findings)
    if key is None:
        return envelope_place(parts.outer, findings)
    return store_place(parts.outer, key, findings)


def _warn_of_oddities(content: bytes, parts: _Parts, findings: Findings) -> None:
    outer, card, at, shape = parts
    doubled = find_doubled(content, outer)
    if doubled is not None:
        _warn_of_doubled(doubled, shape, "$", findings)
        if shape is Shape.ENVELOPE and isinstance(inner := doubled.get("card_json"), Doubled):
            _warn_of_doubled(inner, Shape.INNER, at, findings)
    warn_of_slips(outer, shape, "$", findings)
    if shape is Shape.ENVELOPE:
        warn_of_slips(card, Shape.INNER, at, findings)


def _warn_of_doubled(members: Doubled, shape: Shape, at: str, findings: Findings) -> None:
    for name in sorted(members.names & shape.value):
        findings.warn(member_path(at, name), "given more than once, so the last one counts")


def _check_numbers(card: dict[str, object], at: str, findings: Findings) -> None:
    """Check the numbers that the fingerprint reads."""
    for name in _NUMBERS:
        if name in card:
            _check_number(card, name, at, findings)
    runtime = card.get("runtime_config")
    if runtime is None:
        return
    if is_object(runtime):
        _check_number(runtime, "context_length", f"{at}.runtime_config", findings)
    else:
        findings.warn(f"{at}.runtime_config", "not an object, so the card has no runtime_config")


def _check_number(members: dict[str, object], name: str, at: str, findings: Findings) -> None:
    number = members.get(name)
    if number is None or is_unsigned(number, U32):
        return
    findings.fault(
        "out_of_range", f"{at}.{name}", f"must be an integer from 0 to {U32}", found=number
    )
