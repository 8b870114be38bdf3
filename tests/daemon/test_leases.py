"""Leases with clocks of their own: nothing here waits."""

import pytest

from discoveryd.daemon.life.leases import TICK_SECONDS, Leases, RunningTime

SECOND_NS = 1_000_000_000
NOW_NS = 1_700_000_000 * SECOND_NS
HOUR_NS = 3600 * SECOND_NS


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Wall:
    def __init__(self) -> None:
        self.ns = NOW_NS

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def leases(wall: Wall) -> Leases[str]:
    return Leases(wall)


def test_time_runs_while_the_loop_ticks() -> None:
    clock = Clock()
    running = RunningTime(clock)
    for _ in range(8):
        clock.seconds += TICK_SECONDS
        assert running.tick()
    assert running.seconds == pytest.approx(8 * TICK_SECONDS)


def test_time_goes_on_between_two_ticks_and_never_back() -> None:
    clock = Clock()
    running = RunningTime(clock)
    clock.seconds += 0.2
    assert running.seconds == pytest.approx(0.2)
    clock.seconds += 60
    before = running.seconds
    running.tick()
    assert running.seconds >= before


def test_a_stop_of_a_minute_is_but_an_instant_and_the_tick_after_it_is_late() -> None:
    clock = Clock()
    running = RunningTime(clock)
    clock.seconds += 60
    assert running.late
    assert not running.tick()
    assert running.late
    assert running.seconds == TICK_SECONDS
    clock.seconds += TICK_SECONDS
    assert running.tick()
    assert not running.late


@pytest.mark.parametrize(
    ("age_seconds", "left"),
    [(0, 10), (4, 6), (9.5, 0.5), (-3600, 10)],
    ids=["new", "older", "old", "from-the-future"],
)
def test_at_first_sight_a_file_is_as_old_as_the_wall_clock_says(
    leases: Leases[str], age_seconds: float, left: float
) -> None:
    mtime_ns = NOW_NS - int(age_seconds * SECOND_NS)
    assert leases.grant("a", 10, mtime_ns, 50.0)
    assert leases.due(50 + left - 0.01) == []
    assert leases.due(50 + left + 0.01) == ["a"]
    assert leases.settle("a", mtime_ns, 50 + left + 0.01)


@pytest.mark.parametrize("age_seconds", [10, 10.1, 3600, 315_360_000])
def test_a_file_that_is_older_than_its_lease_at_first_sight_is_over(
    leases: Leases[str], age_seconds: float
) -> None:
    """B53: ten years in the past."""
    assert not leases.grant("a", 10, NOW_NS - int(age_seconds * SECOND_NS), 50.0)
    assert leases.due(1000.0) == []


@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS], ids=["ahead", "back"])
def test_a_stepped_wall_clock_changes_no_deadline(
    leases: Leases[str], wall: Wall, step_ns: int
) -> None:
    """B53: whoever is touched lives, whoever is not dies when he would have."""
    leases.grant("touched", 10, NOW_NS, 0.0)
    leases.grant("left", 10, NOW_NS, 0.0)
    wall.ns += step_ns
    leases.renew("touched", wall.ns, 5.0)
    assert leases.due(10.0) == ["left"]
    assert leases.settle("left", NOW_NS, 10.0)
    assert leases.due(14.9) == []
    assert leases.due(15.0) == ["touched"]


def test_an_mtime_in_the_future_makes_nobody_immortal(leases: Leases[str]) -> None:
    """B53: an hour ahead, and never touched again."""
    ahead = NOW_NS + HOUR_NS
    leases.grant("a", 10, NOW_NS, 0.0)
    assert leases.renew("a", ahead, 3.0)
    assert leases.due(13.0) == ["a"]
    assert leases.settle("a", ahead, 13.0)
    assert not leases.runs("a")


@pytest.mark.parametrize("when", [9.999, 10.0, 10.001])
def test_a_touch_just_before_at_or_after_the_deadline_keeps_or_brings_back(
    leases: Leases[str], when: float
) -> None:
    """B51: touched at TTL - 1 ms, TTL, TTL + 1 ms, whether that was announced or only looked up."""
    for name, announced in [("announced", True), ("looked-up", False)]:
        leases.grant(name, 10, NOW_NS, 0.0)
        touched_ns = NOW_NS + 1
        if announced:
            leases.renew(name, touched_ns, when)
        for due in leases.due(10.0):
            leases.settle(due, touched_ns if when <= 10.0 else NOW_NS, 10.0)
        leases.renew(name, touched_ns, when)
        assert leases.runs(name)
        assert leases.due(19.0) == []
        leases.drop(name)


def test_whoever_is_over_comes_back_with_the_next_touch_and_for_a_whole_lease(
    leases: Leases[str],
) -> None:
    leases.grant("a", 10, NOW_NS, 0.0)
    leases.due(10.0)
    assert leases.settle("a", NOW_NS, 10.0)
    assert leases.due(99.0) == []
    assert leases.renew("a", NOW_NS + 1, 100.0)
    assert leases.runs("a")
    assert leases.due(109.0) == []
    assert leases.due(110.0) == ["a"]


def test_the_same_mtime_renews_nothing(leases: Leases[str]) -> None:
    leases.grant("a", 10, NOW_NS, 0.0)
    assert not leases.renew("a", NOW_NS, 9.0)
    assert not leases.renew("unknown", NOW_NS, 9.0)
    assert leases.grant("a", 10, NOW_NS, 9.0)
    assert leases.due(10.0) == ["a"]


def test_what_cannot_be_looked_at_is_not_over_and_comes_up_again(leases: Leases[str]) -> None:
    leases.grant("a", 10, NOW_NS, 0.0)
    assert leases.due(10.0) == ["a"]
    assert not leases.settle("a", None, 10.0)
    assert leases.due(10.25) == ["a"]
    assert leases.settle("a", NOW_NS, 10.25)


def test_what_is_not_there_is_over(leases: Leases[str]) -> None:
    leases.grant("a", 10, NOW_NS, 0.0)
    assert leases.due(10.0) == ["a"]
    assert leases.settle("a", "absent", 10.0)


def test_another_length_counts_from_the_last_touch(leases: Leases[str]) -> None:
    leases.grant("a", 10, NOW_NS, 0.0)
    assert leases.grant("a", 4, NOW_NS, 2.0)
    assert leases.due(4.0) == ["a"]
    leases.settle("a", None, 4.0)
    assert leases.grant("a", 60, NOW_NS, 4.0)
    assert leases.due(59.0) == []
    assert leases.due(60.0) == ["a"]
    leases.settle("a", None, 60.0)
    assert not leases.grant("a", 30, NOW_NS, 60.0)


def test_a_touch_costs_nothing_in_the_heap_and_churn_leaves_nothing_there(
    leases: Leases[str],
) -> None:
    leases.grant("a", 86_400, NOW_NS, 0.0)
    for touch in range(10_000):
        leases.renew("a", NOW_NS + touch, touch / 100)
    assert len(leases._heap) == 1
    for number in range(10_000):
        leases.grant(f"{number}", 86_400, NOW_NS, 0.0)
        leases.drop(f"{number}")
    assert len(leases) == 1
    assert len(leases._heap) < 100


def test_next_due_is_never_late(leases: Leases[str]) -> None:
    assert leases.next_due() == float("inf")
    leases.grant("a", 10, NOW_NS, 0.0)
    leases.renew("a", NOW_NS + 1, 6.0)
    assert leases.next_due() == 10.0
    assert leases.due(10.0) == []
    assert leases.next_due() == 16.0
