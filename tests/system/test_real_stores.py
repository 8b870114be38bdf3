"""Stores that released runtimes of Dynamo wrote, served as they lay on disk."""

import json
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from discoveryd.client import NoSuchModel
from tests.system.dropping import DATA, Host, instance_record, store_name, write
from tests.system.running import until

STORES = ["1.4.2", "1.5.0", "1.6.1"]
WITHOUT_RECORD = {"prefill", "plain", "remote"}
"""Components of which the stores hold cards, but no instance record."""

INSTANCE = "7c3ed918996b7eea"
URL = "dynamo+tcp://127.0.0.1:33863/7c3ed918996b7eea/demo/backend/generate"


def lay(host: Host, release: str) -> list[Path]:
    """Copy a store's files, the records first; return the card files."""
    recorded = DATA / "dynamo-store" / release / "v1"
    for directory in (host.instances, host.mdc):
        # Each file is new, as if its worker had just touched it.
        shutil.copytree(
            recorded / directory.name,
            directory,
            copy_function=shutil.copyfile,
            dirs_exist_ok=True,
        )
    host.client.sync()
    return sorted(host.mdc.iterdir())


def component(path: Path) -> str:
    return unquote(path.name).split("/")[1]


@pytest.mark.parametrize("release", STORES)
def test_a_recorded_store_is_served(host: Host, release: str) -> None:
    cards = lay(host, release)
    standings = host.standings()
    present = {component(path) for path in cards}
    assert "backend" in present
    assert WITHOUT_RECORD & present
    for path in cards:
        expected = "orphan" if component(path) in WITHOUT_RECORD else "serving"
        assert standings[path.name] == expected, path.name
    assert host.client.resolve("Org/Tiny-1.5").ready
    assert host.client.resolve("My LoRA/v1").kind == "adapter"
    (status,) = [d for d in host.client.status().directories if d.layout == "dynamo"]
    assert status.files == len(cards)
    assert status.problem is None


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("Org/Tiny-1.5", "primary", "Org/Tiny-1.5"),
        ("tiny", "alias", "Org/Tiny-1.5"),
        ("Tiny Latest", "alias", "Org/Tiny-1.5"),
        ("My LoRA/v1", "adapter", "My LoRA/v1"),
    ],
)
def test_the_names_of_release_1_6_resolve(host: Host, name: str, kind: str, model: str) -> None:
    lay(host, "1.6.1")
    resolution = host.client.resolve(name)
    assert (resolution.kind, resolution.model, resolution.ready) == (kind, model, True)
    (worker,) = resolution.workers
    suffix = "/my_lora_v1" if kind == "adapter" else ""
    assert worker.key == f"demo/backend/generate/{INSTANCE}{suffix}"
    assert (worker.url, worker.instance, worker.source_path) == (URL, INSTANCE, "/models/A")
    assert (worker.model_type, worker.context_length) == ("Chat | Completions", 2048)


@pytest.mark.parametrize("name", ["remote", "/models/A", "Org/Tiny-1.5"])
def test_explain_says_why_a_card_without_instance_record_does_not_serve(
    host: Host, name: str
) -> None:
    lay(host, "1.6.1")
    verdicts = [
        verdict
        for verdict in host.client.explain(name=name).verdicts
        if verdict.standing != "serving"
    ]
    (verdict,) = verdicts
    assert (verdict.standing, verdict.serves, verdict.model) == ("orphan", "nothing", name)
    (reason,) = verdict.reasons
    assert reason.rule == "no_instance"
    assert reason.expected == verdict.key
    assert verdict.key
    assert verdict.key in reason.message


def test_a_name_that_waits_for_its_record_is_missing_and_says_so(host: Host) -> None:
    lay(host, "1.6.1")
    with pytest.raises(NoSuchModel) as missing:
        host.client.resolve("remote")
    (waiting,) = missing.value.waiting
    assert [reason.rule for reason in waiting.reasons] == ["no_instance"]


def test_instance_records_make_the_rest_serve(host: Host) -> None:
    cards = lay(host, "1.6.1")
    for name in sorted(WITHOUT_RECORD):
        at = f"demo/{name}/generate/{INSTANCE}"
        write(host.instances / store_name(at), instance_record(at))
    host.client.sync()
    assert set(host.standings().values()) == {"serving"}
    assert len(host.standings()) == len(cards)
    assert host.client.resolve("remote").workers[0].url == (
        f"dynamo+tcp://127.0.0.1:9000/{INSTANCE}/generate"
    )
    assert len(host.client.resolve("Org/Tiny-1.5").workers) == 2


def test_a_worker_leaves_with_its_record_and_a_replaced_record_withdraws_nobody(
    host: Host,
) -> None:
    lay(host, "1.6.1")
    record = host.instances / store_name(f"demo/backend/generate/{INSTANCE}")
    moved = json.loads(record.read_bytes()) | {"transport": {"tcp": "127.0.0.1:1/elsewhere"}}
    record.unlink()
    host.client.sync()
    assert host.workers("tiny"), "a record is missing for an instant while it is replaced"
    write(record, moved)
    host.client.sync()
    assert host.client.resolve("tiny").workers[0].url == "dynamo+tcp://127.0.0.1:1/elsewhere"

    record.unlink()
    until(lambda: host.workers("tiny") is None, "the worker left with its record")
    assert set(host.standings().values()) == {"orphan"}
