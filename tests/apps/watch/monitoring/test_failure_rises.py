"""More failing traces of sparse traffic: told against a calm history, and never against one that varies as much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ragfault.apps.watch.monitoring.alert_rules import DEFAULT_RULES
from ragfault.apps.watch.monitoring.change_detection import (
    DropDetection,
    SeriesWatch,
    advance_watch,
    detect_drops,
    measure_reference,
    start_test,
)
from ragfault.apps.watch.monitoring.noise import HISTORY_MINUTES
from ragfault.apps.watch.monitoring.rule_evaluation import RuleContext, evaluate_rules
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries
from ragfault.io.runs.run import MetricInfo

ERROR = MetricInfo("error", "operation", "lower", 0.0, 1.0)
GROUNDEDNESS = MetricInfo("groundedness", "generation", "higher", 0.0, 1.0)
BEGIN = 31_666_680  # a Monday


def build(n: np.ndarray, total: np.ndarray, squares: np.ndarray) -> MetricSeries:
    """Build a series by the minute from counts, sums and sums of squares."""
    minutes = np.flatnonzero(n)
    columns = (column[minutes].astype(float) for column in (n, total, squares))
    size = len(minutes)
    none = np.zeros((size, 0), np.int64), np.zeros((size, 2), np.int64), ((),) * size
    return MetricSeries(BEGIN + minutes, *columns, *none)


def place(failed: Sequence[int], days: float = 1.25) -> MetricSeries:
    """Build three traces every ten minutes of some days; one fails at each of some minutes since the begin."""
    n, total = (np.zeros(int(days * DAY_MINUTES), np.int64) for _ in range(2))
    n[::10] = 3
    total[np.array(failed) // 10 * 10] = 1
    return build(n, total, total)


def detect(series: MetricSeries) -> list[DropDetection]:
    """Return the drops that are detected with the first day as reference."""
    period = measure_reference(("error", "web"), series.between(0, BEGIN + DAY_MINUTES), ERROR)
    assert period is not None
    return list(detect_drops(series, period))


def test_a_tenth_that_fails_after_a_calm_day_is_detected_within_108_traces():
    """No failure in 432 traces, then 11 in 108: told before these are over, and its onset is within the interval."""
    [drop] = detect(place(range(DAY_MINUTES + 20, DAY_MINUTES + 350, 30)))
    assert DAY_MINUTES < drop.detected_at - BEGIN < DAY_MINUTES + 360
    assert drop.earliest <= BEGIN + DAY_MINUTES + 20 <= drop.latest


def test_as_many_failures_as_each_night_are_none():
    """The history has a night with a quarter as many: no rise, although by chance there would hardly be so many."""
    night = [*range(120, 180, 20), *range(DAY_MINUTES + 10, DAY_MINUTES + 340, 30)]
    assert detect(place(night)) == []


def test_as_many_failures_as_the_night_before_last_are_none():
    """The night before was calm, and the one before that had a quarter as many at that hour: no rise."""
    night = [*range(3 * DAY_MINUTES + 10, 3 * DAY_MINUTES + 340, 30)]
    assert detect(place([DAY_MINUTES + 20, DAY_MINUTES + 40, DAY_MINUTES + 60, *night], 3.25)) == []
    assert len(detect(place(night, 3.25))) == 1


def test_failures_of_one_moment_count_once():
    """Eleven attempts of one query that fail within three minutes are no rise of a route with a trace a minute."""
    n, total = np.ones(2 * DAY_MINUTES, np.int64), np.zeros(2 * DAY_MINUTES, np.int64)
    n[2000:2003], total[2000:2003] = 4, 4
    assert detect(build(n, total, total)) == []


@pytest.mark.long
@pytest.mark.parametrize("share", [0.004, 0.02, 0.05])
def test_a_share_that_stays_is_no_rise(share: float):
    """Six weeks of sparse traffic of which as many fail as ever: nothing is detected."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = rng.poisson(0.3, 7 * DAY_MINUTES)
        failed = rng.binomial(n, share)
        assert detect(build(n, failed, failed)) == []


def test_a_watch_detects_the_rise_that_a_replay_detects():
    """Round after round, with what the server still has at hand, it is detected at the same minute, once."""
    series = place([40, *range(3 * DAY_MINUTES, 4 * DAY_MINUTES, 30)], 4)
    period = measure_reference(("error", None), series.between(0, BEGIN + DAY_MINUTES), ERROR)
    assert period is not None
    watch = SeriesWatch(metric="error", route=None, test=start_test(period, period.last))
    events: list[DropDetection] = []
    for until in range(period.last, BEGIN + 4 * DAY_MINUTES, 7):
        watch, new = advance_watch(watch, series.between(until - HISTORY_MINUTES, until), until)
        events += new
    [live], [replayed] = events, detect_drops(series, period)
    assert (live.detected_at, live.onset, live.earliest) == (replayed.detected_at, replayed.onset, replayed.earliest)


def test_a_fall_of_groundedness_in_sparse_traffic_breaches_a_rule():
    """From .88 to .6 with three traces in ten minutes: a window with fewer than thirty is widened."""
    rng = np.random.default_rng(0)
    level = np.where(np.arange(2 * DAY_MINUTES) < 1.5 * DAY_MINUTES, 0.88, 0.6)
    n = rng.poisson(0.3, len(level))
    values = rng.binomial(4 * n, level) / 4
    squares = values**2 / np.maximum(n, 1) + n * level * (1 - level) / 4 * (n > 1)
    series = build(n, values, squares)
    key = ("groundedness", "web")
    period = measure_reference(key, series.between(0, BEGIN + DAY_MINUTES), GROUNDEDNESS)
    assert period is not None

    def breaches(hours: float) -> set[str]:
        until = BEGIN + int(1.5 * DAY_MINUTES + 60 * hours)
        given = {(*key, None): series.between(0, until)}, {key[0]: GROUNDEDNESS}, until, RuleContext((), {key: period})
        return {reading.rule.name for reading in evaluate_rules(DEFAULT_RULES, *given) if reading.breach}

    assert breaches(0) == set()
    assert {"ROLLING_FALL", "ROLLING_DROP"} <= breaches(6)
