"""Sync, Check and Explain: what was written is known, what would be is told, and why."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from discoveryd.client import NoSuchFile, NoSuchModel
from discoveryd.interface import Explanation, NameList, WorkerList
from tests.system.dropping import Host, Json, envelope, instance_record, store_name, write

# Sync


def test_what_was_written_before_a_sync_is_answered_after_it(host: Host) -> None:
    path = host.cards / "model.json"
    for number in range(200):
        write(path, {"display_name": f"model-{number}"})
        (verdict,) = host.client.sync(str(path)).verdicts
        assert (verdict.standing, verdict.model) == ("serving", f"model-{number}")
        assert host.client.resolve(f"model-{number}").workers
        with pytest.raises(NoSuchModel):
            host.client.resolve(f"model-{number - 1}")


def in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def by_hard_link(path: Path, content: bytes) -> None:
    beside = path.with_name("beside")
    beside.write_bytes(content)
    path.unlink(missing_ok=True)
    os.link(beside, path)
    beside.unlink()


def by_copy(path: Path, content: bytes) -> None:
    beside = path.parent.parent / "original"
    beside.write_bytes(content)
    shutil.copy2(beside, path)


def delete_and_create(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def with_the_old_time(path: Path, content: bytes) -> None:
    times = path.stat() if path.exists() else None
    path.write_bytes(content)
    if times is not None:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    "put", [in_place, by_hard_link, by_copy, delete_and_create, with_the_old_time]
)
def test_every_way_to_write_is_seen_by_a_sync_of_the_file(host: Host, put: object) -> None:
    assert callable(put)
    path = host.cards / "model.json"
    for number in range(20):
        put(path, b'{"display_name": "model-%d"}' % (number % 10))
        host.client.sync("model.json")
        assert host.client.resolve(f"model-{number % 10}").workers


def test_a_sync_without_files_looks_at_everything_and_counts(host: Host) -> None:
    write(host.cards / "a.json", {"display_name": "a", "component": "c"})
    write(host.cards / "b.json", {"display_name": "b", "component": "c"})
    write(host.cards / "bad.json", b"{")
    at = "demo/backend/generate/1"
    write(host.mdc / store_name(at), envelope(at, {"display_name": "worker"}))
    reply = host.client.sync()
    assert reply.verdicts == ()
    assert reply.standings == {"serving": 1, "refused": 1, "invalid": 1, "orphan": 1}
    assert reply.standings == host.client.status().standings
    assert reply.cursor == host.client.list().cursor
    for name in ("a", "b", "bad"):
        (host.cards / f"{name}.json").unlink()
    write(host.instances / store_name(at), instance_record(at))
    assert host.client.sync().standings == {"serving": 1}


def test_a_touch_or_a_rewrite_of_equal_bytes_is_no_revision(host: Host) -> None:
    host.put("model", {"display_name": "model"})
    before = host.client.sync().cursor
    (host.cards / "model.json").touch()
    write(host.cards / "model.json", {"display_name": "model"})
    assert host.client.sync("model.json").cursor == before


def test_a_sync_names_files_by_path_or_name_and_answers_in_their_order(host: Host) -> None:
    for name in ("a", "b"):
        write(host.cards / f"{name}.json", {"display_name": name})
    reply = host.client.sync("b.json", str(host.cards / "a.json"), "b.json")
    assert [verdict.model for verdict in reply.verdicts] == ["b", "a"]
    with pytest.raises(NoSuchFile) as missing:
        host.client.sync("a.json", "c.json")
    assert missing.value.file == "c.json"


# Check


def everything(host: Host) -> tuple[NameList, WorkerList, Explanation]:
    return host.client.list(), host.client.workers(), host.client.explain()


CHECKS: list[tuple[Json, str | None, str, str | None]] = [
    # the card, the file it would lie in, its standing, and the first reason's rule
    ({"display_name": "new"}, None, "serving", None),
    ({"display_name": "new"}, "new.json", "serving", None),
    ({"display_name": "b", "component": "c"}, None, "refused", "no_source"),
    ({"display_name": "b", "aliases": ["x"]}, None, "blocked", "name_claimed"),
    ({"display_name": "a", "component": "c", "context_length": 9}, None, "standby", None),
    ({"display_name": "a", "component": "c", "context_length": 9}, "a.json", "serving", None),
    ({"display_name": "b", "component": "c"}, "a.json", "serving", None),
    ({"display_name": "a", "component": "c", "instance": "a"}, None, "duplicate", "duplicate_key"),
    (
        {"display_name": "l", "lora": {}, "source_path": "s", "instance": "i"},
        None,
        "orphan",
        "no_base",
    ),
    ({"display_name": ""}, None, "invalid", "bad_name"),
    ({}, "a.json", "invalid", "missing"),
]


@pytest.mark.parametrize(("card", "file", "standing", "rule"), CHECKS)
def test_check_says_what_would_be_and_changes_nothing(
    host: Host, card: Json, file: str | None, standing: str, rule: str | None
) -> None:
    host.put("a", {"display_name": "a", "component": "c", "aliases": ["x"], "instance": "a"})
    before = everything(host)
    reply = host.client.check(card, file)
    assert reply.verdict.standing == standing
    if rule is not None:
        assert reply.verdict.reasons[0].rule == rule
    if standing == "invalid" and file is not None:
        assert reply.verdict.serves == "previous"
    assert reply.would_displace == ()
    assert reply.verdict.owner_uid == os.geteuid()
    assert reply.cursor == before[0].cursor
    assert everything(host) == before

    # It is what then happens.
    name = "unheard-of" if file is None else file.removesuffix(".json")
    happened = host.put(name, card)
    assert (happened.standing, happened.serves) == (standing, reply.verdict.serves)


def test_check_names_whose_last_version_would_yield(host: Host) -> None:
    host.put("a", {"display_name": "a"})
    host.put("b", {"display_name": "b", "aliases": ["x"]})
    kept = host.put("a", {"display_name": "a", "aliases": ["x"]})
    assert (kept.standing, kept.serves) == ("blocked", "previous")
    claimant = {"display_name": "c", "aliases": ["a"]}
    reply = host.client.check(claimant)
    assert (reply.verdict.standing, reply.would_displace) == ("serving", (kept.file,))
    assert host.client.resolve("a").model == "a"
    host.put("c", claimant)
    assert host.client.resolve("a").model == "c"
    assert host.verdict_of(host.cards / "a.json").serves == "nothing"


def test_check_keeps_the_cards_bytes(host: Host) -> None:
    twice = msgspec.Raw(b'{"display_name": "a", "display_name": "b"}')
    verdict = host.client.check(twice).verdict
    assert verdict.model == "b"
    assert verdict.warnings


def test_check_of_a_stores_file_takes_its_key_from_the_name(host: Host) -> None:
    at = "demo/backend/generate/1"
    host.put_in_store(at, envelope(at, {"display_name": "worker"}))
    edit = envelope("demo/other/generate/2", {"display_name": "renamed"})
    verdict = host.client.check(edit, str(host.mdc / store_name(at))).verdict
    assert verdict.key == at
    assert verdict.standing == "serving"


# Explain


def test_explain_without_arguments_tells_of_all_that_do_not_serve_their_present_content(
    host: Host,
) -> None:
    host.put("good", {"display_name": "good"})
    host.put("torn", {"display_name": "torn"})
    host.put("torn", b"{")
    host.put("refused", {"display_name": "r", "component": "good"})
    verdicts = host.client.explain().verdicts
    said = {v.file.rpartition("/")[2]: (v.standing, v.serves) for v in verdicts}
    assert said == {"torn.json": ("invalid", "previous"), "refused.json": ("refused", "nothing")}
    assert [v.model for v in verdicts if v.standing == "invalid"] == ["torn"]


def test_explain_of_a_file_tells_its_verdict_serving_or_not(host: Host) -> None:
    put = host.put("good", {"display_name": "good", "aliases": ["x"], "alias": "y"})
    for name in ("good.json", str(host.cards / "good.json")):
        (verdict,) = host.client.explain(file=name).verdicts
        assert verdict == put
    assert (put.names, put.standing, put.serves) == (("good", "x"), "serving", "current")
    assert put.owner_uid == os.geteuid()
    assert put.since.endswith("+00:00")
    assert [warning.split(":")[0] for warning in put.warnings] == ["$.alias"]
    for name in ("none.json", str(host.cards / "none.json"), "/elsewhere/good.json", ""):
        with pytest.raises(NoSuchFile):
            host.client.explain(file=name)


def test_explain_of_a_name_tells_of_all_who_ask_for_it(host: Host) -> None:
    host.put("first", {"display_name": "a", "aliases": ["x"]})
    host.put("second", {"display_name": "x"})
    verdicts = host.client.explain(name="x").verdicts
    assert sorted((v.model, v.standing) for v in verdicts) == [("a", "serving"), ("x", "blocked")]
    with pytest.raises(NoSuchModel) as missing:
        host.client.explain(name="X")
    assert missing.value.similar == ("x",)
    assert missing.value.waiting == ()


def test_a_miss_tells_who_waits_and_how_many_more(host: Host) -> None:
    host.put("first", {"display_name": "first", "component": "c"})
    for number in range(12):
        write(host.cards / f"{number:02}.json", {"display_name": "late", "component": "c"})
    host.client.sync()
    with pytest.raises(NoSuchModel) as missing:
        host.client.resolve("late")
    assert len(missing.value.waiting) == 10
    assert missing.value.more_waiting == 2
    assert {verdict.standing for verdict in missing.value.waiting} == {"refused"}


def test_similar_names_are_told(host: Host) -> None:
    for number, name in enumerate(["Org/Llama-3.1-8B", "org/other-1", "Café"]):
        host.put(str(number), {"display_name": name})
    for asked, meant in (
        ("llama-3.1-8b", "Org/Llama-3.1-8B"),
        ("org/llama_3.1_8b", "Org/Llama-3.1-8B"),
        ("OTHER 1", "org/other-1"),
        ("cafe\u0301", "Café"),
    ):
        with pytest.raises(NoSuchModel) as missing:
            host.client.resolve(asked)
        assert missing.value.similar == (meant,), asked


def test_a_draining_worker_keeps_its_name_and_leaves_the_answers(host: Host) -> None:
    card: Json = {"display_name": "m", "url": "http://127.0.0.1:1"}
    host.put("m", card)
    host.put("m", card | {"accepting": False})
    resolution = host.client.resolve("m")
    assert (resolution.workers, resolution.ready) == ((), False)
    assert [worker.accepting for worker in host.client.workers("m").workers] == [False]
    assert host.put("claimant", {"display_name": "other", "aliases": ["m"]}).standing == "blocked"
