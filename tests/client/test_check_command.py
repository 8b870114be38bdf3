"""discoveryctl check: card files judged before anybody drops them."""

import json
from pathlib import Path
from typing import Any

import pytest

from discoveryd.client.ctl.cli import run
from discoveryd.client.ctl.session import NO
from tests.client import fakes
from tests.client.fakes import FakeDaemon

USAGE = 2


def drop(directory: Path, name: str, **members: Any) -> str:
    path = directory / name
    path.write_text(json.dumps(members))
    return str(path)


def check(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[dict[str, Any]]]:
    status = run(["check", "--json", *args])
    return status, json.loads(capsys.readouterr().out)["checks"]


def standings(checks: list[dict[str, Any]]) -> dict[str, str]:
    return {
        check["verdict"]["file"].rpartition("/")[2]: check["verdict"]["standing"]
        for check in checks
    }


Capture = pytest.CaptureFixture[str]


class TestOffline:
    def test_a_good_card_is_a_yes(self, tmp_path: Path, capsys: Capture) -> None:
        path = drop(tmp_path, "a.json", display_name="llama", aliases=["chat"])
        status, (only,) = check(capsys, path)
        assert status == 0
        assert only["verdict"]["file"] == path
        assert only["verdict"]["names"] == ["llama", "chat"]
        assert only["verdict"]["serves"] == "current"
        assert only["would_displace"] == []

    def test_a_bad_card_is_a_no_with_the_path_at_fault(
        self, tmp_path: Path, capsys: Capture
    ) -> None:
        status, (only,) = check(capsys, drop(tmp_path, "a.json", display_name=1))
        assert status == NO
        assert only["verdict"]["standing"] == "invalid"
        assert only["verdict"]["reasons"][0]["field"] == "$.display_name"

    def test_a_directory_is_judged_as_a_whole(self, tmp_path: Path, capsys: Capture) -> None:
        drop(tmp_path, "a.json", display_name="llama", url="http://127.0.0.1:1")
        drop(tmp_path, "b.json", display_name="other", aliases=["llama"])
        drop(tmp_path, ".c.json", display_name="hidden")
        status, checks = check(capsys, str(tmp_path))
        assert status == NO
        assert sorted(standings(checks)) == ["a.json", "b.json"]
        assert sorted(standings(checks).values()) == ["blocked", "serving"]

    def test_several_arguments_are_judged_together(self, tmp_path: Path, capsys: Capture) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        first = drop(tmp_path / "one", "a.json", display_name="llama")
        drop(tmp_path / "two", "b.json", display_name="other", aliases=["llama"])
        _, checks = check(capsys, first, str(tmp_path / "two"))
        assert sorted(standings(checks).values()) == ["blocked", "serving"]

    def test_a_file_named_twice_is_judged_once(self, tmp_path: Path, capsys: Capture) -> None:
        path = drop(tmp_path, "a.json", display_name="llama")
        status, checks = check(capsys, str(tmp_path), path)
        assert (status, standings(checks)) == (0, {"a.json": "serving"})

    def test_prints_advice(self, tmp_path: Path, capsys: Capture) -> None:
        path = drop(tmp_path, "a.json", display_name="")
        assert run(["check", path]) == NO
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"{path}: invalid"
        assert any(line.startswith("  why:      ") for line in lines)
        assert not any("since" in line for line in lines), "it never became anything"

    def test_a_link_is_no_card_file(self, tmp_path: Path, capsys: Capture) -> None:
        target = drop(tmp_path, "a.json", display_name="llama")
        link = tmp_path / "b.json"
        link.symlink_to(target)
        status, checks = check(capsys, str(link))
        assert (status, standings(checks)) == (NO, {"b.json": "invalid"})

    def test_a_name_that_no_daemon_looks_at_is_wrong_usage(
        self, tmp_path: Path, capsys: Capture
    ) -> None:
        path = drop(tmp_path, "a.json.draft", display_name="llama")
        assert run(["check", path]) == USAGE
        assert "end in .json" in capsys.readouterr().err

    def test_what_does_not_exist_is_wrong_usage(self, tmp_path: Path, capsys: Capture) -> None:
        assert run(["check", str(tmp_path / "none.json")]) == USAGE
        assert "does not exist" in capsys.readouterr().err

    def test_an_empty_directory_is_no_failure_but_said(
        self, tmp_path: Path, capsys: Capture
    ) -> None:
        assert run(["check", str(tmp_path)]) == 0
        assert "there is no card file" in capsys.readouterr().err


class TestLive:
    @pytest.fixture(autouse=True)
    def _running(self, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DISCOVERYD_SOCKET", daemon.path)

    def reply(self, **members: Any) -> dict[str, Any]:
        found = {"verdict": fakes.serving(), "would_displace": [], "cursor": fakes.CURSOR}
        return {**found, **members}

    def test_asks_the_daemon_for_each_card(
        self, daemon: FakeDaemon, tmp_path: Path, capsys: Capture
    ) -> None:
        first = drop(tmp_path, "a.json", display_name="llama")
        second = drop(tmp_path, "b.json", display_name="other")
        daemon.answer("Check", self.reply(would_displace=["/cards/old.json"]))
        status, checks = check(capsys, "--live", str(tmp_path))
        assert status == 0
        assert checks[0]["would_displace"] == ["/cards/old.json"]
        assert daemon.asked() == [
            ("Check", {"card": {"display_name": "llama"}, "file": first}),
            ("Check", {"card": {"display_name": "other"}, "file": second}),
        ]

    @pytest.mark.parametrize("known", ["a.json", None])
    def test_a_file_that_lies_elsewhere_is_asked_for_as_if_it_were_dropped(
        self, daemon: FakeDaemon, tmp_path: Path, capsys: Capture, known: str | None
    ) -> None:
        def answer(parameters: dict[str, Any]) -> list[fakes.Reply]:
            if parameters.get("file") == known:
                return [{"parameters": self.reply()}]
            return [fakes.failure("NoSuchFile", file=parameters["file"])]

        daemon.answers["Check"] = answer
        path = drop(tmp_path, "a.json", display_name="llama")
        status, _ = check(capsys, "--live", path)
        asked = [parameters.get("file") for _, parameters in daemon.asked()]
        assert (status, asked) == (0, [path, "a.json", None][: 2 if known else 3])

    def test_a_card_that_would_not_serve_is_a_no(
        self, daemon: FakeDaemon, tmp_path: Path, capsys: Capture
    ) -> None:
        daemon.answer("Check", self.reply(verdict=fakes.verdict(), would_displace=["/f"]))
        path = drop(tmp_path, "a.json", display_name="llama")
        assert run(["check", "--live", path]) == NO
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "/cards/x.json: refused"
        assert lines[-1] == "  displaces: /f"

    def test_what_is_no_card_is_judged_without_the_daemon(
        self, daemon: FakeDaemon, tmp_path: Path, capsys: Capture
    ) -> None:
        (tmp_path / "a.json").write_text("{")
        status, checks = check(capsys, "--live", str(tmp_path))
        assert (status, standings(checks)) == (NO, {"a.json": "invalid"})
        assert daemon.calls == []
