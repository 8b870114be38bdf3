"""The oracle as a part of the benchmark."""

from pathlib import Path

import pytest

from tests.bench.oracle.cases import Registers
from tests.bench.oracle.comparing import playable
from tests.bench.oracle.frontend import Frontend, Hindered
from tests.bench.oracle.part import NAME, measure
from tests.bench.oracle.runtime import Played, Runtime, Verdict
from tests.bench.oracle.test_live import python
from tests.bench.table import Setup


def test_without_dynamo_every_row_says_so(tmp_path: Path) -> None:
    rows = list(measure(Setup(quick=True, peers=tmp_path)))
    assert len(rows) == 3
    for row in rows:
        assert row.part == NAME
        assert (row.ours, row.met) == (None, None)
        assert row.missing == "Dynamo is not installed: there is no dynamo-runtime"


@pytest.mark.timeout(300)
def test_with_dynamo_nothing_differs_beyond_the_documented_deviations(tmp_path: Path) -> None:
    for name, variable in {
        "dynamo-runtime": "DISCOVERYD_TEST_DYNAMO",
        "dynamo-frontend": "DISCOVERYD_TEST_DYNAMO_FRONTEND",
    }.items():
        installed = python(variable, "Dynamo").parent.parent
        (tmp_path / name).symlink_to(installed)
    rows = list(measure(Setup(quick=True, peers=tmp_path)))
    assert [row.met for row in rows] == [True, None] * 3
    assert not any(row.missing for row in rows)


def test_a_runtime_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such module' >&2\nexit 1\n")
    broken.chmod(0o755)
    with Runtime(broken) as runtime, pytest.raises(RuntimeError, match="no such module"):
        runtime.play([])


def test_a_frontend_without_inotify_instances_is_no_verdict(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("started\n")
    frontend = Frontend(1, log)
    frontend.check()
    log.write_text("Internal filesystem error: Too many open files (os error 24)\n")
    with pytest.raises(Hindered, match="run out of inotify instances"):
        frontend.check()


def test_what_dynamo_could_not_play_is_left_out_for_both() -> None:
    one, other = (
        Registers(worker=worker, endpoint="ns/oc/e", source="A", name="m") for worker in (0, 1)
    )
    verdicts = (Verdict("ValueError: no such worker type"), Verdict(""))
    steps, words = playable([one, other], Played(verdicts, {}, [1, 2, 3]))
    assert steps == [other]
    assert words == ["accept"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "accept"),
        ("Exception: Cannot register model 'm' on endpoint 'ns/oc/e': a different one", "reject"),
        ("Exception: failed to deserialize model display_name from card_json", "reject"),
        ("Exception: model update can only change runtime_config.taints", "reject"),
        ("Exception: model update cannot change discovery identity", "reject"),
        ("OSError: File name too long", "failed: OSError: File name too long"),
    ],
)
def test_the_words_of_dynamo_are_verdicts(text: str, said: str) -> None:
    assert Verdict(text).said == said
