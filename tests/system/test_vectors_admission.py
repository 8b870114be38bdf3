"""The rule book's vectors of admission and catalogue, which tell stories, through a daemon process.

Each story is one function below, named after the vector's id. Groups and cohorts are made of
envelopes in the drop directory; "sum P" and "sum Q" differ in their kv_cache_block_size.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from discoveryd.client import NoSuchModel
from discoveryd.interface import Verdict
from tests.system.dropping import DATA, Host, Json, envelope

Story = Callable[["Stage"], None]
STORIES: dict[str, Story] = {}

DEVIATIONS = {
    "adm-010": "an edit under the same key is judged, and accepted it replaces the old version",
    "adm-014": "a card with an empty name is invalid",
    "cat-012": "a clash over an adapter's name blocks that adapter alone, never its base",
    "cat-016": "a blocked card is judged again at once when the name's owner leaves",
}
"""Where the story ends otherwise than in Dynamo; its function asserts our end."""


class Stage:
    """Writes cards of workers 1, 2 ... on one endpoint, and says what became of them."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def add(  # noqa: PLR0913 - what the stories speak of, by keyword
        self,
        worker: int,
        primary: str = "m",
        *,
        aliases: Sequence[str] = (),
        block: int = 1,
        source: str = "S",
        namespace: str = "ns",
        adapter_of: int | None = None,
        suffix: str | None = None,
        **members: object,
    ) -> Verdict:
        """Write a worker's card, or that of an adapter on the worker `adapter_of`."""
        card: Json = {
            "display_name": primary,
            "source_path": source,
            "aliases": list(aliases),
            "kv_cache_block_size": block,
        } | members
        others: Json = {} if suffix is None else {"model_suffix": suffix}
        if adapter_of is not None:
            card["lora"] = {"name": primary}
            others["model_suffix"] = primary
        instance = worker if adapter_of is None else adapter_of
        return self.host.put(str(worker), envelope(f"{namespace}/c/e/{instance}", card, **others))

    def remove(self, worker: int) -> None:
        """Remove a card."""
        self.host.remove(self.host.cards / f"{worker}.json")

    def admitted(self, name: str = "m") -> list[int] | None:
        """Return the numbers of the cards that serve a name; None where nobody does."""
        try:
            workers = self.host.client.resolve(name).workers
        except NoSuchModel:
            return None
        return [self._number(worker.file) for worker in workers]

    def standing(self, standing: str) -> list[int]:
        """Return the numbers of the cards that have this standing."""
        verdicts = self.host.client.explain().verdicts
        return sorted(self._number(v.file) for v in verdicts if v.standing == standing)

    def resolved(self, name: str) -> str:
        """Return the primary or adapter that the name stands for."""
        return self.host.client.resolve(name).model

    @staticmethod
    def _number(file: str) -> int:
        return int(file.rpartition("/")[2].removesuffix(".json"))


def story(identity: str) -> Callable[[Story], Story]:
    def register(function: Story) -> Story:
        STORIES[identity] = function
        return function

    return register


def vectors() -> list[dict[str, Any]]:
    whole = json.loads((DATA / "vectors" / "rulebook.json").read_bytes())
    return [v for v in whole["vectors"] if v["stage"] in ("admission", "catalogue")]


def test_every_vector_has_its_story() -> None:
    assert STORIES.keys() == {vector["id"] for vector in vectors()}
    assert DEVIATIONS.keys() <= STORIES.keys()


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["id"])
def test_admission_and_catalogue(host: Host, vector: dict[str, Any]) -> None:
    STORIES[vector["id"]](Stage(host))


@story("adm-001")
def equal_cards_serve_together(on: Stage) -> None:
    on.add(1)
    on.add(2)
    assert on.admitted() == [1, 2]


@story("adm-002")
def another_source_stands_by(on: Stage) -> None:
    on.add(1, source="/model/one")
    on.add(2, source="/model/two")
    assert (on.admitted(), on.standing("standby")) == ([1], [2])


@story("adm-003")
def a_larger_cohort_waits(on: Stage) -> None:
    for worker, block in ((1, 1), (2, 2), (3, 2), (4, 2)):
        on.add(worker, block=block)
    assert (on.admitted(), on.standing("standby")) == ([1], [2, 3, 4])


@story("adm-004")
def the_oldest_cohort_succeeds(on: Stage) -> None:
    for worker in (1, 2, 3):
        on.add(worker, block=worker)
    on.remove(1)
    assert (on.admitted(), on.standing("standby")) == ([2], [3])


@story("adm-005")
def a_cohort_that_emptied_queues_anew(on: Stage) -> None:
    for worker in (1, 2, 3):
        on.add(worker, block=worker)
    on.remove(2)
    on.add(4, block=2)
    on.remove(1)
    assert (on.admitted(), on.standing("standby")) == ([3], [4])


@story("adm-006")
def other_aliases_stand_by(on: Stage) -> None:
    on.add(1, aliases=["x"])
    on.add(2, aliases=["y"])
    assert (on.admitted("m"), on.admitted("x"), on.admitted("y")) == ([1], [1], None)
    assert on.standing("standby") == [2]


@story("adm-007")
def namespaces_have_cohorts_of_their_own(on: Stage) -> None:
    on.add(1, namespace="dgd-v1", source="/models/dgd-v1")
    on.add(2, namespace="dgd-v2", source="/models/dgd-v2")
    assert on.admitted() == [1, 2]


@story("adm-008")
def two_primaries_of_one_source_have_groups_of_their_own(on: Stage) -> None:
    on.add(1, "alias-a")
    on.add(2, "alias-b")
    assert (on.admitted("alias-a"), on.admitted("alias-b")) == ([1], [2])


@story("adm-009")
def one_of_them_leaves(on: Stage) -> None:
    two_primaries_of_one_source_have_groups_of_their_own(on)
    on.remove(1)
    assert (on.admitted("alias-a"), on.admitted("alias-b")) == (None, [2])


@story("adm-010")
def an_edit_in_place_is_accepted(on: Stage) -> None:
    on.add(1, block=1)
    (before,) = on.host.client.workers().workers
    verdict = on.add(1, block=2)
    (after,) = on.host.client.workers().workers
    assert (verdict.standing, verdict.serves) == ("serving", "current")
    assert after.key == before.key
    assert after.fingerprint != before.fingerprint


@story("adm-011")
def taints_are_not_structural(on: Stage) -> None:
    on.add(1, runtime_config={"taints": []})
    on.add(2)
    assert on.add(1, runtime_config={"taints": ["gpu=a"]}).standing == "serving"
    assert on.admitted() == [1, 2]


@story("adm-012")
def half_adapters_are_not_served(on: Stage) -> None:
    halves = [on.add(1, "a", suffix="a", lora=None), on.add(2, "b", lora={"name": "b"})]
    assert [half.standing for half in halves] == ["orphan", "orphan"]
    assert [half.reasons[0].rule for half in halves] == ["half_adapter", "half_adapter"]
    assert on.host.client.list().names == ()


@story("adm-014")
def an_empty_name_is_not_served(on: Stage) -> None:
    verdict = on.add(1, "")
    assert verdict.standing == "invalid"
    assert [reason.field for reason in verdict.reasons] == ["$.card_json.display_name"]
    assert on.host.client.list().names == ()


@story("cat-001")
def an_alias_stands_for_its_primary(on: Stage) -> None:
    on.add(1, "llama", aliases=["llama-alias"])
    assert (on.resolved("llama-alias"), on.resolved("llama")) == ("llama", "llama")


@story("cat-002")
def a_group_that_may_not_have_its_alias_is_blocked_whole(on: Stage) -> None:
    on.add(1, "taken")
    on.add(2, "candidate", aliases=["taken"], namespace="other")
    assert on.standing("blocked") == [2]
    assert (on.resolved("taken"), on.admitted("candidate")) == ("taken", None)


@story("cat-003")
def a_claimed_alias_cannot_become_a_primary(on: Stage) -> None:
    on.add(1, "a", aliases=["shared"])
    on.add(2, "shared", namespace="other")
    assert (on.standing("blocked"), on.resolved("shared")) == ([2], "a")


@story("cat-004")
def the_first_claim_on_an_alias_wins(on: Stage) -> None:
    on.add(1, "a", aliases=["s"])
    on.add(2, "b", aliases=["s"], namespace="other")
    assert (on.standing("blocked"), on.resolved("s")) == ([2], "a")
    assert on.admitted("b") is None


@story("cat-005")
def one_primary_has_its_alias_in_two_namespaces(on: Stage) -> None:
    on.add(1, "a", aliases=["s"], namespace="ns1")
    on.add(2, "a", aliases=["s"], namespace="ns2")
    assert on.resolved("s") == "a"
    assert (on.admitted("a"), on.admitted("s")) == ([1, 2], [1, 2])


@story("cat-006")
def namespaces_do_not_separate_names(on: Stage) -> None:
    on.add(1, "a", aliases=["s"], namespace="ns1")
    on.add(2, "b", aliases=["s"], namespace="ns2")
    assert on.standing("blocked") == [2]


@story("cat-007")
def an_alias_lives_until_its_last_worker_leaves(on: Stage) -> None:
    one_primary_has_its_alias_in_two_namespaces(on)
    on.remove(1)
    assert (on.resolved("s"), on.admitted("s")) == ("a", [2])
    on.remove(2)
    assert on.admitted("s") is None


@story("cat-009")
def the_own_primary_as_alias_has_no_effect(on: Stage) -> None:
    on.add(1, "a", aliases=["a", "b"])
    assert (on.resolved("a"), on.resolved("b")) == ("a", "a")
    kinds = {line.name: line.kind for line in on.host.client.list().names}
    assert kinds == {"a": "primary", "b": "alias"}


@story("cat-010")
def names_are_case_sensitive(on: Stage) -> None:
    on.add(1, "Llama")
    with pytest.raises(NoSuchModel) as missing:
        on.host.client.resolve("llama")
    assert missing.value.similar == ("Llama",)


@story("cat-012")
def one_adapter_name_under_two_primaries_blocks_the_second_adapter(on: Stage) -> None:
    on.add(1, "a")
    on.add(2, "x", adapter_of=1)
    on.add(3, "b")
    verdict = on.add(4, "x", adapter_of=3)
    assert (verdict.standing, verdict.reasons[0].rule) == ("blocked", "name_claimed")
    assert (on.admitted("x"), on.admitted("a"), on.admitted("b")) == ([2], [1], [3])


@story("cat-013")
def an_adapter_name_cannot_become_a_primary(on: Stage) -> None:
    on.add(1, "a")
    on.add(2, "x", adapter_of=1)
    on.add(3, "x", namespace="other")
    assert (on.standing("blocked"), on.admitted("x")) == ([3], [2])


@story("cat-016")
def the_next_claimant_has_the_name_at_once(on: Stage) -> None:
    the_first_claim_on_an_alias_wins(on)
    on.remove(1)
    assert (on.resolved("s"), on.admitted("b")) == ("b", [2])
