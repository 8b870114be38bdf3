"""Where a daemon looks and listens, and what the operator's configuration adds."""

import os
from pathlib import Path

import pytest

from discoveryd.client import Client
from tests.system.conftest import Start
from tests.system.dropping import GOOD, Host, write
from tests.system.running import Daemon, environment, until, without

SOCKET = "io.discoveryd.Models"


def test_the_environment_names_both_places(root: Path, start: Start) -> None:
    for name in ("one", "two"):
        (root / name).mkdir()
    write(root / "one" / "good.json", GOOD)
    write(root / "two" / "other.json", {"display_name": "other"})
    told = environment(
        DISCOVERYD_CARDS=f"{root}/one:{root}/two", DISCOVERYD_SOCKET=str(root / "there")
    )
    daemon = start([], environ=told, at=root / "there").wait_ready()
    with daemon.client() as client:
        assert [line.name for line in client.list().names] == ["good", "other"]
        paths = [directory.path for directory in client.status().directories]
    assert paths == [f"{root}/one", f"{root}/two"]


def test_flags_win_over_the_environment_and_that_over_the_file(root: Path, start: Start) -> None:
    for name in ("flag", "variable", "file"):
        (root / name).mkdir()
        write(root / name / "card.json", {"display_name": name})
    config = root / "config.toml"
    config.write_text('cards = ["file"]\nsocket = "s-file"\n')
    told = environment(DISCOVERYD_CARDS=f"{root}/variable")
    options = ["--config", str(config)]

    by_file = start(options, environ=environment(), at=root / "s-file").wait_ready()
    with by_file.client() as client:
        assert [line.name for line in client.list().names] == ["file"]
    by_file.stop()
    by_variable = start(options, environ=told, at=root / "s-file").wait_ready()
    with by_variable.client() as client:
        assert [line.name for line in client.list().names] == ["variable"]
    by_variable.stop()
    flags = ["--cards", f"{root}/flag", "--socket", f"{root}/s"]
    by_flag = start(options + flags, environ=told).wait_ready()
    with by_flag.client() as client:
        assert [line.name for line in client.list().names] == ["flag"]


def as_user() -> list[str]:
    """Return what makes the daemon's user another one than root, to whom other places belong."""
    return without("unshare", "--user", "--map-user=1000")


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_a_users_daemon_is_found_where_nobody_says(
    root: Path, start: Start, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    uid = os.geteuid() or 1000
    name = "discoveryd" if variable == "XDG_RUNTIME_DIR" else f"discoveryd-{uid}"
    directory = root / name
    daemon = start(
        [], environ=environment(**{variable: str(root)}), prefix=as_user(), at=directory / SOCKET
    ).wait_ready()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / SOCKET).stat().st_mode & 0o777 == 0o600
    write(directory / "cards" / "good.json", GOOD)
    with daemon.client() as client:
        client.sync()
        assert client.resolve("good").workers

    if os.geteuid() != 0:
        monkeypatch.delenv("DISCOVERYD_SOCKET", raising=False)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setenv(variable, str(root))
        with Client() as client:
            assert client.resolve("good").workers


def test_a_temporary_place_that_others_may_enter_is_not_used(root: Path, start: Start) -> None:
    uid = os.geteuid() or 1000
    (root / f"discoveryd-{uid}").mkdir(mode=0o755)
    daemon = start([], environ=environment(TMPDIR=str(root)), prefix=as_user())
    assert daemon.wait_ended() == 1
    (line,) = daemon.log.splitlines()
    assert "0755" in line
    assert "--cards" in line


def test_several_directories_and_stores_are_one_host(root: Path, start: Start) -> None:
    arguments = ["--socket", str(root / "s")]
    for name in ("one", "two"):
        (root / name).mkdir()
        arguments += ["--cards", str(root / name)]
    write(root / "one" / "card.json", {"display_name": "a", "component": "c", "aliases": ["x"]})
    daemon = start(arguments).wait_ready()
    with daemon.client() as client:
        late = root / "two" / "card.json"
        write(late, {"display_name": "x"})
        (verdict,) = client.sync(str(late)).verdicts
        assert (verdict.standing, verdict.reasons[0].against) == (
            "blocked",
            (f"{root}/one/card.json",),
        )
        assert len(client.explain(file="card.json").verdicts) == 2
        # A card that moves from one directory to the other has left the one and come to the other.
        late.unlink()
        (root / "one" / "card.json").rename(late)
        client.sync()
        assert [worker.file for worker in client.resolve("x").workers] == [str(late)]


@pytest.fixture
def operated(root: Path, start: Start) -> Daemon:
    config = root / "config.toml"
    config.write_text('[aliases]\n"gpt-4o" = "llama"\n"big" = "nobody"\n')
    (root / "cards").mkdir()
    told = ["--config", str(config), "--cards", str(root / "cards"), "--socket", str(root / "s")]
    return start(told).wait_ready()


def test_an_operators_alias_answers_as_its_target(operated: Daemon) -> None:
    with operated.client() as client:
        host = Host(operated, client)
        assert host.workers("gpt-4o") is None
        key = host.put("llama", {"display_name": "llama", "aliases": ["chat"]}).key
        resolution = client.resolve("gpt-4o")
        assert (resolution.kind, resolution.model, resolution.ready) == ("operator", "llama", True)
        assert [worker.key for worker in resolution.workers] == [key]
        lines = {line.name: line.kind for line in client.list().names}
        assert lines == {"llama": "primary", "chat": "alias", "gpt-4o": "operator"}
        assert host.workers("big") is None
        host.remove(host.cards / "llama.json")
        assert host.workers("gpt-4o") is None


@pytest.mark.parametrize("claim", [{"display_name": "gpt-4o"}, {"aliases": ["big"]}])
def test_a_card_that_claims_an_operators_alias_is_blocked(
    operated: Daemon, claim: dict[str, object]
) -> None:
    with operated.client() as client:
        verdict = Host(operated, client).put("bold", {"display_name": "bold"} | claim)
        assert (verdict.standing, verdict.serves) == ("blocked", "nothing")
        (reason,) = verdict.reasons
        assert reason.rule == "operator_claim"
        assert reason.found in ("gpt-4o", "big")


def test_a_missing_directory_is_waited_for(root: Path, start: Start) -> None:
    daemon = start(["--cards", str(root / "later"), "--socket", str(root / "s")]).wait_ready()
    with daemon.client() as client:
        assert str(root / "later") in client.status().problems[0]
        (root / "later").mkdir()
        write(root / "later" / "good.json", GOOD)
        until(lambda: client.status().names == 1, "the directory is followed once it is there")
        until(lambda: client.status().healthy, "all is well again")
