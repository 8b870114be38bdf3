"""The pairwise rules in incremental form: the cards on one endpoint, judged by counts.

`rules.py` is the specification; this module must find a conflict exactly where comparing the
newcomer with every card would. It holds a set of cards that are pairwise compatible, and from that
alone follows how little needs to be looked at:

- Bases with different primaries share one non-empty source. So if there are two primaries, all
  bases share that source (any third differs from one of the two); if there is one, sources are
  free. Two counters therefore tell whether a newcomer with another primary suits every base: the
  bases that are not of its primary, and the bases that have its source.
- Alias lists of bases with different primaries are disjoint. So an alias has one primary, and any
  holder of it speaks for all.
- All adapters share one base identity.
- Bases without a source stand beside bases of their own primary only, so if there is one, all bases
  share that primary, and its identity is that name.

Where a conflict exists, one card it conflicts with is found in constant time too.
"""

from discoveryd.core.card import Card, Key
from discoveryd.core.keyindex import KeyIndex


class EndpointCards:
    """Pairwise compatible cards of one endpoint, at most one a key."""

    __slots__ = ("_adapter_names", "_adapters", "_aliases", "_bases", "_primaries", "_sources")

    def __init__(self) -> None:
        self._bases: dict[Key, Card] = {}
        self._adapters: dict[Key, Card] = {}
        self._primaries: KeyIndex[str, Key] = KeyIndex()
        self._sources: KeyIndex[str | None, Key] = KeyIndex()
        self._aliases: KeyIndex[str, Key] = KeyIndex()
        self._adapter_names: KeyIndex[str, Key] = KeyIndex()

    def __len__(self) -> int:
        return len(self._bases) + len(self._adapters)

    def any(self) -> Key | None:
        """Return the key of some card; None where there is none."""
        return self._primaries.sample_besides() or self._adapter_names.sample_besides()

    def add(self, card: Card) -> None:
        """Take the card in. `find_conflict` must have returned None for it."""
        if card.adapter:
            self._adapters[card.key] = card
            self._adapter_names.add(card.display_name, card.key)
            return
        self._bases[card.key] = card
        self._primaries.add(card.display_name, card.key)
        self._sources.add(card.source_path, card.key)
        for alias in card.alternates:
            self._aliases.add(alias, card.key)

    def remove(self, card: Card) -> None:
        """Take the card out. It must be in."""
        if card.adapter:
            del self._adapters[card.key]
            self._adapter_names.discard(card.display_name, card.key)
            return
        del self._bases[card.key]
        self._primaries.discard(card.display_name, card.key)
        self._sources.discard(card.source_path, card.key)
        for alias in card.alternates:
            self._aliases.discard(alias, card.key)

    def replace(self, card: Card) -> None:
        """Put a version in the place of one that no rule can tell from it."""
        (self._adapters if card.adapter else self._bases)[card.key] = card

    def find_conflict(self, card: Card) -> Key | None:
        """Return the key of a card here that `rules.conflict` refuses `card` for, or None.

        No card with the key of `card` may be in.
        """
        if card.adapter:
            return self._adapter_against_adapters(card) or self._adapter_against_bases(card)
        return self._base_against_bases(card) or self._base_against_adapters(card)

    def _base_against_bases(self, card: Card) -> Key | None:
        primary, source = card.display_name, card.source_path
        if len(self._bases) == self._primaries.count(primary):
            return None
        if not source:
            return self._primaries.sample_besides(primary)
        if self._sources.count(source) != len(self._bases):
            if len(self._primaries) > 1:
                return self._primaries.sample_besides(primary)
            return self._sources.sample_besides(source)
        holder = self._aliases.sample(primary)
        if holder is not None and self._bases[holder].display_name != primary:
            return holder
        for alias in card.alternates:
            holder = self._primaries.sample(alias)
            if holder is None:
                holder = self._aliases.sample(alias)
                if holder is None or self._bases[holder].display_name == primary:
                    continue
            return holder
        return None

    def _base_against_adapters(self, card: Card) -> Key | None:
        if not self._adapters:
            return None
        conflict = self._adapter_with_another_identity(card.identity)
        if conflict is not None:
            return conflict
        for name in card.names:
            holder = self._adapter_names.sample(name)
            if holder is not None:
                return holder
        return None

    def _adapter_against_adapters(self, card: Card) -> Key | None:
        if not self._adapters:
            return None
        return self._adapter_with_another_identity(card.identity)

    def _adapter_against_bases(self, card: Card) -> Key | None:
        if not self._bases:
            return None
        name, identity = card.display_name, card.identity
        holder = self._primaries.sample(name) or self._aliases.sample(name)
        if holder is not None:
            return holder
        sourceless = self._sources.sample(None)
        if sourceless is not None and self._bases[sourceless].identity != identity:
            return sourceless
        return self._sources.sample_besides(None, identity)

    def _adapter_with_another_identity(self, identity: str) -> Key | None:
        holder = self._adapter_names.sample_besides()
        if holder is not None and self._adapters[holder].identity != identity:
            return holder
        return None
