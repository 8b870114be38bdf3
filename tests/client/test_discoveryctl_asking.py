"""discoveryctl resolve, list and workers: what is served."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from discoveryd.client.ctl.session import NO
from tests.client import fakes
from tests.client.ctl import USAGE, Ctl
from tests.client.fakes import FakeDaemon


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
            "what to do about it: discoveryctl explain lama",
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


def standing_by(stem: str, **members: Any) -> dict[str, Any]:
    reason = {
        "rule": "other_fingerprint",
        "message": "stands by",
        "field": "context_length",
        "found": "8192",
        "expected": "32768",
        "against": ["/cards/1.json"],
        **members,
    }
    given = {member: value for member, value in reason.items() if value is not None}
    return fakes.verdict(f"/cards/{stem}.json", standing="standby", reasons=[given], warnings=[])


class TestLists:
    @pytest.fixture
    def lists(self, daemon: FakeDaemon) -> Callable[..., None]:
        """Let the daemon serve names, while cards wait."""

        def serve(*names: dict[str, Any], waiting: Sequence[dict[str, Any]] = ()) -> None:
            daemon.answer("List", {"names": list(names), "cursor": fakes.CURSOR})
            daemon.answer("Explain", {"verdicts": list(waiting), "cursor": fakes.CURSOR})

        return serve

    def test_list_prints_the_names(self, lists: Callable[..., None], ctl: Ctl) -> None:
        lists(fakes.name(), fakes.name("chat", kind="alias", workers=2, ready=False))
        found = ctl("list")
        assert found.out.splitlines() == [
            "NAME   KIND     WORKERS  READY  MODEL",
            "llama  primary  1        yes    llama",
            "chat   alias    2        no     llama",
        ]
        assert found.status == 0

    def test_list_says_that_there_is_nothing(self, lists: Callable[..., None], ctl: Ctl) -> None:
        lists()
        found = ctl("list")
        assert (found.status, found.out) == (0, "no name is served\n")

    def test_list_asks_twice_at_most(
        self, daemon: FakeDaemon, lists: Callable[..., None], ctl: Ctl
    ) -> None:
        lists(fakes.name(), waiting=[fakes.verdict()])
        ctl("list")
        assert daemon.asked() == [("List", {}), ("Explain", {})]
        assert daemon.connections == 1

    def test_list_tells_what_stands_by(self, lists: Callable[..., None], ctl: Ctl) -> None:
        cards = [standing_by("a"), standing_by("b", found="4096"), standing_by("c")]
        lists(fakes.name(), fakes.name("chat", kind="alias"), waiting=cards)
        told = "2 standing by: context 8192, not 32768, 1 standing by: context 4096, not 32768"
        assert ctl("list").out.splitlines() == [
            "NAME   KIND     WORKERS  READY  MODEL  NOTE",
            f"llama  primary  1        yes    llama  1 serving, {told}",
            "chat   alias    1        yes    llama",
        ]

    @pytest.mark.parametrize(
        ("reason", "note"),
        [
            (
                {"field": "tokenizer", "found": "x" * 50},
                "1 serving, 1 standing by: another tokenizer",
            ),
            (
                {"field": "needs", "found": None},
                "1 serving, 1 standing by: needs absent, not 32768",
            ),
            ({"field": None}, "1 serving, 1 standing by"),
        ],
    )
    def test_a_note_is_short(
        self, lists: Callable[..., None], ctl: Ctl, reason: dict[str, Any], note: str
    ) -> None:
        lists(fakes.name(), waiting=[standing_by("a", **reason)])
        assert ctl("list").out.splitlines()[1].endswith(f"llama  {note}")

    def test_an_edit_that_is_not_let_in_is_told_apart(
        self, lists: Callable[..., None], ctl: Ctl
    ) -> None:
        lists(fakes.name(), waiting=[{**standing_by("a"), "serves": "previous"}])
        note = "1 serving, 1 served as before its edit: context 8192, not 32768"
        assert ctl("list").out.splitlines()[1].endswith(note)

    def test_list_shows_the_names_that_only_waiting_cards_ask_for(
        self, lists: Callable[..., None], ctl: Ctl
    ) -> None:
        broken = fakes.verdict("/cards/b.json", names=[], standing="invalid")
        cards = [fakes.verdict(names=["next", "llama"]), fakes.verdict(names=["next"]), broken]
        lists(fakes.name(), waiting=cards)
        assert ctl("list").out.splitlines()[2:] == [
            "",
            "NOT SERVED  CARDS      FILE",
            "next        2 refused  /cards/x.json and 1 more",
            "-           1 invalid  /cards/b.json",
            "why: discoveryctl explain",
        ]

    def test_list_counts_what_would_be_too_much(self, lists: Callable[..., None], ctl: Ctl) -> None:
        lists(waiting=[fakes.verdict(names=[f"n{number}"]) for number in range(25)])
        lines = ctl("list").out.splitlines()
        assert lines[0] == "no name is served"
        assert lines[-2:] == ["and 5 more names that nobody serves", "why: discoveryctl explain"]

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
