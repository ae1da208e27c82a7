"""Watching traffic: roll-ups and their laws, the sequential test, the layer to blame, drift, and `ragfault monitor`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.alert_rules import DEFAULT_RULES
from ragfault.apps.watch.monitoring.change_detection import (
    DropDetection,
    ReferencePeriod,
    SeriesWatch,
    advance_test,
    advance_watch,
    compute_gains,
    detect_drops,
    estimate_onset,
    log_threshold,
    measure_reference,
    start_test,
)
from ragfault.apps.watch.monitoring.drift import measure_drift, measure_topic_drift
from ragfault.apps.watch.monitoring.monitor import MonitorSettings, explain_by_query, load_marks, monitor
from ragfault.apps.watch.monitoring.noise import describe_promise, fit_noise, mean_variance
from ragfault.apps.watch.monitoring.rollups import (
    BINS,
    Observation,
    Rollup,
    add_derived,
    bin_edges,
    collect_measures,
    merge_by_key,
    merge_rollups,
    observe_runs,
    roll_up,
    sum_products,
    trace_cohorts,
)
from ragfault.apps.watch.monitoring.rule_evaluation import (
    RuleContext,
    evaluate_rules,
    evaluate_target,
    find_possible_breaches,
    match_rules,
)
from ragfault.apps.watch.monitoring.windows import (
    MetricSeries,
    build_series,
    compute_correlations,
    describe_distribution,
    rolling_means,
    window_difference,
    window_insights,
    window_mean,
)
from ragfault.apps.watch.report.monitor import describe_monitoring_settings, group_drops, summarize_monitor
from ragfault.cli.commands import run_command
from ragfault.comparison.decision_tree import EQUAL_DEPTH
from ragfault.diagnosis.run_analysis import compute_insights as insights_of
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Chunk, Trace, Verdicts
from ragfault.stats.differences import unpaired_differences
from ragfault.stats.distributions import t_quantile
from ragfault.stats.intervals import standard_error
from sample_reports import HOSTILE, build_run
from sample_runs import evaluate_pairs, pair

SCORE = MetricInfo("groundedness", "generation")
METRICS = ("context_relevance", "groundedness", "answer_relevance", "chunk_utilization", "triad")
START = datetime(2026, 11, 2, tzinfo=UTC)
ZERO = int(START.timestamp()) // 60

seen = st.builds(
    Observation,
    metric=st.sampled_from(["m", "k"]),
    trace=st.sampled_from("abcdefgh"),
    time=st.floats(0, 600),
    value=st.none() | st.floats(0, 1),
    status=st.just("scored"),
    route=st.none() | st.just("web"),
    cohorts=st.just(()) | st.just(("release=7",)),
).map(lambda row: replace(row, status="scored" if row.value is not None else "undefined"))
some = st.lists(seen, max_size=12)


# --- roll-ups ------------------------------------------------------------------------------------------


@given(some, some, some)
def test_merging_knows_no_order(
    first_part: list[Observation], second_part: list[Observation], third_part: list[Observation]
):
    """Roll-ups merge associatively and commutatively, and to what rolling up the whole gives, to the last bit."""
    a, b, c = roll_up(first_part), roll_up(second_part), roll_up(third_part)
    series = roll_up([*first_part, *second_part, *third_part])
    assert merge_by_key([*a, *merge_by_key([*b, *c])]) == merge_by_key([*merge_by_key([*a, *b]), *c]) == series
    assert merge_by_key([*c, *b, *a]) == series
    for first in a:
        for second in b:
            if (first.metric, first.route, first.cohort) == (second.metric, second.route, second.cohort):
                assert merge_rollups(first, second) == merge_rollups(second, first)


@given(some)
def test_a_rollup_counts_every_value_once(observations: list[Observation]):
    """The values, and those without one, of whole routes are as many as were seen; each value is in one bin."""
    result = [item for item in roll_up(observations) if item.cohort is None]
    assert sum(item.n + item.undefined + item.failed for item in result) == len(observations)
    assert all(sum(item.bins) == item.n for item in result)
    known = [item.value for item in observations if item.value is not None]
    assert sum(item.sum for item in result) == pytest.approx(sum(known), abs=1e-3)
    assert msgspec.json.decode(msgspec.json.encode(result), type=list[Rollup]) == result


def test_what_is_stored_does_not_grow_with_traffic():
    """A minute of 10,000 traces is one roll-up, with as few traces named as one of ten."""
    many = [Observation(metric="m", trace=f"{at:05}", time=0.0, value=at / 1e4) for at in range(10_000)]
    (result,) = roll_up(many)
    assert (result.n, [worst.trace for worst in result.worst]) == (
        10_000,
        ["00000", "00001", "00002", "00003", "00004"],
    )


def test_the_worst_are_the_greatest_where_lower_is_better():
    """A metric's own direction says which traces are named."""
    (result,) = roll_up(
        [Observation(metric="m", trace=name, time=0.0, value=value) for name, value in (("a", 1.0), ("b", 9.0))],
        [MetricInfo("m", "operation", "lower", 0.0, None)],
    )
    assert result.worst[0].trace == "b"
    assert (result.bins[1], result.bins[4]) == (1, 1)
    assert bin_edges(0, None)[4:6] == (8.0, 16.0)


def test_other_things_do_not_merge():
    """Roll-ups of two metrics are refused."""
    with pytest.raises(ValueError, match="not of one kind"):
        merge_rollups(Rollup(metric="a", minute=0), Rollup(metric="b", minute=0))


# --- windows -------------------------------------------------------------------------------------------


def make_series(
    values: Sequence[float], metric: str = "groundedness", every: float = 60.0, begin: float = 0.0
) -> MetricSeries:
    """Build the series of some values, one after the other."""
    known = [
        Observation(metric=metric, trace=str(at), time=begin + every * at, value=float(value))
        for at, value in enumerate(values)
    ]
    return build_series(roll_up(known, [SCORE]))[metric, None, None]


def test_a_window_has_the_interval_of_its_values():
    """With a trace a minute the interval from sums is Student's t of the values; the difference has Welch's or more."""
    rng = np.random.default_rng(1)
    first, two = rng.beta(4, 2, 80).round(4), rng.beta(3, 2, 70).round(4)
    result, half = window_mean(make_series(first), SCORE), t_quantile(0.975, 79) * standard_error(first)
    assert result is not None
    assert (result.mean, result.low, result.high) == pytest.approx(
        (first.mean(), first.mean() - half, first.mean() + half), abs=1e-3
    )
    gap, other = (
        window_difference(make_series(first), make_series(two), SCORE),
        unpaired_differences(first, two, bounds=[(0, 1)], resamples=0)[0],
    )
    assert gap is not None
    assert gap.mean == pytest.approx(other.mean, abs=1e-3)
    assert other.high - other.low - 2e-3 < gap.high - gap.low < 1.5 * (other.high - other.low)


@pytest.mark.long
@pytest.mark.parametrize("memory", [1, 60])
def test_differences_allow_for_minutes_that_move_together(memory: int):
    """Where the mean wanders with a memory of an hour, intervals of three days against one hold 0 most of the time."""
    covered = 0
    for seed in range(30):
        series = make_series(0.5 + make_noise(4, 0.05, memory, seed))
        gap = window_difference(series.between(0, 3 * 1440), series.between(3 * 1440, 4 * 1440), SCORE)
        assert gap is not None
        covered += gap.low <= 0 <= gap.high
    assert covered >= 26  # by minutes: about half of 30


def test_values_of_a_minute_that_move_together_widen_the_interval():
    """Ten traces a minute that are all alike are worth one."""
    alone = np.random.default_rng(2).uniform(size=60)
    many = make_series(np.repeat(alone, 10), every=6.0)
    wide, narrow = window_mean(many, SCORE), window_mean(make_series(alone), SCORE)
    assert wide is not None
    assert narrow is not None
    assert wide.high - wide.low == pytest.approx(narrow.high - narrow.low, rel=0.02)


def test_all_perfect_is_not_certain():
    """Twenty perfect scores leave room below 1, and an empty window has no mean."""
    result = window_mean(make_series([1.0] * 20), SCORE)
    assert result is not None
    assert result.low < 0.99 < result.mean == result.high
    assert window_mean(make_series([1.0]).between(5, 9), SCORE) is None
    (empty,) = rolling_means({("groundedness", None, None): make_series([1.0])}, {"groundedness": SCORE}, 50, (30,))
    assert (empty.interval, empty.delta) == (None, None)


def test_a_delta_is_against_the_window_before():
    """The rolling mean of 30 minutes fell by what the two half hours differ."""
    series = make_series([0.9, 0.8] * 15 + [0.6, 0.5] * 15)
    (result,) = rolling_means({("groundedness", None, None): series}, {"groundedness": SCORE}, 60, (30,))
    assert result.interval is not None
    assert result.delta is not None
    assert result.interval.mean == pytest.approx(0.55, abs=1e-4)
    assert result.delta.mean == pytest.approx(-0.3, abs=1e-4)
    assert result.delta.high < 0


def test_correlations_are_those_of_the_values():
    """Sums of products give Pearson's r over the traces that have both metrics, however they were parted."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=200)
    y = 0.5 * x + 0.5 * rng.uniform(size=200)
    known = [
        Observation(metric=name, trace=str(at), time=30.0 * at, value=float(value[at]))
        for at in range(200)
        for name, value in (("x", x), ("y", y))
    ]
    known.append(Observation(metric="x", trace="alone", time=0.0, value=0.0))
    (result,) = compute_correlations(
        [*sum_products(known[:100], [("x", "y")]), *sum_products(known[100:], [("x", "y")])], 0, 999
    )
    assert (result.n, result.r) == (200, pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-3))
    assert result.low < result.r < result.high


def test_outliers_are_beyond_the_fence():
    """One trace far below all others is named; where all lie together none is."""
    result = describe_distribution(
        ("groundedness", None, None), make_series([0.8, 0.82, 0.84, 0.86] * 20 + [0.1]), SCORE
    )
    assert result is not None
    assert [worst.trace for worst in result.outliers] == ["80"]
    assert result.fence is not None
    assert result.fence < result.quartiles[0]
    calm = describe_distribution(("groundedness", None, None), make_series([0.2, 0.4, 0.6, 0.8] * 9), SCORE)
    assert calm is not None
    assert calm.outliers == ()


# --- the sequential test -------------------------------------------------------------------------------


def make_period(floor: float = 0.8, rising: bool = True) -> ReferencePeriod:
    """Build a reference period with this floor."""
    return ReferencePeriod(
        metric="groundedness",
        route=None,
        first=0,
        last=0,
        n=999,
        mean=floor if rising else 1 - floor,
        floors=(floor,),
        bets=(0.05, 0.2, 0.6),
        low=0.0,
        high=1.0,
        higher_is_better=rising,
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.05, 0.95), st.booleans())
def test_gains_are_never_more_than_fair_bets_would_give(values: list[float], floor: float, rising: bool):
    """The capital from sums is at most that of bets value by value, whose expectation is at most 1."""
    period = make_period(floor, rising)
    x = np.array(values)
    result = compute_gains(period, np.array([0]), np.array([x.size]), np.array([x.sum()]), np.array([(x * x).sum()]))[0]
    unit = x if rising else 1 - x
    for gain, bet in zip(result, period.bets, strict=True):
        assert gain <= np.log1p(bet * (floor - unit) / (1 - floor)).sum() + 1e-9


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_a_metric_of_which_lower_is_better_is_the_same_mirrored(seed: int):
    """Scores and what they lack give the same evidence."""
    x = np.random.default_rng(seed).uniform(size=9)
    first = compute_gains(
        make_period(0.7), np.array([0]), np.array([9.0]), np.array([x.sum()]), np.array([(x * x).sum()])
    )
    other = compute_gains(
        make_period(0.7, False),
        np.array([0]),
        np.array([9.0]),
        np.array([(1 - x).sum()]),
        np.array([((1 - x) ** 2).sum()]),
    )
    assert first == pytest.approx(other)


def test_the_sum_grows_no_faster_than_time_where_nothing_changed():
    """At the very floor the mean of the e-detector after t minutes is at most t, so that no look is one too many."""
    rng = np.random.default_rng(4)
    levels = []
    for _ in range(150):
        values = (rng.uniform(size=300) < 0.8).astype(float)
        test = advance_test(start_test(make_period(0.8), 0), make_series(values, every=20.0))
        levels.append(math.exp(test.log_evidence))
    assert np.mean(levels) <= 100


@pytest.mark.long
def test_a_month_without_change_raises_no_alarm():
    """In 5 months of a trace a minute, each with a reference of a week, nothing is called."""
    rng = np.random.default_rng(5)
    calls = 0
    for _ in range(5):
        x = (rng.uniform(size=53_280) < 0.85).astype(float)
        size = x.size
        zeros = np.zeros((size, BINS), np.int64), np.zeros((size, 2), np.int64), ((),) * size
        series = MetricSeries(np.arange(size), np.ones(size), x, x, *zeros)
        period = measure_reference(("groundedness", None), series.between(0, 10_080), SCORE)
        assert period is not None
        calls += len(detect_drops(series, period))
    assert calls == 0


def test_conversations_are_not_counted_by_their_turns():
    """Turns of a conversation that are all alike count as one: evidence is divided by their number."""
    rng = np.random.default_rng(11)
    alone = rng.beta(8, 2, size=1500)
    first = measure_reference(("groundedness", None), make_series(alone), SCORE)
    many = measure_reference(("groundedness", None), make_series(np.repeat(alone, 5), every=12.0), SCORE)
    assert first is not None
    assert many is not None
    assert first.noise is not None
    assert many.noise is not None
    assert max(first.design_effects) < 1.5
    assert many.noise.variance == pytest.approx(5 * first.noise.variance, rel=0.1)
    assert min(many.design_effects) >= 0.99 * many.noise.variance / first.noise.variance
    assert np.mean(many.floors) == pytest.approx(np.mean(first.floors), abs=0.002)
    sums = np.array([0]), np.array([5.0]), np.array([2.0]), np.array([1.0])
    assert compute_gains(replace(make_period(), design_effects=(5.0,) * 3), *sums) * 5 == pytest.approx(
        compute_gains(make_period(), *sums)
    )


def make_traffic(days: int, level: np.ndarray | float, seed: int, rate: float = 10.0) -> MetricSeries:
    """Build traffic of some days whose traces score the share of four claims that hold, at a level a minute."""
    rng, size = np.random.default_rng(seed), days * 1440
    n = rng.poisson(rate, size=size)
    traces = np.repeat(np.arange(size), n)
    values = rng.binomial(4, np.broadcast_to(np.clip(level, 0, 1), size)[traces]) / 4
    total, squares = (np.bincount(traces, weights, minlength=size) for weights in (values, values**2))
    empty = np.zeros((size, BINS), np.int64), np.zeros((size, 2), np.int64), ((),) * size
    return MetricSeries(np.arange(size), n.astype(float), total, squares, *empty)


def make_noise(days: int, deviation: float, memory: float, seed: int) -> np.ndarray:
    """Build first-order autoregressive noise by the minute."""
    rng, keep, now = np.random.default_rng(seed), math.exp(-1 / memory), 0.0
    result = []
    for step in rng.normal(size=days * 1440).tolist():
        now = keep * now + step * deviation * math.sqrt(1 - keep * keep)
        result.append(now)
    return np.array(result)


def test_a_rule_is_broken_only_where_its_means_allow_it():
    """At every minute that the look over all windows leaves out, no built-in rule is in breach; drops are found."""
    minutes = np.arange(6 * 1440)
    drop = 0.3 * ((minutes > 4 * 1440) & (minutes < 4 * 1440 + 400))
    series = make_traffic(6, 0.8 + 0.05 * np.sin(2 * np.pi * minutes / 1440) - drop, 3)
    key = ("groundedness", None, None)
    period = measure_reference(key[:2], series.between(0, 3 * 1440), SCORE)
    ends = np.arange(3 * 1440, 6 * 1440, 45)
    for references in ({}, {key[:2]: period}):
        for target in match_rules(DEFAULT_RULES, {key: series}, {key[0]: SCORE}):
            context = RuleContext((), references)
            breaches = [evaluate_target(target, series, {key[0]: SCORE}, end, context).breach for end in ends.tolist()]
            possible = find_possible_breaches(target.rule, series, SCORE, references.get(key[:2]), ends)
            assert not np.any(np.array(breaches) & ~possible)
            if target.rule.name == "ROLLING_FALL" and references:
                assert any(breaches)
                assert possible.mean() < 0.5


def fire(series: MetricSeries, days: int) -> set[str]:
    """Return the built-in rules that are in breach at any half-hour after a reference of some days."""
    key = ("groundedness", None)
    period = measure_reference(key, series.between(0, days * 1440), SCORE)
    assert period is not None
    calls = detect_drops(series, period)
    names = set()
    for minute in range(days * 1440, len(series.minutes) + 1, 30):
        called = [key for call in calls if call.detected_at < minute <= (call.recovered_at or math.inf)]
        context = RuleContext(called, {key: period})
        readings = evaluate_rules(DEFAULT_RULES, {(*key, None): series}, {key[0]: SCORE}, minute, context)
        names |= {reading.rule.name for reading in readings if reading.breach}
    return names


@pytest.mark.long
def test_day_and_night_are_no_drop():
    """What is lower each night, and lower at weekends, fires no built-in rule in the weeks after a week of it."""
    minutes = np.arange(21 * 1440)
    level = 0.8 + 0.05 * np.sin(2 * np.pi * minutes / 1440) - 0.04 * ((minutes // 1440 + 3) % 7 >= 5)
    assert fire(make_traffic(21, level, 1), 7) == set()
    assert "DROP" in fire(make_traffic(21, level - 0.05 * (minutes > 9 * 1440), 1), 7)


@pytest.mark.long
@pytest.mark.parametrize("memory", [60, 360, 1440])
def test_noise_with_a_memory_is_no_drop(memory: int):
    """Noise of three points with a memory of an hour, six hours or a day fires no built-in rule."""
    assert fire(make_traffic(21, 0.8 + make_noise(21, 0.03, memory, memory), 2), 7) == set()


@pytest.mark.long
def test_the_noise_of_a_reference_is_measured():
    """The variance of means over a day is that of the noise within a factor of four, and tiny where there is none."""
    length = np.array([1440.0])
    for memory in (60, 360):
        noise = fit_noise(make_traffic(7, 0.8 + make_noise(7, 0.03, memory, 3), 3), 0, 1)
        true = 0.03**2 * mean_variance(length / memory)[0]
        assert true / 4 < noise.quantile(noise.slow_variances(length), 0.5)[0] < 4 * true
    alone = fit_noise(make_traffic(7, 0.8, 3), 0, 1)
    assert alone.quantile(alone.slow_variances(length), 0.5)[0] < alone.variance / (10 * 1440)


@pytest.mark.long
def test_a_pattern_is_known_after_the_time_that_shows_it():
    """The pattern of a day is learned from three days and removed; days of the week are promised after seven."""
    minutes = np.arange(3 * 1440)
    series = make_traffic(3, 0.8 + 0.05 * np.sin(2 * np.pi * minutes / 1440), 4, rate=50)
    period = measure_reference(("groundedness", None), series, SCORE)
    assert period is not None
    flat = period.remove_season(series)
    halves = [flat.between(day, day + 720).mean for day in (0, 720)]
    assert abs(halves[0] - halves[1]) < 0.01 < abs(series.between(0, 720).mean - series.between(720, 1440).mean)
    assert "no day of the week yet" in describe_promise(3 * 1440)
    assert "weekends" in describe_promise(7 * 1440)
    assert "no pattern of the day" in describe_promise(600)


def dropped(at: int, size: int, drop: float, seed: int = 6) -> MetricSeries:
    """Build five traces a minute, with a drop at a minute."""
    rng = np.random.default_rng(seed)
    values = rng.beta(8, 2, size=5 * size)
    values[5 * at :] -= drop * values[5 * at :] / 0.8
    return make_series(values, every=12.0)


def test_a_drop_may_have_begun_in_the_pause_before_its_first_value():
    """With a value every 20 minutes the earliest onset is the minute after the last good one, not the first bad one."""
    series = make_series([0.9, 0.88] * 20 + [0.1] * 12, every=1200.0)
    test = advance_test(start_test(make_period(0.8), 0), series)
    assert estimate_onset(series, test)[:2] == (800, 781)


def test_a_drop_is_called_where_it_began():
    """A drop of 10 points is called soon, its beginning is within the interval given, and its size within its own."""
    series = dropped(2000, 2600, 0.1)
    period = measure_reference(("groundedness", None), series.between(0, 1000), SCORE)
    assert period is not None
    (result,) = detect_drops(series, period)
    assert 2000 < result.detected_at < 2120
    assert result.earliest <= 2000 <= result.latest
    assert abs(result.onset - 2000) < 30
    assert result.log_evidence >= log_threshold()
    assert result.recovered_at is None


def test_a_live_watch_detects_what_a_replay_detects():
    """A watch fed every few minutes, stored in between, has the events of a replay over all minutes at once."""
    series = dropped_twice()
    period = measure_reference(("groundedness", None), series.between(0, 1200), SCORE)
    assert period is not None
    watch = SeriesWatch(metric="groundedness", route=None, test=start_test(period, period.last))
    events: list[DropDetection] = []
    for until in range(1200, 4004, 7):
        watch, new = advance_watch(watch, series.between(0, until), until)
        events += new
        watch = msgspec.msgpack.decode(msgspec.msgpack.encode(watch), type=SeriesWatch)
    replayed = detect_drops(series, period)
    assert len(replayed) == 2
    assert [(event.detected_at, event.onset) for event in events if event.recovered_at is None] == [
        (event.detected_at, event.onset) for event in replayed
    ]
    assert [event.recovered_at for event in events if event.recovered_at is not None] == [
        event.recovered_at for event in replayed if event.recovered_at is not None
    ]


def dropped_twice() -> MetricSeries:
    """Return five traces a minute over 4,000 minutes, with drops at 1,500 (recovers at 1,900) and at 3,200."""
    values = np.random.default_rng(7).beta(8, 2, size=5 * 4000)
    for first, last in ((1500, 1900), (3200, 4000)):
        values[5 * first : 5 * last] *= 0.8
    return make_series(values, every=12.0)


def test_clocks_that_stand_hide_no_drop():
    """Traces of 1970 and of a year ahead are left out and counted: the drop is the one without them."""
    start = 60.0 * ZERO
    traffic = [
        Observation(metric="groundedness", trace=str(at), time=start + 6.0 * at, value=0.9 if at < 6000 else 0.7)
        for at in range(9000)
    ]
    stray = [replace(traffic[0], trace=f"stray {time}", time=time) for time in (0.0, start + 86_400.0 * 365)]
    alone, mixed = (monitor(roll_up(seen), [SCORE]) for seen in (traffic, [*traffic, *stray]))
    assert (mixed.drops, mixed.first, mixed.last) == (alone.drops, alone.first, alone.last)
    assert (alone.stray, mixed.stray) == (0, 2)
    assert "2 traces ignored, far in time from all others" in describe_monitoring_settings(mixed)


def test_a_rise_is_no_drop():
    """A metric that gets better is not called."""
    series = dropped(1500, 2000, -0.1)
    period = measure_reference(("groundedness", None), series.between(0, 1000), SCORE)
    assert period is not None
    assert detect_drops(series, period) == ()


@pytest.mark.long
def test_what_recovers_can_drop_again():
    """After the mean is back watching begins anew, and a second drop is a second call."""
    series = dropped_twice()
    period = measure_reference(("groundedness", None), series.between(0, 1200), SCORE)
    assert period is not None
    first, two = detect_drops(series, period)
    assert first.recovered_at is not None
    assert 1900 < first.recovered_at < two.detected_at
    assert abs(two.onset - 3200) < 30


@pytest.mark.parametrize("seed", range(4))
def test_a_drop_that_took_long_to_detect_is_over_soon_after_the_fault(seed: int):
    """With a trace every five minutes it is over within two hours, detected after four, and one that lasts never is."""
    values = np.random.default_rng(seed).binomial(4, 0.88, size=1400) / 4
    faulty = np.random.default_rng(seed + 50).binomial(4, 0.48, size=824) / 4
    for last in (648, 1400):
        series = make_series(np.concatenate([values[:576], faulty[: last - 576], values[last:]]), every=300.0)
        period = measure_reference(("groundedness", None), series.between(0, 1440), SCORE)
        assert period is not None
        [drop] = detect_drops(series, period)
        assert drop.detected_at > 2880 + 180
        assert (drop.recovered_at is None) if last == 1400 else (drop.recovered_at < 3240 + 120)


def test_what_has_no_bounds_or_too_few_values_is_no_reference():
    """Milliseconds cannot be watched so, nor can 29 values; an impossible rate is refused."""
    endless = MetricInfo("latency", "operation", "lower", 0.0, None)
    assert measure_reference(("latency", None), make_series([5.0] * 99), endless) is None
    assert measure_reference(("groundedness", None), make_series([0.5] * 29), SCORE) is None
    with pytest.raises(UsageError, match="shares between 0 and 1"):
        measure_reference(("groundedness", None), make_series([0.5] * 99), SCORE, rate=2.0)


# --- the whole -----------------------------------------------------------------------------------------


def traffic(
    size: int, broke: int | None = None, layer: str = "retrieval", seed: int = 8, name: str = "t"
) -> list[tuple[Trace, Verdicts]]:
    """Build a trace every 30 seconds on two routes; from trace `broke` on one layer does worse."""
    rng, result = np.random.default_rng(seed), []
    for at in range(size):
        bad = broke is not None and at >= broke
        good, true = 0.8 - 0.35 * (bad and layer == "retrieval"), 0.9 - 0.35 * (bad and layer == "generation")
        trace, verdicts = pair(
            f"{name}{at}",
            "".join("h" if rng.random() < good else "n" for _ in range(4)),
            "".join("s" if rng.random() < true else "u" for _ in range(3)),
            used="".join("y" if rng.random() < 0.6 else "-" for _ in range(4)),
            missing=("it",) if rng.random() < 0.1 else (),
            relevance=float(rng.uniform(0.7, 1)),
            route="web" if at % 2 else "app",
            time=START + timedelta(seconds=30 * at),
            model="large" if bad else "small",
            metadata={"release": 8 if bad else 7},
        )
        topic = rng.choice(["ferry fares", "moorings"]) if not bad else "refunds of invoices"
        result.append((replace(trace, query=f"What of {topic}, and when?"), verdicts))
    return result


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Traffic whose retrieval broke at trace 1,000."""
    return evaluate_pairs(tmp_path_factory.mktemp("live"), traffic(1500, 1000), METRICS)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Traffic in which nothing changed."""
    return evaluate_pairs(tmp_path_factory.mktemp("calm"), traffic(900, seed=9), METRICS)


REFERENCE = 480  # minutes; after a shorter one noise of an hour's memory may explain a drop of the last four hours


@pytest.mark.long
def test_the_layer_is_named_that_broke(live: Run, tmp_path: Path):
    """Retrieval that breaks is named retrieval, on the traces after it broke; generation is named generation."""
    for broken, layer, metric in (
        (live, "retrieval", "context_relevance"),
        (evaluate_pairs(tmp_path, traffic(1500, 1000, "generation"), METRICS), "generation", "groundedness"),
    ):
        known = collect_measures([broken])
        result = monitor(
            roll_up(observe_runs([broken], ()), known), known, options=MonitorSettings(reference=REFERENCE)
        )
        mine = next(item for item in result.drops if item.reference.metric == metric)
        assert {item.location.fault.layer for item in result.drops if item.location.fault} == {layer}
        assert abs(mine.detection.onset - ZERO - 500) < 15
        assert mine.difference.high < -0.2
        assert all(int(name[1:]) >= 950 for name in mine.traces)
        assert {event.rule for event in result.fired} >= {"DROP", "ROLLING_DROP"}


@pytest.mark.long
def test_a_drop_of_one_repeated_query_names_no_layer(live: Run, tmp_path: Path):
    """Where one query alone got worse, it is named instead of a layer; where others did as well, the layer stays."""
    broken, calm = traffic(1500, 1000), traffic(1500, seed=9)
    asked = [
        (replace(trace, query="Is it up?", metadata={}), verdicts)
        if at % 3 == 0
        else (replace(old, query=f"Q{at}?"), seen)
        for at, ((trace, verdicts), (old, seen)) in enumerate(zip(broken, calm, strict=True))
    ]
    run = evaluate_pairs(tmp_path, asked, METRICS)
    known = collect_measures([run])
    options = MonitorSettings(reference=REFERENCE)
    report = monitor(roll_up(observe_runs([run], ()), known), known, options=options)
    drops = [drop for drop in explain_by_query(report, [run]).drops if drop.reference.metric == "context_relevance"]
    assert [drop.location.fault for drop in drops] == [None]
    assert "explains it: “Is it up?”; without it the mean moved by" in drops[0].explanation
    assert "may have another cause than a fault" in summarize_monitor(explain_by_query(report, [run]))
    broken_report = monitor(roll_up(observe_runs([live], ()), known), known, options=options)
    assert explain_by_query(broken_report, [live]) == broken_report


@pytest.mark.long
def test_calm_traffic_is_left_alone(calm: Run):
    """Where nothing changed nothing is called and no alert fires."""
    known = collect_measures([calm])
    result = monitor(roll_up(observe_runs([calm]), known), known)
    assert (result.drops, result.fired) == ((), ())
    assert {key[1] for key in result.unwatched} <= {"app", "web"}
    assert {line.route for line in result.lines} == {"app", "web"}


def test_figures_are_those_of_a_report(calm: Run):
    """Over all of a run, what is watched has the means of its verdicts, and insights those of the run."""
    known = collect_measures([calm])
    all_ = build_series(roll_up(observe_runs([calm], ()), known))
    missing = [bool(verdicts.missing) for verdicts in calm.verdicts() if verdicts.missing is not None]
    watched = all_["missing_context_rate", None, None]
    assert (watched.value_count, watched.mean) == (len(missing), pytest.approx(np.mean(missing), abs=1e-4))
    theirs = {(item.measure, item.by): item for item in insights_of(calm)}
    mine = window_insights(all_, 0, 10**9)
    assert {(item.measure, item.by) for item in mine} == {
        (measure, by) for measure in ("relevance", "use") for by in ("position", "chunks")
    }
    for item in mine:
        for first, two in zip(item.buckets, theirs[item.measure, item.by].buckets, strict=True):
            assert (first.label, first.traces, first.interval.n) == (two.label, two.traces, two.interval.n)
            assert first.interval.mean == pytest.approx(two.interval.mean, abs=1e-4)


@pytest.mark.long
def test_longer_lists_are_a_cost_and_no_fault(tmp_path: Path):
    """Where irrelevant chunks come behind the same first three, relevance at equal depth holds, and no layer broke."""
    pairs = []
    for at, (trace, _) in enumerate(traffic(1500)):
        levels = "hhm" + ("nnnnn" if at >= 1000 else "")
        levels = ("n" + levels[1:]) if at % 7 == 0 else levels
        pairs.append(pair(trace.id, levels, "sss", used="yyy" + "-" * (len(levels) - 3), time=trace.time))
    long = evaluate_pairs(tmp_path, pairs, METRICS)
    known = collect_measures([long])
    result = monitor(roll_up(observe_runs([long], ()), known), known)
    mine = next(item for item in result.drops if item.reference.metric == "context_relevance")
    assert mine.location.fault is None
    assert {change.metric: change.state for change in mine.location.changes}[EQUAL_DEPTH] == "steady"


@pytest.mark.long
def test_cohorts_are_by_model_release_and_any_key(live: Run):
    """Each value of a field is a cohort; what a trace lacks is left out; an unknown field is named."""
    trace = Trace(id="a", query="q", model="m", route="r", metadata={"release": 7, "prompt_version": "p2", "x": None})
    by = ("model", "release", "prompt_version", "metadata.x", "route")
    assert trace_cohorts(trace, by) == ("model=m", "release=7", "prompt_version=p2", "route=r")
    known = collect_measures([live])
    result = monitor(roll_up(observe_runs([live], ("release",)), known), known)
    rolling = [item for item in result.rolling_means if item.metric == "context_relevance"]
    means = {item.cohort: item.interval for item in rolling if item.cohort and item.window == 1440}
    assert means["release=8"].high < means["release=7"].low  # type: ignore[union-attr]
    with pytest.raises(UnknownName, match='Did you mean "release"'):
        observe_runs([live], ("relase",))


def test_traffic_that_cannot_be_watched_says_so(calm: Run):
    """Nothing at all, and a reference that leaves nothing, are refused."""
    with pytest.raises(UsageError, match="nothing to monitor"):
        monitor([], ())
    known = collect_measures([calm])
    with pytest.raises(UsageError, match="Name a shorter one"):
        monitor(roll_up(observe_runs([calm]), known), known, options=MonitorSettings(reference=9999))


# --- drift and marks -----------------------------------------------------------------------------------


@pytest.mark.long
def test_drift_is_detected_where_there_is_some(live: Run, calm: Run):
    """Traffic like the evaluated has moved in nothing; traffic that broke has, in scores and in topics."""
    known = {measure.name: measure for measure in add_derived(calm.manifest.metrics)}
    for run_, moved in ((calm, False), (live, True)):
        all_ = build_series(roll_up(observe_runs([run_], ()), known.values()))
        queries = [trace.query for trace in run_.traces()]
        result = measure_drift(calm, all_, known, queries)
        shown = {item.metric for item in result.scores if item.adjusted <= 0.05}
        assert ("context_relevance" in shown) is moved
        assert result.topics is not None
        assert (result.topics.p <= 0.05) is moved
        assert ("refund" in result.topics.risen_stems) is moved


def test_topics_of_two_draws_are_alike():
    """Queries divided at random lie as far apart as chance has it; without words there is nothing to compare."""
    rng = np.random.default_rng(10)
    texts = [f"Where is the {rng.choice(['ferry', 'pier', 'office', 'crane'])} now?" for _ in range(400)]
    result = measure_topic_drift(texts[:200], texts[200:])
    assert result is not None
    assert result.low <= result.distance <= result.high
    assert measure_topic_drift(["the of"], texts) is None
    assert measure_topic_drift([], []) is None


def test_marks_are_lines_of_json(tmp_path: Path):
    """Each line is a mark, times without a zone are UTC, and what is not a mark is named with its line."""
    path = tmp_path / "marks.jsonl"
    path.write_text('{"time": "2026-11-02T00:05:00", "text": "release 7"}\n\n')
    (mark,) = load_marks(path)
    assert (mark.minute, mark.text) == (ZERO + 5, "release 7")
    path.write_text('{"text": "release 7"}\n')
    with pytest.raises(InputError, match=r"marks.jsonl:1 is not a mark"):
        load_marks(path)
    with pytest.raises(InputError, match="cannot read"):
        load_marks(tmp_path / "none")


# --- the verb ------------------------------------------------------------------------------------------


def run_monitor(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    """Run `ragfault monitor` with an expected exit code; return its output."""
    assert run_command(["monitor", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out + captured.err


@pytest.mark.long
def test_an_alert_ends_with_1(live: Run, calm: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What broke comes first, with the mark before it and the traces; calm traffic ends with 0."""
    marks = tmp_path / "marks.jsonl"
    marks.write_text('{"time": "2026-11-02T08:18:00Z", "text": "release 8"}\n')
    asked = (live.path, "--by", "release", "--marks", marks, "--against", calm.path)
    out = run_monitor(capsys, *asked, code=1)
    assert "Retrieval broke" in out.splitlines()[0]
    assert "shortly before: release 8 (2026-11-02 08:18)" in out
    assert "More of:" not in out
    out = run_monitor(capsys, *asked, "--full", code=1)
    assert "More of:" in out
    assert "release=8" in out
    assert run_monitor(capsys, calm.path).startswith("No drop is called")


@pytest.mark.long
def test_json_holds_all_of_it(live: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The JSON has the incidents with their sentence, and the state of the alerts; a file is not replaced unasked."""
    place = tmp_path / "monitor.json"
    run_monitor(capsys, live.path, "--by", "route", "--window", "30m", "-o", place, code=1)
    result = json.loads(place.read_text())
    assert result["drops"][0]["sentence"].startswith("Retrieval broke")
    assert result["options"]["windows"] == [30]
    assert result["alert_state"]["alerts"]
    assert "exists already" in run_monitor(capsys, live.path, "-o", place, code=2)


@pytest.mark.long
def test_the_page_is_one_file_and_harmless(live: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Marks, routes and ids that are attacks stand escaped in a page that asks nothing of any network."""
    pairs = [(replace(t, route=HOSTILE, metadata={"release": HOSTILE}), v) for t, v in traffic(600, 300)]
    hostile = evaluate_pairs(tmp_path, pairs, METRICS)
    marks = tmp_path / "marks.jsonl"
    marks.write_bytes(msgspec.json.encode({"time": START + timedelta(minutes=149), "text": HOSTILE}) + b"\n")
    place = tmp_path / "page.html"
    run_monitor(capsys, hostile.path, "--by", "route,release", "--marks", marks, "-o", place, code=1)
    text = place.read_text()
    assert "<script>window.pwned" not in text
    assert "<img src=x" not in text
    assert text.count("<script>") == 1
    assert "{{" not in text.replace("{{script}}", "")
    assert "\x1b[31m" not in run_monitor(capsys, hostile.path, "--by", "route,release", "--marks", marks, code=1)


@pytest.mark.long
def test_rules_of_ones_own_fire(calm: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A rule in TOML fires beside the built-in ones, or alone."""
    rules = tmp_path / "rules.toml"
    rules.write_text('builtin = false\n[[rule]]\nmetric = "groundedness"\nroute = "web"\nbelow = 0.99\n')
    out = run_monitor(capsys, calm.path, "--rules", rules, code=1)
    assert "groundedness<0.99 at web" in out
    assert "at app" not in out.partition("Alerts")[2].partition("Not watched")[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--by", "rout"], 'Did you mean "route"'),
        (["--window", "30"], "not a length of time"),
        (["--window", "0m"], "at least one minute"),
        (["--reference", "9d"], "Name a shorter one"),
        (["--rate", "3"], "between 0 and 1"),
        (["--against", "nope"], "no run at nope"),
        (["--rules", "nope.toml"], "cannot read nope.toml"),
        (["-o", "page.csv"], "has no known suffix"),
    ],
)
def test_what_cannot_be_is_one_message_and_exit_2(
    calm: Run, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    """What was asked, what there is, what to do."""
    assert says in run_monitor(capsys, calm.path, *arguments, code=2)


def test_traces_without_a_time_cannot_be_watched(calm: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A run without times says what is missing, and runs of two judges are refused."""
    pairs = [(replace(t, time=None), v) for t, v in traffic(5)]
    assert "Give each trace its `time`" in run_monitor(capsys, evaluate_pairs(tmp_path, pairs, METRICS).path, code=2)
    other = build_run(tmp_path / "other", traffic(5), judge="another")
    assert "could come from the judge" in run_monitor(capsys, calm.path, other.path, code=2)


def test_what_is_not_watched_is_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Traces without a time or given twice are counted, markup is named, a short time is not called free of drops."""
    start = datetime(2026, 5, 1, tzinfo=UTC)
    chunks, path = (Chunk(id="c", text="The ferry leaves at ten."),), tmp_path / "run"
    traces = [
        Trace(
            id=str(n),
            query="When?",
            chunks=chunks,
            answer='<p title="at ten">At ten.</p>',
            time=start + timedelta(minutes=9 * n) if n % 2 else None,
        )
        for n in range(12)
    ]
    evaluate(traces, path, judge="lexical", metrics=["groundedness"])
    out = " ".join(run_monitor(capsys, path).split())
    assert out.startswith("Nothing is watched for drops in 91 min of traffic, since no metric has enough values in the")
    assert "6 of 12 traces have no time and are left out" in out
    assert "12 of 12 answers of run are JSON, or" in out
    assert "12 traces have the id of another one" in " ".join(run_monitor(capsys, path, path).split())
    run_monitor(capsys, path, "-o", tmp_path / "page.html")
    assert "6 of 12 traces have no time and are left out" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("every", [1, 2])
def test_a_metric_that_never_varied_and_suddenly_falls_has_dropped(every: int):
    seen = [
        Observation(metric="groundedness", trace=str(at), time=60.0 * at, value=float(at < 2000 or at % every > 0))
        for at in range(3000)
    ]
    report = monitor(roll_up(seen), [MetricInfo("groundedness", "generation")])
    [drop] = report.drops
    assert drop.detection.onset == 2000


def test_routes_without_reports_of_their_own_are_cohorts(tmp_path: Path):
    """A drop by other shares of the routes is no fault, also where the report is by another field."""
    trace = Trace(id="1", query="?", route="web", time=datetime(2026, 11, 2, tzinfo=UTC), metadata={"release": "7"})
    run = evaluate([trace], tmp_path / "run", judge="lexical")
    assert {seen.cohorts for seen in observe_runs([run], ["release"])} == {("release=7", "route=web")}
    assert {seen.route for seen in observe_runs([run], ["release"])} == {None}
    assert {(seen.route, seen.cohorts) for seen in observe_runs([run], ["route"])} == {("web", ())}


def test_metrics_that_drop_together_are_one_change():
    """Two metrics of a route that fall from one minute on are one change; one that falls a day later is another."""
    series = {}
    for metric, onset in (("groundedness", 8000), ("answer_relevance", 8000), ("context_relevance", 10_500)):
        seen = [
            Observation(metric=metric, trace=str(at), time=60.0 * at, value=(0.9 if at < onset else 0.5) + at % 7 / 70)
            for at in range(14_000)
        ]
        series[metric] = seen
    report = monitor(
        roll_up([item for seen in series.values() for item in seen]),
        [MetricInfo(name, "generation") for name in series],
    )
    changes = group_drops(report.drops)
    names = [{drop.reference.metric for drop in change} for change in changes]
    assert {"groundedness", "answer_relevance"} in names
    assert {"context_relevance"} in names
