"""Random batches over small alphabets, so that collisions are the rule.

A batch is drawn as a few operations that know nothing of the present (a file name, a recipe for a
card, one field to change) and is then read against it: so examples shrink well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from discoveryd.core.batch import Found, Sighting
from tests.core.cards import TORN, card, expired, forbidden, key

Recipe = Mapping[str, Any]
"""The arguments of `card`."""

Operation = tuple[Any, ...]

FILES = tuple("abcdefgh")
NAMES = ("m", "n", "o", "x", "l")

files = st.sampled_from(FILES)
names = st.sampled_from("mnox")
adapter_names = st.sampled_from(("l", "l", "l", "x", "m"))
aliases = st.sampled_from(((), (), ("x",), ("o",), ("m",), ("n", "x"), ("x", "n"), ("m", "m")))
instances = st.sampled_from("123")
places = st.sampled_from(("k/c/e", "k/c/e", "k/c/e", "k/c/f", "q/c/e"))
sources = st.sampled_from(("S", "S", "S", "S", "T", "", None))
suffixes = st.sampled_from(("l", "r"))
blocks = st.sampled_from((1, 1, 2, 3))
seldom = st.sampled_from((False,) * 9 + (True,))
labels = st.sampled_from((None, {"zone": "1"}))
roles = st.sampled_from(
    (*({},) * 5, {"worker_type": "prefill"}, {"worker_type": "decode", "needs": (("prefill",),)})
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
    name=adapter_names,
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

puts: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("put"), files, recipes),
    st.tuples(st.just("join"), files, files, instances),
    st.tuples(st.just("adapt"), files, files, suffixes, adapter_names),
)
edits: st.SearchStrategy[Operation] = st.tuples(st.just("change"), files, changes)
exchanges: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("swap"), files, files),
    st.tuples(st.just("roll"), files, changes),
)
disturbances: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("remove"), files),
    st.tuples(st.just("tear"), files),
    st.tuples(st.just("mend"), files),
    st.tuples(st.just("forbid"), files),
    st.tuples(st.just("expire"), files),
    st.tuples(st.just("copy"), files, files),
    st.tuples(st.just("move"), files, files),
)
operations = st.one_of(puts, edits, edits, exchanges, disturbances)

mtimes = st.dictionaries(files, st.integers(0, 2), max_size=2)
owners = st.dictionaries(files, st.just(1001), max_size=1)
operator_tables = st.dictionaries(st.sampled_from(NAMES), names, max_size=1).filter(
    lambda table: not table.keys() & set(table.values())
)


@dataclass
class Directory:
    """What lies in the drop directory: each file's last valid recipe.

    `owners` are those of files whose owner nobody has drawn; 1000 otherwise.
    """

    contents: dict[str, Recipe] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)

    def sightings(
        self,
        drawn: Iterable[Operation],
        *,
        mtimes: Mapping[str, int],
        owners: Mapping[str, int],
    ) -> tuple[Sighting, ...]:
        """Read operations against what lies here, carry them out, and return what a scan finds."""
        found: dict[str, Found] = {}
        for operation in drawn:
            for file, content in self._read(operation).items():
                if file not in found:
                    found[file] = self._write(file, content)
        return tuple(
            Sighting(
                file=file,
                found=content,
                mtime_ns=mtimes.get(file, 0),
                owner=owners.get(file, self.owners.get(file, 1000)),
            )
            for file, content in found.items()
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
        if not self.contents:
            return {}
        if file not in self.contents:
            # Some file that is there, so that few operations do nothing.
            there = sorted(self.contents)
            file = there[FILES.index(file) % len(there)]
        known = self.contents[file]
        if kind in ("swap", "roll"):
            return self._read_of_several(kind, known, file, more[0])
        if kind == "move":
            return {file: None, more[0]: known}
        if kind in ("copy", "join", "adapt"):
            return {more[0]: _another(kind, known, *more[1:])}
        return {file: _edited(kind, known, *more)}

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


def _another(kind: str, known: Recipe, *more: Any) -> Recipe:
    if kind == "join":
        return changed(known, "instance", *more)
    return known if kind == "copy" else adapted(known, *more)


def _edited(kind: str, known: Recipe, change: tuple[str, object] | None = None) -> Recipe | Found:
    if kind == "forbid":
        return forbidden(card(**known))
    if kind == "expire":
        return expired(card(**known))
    return known if change is None else changed(known, *change)


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


def adapted(recipe: Recipe, suffix: str, name: str) -> Recipe:
    """Return a recipe for an adapter that suits a base, its name apart."""
    base = key(recipe["at"]).base
    return {"at": f"{base}/{suffix}", "lora": True, "name": name, "source": recipe["source"]}


def renamed(recipe: Recipe, other: Recipe) -> Recipe:
    """Return the recipe with the names of another."""
    return {**recipe, "name": other["name"], "aliases": other.get("aliases", ())}
