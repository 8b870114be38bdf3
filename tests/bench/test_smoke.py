"""The whole benchmark runs, in seconds instead of minutes: what it prints can be read and kept.

No number is asserted: few turns on a busy machine say nothing but that they were made.
"""

import math
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bench import report
from tests.bench.__main__ import PARTS
from tests.bench.table import UNITS, Spread

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent.parent


class Ran(NamedTuple):
    """One quick run of everything, without Dynamo."""

    status: int
    printed: str
    json: Path
    report: report.Report


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    place = tmp_path_factory.mktemp("smoke")
    file = place / "rows.json"
    done = bench("--quick", "--json", file, "--peers", place / "no-peers")
    sys.stdout.write(done.stderr)
    return Ran(done.returncode, done.stdout, file, report.load(file))


def test_a_quick_run_measures_every_part(ran: Ran) -> None:
    assert ran.report.failed == {}
    assert ran.status == 0
    assert set(ran.report.took_seconds) == set(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_every_row_of_a_part_says_what_was_measured(ran: Ran, part: str) -> None:
    rows = [row for row in ran.report.rows if row.part == part]
    assert rows
    assert len({(row.what, row.peer) for row in rows}) == len(rows)
    for row in rows:
        assert row.what
        assert row.unit in UNITS
        assert row.ours is not None or row.missing
        for seen in (row.ours, row.theirs):
            assert seen is None or _is_sound(seen)
        assert row.peer or row.theirs is None
        assert row.met is None or row.target
        assert row.target is None or row.met is not None or row.missing


def _is_sound(seen: Spread) -> bool:
    figures = (seen.low, seen.median, seen.high)
    return seen.runs > 0 and all(map(math.isfinite, figures)) and seen.low <= seen.high


def test_rows_whose_peer_is_not_installed_say_so_and_how_to_get_it(ran: Ran) -> None:
    beside = [row for row in ran.report.rows if row.peer and row.peer.startswith("Dynamo")]
    assert beside
    for row in beside:
        assert row.theirs is None
        assert row.missing
    assert "**NOT MEASURED**: Dynamo is not installed: python -m tests.bench --install-peers" in (
        ran.printed
    )


def test_the_table_has_a_line_for_each_row(ran: Ran) -> None:
    for row in ran.report.rows:
        assert f"\n{report.line(row)}\n" in ran.printed


def test_the_table_can_be_printed_again_from_what_was_kept(ran: Ran) -> None:
    again = bench("--table", ran.json)
    assert again.stdout == ran.printed


def test_the_run_says_on_what_it_was_made(ran: Ran) -> None:
    assert {"processors", "kernel", "Python", "uvloop", "Redis", "etcd"} <= set(ran.report.machine)
    assert ran.report.machine["Dynamo"] == "not here"
    for said in ran.report.machine.values():
        assert said in ran.printed
