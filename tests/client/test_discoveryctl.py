"""What each command of discoveryctl asks, prints and returns."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discoveryd import __version__
from discoveryd.client.cli import NO, NO_DAEMON, TIMED_OUT, run
from tests.client import fakes
from tests.client.fakes import FakeDaemon

USAGE = 2
EVIL = "\x1b[2J\u202egpt\u2066"


class Outcome:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    def json(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)


Ctl = Callable[..., Outcome]


@pytest.fixture
def ctl(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ctl:
    monkeypatch.setenv("DISCOVERYD_SOCKET", daemon.path)

    def call(*args: str) -> Outcome:
        status = run(args)
        return Outcome(status, *capsys.readouterr())

    return call


class TestResolve:
    def test_prints_the_workers(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Resolve", fakes.resolution())
        found = ctl("resolve", "llama")
        assert found.status == 0
        assert found.out.splitlines() == [
            "llama: 1 worker",
            "URL                    TYPE        CONTEXT  WORKER",
            "http://127.0.0.1:8001  aggregated  8192     default/llama/generate/1",
        ]
        assert found.err == ""

    @pytest.mark.parametrize(
        ("kind", "head"),
        [
            ("alias", "chat (an alias of llama): 1 worker"),
            ("operator", "chat (the operator's name for llama): 1 worker"),
            ("adapter", "chat (an adapter): 1 worker"),
            ("a kind of a newer daemon", "chat: 1 worker"),
        ],
    )
    def test_says_what_the_name_is(
        self, daemon: FakeDaemon, ctl: Ctl, kind: str, head: str
    ) -> None:
        daemon.answer("Resolve", fakes.resolution(name="chat", kind=kind))
        assert ctl("resolve", "chat").out.splitlines()[0] == head

    def test_prints_urls_one_a_line(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        workers = [fakes.worker("1"), fakes.worker("2", url=None), fakes.worker("3")]
        daemon.answer("Resolve", fakes.resolution(workers=workers))
        found = ctl("resolve", "--url", "llama")
        assert found.out == "http://127.0.0.1:8001\nhttp://127.0.0.1:8003\n"
        assert found.status == 0

    def test_says_no_where_no_worker_has_a_url(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Resolve", fakes.resolution(workers=[fakes.worker(url=None)]))
        found = ctl("resolve", "--url", "llama")
        assert (found.status, found.out) == (NO, "")
        assert "no card of llama gives a URL" in found.err

    def test_prints_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Resolve", fakes.resolution())
        assert ctl("resolve", "--json", "llama").json() == fakes.resolution()

    def test_prints_the_workers_of_a_name_that_is_not_ready_and_says_no(
        self, daemon: FakeDaemon, ctl: Ctl
    ) -> None:
        prefill = fakes.worker(worker_type="prefill", needs=[["decode"], ["encode", "prefill"]])
        daemon.answer("Resolve", fakes.resolution(ready=False, workers=[prefill]))
        found = ctl("resolve", "llama")
        assert found.status == NO
        assert "http://127.0.0.1:8001  prefill" in found.out
        assert found.err == (
            "discoveryctl: llama is not ready: its workers are incomplete;"
            " missing: decode or encode\n"
        )

    def test_says_that_all_workers_drain(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Resolve", fakes.resolution(ready=False, workers=[]))
        found = ctl("resolve", "llama")
        assert (found.status, found.out) == (NO, "llama: 0 workers, not ready\n")
        assert found.err == "discoveryctl: llama is not ready: all its workers drain\n"

    def test_says_who_waits_for_a_name_and_why(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        waiting = fakes.no_such_model(
            "lama", similar=["llama", "Lama"], waiting=[fakes.verdict()], more_waiting=3
        )
        daemon.answer("Resolve", **waiting)
        found = ctl("resolve", "lama")
        assert (found.status, found.out) == (NO, "")
        assert found.err.splitlines() == [
            "discoveryctl: nobody serves lama",
            "did you mean: llama, Lama",
            "waiting: /cards/x.json (refused): the sources differ: give both the same source_path",
            "and 3 more cards that ask for it",
            "more about each of them: discoveryctl explain FILE",
        ]

    def test_says_what_to_do_where_nobody_knows_the_name(
        self, daemon: FakeDaemon, ctl: Ctl
    ) -> None:
        daemon.answer("Resolve", **fakes.no_such_model("x"))
        assert ctl("resolve", "x").err.splitlines() == [
            "discoveryctl: nobody serves x",
            "no card asks for this name: drop one, or see discoveryctl list",
        ]

    def test_prints_an_error_as_json_too(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        error = fakes.no_such_model("x", similar=["y"])
        daemon.answer("Resolve", **error)
        found = ctl("resolve", "x", "--json")
        assert found.status == NO
        assert found.json() == error

    def test_url_and_json_exclude_each_other(self, ctl: Ctl) -> None:
        assert ctl("resolve", "x", "--json", "--url").status == USAGE

    def test_a_name_that_is_not_utf8_is_wrong_usage(self, ctl: Ctl) -> None:
        assert ctl("resolve", os.fsdecode(b"\xff")).status == USAGE


class TestLists:
    def test_list_prints_the_names(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        served = [fakes.name(), fakes.name("chat", kind="alias", workers=2, ready=False)]
        daemon.answer("List", {"names": served, "cursor": fakes.CURSOR})
        found = ctl("list")
        assert found.out.splitlines() == [
            "NAME   KIND     WORKERS  READY  MODEL",
            "llama  primary  1        yes    llama",
            "chat   alias    2        no     llama",
        ]
        assert found.status == 0

    def test_list_says_that_there_is_nothing(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("List", {"names": [], "cursor": fakes.CURSOR})
        found = ctl("list")
        assert (found.status, found.out) == (0, "no name is served\n")

    def test_list_prints_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        reply = {"names": [fakes.name()], "cursor": fakes.CURSOR}
        daemon.answer("List", reply)
        assert ctl("list", "--json").json() == reply

    def test_workers_prints_them(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        there = [fakes.worker(), fakes.worker("2", url=None, aliases=[], accepting=False)]
        daemon.answer("ListWorkers", {"workers": there, "cursor": fakes.CURSOR})
        found = ctl("workers")
        assert [line.split() for line in found.out.splitlines()[1:]] == [
            [
                *("llama,", "chat", "http://127.0.0.1:8001", "aggregated", "accepting"),
                *("default/llama/generate/1", "/cards/1.json"),
            ],
            [
                *("llama", "-", "aggregated", "draining"),
                *("default/llama/generate/2", "/cards/2.json"),
            ],
        ]
        assert found.status == 0

    def test_workers_may_be_chosen(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("ListWorkers", {"workers": [], "cursor": fakes.CURSOR})
        found = ctl("workers", "--name", "a", "--namespace", "n")
        assert daemon.asked() == [("ListWorkers", {"name": "a", "namespace": "n"})]
        assert (found.status, found.out) == (NO, "no worker is served\n")

    def test_no_worker_at_all_is_no_failure(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("ListWorkers", {"workers": [], "cursor": fakes.CURSOR})
        assert ctl("workers").status == 0

    def test_workers_prints_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        reply = {"workers": [fakes.worker()], "cursor": fakes.CURSOR}
        daemon.answer("ListWorkers", reply)
        assert ctl("--json", "workers").json() == reply


def explanation(*verdicts: dict[str, Any]) -> dict[str, Any]:
    return {"verdicts": list(verdicts), "cursor": fakes.CURSOR}


class TestExplain:
    def test_reads_like_advice(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("Explain", explanation(fakes.verdict(), fakes.serving()))
        assert ctl("explain", "llama").out.splitlines() == [
            "/cards/x.json: refused",
            "  asks for: llama, chat",
            "  worker:   default/llama/generate/9",
            "  serves:   nothing",
            "  since:    2026-01-02T03:04:05+00:00",
            "  why:      the sources differ: give both the same source_path [different_source]",
            "            at source_path, found /a, expected /b",
            "  against:  /cards/1.json",
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
                return [{"parameters": explanation()}]

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


class TestStatus:
    def test_prints_how_the_daemon_is(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("GetStatus", fakes.status())
        found = ctl("status")
        assert found.status == 0
        assert found.out.splitlines() == [
            "discoveryd 0.1.0, up 1 h 2 min, healthy",
            "revision:    7 of epoch e1",
            "names:       2",
            "cards:       1 serving, 1 refused",
            "connections: 1, of them watching: 0",
            "DIRECTORY  LAYOUT  FILES  NOTICED  RESCAN  PROBLEM",
            "/cards     cards   2      native   5 s     -",
        ]

    def test_says_no_and_why_where_it_is_not_healthy(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("GetStatus", fakes.status(healthy=False, problems=["blind"]))
        found = ctl("status")
        assert found.status == NO
        assert found.out.splitlines()[:2] == [
            "discoveryd 0.1.0, up 1 h 2 min, NOT healthy",
            "  problem: blind",
        ]

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [(5.9, "5 s"), (61, "1 min 1 s"), (3725, "1 h 2 min"), (90_000, "1 d 1 h")],
    )
    def test_uptime_in_its_greatest_units(
        self, daemon: FakeDaemon, ctl: Ctl, seconds: float, shown: str
    ) -> None:
        daemon.answer("GetStatus", fakes.status(uptime_seconds=seconds))
        assert f"up {shown}, healthy" in ctl("status").out

    def test_prints_json(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("GetStatus", fakes.status())
        assert ctl("status", "--json").json() == fakes.status()


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


class TestOptions:
    @pytest.mark.parametrize(
        "args", [("--json", "resolve", "x"), ("resolve", "--json", "x"), ("resolve", "x", "--json")]
    )
    def test_json_is_taken_anywhere(
        self, daemon: FakeDaemon, ctl: Ctl, args: tuple[str, ...]
    ) -> None:
        daemon.answer("Resolve", fakes.resolution())
        assert ctl(*args).json() == fakes.resolution()

    def test_the_socket_is_taken_before_and_after_and_wins(
        self, daemon: FakeDaemon, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DISCOVERYD_SOCKET", "/nowhere")
        daemon.answer("Resolve", fakes.resolution())
        assert ctl("--socket", daemon.path, "resolve", "x").status == 0
        assert ctl("resolve", "x", "--socket", daemon.path).status == 0
        assert ctl("--socket", "/nowhere", "resolve", "x", "--socket", daemon.path).status == 0

    def test_a_silent_daemon_is_given_the_timeout(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.scripts = [fakes.stay_silent]
        found = ctl("--timeout", "0.05", "resolve", "x")
        assert found.status == TIMED_OUT
        assert found.err.splitlines() == [
            f"discoveryctl: {daemon.path} did not answer in time",
            "Give it more time with --timeout, or see whether it is stuck.",
        ]

    @pytest.mark.parametrize("timeout", ["0", "-1", "x"])
    def test_a_timeout_that_is_none_is_wrong_usage(self, ctl: Ctl, timeout: str) -> None:
        assert ctl("list", "--timeout", timeout).status == USAGE

    def test_no_daemon_says_what_was_tried_and_what_to_do(self, ctl: Ctl) -> None:
        names = "--socket or DISCOVERYD_SOCKET"
        found = ctl("list", "--socket", "/nowhere/at/all")
        assert (found.status, found.out) == (NO_DAEMON, "")
        assert found.err.splitlines() == [
            "discoveryctl: no discoveryd answers; tried:",
            "  /nowhere/at/all (as you said): there is no such socket",
            f"Start one with discoveryd serve, or name its socket with {names}.",
        ]

    def test_what_is_no_discoveryd_is_no_daemon(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("List", {"names": 1})
        assert ctl("list").status == NO_DAEMON

    def test_another_error_is_a_no(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        daemon.answer("List", **fakes.failure("org.varlink.service.PermissionDenied"))
        found = ctl("list")
        assert found.status == NO
        assert (
            found.err == "discoveryctl: the daemon refused: org.varlink.service.PermissionDenied\n"
        )

    def test_version(self, ctl: Ctl) -> None:
        assert ctl("--version").out == f"discoveryctl {__version__}\n"

    @pytest.mark.parametrize("args", [("nonsense",), ("resolve",), ("list", "x"), ()])
    def test_wrong_usage(self, ctl: Ctl, args: tuple[str, ...]) -> None:
        found = ctl(*args)
        assert (found.status, found.out) == (USAGE, "")
        assert "Usage: discoveryctl" in found.err

    def test_help_names_the_exit_statuses(self, ctl: Ctl) -> None:
        found = ctl("--help")
        assert found.status == 0
        assert "3 no daemon" in found.out


class TestNothingSteersTheTerminal:
    """Whatever a card or the daemon says comes out printable."""

    @pytest.fixture
    def evil(self, daemon: FakeDaemon) -> None:
        worker = fakes.worker(
            key=EVIL, file=EVIL, model=EVIL, aliases=[EVIL], url=EVIL, worker_type=EVIL
        )
        name = fakes.name(EVIL, kind=EVIL, model=EVIL)
        reason = {"rule": EVIL, "message": EVIL, "field": EVIL, "found": EVIL, "against": [EVIL]}
        members = {"key": EVIL, "names": [EVIL], "standing": EVIL, "serves": EVIL, "since": EVIL}
        verdict = fakes.verdict(EVIL, reasons=[reason], warnings=[EVIL], **members)
        directory = {**fakes.status()["directories"][0], "path": EVIL, "problem": EVIL}
        cursor = {"epoch": EVIL, "revision": 1}
        daemon.answer(
            "Resolve", fakes.resolution(name=EVIL, kind="alias", model=EVIL, workers=[worker])
        )
        daemon.answer("List", {"names": [name], "cursor": cursor})
        daemon.answer("ListWorkers", {"workers": [worker], "cursor": cursor})
        daemon.answer("Explain", {"verdicts": [verdict], "cursor": cursor})
        daemon.answer("Sync", {"verdicts": [], "standings": {EVIL: 1}, "cursor": cursor})
        daemon.answer(
            "GetStatus",
            fakes.status(
                version=EVIL,
                directories=[directory],
                standings={EVIL: 1},
                idle_cohorts=[EVIL],
                problems=[EVIL],
            ),
        )
        daemon.answer(
            "Watch",
            fakes.watched(
                cursor=cursor, changed=[worker], removed=[EVIL], names=[name], gone=[EVIL]
            ),
        )

    @pytest.mark.parametrize(
        "args",
        [
            ("resolve", "x"),
            ("resolve", "x", "--url"),
            ("list",),
            ("workers",),
            ("explain", "x"),
            ("sync",),
            ("status",),
            ("watch",),
        ],
    )
    @pytest.mark.usefixtures("evil")
    def test_in_text(self, ctl: Ctl, args: tuple[str, ...]) -> None:
        found = ctl(*args)
        assert "\\u202egpt" in found.out
        assert all(line.isprintable() for line in (found.out + found.err).splitlines())

    @pytest.mark.usefixtures("evil")
    def test_in_json(self, ctl: Ctl) -> None:
        found = ctl("workers", "--json")
        assert found.out.rstrip("\n").isprintable()
        assert found.json()["workers"][0]["model"] == EVIL

    def test_in_json_beyond_the_basic_plane(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        tagged = "x\U000e0041"
        daemon.answer("Resolve", fakes.resolution(model=tagged))
        found = ctl("resolve", "x", "--json")
        assert found.out.rstrip("\n").isprintable()
        assert found.json()["model"] == tagged

    def test_in_errors(self, daemon: FakeDaemon, ctl: Ctl) -> None:
        taught = fakes.no_such_model(EVIL, similar=[EVIL], waiting=[fakes.verdict(EVIL)])
        daemon.answer("Resolve", **taught)
        found = ctl("resolve", "x")
        assert all(line.isprintable() for line in found.err.splitlines())
