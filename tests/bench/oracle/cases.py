"""Random cases: two or three cards on one endpoint, or beside it, of which the last registers.

A case is a row of steps. A card either *lies* in the store, as a file whose name and text may be
anything, or it *registers* through Dynamo's own call, whose verdict is asked for. Names and sources
come from few, so that they collide; what nobody should look at varies as well.

The same seed and number always make the same case. The instances 0 to 2 are those of the Dynamo
runtimes that a case is played on, by their index, since their numbers are random.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tests.bench.oracle.oddities import CARD, ENVELOPE, FILE, NAMES, TEXT, Odd
from tests.system.dropping import store_name

Json = dict[str, Any]

WORKERS = 3
"""How many runtimes a case may register from."""

_NAMES = ("m", "n", "l", "x", "M", "m ", "caf\u00e9", "cafe\u0301", "org/m", "A", "B")
_SOURCES = ("A", "B", "A/", "./A", "a", "")
REAL_SOURCES = frozenset(_SOURCES) - {""}
"""Sources that are model directories where cases are played."""

_ELSEWHERE = ("ns/oc/e2", "ns/oc/ee", "ns/o/e", "n/oc/e", "ns/oc2/e")
HERE = "ns/oc/e"


class Lies(msgspec.Struct, frozen=True, tag=True):
    """A card file in `v1/mdc`. In both members `{0}` and so on stand for runtimes' instances, in
    the text as decimal numbers."""

    file: str
    text: str


class Registers(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A call of `register_model` by one of the runtimes.

    Without `assets` a minimal card is registered and nothing is read. `name` None leaves the naming
    to Dynamo. `others` are arguments that no rule reads, as JSON; the driver makes values of them.
    """

    worker: int
    endpoint: str
    source: str
    name: str | None = None
    aliases: tuple[str, ...] = ()
    adapter: bool = False
    assets: bool = False
    others: Json = msgspec.field(default_factory=dict)

    @property
    def suffix(self) -> str | None:
        """The key's suffix, as Dynamo makes one of an adapter's name."""
        return slug(self.name or "") if self.adapter else None

    @property
    def key(self) -> str:
        """The key, with a place for the instance."""
        base = f"{self.endpoint}/{{{self.worker}}}"
        return f"{base}/{self.suffix}" if self.suffix else base

    @property
    def file(self) -> str:
        """The name of the file that Dynamo writes."""
        return template_name(self.key)

    @property
    def card(self) -> Json:
        """The members that the rules read, as Dynamo writes them."""
        card: Json = {"display_name": self.source if self.name is None else self.name}
        if self.assets or self.name not in (None, self.source):
            card["source_path"] = self.source
        if self.adapter:
            card["lora"] = {"name": self.name}
        if self.aliases:
            card["aliases"] = list(self.aliases)
        return card

    @property
    def text(self) -> str:
        """The content of that file, as far as the rules read it."""
        return written(envelope(self.endpoint, self.worker, self.card, self.suffix))


Step = Lies | Registers


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in order of arrival; `seed` and `number` make them again."""

    seed: str
    number: int
    steps: tuple[Step, ...]


def slug(name: str) -> str:
    """Return what Dynamo makes of a name: lower case, `_` for what is not plain, none before it."""
    plain = "abcdefghijklmnopqrstuvwxyz0123456789_-"
    return "".join(c if c in plain else "_" for c in name.lower()).lstrip("_")


def template_name(key: str) -> str:
    """Return the file name of a key in which instances have places."""
    places = {f"%7B{worker}%7D": f"{{{worker}}}" for worker in range(WORKERS)}
    name = store_name(key)
    for escaped, place in places.items():
        name = name.replace(escaped, place)
    return name


def envelope(endpoint: str, instance: int, card: object, suffix: object = None) -> Json:
    """Wrap a card as Dynamo does; the instance is a runtime's index, or made up if it is higher."""
    namespace, component, name = endpoint.split("/")
    whole: Json = {
        "type": "Model",
        "namespace": namespace,
        "component": component,
        "endpoint": name,
        "instance_id": f"{{{instance}}}" if instance < WORKERS else instance,
        "card_json": card,
    }
    return whole if suffix is None else whole | {"model_suffix": suffix}


def written(document: object) -> str:
    """Return the JSON, with places for the runtimes' instances where those are numbers."""
    text = json.dumps(document)
    for worker in range(WORKERS):
        text = text.replace(f'"{{{worker}}}"', f"{{{worker}}}")
    return text


def filled(template: str, instances: list[int], base: Literal["d", "x"]) -> str:
    """Put the runtimes' instances into their places."""
    for worker, instance in enumerate(instances):
        template = template.replace(f"{{{worker}}}", format(instance, base))
    return template


def case(seed: str, number: int) -> Case:
    """Make the case of that number."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311  # no secret
    maker = _Maker(rng)
    steps = [maker.step() for _ in range(rng.choice((1, 1, 2)))]
    return Case(seed=seed, number=number, steps=(*steps, maker.registers(HERE)))


class _Maker:
    """Makes the cards of one case: some cases have odd things in them, most have none."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = rng.sample(_NAMES, 3)
        self.sources = [rng.choice(_SOURCES) for _ in range(2)]
        self.odd = rng.random() < 0.4

    def step(self) -> Step:
        endpoint = HERE if self.rng.random() < 0.92 else self.rng.choice(_ELSEWHERE)
        return self.registers(endpoint) if self.rng.random() < 0.35 else self.lies(endpoint)

    def registers(self, endpoint: str) -> Registers:
        rng = self.rng
        source = rng.choice(self.sources)
        adapter = rng.random() < 0.3
        name: str | None = rng.choice(self.names)
        if self.odd and rng.random() < 0.08:
            name = rng.choice(NAMES[:4] if adapter else NAMES)
        elif not adapter and source and rng.random() < 0.06:
            name = None
        assets = source in REAL_SOURCES and rng.random() < 0.8
        keeps_aliases = assets or not adapter
        return Registers(
            worker=rng.randrange(WORKERS),
            endpoint=endpoint,
            source=source,
            name=name,
            aliases=self.aliases() if keeps_aliases else (),
            adapter=adapter,
            assets=assets,
            others=self.others(),
        )

    def lies(self, endpoint: str) -> Lies:
        rng = self.rng
        card: Json = {"display_name": rng.choice(self.names)}
        source = rng.choice([*self.sources, None])
        if source is not None:
            card["source_path"] = source
        if aliases := self.aliases():
            card["aliases"] = list(aliases)
        suffix = None
        if rng.random() < 0.3:
            card["lora"] = {"name": card["display_name"]}
            suffix = slug(card["display_name"])
        card |= self.unread()
        instance = rng.randrange(WORKERS) if rng.random() < 0.08 else rng.randrange(3, 1 << 64)
        return self._odd_file(endpoint, instance, card, suffix)

    def aliases(self) -> tuple[str, ...]:
        rng = self.rng
        names = [rng.choice(self.names) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        if self.odd and rng.random() < 0.05:
            names.append(rng.choice(NAMES))
        return tuple(names)

    def others(self) -> Json:
        """Return arguments that no rule reads."""
        rng = self.rng
        given: Json = {}
        if rng.random() < 0.2:
            given["user_data"] = {"any": [1, None, "m"]}
        if rng.random() < 0.2:
            given["kv_cache_block_size"] = rng.choice((1, 16, 64))
        if rng.random() < 0.2:
            given["runtime_config"] = {"context_length": 1024, "max_num_seqs": rng.randrange(1, 9)}
        if rng.random() < 0.2:
            given |= {"worker_type": "Decode", "needs": [["Prefill"]]}
        return given

    def unread(self) -> Json:
        """Return members that no rule of registration reads."""
        rng = self.rng
        members: Json = {
            "slug": "any",
            "model_info": {"hf_config_json": {"path": "x", "checksum": f"blake3:{rng.random()}"}},
            "kv_cache_block_size": rng.randrange(64),
            "context_length": rng.randrange(1 << 32),
            "worker_type": rng.choice(("prefill", "decode", "encode", "aggregated", None)),
            "model_type": rng.choice(("Chat", "Chat | Completions", "Embedding", "Prefill")),
            "needs": rng.choice(([], [["decode"]], [["prefill", "decode"], ["aggregated"]])),
            "user_data": rng.choice((None, {"display_name": "n"}, "m", [0.1])),
            "runtime_config": {"taints": ["a"], "context_length": rng.randrange(9)},
            "router_config": {"mode": "kv"},
            "of_a_later_release": {"aliases": ["m"]},
        }
        return {name: members[name] for name in members if rng.random() < 0.15}

    def _odd_file(self, endpoint: str, instance: int, card: Json, suffix: str | None) -> Lies:
        """Return the file of a card, with at most one odd thing about it."""
        rng = self.rng
        place = f"{{{instance}}}" if instance < WORKERS else f"{instance:x}"
        key = f"{endpoint}/{place}" + (f"/{suffix}" if suffix else "")
        odd: Odd | None = None
        if self.odd and rng.random() < 0.7:
            odd = rng.choice(rng.choice((CARD, CARD, ENVELOPE, TEXT, FILE)))
        if odd in CARD:
            card = _changed(card, odd, self.names)
        whole = envelope(endpoint, instance, card, suffix)
        if odd in ENVELOPE:
            whole = _changed(whole, odd, self.names)
        text, name = written(whole), template_name(key)
        if odd in TEXT:
            text = odd(text)
        if odd in FILE:
            name = odd(name)
        return Lies(name, text)


def _changed(document: Json, odd: Odd, names: list[str]) -> Json:
    changed: Json = odd(document, names)
    return changed


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases with a little less in them, for who looks for the least that shows something."""
    *before, last = case.steps
    for place in range(len(before)):
        yield _with(case, [*before[:place], *before[place + 1 :], last])
    for place, step in enumerate(case.steps):
        for smaller in _simpler_step(step):
            yield _with(case, [*case.steps[:place], smaller, *case.steps[place + 1 :]])


def _with(case: Case, steps: list[Step]) -> Case:
    return msgspec.structs.replace(case, steps=tuple(steps))


def _simpler_step(step: Step) -> Iterator[Step]:
    if isinstance(step, Registers):
        for place in range(len(step.aliases)):
            fewer = (*step.aliases[:place], *step.aliases[place + 1 :])
            yield msgspec.structs.replace(step, aliases=fewer)
        if step.others:
            yield msgspec.structs.replace(step, others={})
        return
    try:
        whole = json.loads(step.text)
    except ValueError:
        return
    if not isinstance(whole, dict) or not isinstance(card := whole.get("card_json"), dict):
        return
    for member in card:
        rest = {name: value for name, value in card.items() if name != member}
        yield msgspec.structs.replace(step, text=json.dumps(whole | {"card_json": rest}))
