"""Figures for Prometheus, in its text format: what they are called and what they mean.

Names are the interface's words. Whatever grows only is a counter; a daemon that restarts begins at
zero again. Nothing here names a model or a worker: their number has no bound.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from discoveryd import __version__
from discoveryd.core.verdict import Standing
from discoveryd.daemon.http.calls import BOUNDS, Calls, Tally
from discoveryd.daemon.methods.upkeep import Surroundings

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that is measured, as of one moment.

    `ledger_lag` is whether rows are owed to the ledger, and how many events; None without a ledger.
    """

    around: Surroundings
    calls: Calls
    ledger_lag: tuple[bool, int] | None
    names: int
    revision: int
    standings: Mapping[str, int]
    workers: int


def exposition(figures: Figures) -> bytes:
    """Return the figures in Prometheus' text format."""
    return generate_latest(_Collected(figures))


class _Collected(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield every family; asked by Prometheus' library."""
        yield InfoMetricFamily("discoveryd", "Which daemon this is.", {"version": __version__})
        yield from _registry(self._figures)
        yield from _calls(self._figures.calls)
        yield from _surroundings(self._figures.around)
        lag = self._figures.ledger_lag
        if lag is not None:
            yield _gauge("ledger_behind", "Whether a restart may change answers.", lag[0])
            yield _gauge("ledger_events_unwritten", "Events only kept in memory yet.", lag[1])


def _registry(figures: Figures) -> Iterator[Metric]:
    cards = GaugeMetricFamily("discoveryd_cards", "Card files by standing.", labels=["standing"])
    for standing in Standing:
        cards.add_metric([standing], figures.standings.get(standing, 0))
    yield cards
    yield _gauge("workers", "Workers that serve, draining ones included.", figures.workers)
    yield _gauge("names", "Names that are served, aliases included.", figures.names)
    yield _gauge("revision", "The revision of the answers, within their epoch.", figures.revision)


def _calls(calls: Calls) -> Iterator[Metric]:
    made = CounterMetricFamily("discoveryd_calls", "Calls by method.", labels=["method"])
    failed = CounterMetricFamily(
        "discoveryd_call_errors", "Calls that got an error.", labels=["method", "error"]
    )
    durations = HistogramMetricFamily(
        "discoveryd_call_seconds",
        "From a call to its answer, or to where that begins. Resolve is not timed.",
        labels=["method"],
    )
    for method, tally in calls.tallies.items():
        made.add_metric([method], tally.calls)
        if tally.timed:
            durations.add_metric([method], _classes(tally), tally.seconds)
    for (method, error), count in calls.errors.items():
        failed.add_metric([method, error], count)
    yield from (made, failed, durations)


def _classes(tally: Tally) -> list[tuple[str, float]]:
    """Return how many durations were at most this long, as the format has them."""
    ends = [*(str(bound) for bound in BOUNDS), "+Inf"]
    return list(zip(ends, map(float, accumulate(tally.classes)), strict=True))


def _surroundings(around: Surroundings) -> Iterator[Metric]:
    yield _gauge("uptime_seconds", "How long the daemon has run.", around.uptime_seconds)
    yield _gauge("connections", "Open connections to the interface.", around.connections)
    yield _gauge("watchers", "Connections that are being sent a stream.", around.watchers)
    yield _gauge("problems", "What GetStatus tells as a problem.", len(around.all_problems))
    labels = ["directory"]
    watching = GaugeMetricFamily(
        "discoveryd_directory_watching", "Whether changes in it are seen at once.", labels=labels
    )
    files = GaugeMetricFamily("discoveryd_directory_files", "Card files in it.", labels=labels)
    scan = GaugeMetricFamily(
        "discoveryd_directory_scan_seconds", "How long its last scan took.", labels=labels
    )
    found = CounterMetricFamily(
        "discoveryd_directory_found_by_scan",
        "Changes that a scan found and no event had told of.",
        labels=labels,
    )
    for each in around.directories:
        watching.add_metric([each.path], each.watching)
        files.add_metric([each.path], each.files)
        scan.add_metric([each.path], each.last_scan_seconds)
        found.add_metric([each.path], each.found_by_scan)
    yield from (watching, files, scan, found)


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"discoveryd_{name}", meaning, value)
