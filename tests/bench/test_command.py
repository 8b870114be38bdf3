"""One command runs the parts, each apart from the others, and loses nothing that was measured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import __main__ as command
from tests.bench import apart, report
from tests.bench.table import Row, Setup, Spread

PART = """
import os
from tests.bench.table import Row, Spread

def measure(setup):
    assert setup.quick
    yield Row(part="part", what="{what}", unit="s", ours=Spread(os.getpid(), 1, 1, 1))
    {then}
"""


class Parts:
    """Modules of parts that are written for one test."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.setup = Setup(quick=True, peers=place)

    def write(self, name: str, then: str = "") -> str:
        """Write a part that yields one row and then does something; return its module."""
        (self.place / f"bench_{name}.py").write_text(PART.format(what=name, then=then))
        return f"bench_{name}"


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Parts(tmp_path)


def rows_until_it_failed(module: str, setup: Setup) -> tuple[list[Row], str]:
    rows: list[Row] = []
    with pytest.raises(apart.Failed) as failed:
        rows.extend(apart.rows(module, setup))
    return rows, str(failed.value)


def test_parts_are_measured_in_processes_of_their_own(parts: Parts) -> None:
    modules = parts.write("one"), parts.write("other")
    pids = {row.ours for module in modules for row in apart.rows(module, parts.setup)}
    assert len(pids) == 2


def test_a_part_that_raises_says_where() -> None:
    rows, why = rows_until_it_failed("no.such.part", Setup(quick=True, peers=Path()))
    assert rows == []
    assert "Traceback" in why
    assert "No module named 'no'" in why


def test_a_part_whose_process_dies_says_how(parts: Parts) -> None:
    with pytest.raises(apart.Failed, match="ended with status 3"):
        list(apart.rows(parts.write("dying", "os._exit(3)"), parts.setup))


def test_a_failing_part_takes_no_other_down(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, sound = parts.write("broken", "raise ValueError('bad luck')"), parts.write("sound")
    monkeypatch.setattr(command, "PARTS", {"broken": broken, "sound": sound})
    file = parts.place / "rows.json"
    status = command.main(["--quick", "--json", str(file), "--peers", str(parts.place)])
    assert status == 1
    made = report.load(file)
    assert [row.what for row in made.rows] == ["broken", "sound"]
    assert made.failed == {"broken": "ValueError: bad luck"}
    printed = capsys.readouterr()
    assert "**FAILED: broken**" in printed.out
    assert "broken FAILED: Traceback" in printed.err


def test_rows_are_kept_as_they_come(parts: Parts) -> None:
    file = parts.place / "rows.json"
    there = f"open({str(parts.place / 'seen')!r}, 'wb').write(open({str(file)!r}, 'rb').read())"
    wait = f"while not os.path.exists({str(file)!r}): pass"
    module = parts.write("slow", f"{wait}\n    {there}")
    command.run({"slow": module}, parts.setup, file)
    assert [row.what for row in report.load(parts.place / "seen").rows] == ["slow"]


def test_an_interrupted_run_still_shows_what_it_measured(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_module: str, _setup: Setup) -> Iterator[Row]:
        yield Row(part="part", what="so far", unit="s", ours=Spread(1, 1, 1, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr(apart, "rows", interrupted)
    assert command.main(["--peers", str(parts.place)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("| so far |") == 1
    assert (
        f"**FAILED: {next(iter(command.PARTS))}**, its rows are not complete: interrupted"
        in printed
    )


def test_what_a_part_prints_is_not_in_the_table(
    parts: Parts, capfd: pytest.CaptureFixture[str]
) -> None:
    assert list(apart.rows(parts.write("loud", "print('noise', flush=True)"), parts.setup))
    printed = capfd.readouterr()
    assert "noise" in printed.err
    assert printed.out == ""


def test_a_missed_target_is_no_failure(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = Row(part="part", what="x", unit="s", ours=Spread(1, 1, 1, 1), target="less", met=False)
    monkeypatch.setattr(apart, "rows", lambda _module, _setup: iter([missed]))
    assert command.main(["--peers", str(parts.place)]) == 0
    assert "**no**" in capsys.readouterr().out


def test_a_part_that_there_is_not_is_a_usage_error_which_names_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["nonesuch"])
    assert ended.value.code == 2
    assert f"no part nonesuch; there are {', '.join(command.PARTS)}\n" in capsys.readouterr().err


def test_only_the_parts_that_were_asked_for_are_measured(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PARTS", {"one": parts.write("one"), "other": "no.such.part"})
    assert command.main(["one", "--quick", "--peers", str(parts.place)]) == 0


def test_peers_in_a_relative_directory_are_found_by_programs_that_run_elsewhere(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(parts.place)
    told = "import sys\n    print(setup.peers, file=sys.stderr)"
    monkeypatch.setattr(command, "PARTS", {"one": parts.write("one", told)})
    assert command.main(["--quick", "--peers", "here"]) == 0
    assert f"{parts.place}/here\n" in capfd.readouterr().err


def test_the_peers_are_kept_where_the_users_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert str(command._cache()) == "/caches/discoveryd-bench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(command._cache()) == "/home/somebody/.cache/discoveryd-bench"
