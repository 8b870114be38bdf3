"""discoveryctl explain: why cards have their standing, and which file or name is meant."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discoveryd.client.ctl.session import NO
from tests.client import fakes
from tests.client.ctl import Ctl
from tests.client.fakes import FakeDaemon


def explanation(*verdicts: dict[str, Any]) -> dict[str, Any]:
    return {"verdicts": list(verdicts), "cursor": fakes.CURSOR}


class TestExplain:
    def test_reads_like_advice(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Explain", explanation(fakes.verdict(), fakes.serving()))
        words = (
            "for the same weights write one source_path in both cards, for others give this one a"
            " component of its own"
        )
        assert ctl("explain", "llama").out.splitlines() == [
            "/cards/x.json: refused",
            "  asks for: llama, chat",
            "  worker:   default/llama/generate/9",
            "  serves:   nothing",
            "  since:    2026-01-02T03:04:05+00:00",
            "  why:      the sources differ: give both the same source_path [different_source]",
            "            at source_path, found /a, expected /b",
            "  against:  /cards/1.json",
            f"  mend:     {words}, then:",
            "              discoveryctl sync /cards/x.json",
            "  warning:  $.alias: did you mean aliases?",
            "",
            "/cards/1.json: serving",
            "  asks for: llama, chat",
            "  worker:   default/llama/generate/9",
            "  serves:   its present content",
            "  since:    2026-01-02T03:04:05+00:00",
        ]

    def test_a_file_that_never_held_a_card_has_no_names(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        reason = {"rule": "not_json", "message": "not JSON", "against": []}
        bad = fakes.verdict(names=[], standing="invalid", reasons=[reason], warnings=[])
        del bad["key"], bad["model"]
        daemon.answer("Explain", explanation(bad))
        assert ctl("explain", "x.json").out.splitlines() == [
            "/cards/x.json: invalid",
            "  serves:   nothing",
            "  since:    2026-01-02T03:04:05+00:00",
            "  why:      not JSON [not_json]",
            "  mend:     correct the card in its file, then:",
            "              discoveryctl sync /cards/x.json",
        ]

    def test_a_rule_of_a_newer_daemon_is_shown_without_advice(
        self, daemon: FakeDaemon, ctl: Ctl
    ) -> None:
        reason = {"rule": "too_blue", "message": "too blue", "field": "$", "against": []}
        daemon.answer("Explain", explanation(fakes.verdict(reasons=[reason], warnings=[])))
        assert ctl("explain", "llama").out.splitlines()[5:] == ["  why:      too blue [too_blue]"]

    def test_every_way_out_is_told(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        reason = {"rule": "process_gone", "message": "gone", "against": []}
        daemon.answer("Explain", explanation(fakes.verdict(reasons=[reason], warnings=[])))
        assert ctl("explain", "llama").out.splitlines()[6:] == [
            "  mend:     start the worker again, and let it write its card anew",
            "  or:       if it is not to come back:",
            "              discoveryctl withdraw /cards/x.json",
        ]

    def test_a_courtesy_is_called_what_it_is(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Explain", explanation(fakes.verdict(serves="previous")))
        found = ctl("explain", "llama")
        assert "an earlier content of the file, until the present one may serve" in found.out
        assert found.status == NO

    @pytest.mark.parametrize(
        ("verdicts", "status"),
        [([fakes.serving()], 0), ([fakes.verdict(), fakes.serving()], 0), ([fakes.verdict()], NO)],
    )
    def test_a_name_that_a_card_serves_is_a_yes(
        self, daemon: FakeDaemon, ctl: Ctl, verdicts: list[dict[str, Any]], status: int
    ) -> None:
        daemon.answer("Explain", explanation(*verdicts))
        assert ctl("explain", "llama").status == status

    @pytest.mark.parametrize(("verdicts", "status"), [([], 0), ([fakes.verdict()], NO)])
    def test_without_argument_anything_to_explain_is_a_no(
        self, daemon: FakeDaemon, ctl: Ctl, verdicts: list[dict[str, Any]], status: int
    ) -> None:
        daemon.answer("Explain", explanation(*verdicts))
        assert ctl("explain").status == status
        assert daemon.asked() == [("Explain", {})]

    def test_without_anything_to_explain_it_says_so(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Explain", explanation())
        assert ctl("explain").out == "nothing to explain: every card serves its present content\n"

    def test_prints_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        reply = explanation(fakes.verdict())
        daemon.answer("Explain", reply)
        assert ctl("explain", "llama", "--json").json() == reply

    @pytest.fixture
    def knows(self, daemon: FakeDaemon) -> Callable[..., None]:
        """Let Explain know one file, or one name."""

        def know(**known: str) -> None:
            def explain(parameters: dict[str, Any]) -> list[fakes.Reply]:
                if parameters == known:
                    return [{"parameters": explanation(fakes.serving())}]
                if "file" in parameters:
                    return [fakes.failure("NoSuchFile", file=parameters["file"])]
                return [fakes.no_such_model(parameters["name"])]

            daemon.answers["Explain"] = explain

        return know

    @pytest.mark.parametrize("name", ["llama", "Org/Tiny-1.5", "/odd", "x.json"])
    def test_a_name_is_found(self, ctl: Ctl, knows: Callable[..., None], name: str) -> None:
        knows(name=name)
        assert ctl("explain", name).status == 0

    def test_a_bare_file_name_is_one_in_the_drop_directory(
        self, ctl: Ctl, knows: Callable[..., None]
    ) -> None:
        knows(file="x.json")
        assert ctl("explain", "x.json").status == 0

    def test_a_file_is_asked_for_by_its_absolute_path(
        self,
        ctl: Ctl,
        knows: Callable[..., None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (tmp_path / "cards").mkdir()
        (tmp_path / "cards" / "x.json").touch()
        monkeypatch.chdir(tmp_path)
        knows(file=f"{tmp_path}/cards/x.json")
        assert ctl("explain", "cards/x.json").status == 0
        assert ctl("explain", "./cards/../cards/x.json").status == 0
        monkeypatch.chdir(tmp_path / "cards")
        assert ctl("explain", "x.json").status == 0

    def test_a_relative_path_of_a_file_that_is_gone_is_made_absolute(
        self,
        ctl: Ctl,
        knows: Callable[..., None],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        knows(file=f"{tmp_path}/cards/gone.json")
        assert ctl("explain", "cards/gone.json").status == 0

    def test_a_file_whose_name_is_not_utf8_is_asked_for_in_display_form(
        self, ctl: Ctl, knows: Callable[..., None], tmp_path: Path
    ) -> None:
        path = os.fsencode(tmp_path) + b"/\xff\\.json"
        Path(os.fsdecode(path)).touch()
        knows(file=f"{tmp_path}/\\xff\\\\.json")
        assert ctl("explain", os.fsdecode(path)).status == 0

    def test_the_display_form_of_a_file_that_is_gone_is_asked_for_as_it_is(
        self, ctl: Ctl, knows: Callable[..., None]
    ) -> None:
        knows(file="/cards/\\xff\\\\.json")
        assert ctl("explain", "/cards/\\xff\\\\.json").status == 0

    def test_a_directory_is_no_card_file(
        self, daemon: FakeDaemon, ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "org" / "model").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        daemon.answer("Explain", explanation(fakes.serving()))
        ctl("explain", "org/model")
        assert daemon.asked() == [("Explain", {"name": "org/model"})]

    def test_a_file_in_a_directory_that_is_linked_to_is_asked_for_by_the_daemons_name(
        self, daemon: FakeDaemon, ctl: Ctl, knows: Callable[..., None], tmp_path: Path
    ) -> None:
        (tmp_path / "cards").mkdir()
        (tmp_path / "link").symlink_to("cards")
        (tmp_path / "cards" / "a.json").touch()
        status = fakes.status()
        status["directories"][0]["path"] = str(tmp_path / "link")
        daemon.answer("GetStatus", status)
        knows(file=f"{tmp_path}/link/a.json")
        assert ctl("explain", f"{tmp_path}/cards/a.json").status == 0

    def test_an_unknown_file_is_a_no(
        self, daemon: FakeDaemon, ctl: Ctl, knows: Callable[..., None]
    ) -> None:
        knows()
        daemon.answer("GetStatus", fakes.status())
        found = ctl("explain", "/cards/nowhere.json")
        assert found.status == NO
        assert found.err.startswith("discoveryctl: there is no card file /cards/nowhere.json\n")

    def test_a_name_that_no_card_asks_for_is_looked_up_among_the_served_ones(
        self, daemon: FakeDaemon, ctl: Ctl, knows: Callable[..., None]
    ) -> None:
        knows()
        daemon.answer("Resolve", **fakes.no_such_model("lama", similar=["llama"]))
        found = ctl("explain", "lama")
        assert found.status == NO
        assert found.err.splitlines()[:2] == [
            "discoveryctl: nobody serves lama",
            "did you mean: llama",
        ]

    def test_an_operators_name_is_explained_by_what_it_stands_for(
        self, daemon: FakeDaemon, ctl: Ctl, knows: Callable[..., None]
    ) -> None:
        knows(name="llama")
        daemon.answer("Resolve", fakes.resolution(name="gpt-4o", kind="operator"))
        found = ctl("explain", "gpt-4o")
        assert found.out.splitlines()[:2] == [
            "gpt-4o is the operator's name for llama",
            "/cards/1.json: serving",
        ]
        assert found.status == 0
