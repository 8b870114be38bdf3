"""publish, withdraw, drain and undrain, at a real daemon."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from discoveryd.client.ctl.cli import run
from discoveryd.client.workers.publishing import publish
from tests.client.users import NOBODY, needs_root, nobody
from tests.system.conftest import Start
from tests.system.dropping import Host, Json, envelope, write

LLAMA: Json = {
    "display_name": "llama",
    "aliases": ["chat"],
    "source_path": "/models/llama",
    "url": "http://127.0.0.1:8001",
}


def card(port: int, **members: object) -> Json:
    return {**LLAMA, "url": f"http://127.0.0.1:{port}", **members}


class Done(NamedTuple):
    """What a command did."""

    status: int
    out: list[str]
    err: list[str]


Command = Callable[..., Done]


@pytest.fixture
def command(host: Host, capsys: pytest.CaptureFixture[str]) -> Command:
    """Give a function that runs discoveryctl at the host's daemon."""

    def call(*arguments: object) -> Done:
        status = run(["--socket", str(host.daemon.socket), *map(str, arguments)])
        said = capsys.readouterr()
        return Done(status, said.out.splitlines(), said.err.splitlines())

    return call


def files(host: Host) -> list[str]:
    return sorted(path.name for path in host.cards.iterdir())


@pytest.fixture
def llama(root: Path) -> Path:
    """Give a card file that lies elsewhere."""
    path = root / "llama.json"
    path.write_text(json.dumps(LLAMA))
    return path


# publish


def test_a_card_is_published_as_it_is(host: Host, command: Command, llama: Path) -> None:
    done = command("publish", llama)
    assert (done.status, done.err) == (0, [])
    assert done.out[:2] == [f"{host.cards}/llama.json: serving", "  asks for: llama, chat"]
    assert (host.cards / "llama.json").read_bytes() == llama.read_bytes()
    assert host.workers("chat")


def test_a_card_that_does_not_serve_says_why(host: Host, command: Command, llama: Path) -> None:
    host.put("first", card(8002))
    llama.write_text(json.dumps({"display_name": "other", "aliases": ["chat"]}))
    done = command("publish", llama)
    assert done.status == 1
    assert done.out[0] == f"{host.cards}/llama.json: blocked"
    assert any("first.json" in line for line in done.out)
    assert files(host) == ["first.json", "llama.json"]


def test_a_card_comes_from_the_standard_input(
    host: Host, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(LLAMA).encode())))
    done = command("publish", "-", "--as", "mine.json", "--json")
    assert done.status == 0
    assert json.loads(done.out[0])["verdicts"][0]["file"] == f"{host.cards}/mine.json"
    assert files(host) == ["mine.json"]


def test_what_is_no_card_at_all_is_not_published(host: Host, command: Command, llama: Path) -> None:
    for content, why in (
        (b'{"a": ', "the card is cut off"),
        (b"[1]", "the card is a list"),
        (b"", "the card is empty"),
        (b" " * (1 << 21), "a card holds at most"),
    ):
        llama.write_bytes(content)
        done = command("publish", llama)
        assert (done.status, done.out) == (1, [])
        assert done.err[0].startswith(f"discoveryctl: {llama}: ")
        assert why in done.err[0]
    assert files(host) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-"], "--as NAME.json"),
        (["llama.json", "--as", "llama.txt"], "must end in .json"),
        (["card.txt"], "must end in .json"),
        (["none.json"], "does not exist"),
    ],
)
def test_a_name_that_the_daemon_would_pass_over_is_wrong_usage(
    host: Host, command: Command, llama: Path, arguments: list[str], why: str
) -> None:
    (llama.parent / "card.txt").write_text("{}")
    with contextlib.chdir(llama.parent):
        done = command("publish", *arguments)
    assert done.status == 2
    assert why in " ".join(done.err)
    assert files(host) == []


@needs_root
def test_where_there_is_nowhere_to_write_each_place_is_told(
    host: Host, command: Command, llama: Path
) -> None:
    command("status")
    host.daemon.root.chmod(0o755)
    llama.parent.chmod(0o755)
    host.daemon.socket.chmod(0o666)
    try:
        with nobody():
            done = command("publish", llama)
    finally:
        host.daemon.socket.chmod(0o600)
        host.daemon.root.chmod(0o700)
    assert done.status == 1
    assert done.err == [
        "discoveryctl: there is no drop directory to write a card to; tried:",
        f"  {host.cards}: only root may write there",
    ]


# withdraw


@pytest.mark.parametrize("told", ["llama.json", "elsewhere/llama.json", "{cards}/llama.json"])
def test_a_card_is_withdrawn_and_its_names_are_counted(
    host: Host, command: Command, told: str
) -> None:
    host.put("llama", card(8001, aliases=["chat", "gone"]))
    host.put("other", card(8002))
    done = command("withdraw", told.format(cards=host.cards))
    assert (done.status, done.err) == (0, [])
    assert done.out == [
        f"{host.cards}/llama.json: withdrawn",
        "  llama: 1 worker",
        "  chat: 1 worker",
        "  gone: nobody",
    ]
    assert files(host) == ["other.json"]


def test_a_name_that_draining_workers_keep_is_told_from_a_free_one(
    host: Host, command: Command
) -> None:
    host.put("llama", card(8001, aliases=["chat"]))
    host.put("other", card(8002, accepting=False, aliases=[]))
    done = command("withdraw", "llama.json")
    assert done.out[1:] == ["  llama: nobody, but workers that drain keep it", "  chat: nobody"]
    host.put("llama", card(8001, aliases=[]))
    assert json.loads(command("withdraw", "llama.json", "--json").out[0])["workers"]["llama"] == 0


def test_what_was_published_stays_where_it_came_from(
    host: Host, command: Command, llama: Path
) -> None:
    command("publish", llama)
    done = command("withdraw", llama, "--json")
    assert done.status == 0
    assert json.loads(done.out[0])["workers"] == {"llama": 0, "chat": 0}
    assert llama.exists()
    assert files(host) == []


def test_a_card_that_is_not_there_is_told(command: Command) -> None:
    done = command("withdraw", "none.json")
    assert done == (1, [], ["discoveryctl: there is no card none.json in a drop directory"])


def test_of_several_cards_of_that_name_one_must_be_said(
    root: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [root / "a", root / "b"]
    for place in places:
        place.mkdir()
        publish(LLAMA, "llama.json", str(place))
    flags = [part for place in places for part in ("--cards", str(place))]
    daemon = start([*flags, "--socket", str(root / "s")]).wait_ready()
    at = ["--socket", str(daemon.socket), "withdraw"]
    assert run([*at, "llama.json"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "discoveryctl: there are several cards of that name; say which:",
        f"  {root}/a/llama.json",
        f"  {root}/b/llama.json",
    ]
    assert run([*at, f"{root}/b/llama.json"]) == 0
    assert (root / "a/llama.json").exists()
    assert not (root / "b/llama.json").exists()


# drain and undrain


def accepting(host: Host) -> dict[str, bool]:
    """Return whether each worker accepts, by the name of its file."""
    return {Path(worker.file).name: worker.accepting for worker in host.client.workers().workers}


def test_all_workers_of_a_name_drain_and_come_back(host: Host, command: Command) -> None:
    host.put("one", card(8001))
    host.put("two", card(8002))
    host.put("other", {"display_name": "other"})
    done = command("drain", "chat")
    assert (done.status, done.err) == (0, [])
    assert done.out == [f"{host.cards}/one.json: draining", f"{host.cards}/two.json: draining"]
    assert accepting(host) == {"one.json": False, "two.json": False, "other.json": True}
    assert host.workers("chat") == []

    done = command("drain", "chat")
    assert done.status == 0
    assert done.out[0] == f"{host.cards}/one.json: draining already"

    done = command("undrain", "llama")
    assert (done.status, done.out[1]) == (0, f"{host.cards}/two.json: accepting")
    assert accepting(host) == {"one.json": True, "two.json": True, "other.json": True}


def test_one_worker_drains_by_its_key(host: Host, command: Command) -> None:
    host.put("one", card(8001))
    key = host.put("two", card(8002)).key
    done = command("drain", key, "--json")
    assert done.status == 0
    told = json.loads(done.out[0])
    assert [verdict["key"] for verdict in told["verdicts"]] == [key]
    assert (told["unchanged"], told["untouched"]) == ([], [])
    assert accepting(host) == {"one.json": True, "two.json": False}


def test_draining_changes_nothing_else_in_a_file(host: Host, command: Command) -> None:
    path = host.cards / "one.json"
    members = b'"display_name":"llama","x":123456789012345678901234567890,"y":{"a":1,"a": 1.10}'
    write(path, b"{" + members + b"}")
    path.chmod(0o640)
    host.verdict_of(path)
    command("drain", "llama")
    assert path.read_bytes() == b"{" + members + b',"accepting":false}'
    assert path.stat().st_mode & 0o777 == 0o640
    command("undrain", "llama")
    assert path.read_bytes() == b"{" + members + b',"accepting":true}'


def test_an_envelope_drains_beside_its_card(host: Host, command: Command) -> None:
    host.put("one", envelope("ns/comp/ep/1f", {"display_name": "llama"}))
    assert command("drain", "llama").status == 0
    assert accepting(host) == {"one.json": False}
    written = json.loads((host.cards / "one.json").read_bytes())
    assert written["accepting"] is False
    assert written["card_json"] == {"display_name": "llama"}


def test_a_dynamo_stores_files_are_left_to_dynamo(host: Host, command: Command) -> None:
    host.put("one", card(8001))
    at = "dynamo/backend/generate/1f"
    verdict = host.put_in_store(at, envelope(at, {"display_name": "other"}))
    assert verdict.standing == "serving"
    file = verdict.file
    before = Path(file).read_bytes()
    done = command("drain", "other")
    assert (done.status, done.out) == (1, [])
    assert done.err == [
        f"discoveryctl: not touched: {file}: lies in a Dynamo store, where only Dynamo writes"
    ]
    assert Path(file).read_bytes() == before


@needs_root
def test_only_ones_own_files_are_touched_and_root_leaves_them_their_owner(
    host: Host, command: Command
) -> None:
    command("status")
    publish(card(8001), "theirs.json", str(host.cards))
    own = Path(publish(card(8002), "own.json", str(host.cards)))
    os.chown(own, NOBODY, NOBODY)
    host.client.sync()
    host.daemon.root.chmod(0o755)
    host.cards.chmod(0o1777)
    host.daemon.socket.chmod(0o666)
    try:
        with nobody():
            done = command("drain", "llama")
            assert (done.status, done.out) == (0, [f"{own}: draining"])
            assert done.err == [
                f"discoveryctl: not touched: {host.cards}/theirs.json: belongs to root"
            ]
        assert accepting(host) == {"theirs.json": True, "own.json": False}
        done = command("undrain", "llama")
        assert (done.status, len(done.out), done.err) == (0, 2, [])
        assert own.stat().st_uid == NOBODY
        own.unlink()
        with nobody():
            assert command("drain", "llama").status == 1
    finally:
        host.daemon.socket.chmod(0o600)
        host.cards.chmod(0o755)
        host.daemon.root.chmod(0o700)


def test_where_nobody_serves_the_name_it_says_who_waits(host: Host, command: Command) -> None:
    host.put("one", card(8001))
    done = command("drain", "Llama")
    assert done.status == 1
    assert done.err == ["discoveryctl: nobody serves Llama", "did you mean: llama"]


def test_a_file_that_was_torn_since_is_not_touched(host: Host, command: Command) -> None:
    host.put("one", card(8001))
    host.put("one", b'{"display_name": "lla')
    done = command("drain", "llama")
    assert done.status == 1
    assert done.err == [
        f"discoveryctl: not touched: {host.cards}/one.json: is not one JSON object, {{...}}"
    ]


def test_a_mounted_directory_is_found_by_the_environment(
    root: Path, start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inside, outside = root / "inside", root / "outside"
    inside.mkdir()
    publish(LLAMA, "llama.json", str(inside))
    outside.symlink_to(inside)
    daemon = start(["--cards", str(outside), "--socket", str(root / "s")]).wait_ready()
    with daemon.client() as client:
        client.sync()
        outside.rename(root / "unknown here")
        monkeypatch.setenv("DISCOVERYD_CARDS", str(inside))
        assert run(["--socket", str(daemon.socket), "drain", "llama"]) in (0, 1)
    assert json.loads((inside / "llama.json").read_bytes())["accepting"] is False
    capsys.readouterr()
