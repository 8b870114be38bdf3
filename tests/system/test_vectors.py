"""The rule book's vectors of registration, sequences and checksums, through a daemon process.

Files are dropped as envelopes into the drop directory and again as a Dynamo store, and the answers
are read from the socket. Admission and catalogue are told in prose and stand in
test_vectors_admission.py, the verdicts of the real Dynamo in test_oracle.py.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from discoveryd.interface import Verdict
from tests.system.dropping import DATA, Host, Json, envelope

VECTORS: list[dict[str, Any]] = json.loads((DATA / "vectors" / "rulebook.json").read_bytes())[
    "vectors"
]

DEVIATIONS = {
    "reg-base-025": ("accept", "an existing card that cannot be judged is invalid, harms nobody"),
    "key-001": ("accept", "a changed card under the same key is judged anew, but not by itself"),
    "key-002": ("accept", "and where it is accepted it replaces what was stored"),
}
"""What discoveryd says instead of the real Dynamo, and why (deviations 3 and 4 of dynamo.md)."""

STAGES = {"registration", "sequence", "checksum", "same_key"}
ELSEWHERE = {"admission", "catalogue"}
NOT_OURS = {
    "race": "a single arbiter judges one after another",
    "file": "how Dynamo's own store behaves",
}

Put = Callable[[str, Json, Json], Verdict]
"""Writes the card at a key, with further members for its envelope; returns the verdict."""


def of_stage(stage: str) -> list[dict[str, Any]]:
    return [vector for vector in VECTORS if vector["stage"] == stage]


def test_no_stage_is_forgotten() -> None:
    assert {vector["stage"] for vector in VECTORS} == STAGES | ELSEWHERE | set(NOT_OURS)


@pytest.fixture(params=["cards", "dynamo"])
def put(request: pytest.FixtureRequest, host: Host) -> Put:
    def into_cards(at: str, card: Json, others: Json) -> Verdict:
        return host.put(at.replace("/", "_"), envelope(at, card, **others))

    def into_store(at: str, card: Json, others: Json) -> Verdict:
        return host.put_in_store(at, envelope(at, card, **others))

    return into_cards if request.param == "cards" else into_store


def lay(put: Put, record: Json) -> Verdict:
    others = {"model_suffix": record["model_suffix"]} if "model_suffix" in record else {}
    return put(record["at"], record["card"], others)


def spoken(verdict: Verdict) -> str:
    """Return a standing in the words of the vectors."""
    if verdict.standing == "invalid":
        return "error"
    return "reject" if verdict.standing == "refused" else "accept"


@pytest.mark.parametrize("vector", of_stage("registration"), ids=lambda vector: vector["id"])
def test_registration(put: Put, host: Host, vector: dict[str, Any]) -> None:
    existing = [lay(put, record) for record in vector["existing"]]
    verdict = lay(put, vector["newcomer"])
    expected = DEVIATIONS.get(vector["id"], (vector["expected"]["verdict"], ""))[0]
    assert spoken(verdict) == expected
    against = {file for reason in verdict.reasons for file in reason.against}
    if expected == "reject":
        names = {said.file: said.model for said in existing}
        assert against
        assert {names[file] for file in against} <= set(vector["expected"]["conflicts_with_any_of"])
        assert verdict.serves == "nothing"
    registered = {said.file for said in existing} if vector["id"] != "reg-base-025" else set()
    refused = {v.file for v in host.client.explain().verdicts if v.standing == "refused"}
    assert not registered & refused, "the newcomer has displaced somebody"


@pytest.mark.parametrize("vector", of_stage("sequence"), ids=lambda vector: vector["id"])
def test_sequences(put: Put, host: Host, vector: dict[str, Any]) -> None:
    # Whoever is refused leaves its card lying, and is let in as soon as it may be. The worker that
    # asks again, as in Dynamo it must, finds itself registered.
    files: dict[str, str] = {}
    for step in vector["steps"]:
        if step["op"] == "register":
            verdict = lay(put, step["record"])
            files[step["record"]["at"]] = verdict.file
            assert spoken(verdict) == step["expect"]
        else:
            gone = files.pop(step["at"])
            for directory in (host.cards, host.mdc):
                if gone.startswith(str(directory)):
                    host.remove(directory / gone.rpartition("/")[2])
    refused = {v.file for v in host.client.explain().verdicts if v.standing == "refused"}
    live = {at for at, file in files.items() if file not in refused}
    assert live == set(vector["expected"]["live_at_end"])


@pytest.mark.parametrize("vector", of_stage("same_key"), ids=lambda vector: vector["id"])
def test_a_changed_card_under_the_same_key_replaces_the_old_one(
    put: Put, host: Host, vector: dict[str, Any]
) -> None:
    (existing,) = vector["given"]["existing"]
    lay(put, existing)
    verdict = lay(put, vector["given"]["newcomer"])
    assert spoken(verdict) == DEVIATIONS[vector["id"]][0]
    assert (verdict.standing, verdict.serves, verdict.model) == ("serving", "current", "b")
    assert [line.name for line in host.client.list().names] == ["b"]


@pytest.mark.parametrize("vector", of_stage("checksum"), ids=lambda vector: vector["id"])
def test_checksums(host: Host, vector: dict[str, Any]) -> None:
    host.put("a", envelope("one/c/e/1", vector["card_a"]))
    host.put("b", envelope("two/c/e/1", vector["card_b"]))
    fingerprints = {
        worker.namespace: worker.fingerprint for worker in host.client.workers("m").workers
    }
    assert fingerprints.keys() == {"one", "two"}
    equal = vector["expected"]["checksums_equal"]
    assert (fingerprints["one"] == fingerprints["two"]) == equal


@pytest.mark.parametrize("vector", of_stage("checksum"), ids=lambda vector: vector["id"])
def test_equal_checksums_serve_together_and_others_stand_by(
    host: Host, vector: dict[str, Any]
) -> None:
    host.put("a", envelope("ns/c/e/1", vector["card_a"]))
    verdict = host.put("b", envelope("ns/c/e/2", vector["card_b"]))
    one_group = vector["card_a"]["worker_type"] == vector["card_b"]["worker_type"]
    together = vector["expected"]["checksums_equal"] or not one_group
    assert verdict.standing == ("serving" if together else "standby")
