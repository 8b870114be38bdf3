"""A daemon of a test's own: what the fixtures give, without the fixtures."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from discoveryd.client import Client, NoDaemon, NoSuchFile, NoSuchModel
from discoveryd.client.testing import DaemonFailed, LocalDaemon
from discoveryd.client.testing.mother import Mother

LLAMA = {"display_name": "llama", "aliases": ["chat"], "url": "http://127.0.0.1:8001"}
OTHER = {"display_name": "other", "aliases": ["chat"], "url": "http://127.0.0.1:8002"}

Start = Callable[..., LocalDaemon]


@pytest.fixture(scope="module")
def mother() -> Iterator[Mother]:
    with Mother() as mother:
        yield mother


@pytest.fixture
def start(mother: Mother) -> Iterator[Start]:
    """Give a function that starts daemons, and closes them."""
    with ExitStack() as ends:

        def begin(**config: object) -> LocalDaemon:
            daemon = ends.enter_context(LocalDaemon(mother, config))
            daemon.start()
            return daemon

        yield begin


@pytest.fixture
def local(start: Start) -> LocalDaemon:
    return start()


@pytest.fixture
def broken(mother: Mother) -> Iterator[LocalDaemon]:
    """Give a daemon for a test that closes it in anger."""
    daemon = LocalDaemon(mother, {})
    daemon.start()
    yield daemon
    daemon.kill()


# Cards


def test_a_card_that_was_dropped_is_served_at_once_and_the_verdict_says_so(
    local: LocalDaemon,
) -> None:
    verdict = local.drop(LLAMA)
    assert (verdict.standing, verdict.model) == ("serving", "llama")
    assert local.resolve("chat").workers[0].url == LLAMA["url"]


def test_a_card_that_is_refused_is_a_verdict_and_no_exception(local: LocalDaemon) -> None:
    local.drop(LLAMA)
    verdict = local.drop(OTHER)
    assert verdict.standing == "blocked"
    assert verdict.reasons[0].found == "chat"
    with pytest.raises(NoSuchModel):
        local.resolve("other")


def test_the_same_model_and_url_is_the_same_file_and_another_url_another(
    local: LocalDaemon,
) -> None:
    first = local.drop(LLAMA)
    assert local.drop(LLAMA | {"accepting": False}).file == first.file
    assert local.drop(LLAMA | {"url": "http://127.0.0.1:8009"}).file != first.file
    (worker,) = local.resolve("llama").workers
    assert worker.url == "http://127.0.0.1:8009"


def test_a_card_without_a_url_gets_a_name_too(local: LocalDaemon) -> None:
    assert local.drop({"display_name": "plain"}).good
    assert local.drop({"display_name": "plain", "labels": {"a": "b"}}).good
    assert len(local.resolve("plain").workers) == 1


def test_bytes_are_written_as_they_are_under_the_name_that_the_card_would_have(
    local: LocalDaemon,
) -> None:
    text = b' {"display_name":"llama", "url": "http://127.0.0.1:8001"}\n'
    verdict = local.drop(text)
    assert Path(verdict.file).read_bytes() == text
    assert verdict.file == local.drop(LLAMA).file


@pytest.mark.parametrize("torn", [b"", b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_bytes_that_are_no_card_are_dropped_all_the_same(local: LocalDaemon, torn: bytes) -> None:
    assert local.drop(torn).standing == "invalid"
    assert local.drop(torn, "torn.json").standing == "invalid"


def test_a_file_gets_the_name_that_is_given(local: LocalDaemon) -> None:
    local.drop(LLAMA, "mine.json")
    assert [path.name for path in local.cards.iterdir()] == ["mine.json"]


def test_a_name_that_the_daemon_would_pass_over_is_refused(local: LocalDaemon) -> None:
    with pytest.raises(ValueError, match=r"must end in \.json"):
        local.drop(LLAMA, "llama.txt")


def test_many_cards_are_dropped_without_asking_and_waited_for_once(local: LocalDaemon) -> None:
    for port in range(100):
        local.drop(LLAMA | {"url": f"http://127.0.0.1:{9000 + port}"}, wait=False)
    assert local.settle().standings == {"serving": 100}


@pytest.mark.parametrize("named", ["file", "path", "key"])
def test_a_card_is_removed_by_file_path_or_key(local: LocalDaemon, named: str) -> None:
    verdict = local.drop(LLAMA, "a.json")
    assert verdict.key is not None
    names: dict[str, str | Path] = {
        "file": "a.json",
        "path": local.cards / "a.json",
        "key": verdict.key,
    }
    local.remove(names[named])
    with pytest.raises(NoSuchModel):
        local.resolve("llama")


def test_a_card_that_waits_is_removed_by_its_key_too(local: LocalDaemon) -> None:
    local.drop(LLAMA)
    key = local.drop(OTHER).key
    assert key is not None
    local.remove(key)
    assert local.explain().verdicts == ()


def test_what_is_not_there_cannot_be_removed_and_what_is_there_is_said(local: LocalDaemon) -> None:
    local.drop(LLAMA, "here.json")
    with pytest.raises(FileNotFoundError, match=r"gone\.json is no card file.*here\.json"):
        local.remove("gone.json")


def test_explain_takes_a_file_a_name_or_nothing(local: LocalDaemon) -> None:
    served = local.drop(LLAMA, "llama.json")
    waiting = local.drop(OTHER, "other.json")
    assert local.explain("llama.json").verdicts == (served,)
    assert local.explain(str(local.cards / "llama.json")).verdicts == (served,)
    assert set(local.explain("chat").verdicts) == {served, waiting}
    assert local.explain().verdicts == (waiting,)
    with pytest.raises(NoSuchModel):
        local.explain("nobody")
    with pytest.raises(NoSuchFile):
        local.explain("nobody.json")


# What it is told


def test_each_has_its_own_cards_socket_and_process(start: Start) -> None:
    first, second = start(), start()
    first.drop(LLAMA)
    assert second.client.list().names == ()
    assert len({first.pid, second.pid}) == len({first.socket, second.socket}) == 2


def test_it_is_told_the_keys_of_the_configuration_file(start: Start) -> None:
    daemon = start(aliases={"gpt-4o": "llama"}, log_level="warning", state="kept")
    daemon.drop(LLAMA)
    assert daemon.resolve("gpt-4o").kind == "operator"
    assert (daemon.directory / "kept").exists()
    assert daemon.log == ""


def test_relative_paths_start_at_its_own_directory(start: Start) -> None:
    daemon = start(dynamo=["store"], socket="elsewhere")
    followed = {place.layout: place.path for place in daemon.client.status().directories}
    assert followed == {"cards": str(daemon.cards), "dynamo": str(daemon.directory / "store")}
    assert daemon.socket == str(daemon.directory / "elsewhere")


def test_cards_are_dropped_into_the_first_directory_that_is_named(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "first").mkdir()
    daemon = start(cards=[tmp_path / "first", tmp_path / "second"])
    assert daemon.drop(LLAMA, "a.json").good
    assert (tmp_path / "first/a.json").exists()
    assert daemon.env["DISCOVERYD_CARDS"] == str(tmp_path / "first")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"alias": {}}, "unknown key 'alias'; did you mean 'aliases'?"),
        ({"quota": 0}, "quota must be a number from 1"),
        ({"socket": 7}, "socket must be a path"),
    ],
)
def test_what_it_does_not_understand_it_says_itself(
    start: Start, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(DaemonFailed) as failed:
        start(**config)
    assert "did not start: it ended with status 2" in str(failed.value)
    assert said in str(failed.value)


def test_other_processes_find_it_by_its_variables(local: LocalDaemon) -> None:
    local.drop(LLAMA)
    done = subprocess.run(
        [Path(sys.executable).with_name("discoveryctl"), "resolve", "chat", "--url"],
        env={**os.environ, **local.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{LLAMA['url']}\n", "")


@pytest.mark.usefixtures("directory")
def test_what_the_testers_machine_is_told_does_not_reach_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("DISCOVERYD_CARDS", "CONFIGURATION_DIRECTORY", "STATE_DIRECTORY"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    (tmp_path / "config.toml").write_text("nonsense")
    with Mother() as mother, LocalDaemon(mother, {}) as daemon:
        daemon.start()
        assert [place.path for place in daemon.client.status().directories] == [str(daemon.cards)]
        assert "WARNING" not in daemon.log
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


# Its life


def test_a_restart_keeps_what_was_served_and_who_was_first(local: LocalDaemon) -> None:
    local.drop(OTHER)
    local.drop(LLAMA)
    before = local.pid
    local.restart()
    assert local.pid != before
    assert local.resolve("chat").model == "other"


def test_a_daemon_that_was_killed_is_away_until_it_is_started(local: LocalDaemon) -> None:
    local.drop(LLAMA)
    local.kill()
    with pytest.raises(NoDaemon):
        local.resolve("llama")
    with pytest.raises(RuntimeError, match="no process"):
        _ = local.pid
    local.start()
    assert local.resolve("llama").workers


def test_stopping_and_killing_one_that_does_not_run_is_harmless(local: LocalDaemon) -> None:
    local.stop()
    local.stop()
    local.kill()
    assert "Traceback" not in local.log


def test_one_that_runs_is_not_started_again(local: LocalDaemon) -> None:
    with pytest.raises(RuntimeError, match="restart"):
        local.start()


def test_connections_that_are_left_open_do_not_fail_its_end(local: LocalDaemon) -> None:
    with Client(local.socket) as client:
        assert client.list().names == ()
        local.stop()


def test_closing_removes_its_directory_and_keeps_its_log(start: Start) -> None:
    daemon = start()
    assert daemon.drop(b"{", "torn.json").standing == "invalid"
    daemon.close()
    daemon.close()
    assert daemon.closed
    assert not daemon.directory.exists()
    assert "torn.json is invalid" in daemon.log


def test_one_that_died_by_itself_is_a_failure_with_its_log(broken: LocalDaemon) -> None:
    os.kill(broken.pid, signal.SIGKILL)
    with pytest.raises(DaemonFailed, match=r"(?s)ended on SIGKILL.*serving on"):
        broken.close()
    assert not broken.directory.exists()


def test_one_that_was_told_to_end_by_the_test_is_none(local: LocalDaemon) -> None:
    os.kill(local.pid, signal.SIGTERM)
    local.stop()
    assert "ending on SIGTERM" in local.log


def test_one_that_had_an_error_of_its_own_is_a_failure_too(broken: LocalDaemon) -> None:
    with (broken.directory / "log").open("a") as log:
        log.write("Traceback (most recent call last):\n  ...\nKeyError: 7\n")
    with pytest.raises(DaemonFailed, match=r"(?s)error of its own.*KeyError: 7"):
        broken.close()


def test_a_card_that_speaks_of_tracebacks_is_no_error(local: LocalDaemon) -> None:
    local.drop({"display_name": 7, "x": "\nTraceback (most recent call last):\n"})
    local.drop(b'{"display_name": "Traceback (most recent call last):\\n"}')
    local.close()
    assert local.closed
