"""Evaluation of alert rules on series of roll-ups."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.apps.watch.monitoring.alert_rules import WATCHED_METRICS, AlertKey, AlertRule, RuleReading
from ragfault.apps.watch.monitoring.change_detection import MONTH_MINUTES, ReferencePeriod
from ragfault.apps.watch.monitoring.noise import estimate_error, recovered_mean, tail_deviate
from ragfault.apps.watch.monitoring.rollups import FAILURES, OPERATION_TITLES, is_cohort
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, window_difference, window_mean
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.io.runs.run import MetricInfo
from ragfault.stats.distributions import normal_quantile

# the confidence with which a drop must be one where there is no reference
DROP_CONFIDENCE = 0.999

RULE_RATE = 0.001
"""False alarms of a rule that must be certain, per metric and route in a month, where there is a reference: some fifty
built-in rules and metrics of a route together stay below 0.05."""

# a limit is also held against a window so many times as long, and against a day
WIDER = 4
# minutes of firing after which the day before a window is too much part of the fault
LASTING_MINUTES = 600

# sums of many values may be off by so much
ROUNDING = 1e-6

# None: all routes
MetricRoute = tuple[str, str | None]


class RuleContext(NamedTuple):
    """Facts from before the window of a rule."""

    dropped: Collection[MetricRoute] = ()
    """Metrics and routes with a detected drop that is not over."""
    references: Mapping[MetricRoute, ReferencePeriod] | None = None
    """Weekly pattern and noise; None where no reference is ever measured."""
    fired: Mapping[AlertKey, int] = MappingProxyType({})
    """Minutes since when alerts fire; such an alert recovers only once it is not worse than before it."""


NOTHING_KNOWN = RuleContext()


class RuledSeries(NamedTuple):
    """A metric on a route, with what a rule compares it with."""

    key: SeriesKey
    series: MetricSeries
    measure: MetricInfo
    reference: ReferencePeriod | None
    is_dropped: bool


class RuleTarget(NamedTuple):
    """A rule and one of the series that it reads."""

    rule: AlertRule
    key: SeriesKey

    @property
    def alert_key(self) -> AlertKey:
        """Return the identity of its alert."""
        return (self.rule.name, self.key[0], self.key[1] or "")


def evaluate_rules(
    rules: Iterable[AlertRule],
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    context: RuleContext = NOTHING_KNOWN,
) -> tuple[RuleReading, ...]:
    """Evaluate each rule on each route, in the window that ends before `until`, in minutes since 1970.

    A user's rule may name a metric that is not there: it then sees nothing.
    """
    targets = match_rules(rules, series_by_key, measures)
    return tuple(evaluate_target(target, series_by_key[target.key], measures, until, context) for target in targets)


def match_rules(
    rules: Iterable[AlertRule], series_by_key: Mapping[SeriesKey, MetricSeries], measures: Mapping[str, MetricInfo]
) -> tuple[RuleTarget, ...]:
    """Return each rule with each series that it reads."""
    keys = [key for key in series_by_key if key[2] is None and key[0] in measures]
    return tuple(RuleTarget(rule, key) for rule in rules for key in keys if _applies_to(rule, key))


def evaluate_target(
    target: RuleTarget,
    series: MetricSeries,
    measures: Mapping[str, MetricInfo],
    until: int,
    context: RuleContext = NOTHING_KNOWN,
) -> RuleReading:
    """Evaluate one rule on one series, in the window that ends before `until`, in minutes since 1970."""
    (rule, key), references = target, context.references
    reference = None if references is None else references.get(key[:2])
    ruled = RuledSeries(key, series, measures[key[0]], reference, key[:2] in context.dropped)
    reading = _evaluate_rule(rule, ruled, until)
    since = context.fired.get(target.alert_key, until)
    if reference and reading.recovered and _is_lasting(rule, series, until, since, reference):
        reading = replace(reading, recovered=False)
    # without a reference the usual level of a bounded metric is unknown: the rule waits for one
    waiting = rule.drop is not None and rule.certain and references is not None and reference is None
    is_unscaled = waiting and measures[key[0]].high is not None
    if is_unscaled or (rule.unusual and _is_usual(rule, series, until, reference)):
        reading = replace(reading, breach=False)
    return reading


def find_possible_breaches(
    rule: AlertRule,
    series: MetricSeries,
    measure: MetricInfo,
    reference: ReferencePeriod | None,
    minutes: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return at which of the minutes a rule may be broken, from the means of all its windows at once.

    A rule is broken only where the mean of its window, or of the wider one of sparse traffic, is beyond the limit, so
    that all other minutes need no closer look. May be too many, and is never too few.
    """
    if rule.drop_detected or WIDER * rule.window > DAY_MINUTES:
        return np.ones(len(minutes), dtype=bool)
    flat = reference.remove_season(series) if rule.certain and reference is not None else series
    sign = 1 if measure.better == "higher" else -1
    possible = np.zeros(len(minutes), dtype=bool)
    for window in (rule.window, WIDER * rule.window):
        mean = _window_means(flat, minutes - window, minutes)
        if rule.drop is not None:
            day = _window_means(flat, minutes - window - DAY_MINUTES, minutes - window)
            possible |= sign * (day - mean) >= rule.drop - ROUNDING
        elif rule.below is not None:
            possible |= mean < rule.below + ROUNDING
        elif rule.above is not None:
            possible |= mean > rule.above - ROUNDING
    return possible


def _window_means(series: MetricSeries, first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean from each minute of `first` to before that of `last`; NaN where there is no value."""
    starts, ends = np.searchsorted(series.minutes, first), np.searchsorted(series.minutes, last)
    counts, sums = (np.concatenate(([0.0], np.cumsum(column))) for column in (series.n, series.sum))
    with np.errstate(invalid="ignore", divide="ignore"):
        means: NDArray[np.float64] = (sums[ends] - sums[starts]) / (counts[ends] - counts[starts])
    return means


def _applies_to(rule: AlertRule, key: SeriesKey) -> bool:
    """Return whether a rule applies to a metric on a route; of a cohort only what a test calls, corrected for many."""
    if (rule.route is not None and rule.route != key[1]) or (is_cohort(key[1]) and not rule.drop_detected):
        return False
    if rule.metric == "*":
        return metric_name(key[0]) in WATCHED_METRICS and (rule.drop_detected or key[0] not in OPERATION_TITLES)
    return rule.metric in (key[0], metric_name(key[0]))


def _evaluate_rule(rule: AlertRule, ruled: RuledSeries, until: int) -> RuleReading:
    key, series, measure, reference, is_dropped = ruled
    part, given, value, breach, well = series.between(until - rule.window, until), rule, None, False, False
    if rule.drop is not None and rule.certain and reference is not None and part.value_count < rule.min_values:
        # sparse traffic: a fault that lasts is in a wider window, too
        rule = replace(rule, window=WIDER * rule.window)
        part = series.between(until - rule.window, until)
    is_known = part.value_count >= rule.min_values
    if series.is_stale(until, WIDER * given.window):
        pass
    elif rule.drop_detected:
        value, breach, well = part.mean, is_dropped, not is_dropped
    elif rule.certain and reference is not None:
        flat = reference.remove_season(series.between(until - 2 * DAY_MINUTES, until))
        if is_known:
            check = _check_certain_limit if rule.drop is None else _check_certain_drop
            value, breach, well = check(rule, flat, until, reference)
            # a wider window has values from before the fault, which make it look well
        if well and rule is not given:
            first = int(part.minutes[::-1][np.searchsorted(np.cumsum(part.n[::-1]), rule.min_values)])
            well = check(replace(rule, window=until - first), flat, until, reference)[2]
        recovered = None if well else _find_recovery(given, flat, until, reference, is_known)
        if recovered is not None:
            value, breach, well = recovered, False, True
    elif is_known and rule.drop is not None:
        before = series.between(until - rule.window - DAY_MINUTES, until - rule.window)
        value, breach, well = _check_drop(rule, before, part, measure)
    elif is_known:
        value, breach, well = part.mean, *_check_limit(rule, part, measure)
    traces = tuple(worst.trace for worst in part.worst_traces(5)) if breach else ()
    return RuleReading(
        rule=rule, metric=key[0], route=key[1], value=value, breach=breach, recovered=well, traces=traces
    )


def _is_usual(rule: AlertRule, series: MetricSeries, until: int, reference: ReferencePeriod | None) -> bool:
    """Return whether neither the reference nor the day before the window is known to be within the limit of a rule."""
    start = until - rule.window
    before = series.between(start - DAY_MINUTES, start)
    means = (before.mean if before.value_count >= rule.min_values else None, reference.mean if reference else None)
    known = [mean for mean in means if mean is not None]
    if rule.below is not None:
        return all(mean < rule.below for mean in known)
    return rule.above is not None and all(mean > rule.above for mean in known)


def _check_certain_limit(
    rule: AlertRule, series: MetricSeries, until: int, reference: ReferencePeriod
) -> tuple[float | None, bool, bool]:
    """Return the mean without the pattern of the week, whether it is a breach, and whether it has recovered.

    The mean of the window must be beyond the limit, and that of the window, of a wider one or of a day beyond what
    noise explains.
    """
    mean = series.between(until - rule.window, until).mean
    limit = rule.below if rule.below is not None else rule.above
    assert mean is not None
    assert limit is not None
    worse = limit - mean if rule.below is not None else mean - limit
    breach = worse > 0 and any(
        _is_beyond_noise(rule, reference, series.between(until - length, until), length, limit)
        for length in {rule.window, min(WIDER * rule.window, DAY_MINUTES), max(rule.window, DAY_MINUTES)}
    )
    return mean, breach, not breach and worse <= -rule.hysteresis


def _check_certain_drop(
    rule: AlertRule, series: MetricSeries, until: int, reference: ReferencePeriod
) -> tuple[float | None, bool, bool]:
    """Return how much worse a window is than the day before it, whether it is a breach, and whether it recovered.

    The difference from that day or from a shorter time before the window must be more than noise explains.
    """
    start = until - rule.window
    part = series.between(start, until)
    day = series.between(start - DAY_MINUTES, start)
    if day.mean is None or part.mean is None or day.value_count < rule.min_values:
        return None, False, False
    assert rule.drop is not None
    worse = (day.mean - part.mean) * (1 if reference.higher_is_better else -1)
    breach = False
    for length in (WIDER * rule.window, DAY_MINUTES) if worse >= rule.drop else ():
        before = series.between(start - length, start)
        if before.mean is not None and before.value_count >= rule.min_values:
            window, usual = (length, float(before.value_count)), before.mean
            # no failure in some hours does not mean that there never is one
            if reference.metric in FAILURES:
                usual = (max(0.0, usual) * window[1] + 1) / (window[1] + 1)
            breach |= _is_beyond_noise(rule, reference, part, rule.window, usual, window)
    return worse, breach, not breach and worse <= rule.drop - rule.hysteresis


def _find_recovery(
    rule: AlertRule, series: MetricSeries, until: int, reference: ReferencePeriod, is_known: bool
) -> float | None:
    """Return the value of the end of a wide window where that is well again; None where it is not.

    `is_known` where the window of the rule has values enough to say; otherwise the wide one is wider.
    """
    start = until - min(rule.window * WIDER ** (1 if is_known else 2), DAY_MINUTES)
    past, usual = series.between(start - DAY_MINUTES, start), rule.above if rule.below is None else rule.below
    sign = 1 if _expects_fall(rule, reference) else -1
    if rule.drop is not None:
        usual = past.mean if past.value_count >= rule.min_values else None
    if usual is None:
        return None
    part, level = series.between(start, until), sign * usual + rule.hysteresis - (rule.drop or 0.0)
    part, width = replace(part, sum=sign * part.sum), reference.high - reference.low
    mean = recovered_mean(part, rule.window, level, reference.noise, width)
    return mean if mean is None else sign * mean if rule.drop is None else sign * usual - mean


def _is_lasting(rule: AlertRule, series: MetricSeries, until: int, since: int, reference: ReferencePeriod) -> bool:
    """Return whether a wide window is still worse than the day before an alert that has fired for long."""
    if rule.drop is None or until - since < LASTING_MINUTES:
        return False
    flat, wide = reference.remove_season(series), WIDER * rule.window
    first = since - rule.duration - wide
    day, part = flat.between(first - DAY_MINUTES, first), flat.between(until - wide, until)
    if day.mean is None or part.mean is None or min(day.value_count, part.value_count) < rule.min_values:
        return False
    return (day.mean - part.mean) * (1 if reference.higher_is_better else -1) > rule.drop - rule.hysteresis


def _expects_fall(rule: AlertRule, reference: ReferencePeriod) -> bool:
    """Return whether lower values break a rule."""
    return reference.higher_is_better if rule.drop is not None else rule.below is not None


def _is_beyond_noise(
    rule: AlertRule,
    reference: ReferencePeriod,
    series: MetricSeries,
    length: int,
    expected: float,
    before: tuple[int, float] | None = None,
) -> bool:
    """Return whether the mean of a window of `length` minutes is worse than expected by more than noise explains.

    `before` has the minutes and number of values from which `expected` was measured; None for a given limit.
    """
    if series.mean is None or series.value_count < rule.min_values or reference.noise is None:
        return False
    width = reference.high - reference.low
    shares = [(value - reference.low) / width for value in (series.mean, expected)]
    falling = _expects_fall(rule, reference)
    now, past = (min(1.0, max(0.0, share if falling else 1 - share)) for share in shares)
    error = estimate_error(reference.noise, (length, float(series.value_count)), before)
    # a reference with hardly any failure says little of their variance
    if reference.metric in FAILURES:
        error = max(error, math.sqrt(past * (1 - past) / series.value_count))
    return tail_deviate(now, past, error) > normal_quantile(1 - RULE_RATE * length / MONTH_MINUTES)


def _check_limit(rule: AlertRule, series: MetricSeries, measure: MetricInfo) -> tuple[bool, bool]:
    """Return whether the mean of a window is beyond the limit, and whether it has recovered."""
    mean = series.mean
    assert mean is not None
    interval = window_mean(series, measure) if rule.certain else None
    if rule.below is not None:
        breach = (mean if interval is None else interval.high) < rule.below
        return breach, not breach and mean >= rule.below + rule.hysteresis
    assert rule.above is not None
    breach = (mean if interval is None else interval.low) > rule.above
    return breach, not breach and mean <= rule.above - rule.hysteresis


def _check_drop(
    rule: AlertRule, before: MetricSeries, series: MetricSeries, measure: MetricInfo
) -> tuple[float | None, bool, bool]:
    """Return how much worse a window is than the day before it, whether it is a breach, and whether it recovered."""
    if before.mean is None or series.mean is None or before.value_count < rule.min_values:
        return None, False, False
    assert rule.drop is not None
    sign = 1 if measure.better == "higher" else -1
    worse = sign * (before.mean - series.mean)
    breach = worse >= rule.drop
    if breach and rule.certain:
        gap = window_difference(before, series, measure, DROP_CONFIDENCE, lasting_noise=False)
        breach = gap is not None and (gap.high < 0 if sign > 0 else gap.low > 0)
    return worse, breach, not breach and worse <= rule.drop - rule.hysteresis
