"""Random batches over small alphabets, so that collisions are the rule.

A batch is drawn as a few operations that know nothing of the present (a file name, a recipe for a
card, one field to change) and is then read against it: so examples shrink well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from discoveryd.core.batch import Batch, Found, Sighting
from tests.core.cards import TORN, card, expired, forbidden, key

Recipe = Mapping[str, Any]
"""The arguments of `card`."""

Operation = tuple[Any, ...]

FILES = tuple("abcdefgh")
NAMES = ("m", "n", "o", "x")

files = st.sampled_from(FILES)
names = st.sampled_from(NAMES)
aliases = st.lists(names, max_size=2).map(tuple)
instances = st.sampled_from("123")
places = st.sampled_from(("k/c/e", "k/c/e", "k/c/f", "q/c/e"))
sources = st.sampled_from(("S", "S", "S", "T", "", None))
suffixes = st.sampled_from(("l", "r"))
blocks = st.sampled_from((1, 1, 2, 3))
seldom = st.sampled_from((False,) * 7 + (True,))
labels = st.sampled_from((None, {"zone": "1"}))
roles = st.sampled_from(
    ({}, {}, {}, {"worker_type": "prefill"}, {"worker_type": "decode", "needs": (("prefill",),)})
)

bases: st.SearchStrategy[Recipe] = st.builds(
    lambda place, instance, role, gone, draining, **more: {
        "at": f"{place}/{instance}",
        "anchored": not gone,
        "accepting": not draining,
        **role,
        **more,
    },
    places,
    instances,
    roles,
    seldom,
    seldom,
    name=names,
    aliases=aliases,
    source=sources,
    block=blocks,
    lora=seldom,
)
adapters: st.SearchStrategy[Recipe] = st.builds(
    lambda place, instance, suffix, gone, half, **more: {
        "at": f"{place}/{instance}/{suffix}",
        "anchored": not gone,
        "lora": not half,
        **more,
    },
    places,
    instances,
    suffixes,
    seldom,
    seldom,
    name=names,
    source=sources,
)
recipes = st.one_of(bases, bases, adapters)

changes = st.one_of(
    st.tuples(st.just("block"), blocks),
    st.tuples(st.just("name"), names),
    st.tuples(st.just("aliases"), aliases),
    st.tuples(st.just("source"), sources),
    st.tuples(st.just("accepting"), st.booleans()),
    st.tuples(st.just("anchored"), st.booleans()),
    st.tuples(st.just("labels"), labels),
    st.tuples(st.just("model_type"), st.sampled_from((None, "Chat"))),
    st.tuples(st.just("instance"), instances),
    st.tuples(st.just("place"), places),
)

operations: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("put"), files, recipes),
    st.tuples(st.just("put"), files, recipes),
    st.tuples(st.just("change"), files, changes),
    st.tuples(st.just("change"), files, changes),
    st.tuples(st.just("remove"), files),
    st.tuples(st.just("tear"), files),
    st.tuples(st.just("mend"), files),
    st.tuples(st.just("forbid"), files),
    st.tuples(st.just("expire"), files),
    st.tuples(st.just("copy"), files, files),
    st.tuples(st.just("move"), files, files),
    st.tuples(st.just("swap"), files, files),
    st.tuples(st.just("roll"), files, changes),
)

operator_tables = st.one_of(
    st.none(),
    st.none(),
    st.none(),
    st.none(),
    st.dictionaries(names, names, max_size=1).filter(
        lambda table: not table.keys() & set(table.values())
    ),
)


@dataclass
class Directory:
    """What lies in the drop directory: each file's last valid recipe, and its mtime and owner."""

    contents: dict[str, Recipe] = field(default_factory=dict)

    def batch(
        self,
        drawn: list[Operation],
        *,
        mtimes: Mapping[str, int],
        owners: Mapping[str, int],
        operator_aliases: Mapping[str, str] | None,
        now: float,
    ) -> Batch:
        """Read operations against what lies here, carry them out, and return what a scan finds."""
        found: dict[str, Found] = {}
        for operation in drawn:
            for file, content in self._read(operation).items():
                if file not in found:
                    found[file] = self._write(file, content)
        return Batch(
            sightings=tuple(
                Sighting(
                    file=file,
                    found=content,
                    mtime_ns=mtimes.get(file, 0),
                    owner=owners.get(file, 1000),
                )
                for file, content in found.items()
            ),
            operator_aliases=operator_aliases,
            now=now,
        )

    def _write(self, file: str, content: Recipe | Found) -> Found:
        if isinstance(content, Mapping):
            self.contents[file] = content
            return card(**content)
        if content is None:
            self.contents.pop(file, None)
        return content

    def _read(self, operation: Operation) -> Mapping[str, Recipe | Found]:
        kind, file, *more = operation
        if kind == "put":
            return {file: more[0]}
        if kind == "remove":
            return {file: None}
        if kind == "tear":
            return {file: TORN}
        known = self.contents.get(file)
        if known is None:
            return {}
        if kind in ("swap", "roll"):
            return self._read_of_several(kind, known, file, more[0])
        return {
            "mend": lambda: {file: known},
            "change": lambda: {file: changed(known, *more[0])},
            "forbid": lambda: {file: forbidden(card(**known))},
            "expire": lambda: {file: expired(card(**known))},
            "copy": lambda: {more[0]: known},
            "move": lambda: {file: None, more[0]: known},
        }[kind]()

    def _read_of_several(
        self, kind: str, known: Recipe, file: str, more: Any
    ) -> Mapping[str, Recipe | Found]:
        if kind == "roll":
            group = card(**known).group
            return {
                member: changed(recipe, *more)
                for member, recipe in self.contents.items()
                if card(**recipe).group == group
            }
        other = self.contents.get(more)
        if other is None:
            return {}
        return {file: renamed(known, other), more: renamed(other, known)}


def changed(recipe: Recipe, member: str, value: object) -> Recipe:
    """Return the recipe with one member changed; the parts of the key are members too."""
    where = key(recipe["at"])
    if member == "instance":
        parts: tuple[object, ...] = (*where[:3], value)
    elif member == "place":
        parts = (value, where.instance)
    else:
        return {**recipe, member: value}
    suffix = () if where.suffix is None else (where.suffix,)
    return {**recipe, "at": "/".join(str(part) for part in (*parts, *suffix))}


def renamed(recipe: Recipe, other: Recipe) -> Recipe:
    """Return the recipe with the names of another."""
    return {**recipe, "name": other["name"], "aliases": other.get("aliases", ())}
