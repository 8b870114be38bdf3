"""What was measured is said so that it can be read, and is not lost."""

from pathlib import Path

import msgspec
import pytest

from tests.bench import report
from tests.bench.table import Row, Spread, figure, spread

ROW = Row(
    part="part",
    what="a thing",
    unit="s",
    ours=Spread(0.002, 0.001, 0.003, 40),
    peer="a peer",
    theirs=Spread(0.008, 0.008, 0.008, 1),
    target="at most 3 ms",
    met=True,
)


@pytest.mark.parametrize(
    ("seen", "unit", "shown"),
    [
        (Spread(0.00231, 0.0019, 0.003049, 9), "s", "2.31 ms (1.90 to 3.05)"),
        (Spread(10.6, 10.6, 10.6, 1), "s", "10.6 s"),
        (Spread(12.3, 9, 2500, 9), "us", "12.3 us (9 to 2,500)"),
        (Spread(2500, 2500, 2500, 1), "us", "2.50 ms"),
        (Spread(0.3, 0.3, 0.3, 1), "ns", "0.30 ns"),
        (Spread(105_432.7, 99_000, 110_000, 9), "calls/s", "105,433 calls/s (99,000 to 110,000)"),
        (Spread(2048, 2048, 2048, 1), "bytes", "2 KiB"),
        (Spread(0, 0, 0, 1), "bytes", "0 bytes"),
        (Spread(0.0512, 0.0512, 0.0512, 1), "%", "0.051 %"),
        (Spread(1.04, 1.04, 1.04, 1), "times", "1.04 times"),
    ],
)
def test_a_figure_has_the_unit_that_suits_it_and_three_digits(
    seen: Spread, unit: str, shown: str
) -> None:
    assert figure(seen, unit) == shown


def test_a_spread_leaves_out_the_highest_and_the_lowest_twentieth() -> None:
    assert spread([100.0, *map(float, range(2, 40)), 0.0]) == Spread(20.5, 3, 38, 40)


def test_a_row_is_a_line_with_ours_beside_the_peer() -> None:
    line = "| a thing | at most 3 ms | 2 ms (1 to 3) | 8 ms, a peer | 0.25 | yes |"
    assert report.line(ROW) == line


@pytest.mark.parametrize(
    ("theirs", "shown"),
    [(2e-6, "1,000"), (0.0013, "1.54"), (10.6, "0.00019"), (0.0234, "0.085"), (0.0, "")],
)
def test_a_ratio_is_readable_from_the_smallest_to_the_greatest(theirs: float, shown: str) -> None:
    row = msgspec.structs.replace(ROW, theirs=Spread(theirs, theirs, theirs, 1))
    assert f"| {shown} | yes |" in report.line(row)


def test_a_missed_target_is_marked() -> None:
    assert report.line(msgspec.structs.replace(ROW, met=False)).endswith("| **no** |")


def test_a_peer_that_is_missing_is_said_loudly_and_why() -> None:
    row = msgspec.structs.replace(ROW, theirs=None, missing="it is not here", met=None)
    assert "| **NOT MEASURED**: it is not here |  |  |" in report.line(row)


def test_what_others_say_cannot_break_the_table() -> None:
    row = msgspec.structs.replace(ROW, theirs=None, missing="a | b\nc")
    assert "NOT MEASURED**: a \\| b c |" in report.line(row)


def test_what_failed_and_that_a_run_was_quick_is_said_with_the_table() -> None:
    made = report.Report(machine={"kernel": "Linux"}, quick=True, failed={"part": "no\nluck"})
    assert made.markdown().startswith("**A quick run")
    assert "**FAILED: part**, its rows are not complete: no luck" in made.markdown()


def test_what_promises_nothing_can_be_left_out_and_that_is_said() -> None:
    told = msgspec.structs.replace(ROW, what="another", target=None, met=None)
    made = report.Report(machine={}, quick=False, rows=[told, ROW])
    whole, promised = made.markdown(), made.markdown(promised=True)
    assert ("| another |" in whole, "| a thing |" in whole) == (True, True)
    assert ("| another |" in promised, "| a thing |" in promised) == (False, True)
    assert ("Not shown" in whole, "promise nothing, 1." in promised) == (False, True)


def test_a_report_is_read_back_as_it_was_and_leaves_nothing_else(tmp_path: Path) -> None:
    made = report.Report(
        machine={"kernel": "Linux"}, quick=False, rows=[ROW], took_seconds={"part": 1.5}
    )
    made.save(tmp_path / "rows.json")
    assert report.load(tmp_path / "rows.json") == made
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]
