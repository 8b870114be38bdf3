"""Which kind of server answers at a URL, and which of its paths tell its models.

`/v1/models` is asked first: all kinds have it, and most say there by `owned_by` who they are.
Ollama and LM Studio do not, so they are known by listings of their own that have the right shape;
a status would not do, since LM Studio answers 200 to whatever it does not know. SGLang has some of
Ollama's paths, so it must have been ruled out before. What has none of it but a readable
`/v1/models` is adopted by that alone.

A server is recognised once and then asked in its own way, so that nobody's log fills with paths
that are not there.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from discoveryd.client.adopting.listings import Listing, Unreadable
from discoveryd.client.adopting.llamacpp import is_router, read_llamacpp
from discoveryd.client.adopting.lmstudio import read_lmstudio, read_lmstudio_v0
from discoveryd.client.adopting.ollama import read_ollama
from discoveryd.client.adopting.openai import read_openai, read_sglang
from discoveryd.core.parsing.findings import is_list, is_object

_MODELS = "/v1/models"
_OLLAMA_LOADED = "/api/ps"
_OLLAMA_ALL = "/api/tags"
_LMSTUDIO = "/api/v1/models"
_LMSTUDIO_V0 = "/api/v0/models"

_FAILED = 500
"""The least status of a server that cannot answer now, as while it loads."""


class Rejected(Exception):
    """The server answered with a `status` that is no success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status


class Ask(Protocol):
    """A question to a server: a path, with its query if any."""

    async def __call__(self, path: str, /) -> object:
        """Return the JSON value it answers.

        Raises Rejected, Unreadable, or what shows that it does not answer at all.
        """
        ...


class Kind(NamedTuple):
    """A kind of server.

    `label` is its name for people and for the card's labels. `listing` asks it for its models, for
    those that are not loaded too where the second argument is true.
    """

    label: str
    listing: Callable[[Ask, bool], Awaitable[Listing]]


async def recognise(ask: Ask) -> Kind:
    """Return the kind of server that answers.

    Raises Rejected or Unreadable as its `/v1/models` does where it is of no kind, and whatever
    shows that it does not answer.
    """
    problem: Rejected | Unreadable | None = None
    owner = None
    try:
        owner = _owner(await ask(_MODELS))
    except Rejected as fault:
        if fault.status >= _FAILED:
            raise
        problem = fault
    except Unreadable as fault:
        problem = fault
    if owner in _OWNERS:
        return _OWNERS[owner]
    for path, member, kind in _OWN_LISTINGS:
        if _has(await _or_none(ask, path), member):
            return kind
    if problem is not None:
        raise problem
    return OPENAI


async def _openai(ask: Ask, _everything: bool) -> Listing:
    return read_openai(await ask(_MODELS))


async def _sglang(ask: Ask, _everything: bool) -> Listing:
    listing = await ask(_MODELS)
    told = await _or_none(ask, "/model_info")
    if told is None:
        told = await _or_none(ask, "/get_model_info")
    return read_sglang(listing, told)


async def _llamacpp(ask: Ask, everything: bool) -> Listing:
    listing = await ask(_MODELS)
    props = None if is_router(listing) else await _or_none(ask, "/props")
    return read_llamacpp(listing, props, everything=everything)


async def _ollama(ask: Ask, everything: bool) -> Listing:
    loaded = await ask(_OLLAMA_LOADED)
    return read_ollama(loaded, await ask(_OLLAMA_ALL) if everything else None)


async def _lmstudio(ask: Ask, everything: bool) -> Listing:
    return read_lmstudio(await ask(_LMSTUDIO), everything=everything)


async def _lmstudio_v0(ask: Ask, everything: bool) -> Listing:
    return read_lmstudio_v0(await ask(_LMSTUDIO_V0), everything=everything)


VLLM = Kind("vllm", _openai)
SGLANG = Kind("sglang", _sglang)
LLAMACPP = Kind("llama.cpp", _llamacpp)
OLLAMA = Kind("ollama", _ollama)
LMSTUDIO = Kind("lmstudio", _lmstudio)
LMSTUDIO_V0 = Kind("lmstudio", _lmstudio_v0)
OPENAI = Kind("openai", _openai)

_OWNERS = {"vllm": VLLM, "sglang": SGLANG, "llamacpp": LLAMACPP}
_OWN_LISTINGS = (
    (_OLLAMA_LOADED, "models", OLLAMA),
    (_LMSTUDIO, "models", LMSTUDIO),
    (_LMSTUDIO_V0, "data", LMSTUDIO_V0),
)


async def _or_none(ask: Ask, path: str) -> object:
    """Return what the server answers, None where it has nothing to say there."""
    try:
        return await ask(path)
    except (Rejected, Unreadable):
        return None


def _owner(listing: object) -> str | None:
    """Return who owns the first model that says so. Raises Unreadable if this is no listing."""
    entries = listing.get("data") if is_object(listing) else None
    if not is_list(entries):
        raise Unreadable('its listing has no list "data"')
    owners = (entry.get("owned_by") for entry in entries if is_object(entry))
    return next((owner for owner in owners if isinstance(owner, str)), None)


def _has(document: object, member: str) -> bool:
    if not is_object(document) or member not in document:
        return False
    return document[member] is None or is_list(document[member])
