"""Some cases of the oracle on the real Dynamo, where it is installed."""

import os
from pathlib import Path

import pytest

from tests.bench.oracle import comparing, listing
from tests.bench.oracle.cases import HERE, Case, Registers
from tests.bench.oracle.part import through_daemon
from tests.bench.oracle.runtime import Runtime

SEED = "live"


def python(variable: str, package: str) -> Path:
    """Return the Python that a variable names; skip where it is not set."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"NOT TESTED: name in {variable} a Python that has {package}")
    return Path(named)


@pytest.fixture
def runtime() -> "Runtime":
    return Runtime(python("DISCOVERYD_TEST_DYNAMO", "ai-dynamo-runtime"))


@pytest.mark.timeout(300)
def test_verdicts_are_the_real_runtimes_but_for_the_documented_deviations(
    runtime: Runtime,
) -> None:
    with runtime:
        report = comparing.run(runtime, SEED, range(200))
        assert not report.differing, comparing.told(report, runtime)
        assert report.agreed.total() > 100


@pytest.mark.timeout(300)
def test_a_daemon_that_follows_a_store_gives_the_same_verdicts(runtime: Runtime) -> None:
    with runtime:
        report = through_daemon(runtime, 30, SEED)
        assert not report.differing, comparing.told(report, runtime)


@pytest.mark.timeout(300)
def test_a_wrong_verdict_is_found_and_made_small(runtime: Runtime) -> None:
    def yes(steps: object, _instances: object) -> list[str | None]:
        assert isinstance(steps, list)
        return ["accept" for _ in steps]

    member = Registers(worker=0, endpoint=HERE, source="A", name="m", aliases=("x",), assets=True)
    other = Registers(worker=1, endpoint=HERE, source="A", name="n", aliases=("x",), assets=True)
    third = Registers(worker=2, endpoint="ns/oc/e2", source="A", name="l", assets=True)
    with runtime:
        one = Case(seed=SEED, number=0, steps=(member, third, other))
        least = comparing.smallest(runtime, one, yes)
    assert least is not None
    assert (least.theirs, least.ours) == ("reject", "accept")
    assert least.steps == (member, other)


@pytest.mark.timeout(300)
def test_names_are_the_real_frontends(runtime: Runtime) -> None:
    frontend = python("DISCOVERYD_TEST_DYNAMO_FRONTEND", "ai-dynamo's frontend")
    with runtime:
        report = listing.run(runtime, frontend, seed=SEED, worlds=3, events=5)
    assert not report.differing, listing.told(report)
    assert report.names > 10
