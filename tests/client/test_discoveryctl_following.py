"""discoveryctl sync and watch: what waits for the daemon."""

import json
from pathlib import Path

import pytest

from discoveryd.client.ctl.session import NO, NO_DAEMON, TIMED_OUT
from tests.client import fakes
from tests.client.ctl import EVIL, USAGE, Ctl
from tests.client.fakes import FakeDaemon


class TestSync:
    def test_prints_the_verdict_of_the_file(
        self, daemon: FakeDaemon, ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "x.json").touch()
        monkeypatch.chdir(tmp_path)
        reply = {"verdicts": [fakes.serving()], "standings": {}, "cursor": fakes.CURSOR}
        daemon.answer("Sync", reply)
        found = ctl("sync", "x.json", "bare.json")
        assert found.status == 0
        assert found.out.splitlines()[0] == "/cards/1.json: serving"
        assert daemon.asked() == [("Sync", {"files": [f"{tmp_path}/x.json", "bare.json"]})]

    def test_says_no_where_a_file_does_not_serve(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        verdicts = [fakes.serving(), fakes.verdict()]
        reply = {"verdicts": verdicts, "standings": {}, "cursor": fakes.CURSOR}
        daemon.answer("Sync", reply)
        assert ctl("sync", "1.json", "x.json").status == NO

    def test_without_files_counts_everything(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        standings = {"serving": 3, "refused": 1, "orphan": 0}
        reply = {"verdicts": [], "standings": standings, "cursor": fakes.CURSOR}
        daemon.answer("Sync", reply)
        found = ctl("sync")
        assert (found.status, found.out) == (0, "cards: 3 serving, 1 refused\n")
        assert ctl("sync", "--json").json() == reply


class TestWatch:
    def test_prints_the_state_and_every_change(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        draining = fakes.worker("2", url=None, accepting=False)
        daemon.answer(
            "Watch",
            fakes.watched(
                reset=True,
                changed=[fakes.worker(), draining],
                names=[fakes.name(), fakes.name("x", workers=0, ready=False)],
            ),
            fakes.watched(),
            fakes.watched(removed=["default/llama/generate/1"], gone=["llama"], partial=True),
        )
        found = ctl("watch")
        assert found.out.splitlines() == [
            "e1:7, the whole state",
            "  worker default/llama/generate/1 serves llama at http://127.0.0.1:8001",
            "  worker default/llama/generate/2 serves llama, draining",
            "  name   llama: 1 worker, ready",
            "  name   x: 0 workers, not ready",
            "e1:7, more follows",
            "  gone   worker default/llama/generate/1",
            "  gone   name llama",
        ]
        assert found.status == NO_DAEMON, "the daemon ended the watch"

    def test_prints_each_reply_as_a_line_of_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        replies = [fakes.watched(reset=True), fakes.watched(), fakes.watched(gone=["x"])]
        daemon.answer("Watch", *replies)
        found = ctl("watch", "--json")
        assert [json.loads(line) for line in found.out.splitlines()] == replies

    def test_goes_on_where_it_is_told(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Watch", fakes.watched())
        ctl("watch", "--since", "e:poch:12", "--name", "llama")
        since = {"epoch": "e:poch", "revision": 12}
        assert daemon.asked() == [("Watch", {"since": since, "name": "llama"})]

    @pytest.mark.parametrize("since", ["12", "e:", "e:x", "e:-1"])
    def test_a_cursor_that_is_none_is_wrong_usage(self, ctl: Ctl, since: str) -> None:
        assert ctl("watch", "--since", since).status == USAGE


class TestWait:
    """What it does against a real daemon is in tests/system/test_wait.py."""

    @pytest.fixture
    def silent_watch(self, daemon: FakeDaemon) -> None:
        """Let nobody serve the name, and Watch say so once and then nothing."""

        def watch(connection: fakes.Connection) -> None:
            connection.recv(65536)
            connection.sendall(fakes.frame({"parameters": fakes.watched(), "continues": True}))
            connection.sendall(
                fakes.frame({"parameters": fakes.watched(reset=True), "continues": True})
            )
            fakes.stay_silent(connection)

        daemon.scripts = [watch]
        daemon.answer("Resolve", **fakes.no_such_model("x"))
        daemon.answer("Explain", {"verdicts": [fakes.verdict(EVIL)], "cursor": fakes.CURSOR})

    @pytest.mark.usefixtures("silent_watch")
    def test_only_its_words_are_asked_for_again_and_again(
        self, daemon: FakeDaemon, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("discoveryd.client.ctl.waiting._WORDS_SECONDS", 0.05)
        assert ctl("wait", "x", "--timeout", "1").status == TIMED_OUT
        asked = [method for method, _ in daemon.asked()]
        assert asked.count("Resolve") == 1
        assert asked.count("Explain") > 1

    @pytest.mark.usefixtures("silent_watch")
    def test_nothing_that_is_said_steers_the_terminal(self, ctl: Ctl) -> None:
        found = ctl("wait", "x", "--timeout", "1")
        assert found.err.count("\\u202egpt") == 2
        assert all(line.isprintable() for line in found.err.splitlines())

    def test_what_is_no_discoveryd_is_not_waited_for(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Watch", {"names": 1})
        assert ctl("wait", "x").status == NO_DAEMON

    def test_its_timeout_is_its_own(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.scripts = [fakes.stay_silent]
        found = ctl("wait", "x", "--timeout", "0.2")
        assert found.status == TIMED_OUT
        assert found.err == (
            "discoveryctl: x is not there after 0.2 s: the daemon has not answered yet\n"
        )

    def test_a_timeout_before_its_name_is_its_own_too(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.scripts = [fakes.stay_silent]
        found = ctl("--timeout", "0.2", "wait", "x")
        assert found.status == TIMED_OUT
        assert "x is not there after 0.2 s" in found.err

    @pytest.mark.parametrize(
        "args", [("--workers", "0"), ("--timeout", "0"), ("--timeout", "x"), ("--timeout", "nan")]
    )
    def test_wrong_usage(self, ctl: Ctl, args: tuple[str, ...]) -> None:
        assert ctl("wait", "x", *args).status == USAGE
