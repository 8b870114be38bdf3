"""discoveryctl top: the rows of a picture, how it is drawn, the command without a terminal.

The view that stays is tested against a real daemon, in tests/system/test_top.py.
"""

import itertools
import sys
from typing import Any

import msgspec
import pytest
from rich.console import Console

from discoveryd.client.ctl.session import NO_DAEMON
from discoveryd.client.top.drawing import draw, lines_of
from discoveryd.client.top.picture import Picture, models, picture, share
from discoveryd.interface import Name, Status, Verdict, Worker
from tests.client import fakes
from tests.client.ctl import EVIL, USAGE, Ctl
from tests.client.fakes import FakeDaemon


def name(text: str = "llama", **members: Any) -> Name:
    return msgspec.convert(fakes.name(text, **members), Name)


def worker(instance: str = "1", **members: Any) -> Worker:
    return msgspec.convert(fakes.worker(instance, **members), Worker)


def verdict(file: str = "/cards/x.json", **members: Any) -> Verdict:
    return msgspec.convert(fakes.verdict(file, **members), Verdict)


def status(**members: Any) -> Status:
    return msgspec.convert(fakes.status(**members), Status)


def many(number: int, waiting: int = 0) -> Picture:
    """Return a picture of so many models, each with a worker, and so many cards that wait."""
    names = [name(f"m{each}", model=f"m{each}") for each in range(number)]
    workers = [worker(str(each), model=f"m{each}") for each in range(number)]
    verdicts = [verdict(f"/cards/w{each}.json") for each in range(waiting)]
    return picture(names, workers, verdicts, status())


class TestRows:
    def test_a_model_is_told_with_its_names_and_workers(self) -> None:
        names = [name(), name("chat", kind="alias"), name("gpt", kind="operator")]
        workers = [worker("1"), worker("2", accepting=False), worker("3", url=None)]
        (row,) = models(names, workers)
        assert (row.name, row.names, row.ready) == ("llama", "chat, gpt", True)
        assert (row.workers, row.at) == ("2, 1 draining", "http://127.0.0.1:8001")

    def test_a_name_that_is_less_ready_than_its_model_is_marked(self) -> None:
        (row,) = models([name(), name("chat", ready=False)], [worker()])
        assert (row.ready, row.names) == (True, "chat (not ready)")

    def test_models_that_are_not_ready_come_first(self) -> None:
        names = [name(each, model=each, ready=each != "z") for each in ("b", "a", "z")]
        assert [row.name for row in models(names, [])] == ["z", "a", "b"]

    def test_a_card_that_waits_is_told_with_its_reason(self) -> None:
        reasons = fakes.verdict()["reasons"] * 3
        seen = picture([], [], [verdict(reasons=reasons, serves="previous")], None)
        (row,) = seen.waiting
        assert (row.file, row.standing, row.previous) == ("/cards/x.json", "refused", True)
        assert row.names == "llama, chat"
        assert row.why == "the sources differ: give both the same source_path (and 2 more reasons)"

    def test_a_card_without_names_or_reasons_is_told_too(self) -> None:
        (row,) = picture([], [], [verdict(names=[], reasons=[])], None).waiting
        assert (row.names, row.why) == ("", "")

    def test_the_head_says_how_the_daemon_is(self) -> None:
        seen = picture([name()], [worker()], [], status(problems=["x\x1b"], healthy=False))
        assert seen.head == "discoveryd 0.1.0, up 1 h 2 min, NOT healthy, revision 7"
        assert seen.cards == "cards: 1 serving, 1 refused; 1 name, 1 model"
        assert (seen.healthy, seen.stale, seen.problems) == (False, None, ("x\\u001b",))

    def test_a_daemon_that_is_away_is_said_with_its_age(self) -> None:
        seen = picture([name()], [worker()], [], status(), 75.0)
        assert seen.stale == "no daemon: this is as of 1 min 15 s ago"

    def test_before_the_status_is_known_there_is_a_picture(self) -> None:
        seen = picture([name()], [worker()], [], None)
        assert (seen.head, seen.cards, seen.healthy) == ("discoveryd", "1 name, 1 model", None)


class TestSharing:
    @pytest.mark.parametrize(
        ("rows", "lines", "shown"),
        [
            ((3, 0), 4, (3, 0)),
            ((3, 0), 3, (1, 0)),
            ((3, 2), 8, (3, 2)),
            ((9, 2), 10, (4, 2)),
            ((2, 9), 10, (2, 4)),
            ((9, 9), 11, (3, 3)),
            ((9, 9), 1, (0, 0)),
            ((0, 9), 8, (0, 4)),
        ],
    )
    def test_rows_that_fit(self, rows: tuple[int, int], lines: int, shown: tuple[int, int]) -> None:
        assert share(*rows, lines) == shown

    def test_never_more_lines_than_there_are(self) -> None:
        for models_there, waiting_there, lines in itertools.product(
            range(12), range(12), range(25)
        ):
            shown = share(models_there, waiting_there, lines)
            needed = [
                bool(rows) + rows + (rows < there)
                for rows, there in zip(shown, (models_there, waiting_there), strict=True)
            ]
            least = 1 + 2 * bool(waiting_there)
            between = bool(waiting_there)
            assert sum(needed) + between <= max(lines, least), (models_there, waiting_there, lines)


def drawn(seen: Picture, width: int, height: int) -> list[str]:
    """Return the lines on a terminal of that size, without trailing blanks and colours."""
    console = Console(width=width, height=height, no_color=True, markup=False)
    with console.capture() as captured:
        console.print(draw(seen, width, height))
    return [line.rstrip() for line in captured.get().splitlines()]


class TestDrawing:
    def test_everything_that_fits_is_there(self) -> None:
        why = "the sources differ: give both the same source_path"
        assert drawn(many(1, 1), 120, 20) == [
            "discoveryd 0.1.0, up 1 h 2 min, healthy, revision 7",
            "cards: 1 serving, 1 refused; 1 name, 1 model (q ends)",
            "",
            "MODEL  READY  WORKERS  ALSO  AT",
            "m0     yes    1              http://127.0.0.1:8000",
            "",
            "WAITING         STANDING  ASKS FOR     WHY",
            f"/cards/w0.json  refused   llama, chat  {why}",
        ]

    @pytest.mark.parametrize("size", [(200, 50), (100, 24), (80, 10), (40, 9), (20, 7)])
    @pytest.mark.parametrize("rows", [(500, 0), (500, 300), (2, 300), (500, 2)])
    def test_what_does_not_fit_is_counted(
        self, size: tuple[int, int], rows: tuple[int, int]
    ) -> None:
        lines = drawn(many(*rows), *size)
        assert len(lines) <= size[1]
        assert all(len(line) <= size[0] for line in lines)
        shown = sum(line.startswith("m") and " yes " in f"{line} " for line in lines)
        left_out = [line for line in lines if line.startswith("and ")]
        if shown < rows[0]:
            assert left_out[0].startswith(f"and {rows[0] - shown} more ")
        if rows[1] > size[1]:
            assert left_out[-1].startswith("and ")
            assert int(left_out[-1].split()[1]) > rows[1] - size[1]

    def test_a_narrow_terminal_shows_what_tells_rows_apart(self) -> None:
        lines = drawn(many(1, 1), 50, 20)
        assert "MODEL  READY  WORKERS" in lines
        assert "WAITING         STANDING  WHY" in lines

    def test_problems_are_shown_and_more_of_them_counted(self) -> None:
        broken = status(problems=[f"p{number}" for number in range(5)], healthy=False)
        lines = drawn(picture([], [], [], broken), 80, 20)
        assert lines[1:5] == [
            *("problem: p0", "problem: p1", "problem: p2"),
            "and 2 more problems: discoveryctl status",
        ]
        assert "no name is served" in lines

    def test_an_older_content_that_serves_is_told(self) -> None:
        seen = picture([], [], [verdict(serves="previous")], status())
        assert any("refused, older serves" in line for line in drawn(seen, 100, 20))

    @pytest.mark.parametrize("width", [None, 120, 40])
    def test_no_name_steers_the_terminal_or_the_looks(self, width: int | None) -> None:
        evil = f"{EVIL}[red]x[/red] :smile:"
        card = verdict(evil, names=[evil], standing=evil)
        bad = worker(model=evil, url=evil)
        seen = picture([name(evil, model=evil)], [bad], [card], status(version=EVIL))
        text = "\n".join(lines_of(seen, width))
        assert "\x1b[2J" not in text
        assert "\u202e" not in text
        assert "\\u001b[2J\\u202egpt" in text
        if width is None:
            assert "[red]x[/red] :smile:" in text

    def test_for_no_terminal_nothing_is_cut_or_coloured(self) -> None:
        long = "x" * 500
        lines = lines_of(many(300, 1)._replace(problems=(long,)), None)
        assert f"problem: {long}" in lines
        assert not any("\x1b" in line or line.startswith("and ") for line in lines)
        assert sum("http://" in line for line in lines) == 300


class TestCommand:
    @pytest.fixture(autouse=True)
    def _served(self, daemon: FakeDaemon) -> None:
        daemon.answer("List", {"names": [fakes.name()], "cursor": fakes.CURSOR})
        daemon.answer("ListWorkers", {"workers": [fakes.worker()], "cursor": fakes.CURSOR})
        daemon.answer("Explain", {"verdicts": [fakes.verdict()], "cursor": fakes.CURSOR})
        daemon.answer("GetStatus", fakes.status())

    @pytest.mark.parametrize("args", [(), ("--once",)])
    def test_one_picture_where_there_is_no_terminal(self, ctl: Ctl, args: tuple[str, ...]) -> None:
        found = ctl("top", *args)
        assert (found.status, found.err) == (0, "")
        assert "llama  yes    1              http://127.0.0.1:8001" in found.out.splitlines()
        assert "/cards/x.json  refused" in found.out

    def test_json_is_the_business_of_watch(self, ctl: Ctl) -> None:
        found = ctl("top", "--json")
        assert (found.status, found.out) == (USAGE, "")
        assert "discoveryctl watch --json" in found.err

    def test_without_rich_it_says_how_to_get_it(
        self, daemon: FakeDaemon, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "discoveryd.client.top.drawing", raising=False)
        for module in ("rich", "rich.console"):
            monkeypatch.setitem(sys.modules, module, None)
        found = ctl("top")
        assert (found.status, found.out) == (USAGE, "")
        assert found.err.splitlines() == [
            "discoveryctl: top needs rich, which is not installed. Install it:",
            f"{sys.executable} -m pip install 'discoveryd[top]'",
        ]
        assert daemon.asked() == []

    def test_without_a_daemon_it_fails_as_others_do(self, ctl: Ctl) -> None:
        assert ctl("top", "--socket", "/nowhere/at/all").status == NO_DAEMON
