"""Alert rules: limits on rolling means, built in or read from TOML, and their evaluation on roll-ups."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.change_detection import MIN_SLOWDOWN, MONTH_MINUTES, ReferencePeriod
from ragfault.apps.watch.monitoring.noise import estimate_error, recovered_mean, tail_deviate
from ragfault.apps.watch.monitoring.rollups import FAILURES, OPERATION_TITLES, STEP_METRICS, is_cohort
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, window_difference, window_mean
from ragfault.comparison.decision_tree import TREE_METRICS
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.diagnosis.scorecard import HEALTH_ALERTS
from ragfault.io.runs.run import MetricInfo
from ragfault.metrics.aliases import resolve_alias
from ragfault.metrics.catalog import get_definitions
from ragfault.metrics.selection import METRIC_LEVELS
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.whole_files import parse_toml, read_text
from ragfault.stats.distributions import normal_quantile

Severity = Literal["critical", "high", "medium", "warning"]

SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "warning")  # the most urgent first

DROP_CONFIDENCE = 0.999  # the confidence with which a drop must be one where there is no reference

RULE_RATE = 0.001
"""False alarms of a rule that must be certain, per metric and route in a month, where there is a reference: some fifty
built-in rules and metrics of a route together stay below 0.05."""

WIDER = 4  # a limit is also held against a window so many times as long, and against a day
LASTING_MINUTES = 600  # minutes of firing after which the day before a window is too much part of the fault

UNIT_MINUTES = {"m": 1, "h": 60, "d": 1440}
_DURATION_PATTERN = re.compile(r"(\d+)\s*([mhd])")


DESIGN_METRICS = ("context_relevance", "chunk_utilization")
"""Metrics whose level says how much a system retrieves as well as how good that is."""


WATCHED_METRICS = (*TREE_METRICS, "triad", *STEP_METRICS.values(), *OPERATION_TITLES)
"""Metrics that are tested for drops, by bare name."""


class AlertRule(Struct, frozen=True, kw_only=True):
    """Alert rule: the rolling mean of a metric beyond a limit, for a duration."""

    name: str
    metric: str  # as it prints or its bare name; "*": every one of WATCHED_METRICS, but OPERATION_TITLES as called only
    route: str | None = None  # none: every route, each by itself
    window: int = 30  # minutes
    below: float | None = None  # the rolling mean is below this …
    above: float | None = None  # … or above this …
    drop: float | None = None
    """… or at least so much worse than the day that ended where the window begins, in the metric's units …"""
    drop_detected: bool = False  # … or the sequential test has called a drop
    severity: Severity = "high"
    duration: int = 0  # how many minutes it must be so before it fires, and be well again before it resolves
    hysteresis: float = 0.0  # how far back over its limit the mean must be to count as well again (hysteresis)
    cooldown: int = 0  # minutes after resolving in which it does not fire again
    repeat: int | None = None
    """After so many minutes of firing that nobody acknowledged it is told again; None: once is enough."""
    certain: bool = False
    """Whether the limit must be passed by more than the pattern of the week and the noise of the reference explain; as
    long as there is no reference, by the whole 95 % interval, and no drop is told."""
    min_values: int = 1  # windows with fewer values say nothing
    unusual: bool = False
    """Whether it says nothing of a route whose mean is usually beyond the limit: the share of relevant chunks is low by
    design where a system retrieves many for each question."""


class RuleReading(Struct, frozen=True, kw_only=True):
    """Result of a rule on one metric and route at one time."""

    rule: AlertRule
    metric: str
    route: str | None
    value: float | None  # the figure that is held against the limit; None: too few values to say
    breach: bool = False  # beyond the limit
    recovered: bool = False  # back over it by as much as resolving asks for; never together with `breach`
    traces: tuple[str, ...] = ()  # the worst traces of the window


def _level_rules() -> Iterator[AlertRule]:
    """Yield LOW_RELEVANCE, LOW_USAGE and MISSING_CONTEXT, and a warning and a critical rule for each metric."""
    limits = [*HEALTH_ALERTS]
    for metric, (warning, critical) in METRIC_LEVELS.items():
        limits += [(f"WARNING_{metric.upper()}", "warning", metric, warning)]
        limits += [(f"CRITICAL_{metric.upper()}", "critical", metric, critical)]
    for name, severity, metric, limit in limits:
        is_high = metric == "missing_context_rate"
        yield AlertRule(
            name=name,
            metric=metric,
            severity=severity,  # type: ignore[arg-type]
            above=limit if is_high else None,
            below=None if is_high else limit,
            hysteresis=0.02,
            duration=5,
            certain=True,
            min_values=10,
            unusual=name.startswith("WARNING_") or metric in DESIGN_METRICS,
        )


def _operation_rules() -> Iterator[AlertRule]:
    """Yield a rule for errors, blank answers, empty retrievals and latency that rise, and one for a share of 0.3."""
    for name in OPERATION_TITLES:
        rise = 0.05 if name in FAILURES else MIN_SLOWDOWN
        yield AlertRule(
            name=f"ROLLING_{name.upper()}",
            metric=name,
            window=60,
            drop=rise,
            duration=5,
            hysteresis=0.01,
            certain=True,
            min_values=10,
        )
    for name in FAILURES:
        yield AlertRule(
            name=f"CRITICAL_{name.upper()}",
            metric=name,
            above=0.3,
            severity="critical",
            duration=5,
            hysteresis=0.02,
            certain=True,
            min_values=10,
            unusual=True,
        )


DROP_RULE = AlertRule(name="DROP", metric="*", drop_detected=True, severity="high")
"""A drop that the sequential test called."""

DEFAULT_RULES: tuple[AlertRule, ...] = (
    *_level_rules(),
    AlertRule(
        name="ROLLING_DROP",
        metric="*",
        window=90,
        drop=0.02,
        severity="warning",
        duration=30,
        hysteresis=0.005,
        certain=True,
        min_values=30,
    ),
    AlertRule(
        name="ROLLING_FALL",
        metric="*",
        window=30,
        drop=0.05,
        severity="high",
        duration=10,
        hysteresis=0.01,
        certain=True,
        min_values=30,
    ),
    *_operation_rules(),
    DROP_RULE,
)
"""The rules where none are given."""


RULE_KEYS = {
    "name": "name", "metric": "metric", "route": "route", "window": "window", "below": "below", "above": "above",
    "drop": "drop", "called": "drop_detected", "severity": "severity", "for": "duration", "clear": "hysteresis",
    "cooldown": "cooldown", "repeat": "repeat", "certain": "certain", "least": "min_values", "unusual": "unusual",
}  # fmt: skip
"""Key of a [[rule]] → field of the record."""

DURATION_KEYS = ("window", "for", "cooldown", "repeat")


def parse_minutes(text: str) -> int:
    """Parse a duration into minutes.

    Raises UsageError for anything but a whole number of minutes, hours or days.

    >>> parse_minutes("90m"), parse_minutes("24h"), parse_minutes("7d")
    (90, 1440, 10080)
    """
    shape = _DURATION_PATTERN.fullmatch(text.strip())
    if shape is None:
        raise UsageError(
            f'"{text}" is not a length of time. Write a whole number of minutes, hours or days: 30m, 24h, 7d.'
        )
    return int(shape[1]) * UNIT_MINUTES[shape[2]]


def parse_rules(text: str, source: str = "rules") -> tuple[AlertRule, ...]:
    """Parse rules from TOML: one table [[rule]] each; `builtin = false` leaves out the built-in ones.

    Raises InputError where it is not TOML or a value is of the wrong kind, UnknownName for a key or a severity that
    does not exist, UsageError for a rule without a limit, with two, or with the name of another.

    >>> found = parse_rules("builtin = false\\nrule = [{metric = 'triad', below = 0.6}]")
    >>> found[0].name, found[0].window
    ('triad<0.6', 30)
    """
    table = parse_toml(text, source)
    for key in table:
        if key not in ("builtin", "rule"):
            raise UnknownName(f"key of {source}", key, ["builtin", "rule"], listed=True)
    builtin, rows = table.get("builtin", True), table.get("rule", [])
    if not isinstance(builtin, bool) or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{source}: builtin is true or false, and each rule is a table [[rule]] with its keys below.")
    own = [_parse_rule(row, f"rule {at} of {source}") for at, row in enumerate(rows, start=1)]
    names = [rule.name for rule in own]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'{source} has {names.count(name)} rules called "{name}". Give each a name of its own.')
    return (*(rule for rule in (DEFAULT_RULES if builtin else ()) if rule.name not in names), *own)


def load_rules(path: str | Path) -> tuple[AlertRule, ...]:
    """Load the rules of a TOML file. Raises what `parse_rules` raises; InputError where it cannot be read."""
    return parse_rules(read_text(path), str(path))


def _parse_rule(row: Mapping[str, Any], source: str) -> AlertRule:
    """Parse one rule and check each value."""
    fields: dict[str, Any] = {}
    for key, value in row.items():
        if key not in RULE_KEYS:
            raise UnknownName(f"key of {source}", key, RULE_KEYS, listed=True)
        if key == "severity" and value not in SEVERITIES:
            raise UnknownName(f"severity in {source}", str(value), SEVERITIES)
        fields[RULE_KEYS[key]] = _parse_duration(value, key, source) if key in DURATION_KEYS else value
    if "metric" not in fields:
        raise InputError(f'{source} names no metric. Write metric = "groundedness", or "*" for those of the tree.')
    if isinstance(fields["metric"], str):
        fields["metric"] = resolve_alias(fields["metric"])
    limits = [key for key in ("below", "above", "drop") if key in row] + (["called"] if row.get("called") else [])
    if len(limits) != 1:
        given = " and ".join(limits) if limits else "none"
        raise UsageError(f"{source} needs one of below, above, drop and called = true; it has {given}.")
    fields.setdefault("name", _default_name(fields, limits[0]))
    try:
        rule = msgspec.convert(fields, AlertRule)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {error}") from None
    return _check_rule(rule, source)


def _parse_duration(value: Any, key: str, source: str) -> int:
    if not isinstance(value, str):
        raise InputError(f'{source}: {key} should be a text such as "30m", not {value!r}.')
    return parse_minutes(value)


def _default_name(fields: Mapping[str, Any], limit: str) -> str:
    sign = {"below": "<", "above": ">", "drop": " drops by ", "called": " drops"}[limit]
    route = f" at {fields['route']}" if fields.get("route") else ""
    return f"{fields['metric']}{sign}{'' if limit == 'called' else fields[limit]}{route}"


def _check_rule(rule: AlertRule, source: str) -> AlertRule:
    if rule.metric != "*" and metric_name(rule.metric) not in get_definitions():
        raise UnknownName(f"metric in {source}", rule.metric, get_definitions(), "List them with: ragfault metrics")
    if rule.window < 1 or rule.min_values < 1 or rule.hysteresis < 0 or (rule.drop is not None and rule.drop <= 0):
        raise UsageError(
            f"{source}: a window has a minute or more, least is 1 or more, clear is not below 0, and a drop is above 0."
        )
    return rule


def describe_limit(rule: AlertRule) -> str:
    """Describe in words what makes a rule fire.

    >>> describe_limit(AlertRule(name="low", metric="m", below=0.5))
    'is below 0.5'
    """
    if rule.drop_detected:
        return "got worse"
    if rule.drop is not None:
        return f"is worse by {rule.drop:g} or more than the day before"
    return f"is below {rule.below:g}" if rule.below is not None else f"is above {rule.above:g}"


AlertKey = tuple[str, str, str]  # rule, metric, route; no route is the empty text
ReferencesByKey = Mapping[tuple[str, str | None], ReferencePeriod]


def evaluate_rules(
    rules: Iterable[AlertRule],
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    dropped: Iterable[tuple[str, str | None]] = (),
    references: ReferencesByKey | None = None,
    fired: Mapping[AlertKey, int] | None = None,
) -> tuple[RuleReading, ...]:
    """Evaluate each rule on each route, in the window that ends before `until`, in minutes since 1970.

    `dropped` names the metrics and routes on which a drop is called and not yet over; `references` has what is known of
    the pattern of the week and the noise; `fired` has the minutes since when alerts fire, which do not recover as long
    as it is worse than before them. A user's rule may name a metric that is not there: it then sees nothing.
    """
    open_ = set(dropped)
    readings = []
    for rule in rules:
        for key, series in series_by_key.items():
            if key[2] is None and key[0] in measures and _applies_to(rule, key):
                reference = None if references is None else references.get((key[0], key[1]))
                reading = _evaluate_rule(rule, key, series, measures[key[0]], until, open_, reference)
                since = (fired or {}).get((rule.name, key[0], key[1] or ""), until)
                if reference and reading.recovered and _is_lasting(rule, series, until, since, reference):
                    reading = replace(reading, recovered=False)
                waiting = rule.drop is not None and rule.certain and references is not None and reference is None
                is_unscaled = waiting and measures[key[0]].high is not None
                if is_unscaled or (rule.unusual and _is_usual(rule, series, until, reference)):
                    reading = replace(reading, breach=False)
                readings.append(reading)
    return tuple(readings)


def _applies_to(rule: AlertRule, key: SeriesKey) -> bool:
    """Return whether a rule applies to a metric on a route; of a cohort only what a test calls, corrected for many."""
    if (rule.route is not None and rule.route != key[1]) or (is_cohort(key[1]) and not rule.drop_detected):
        return False
    if rule.metric == "*":
        return metric_name(key[0]) in WATCHED_METRICS and (rule.drop_detected or key[0] not in OPERATION_TITLES)
    return rule.metric in (key[0], metric_name(key[0]))


def _evaluate_rule(
    rule: AlertRule,
    key: SeriesKey,
    series: MetricSeries,
    measure: MetricInfo,
    until: int,
    dropped: set[tuple[str, str | None]],
    reference: ReferencePeriod | None,
) -> RuleReading:
    part, given, value, breach, well = series.between(until - rule.window, until), rule, None, False, False
    if rule.drop is not None and rule.certain and reference is not None and part.value_count < rule.min_values:
        rule = replace(rule, window=WIDER * rule.window)  # of sparse traffic
        part = series.between(until - rule.window, until)
    is_known = part.value_count >= rule.min_values
    if series.is_stale(until, WIDER * given.window):
        pass
    elif rule.drop_detected:
        breach = (key[0], key[1]) in dropped
        value, well = part.mean, not breach
    elif rule.certain and reference is not None:
        flat = reference.remove_season(series.between(until - 2 * DAY_MINUTES, until))
        if is_known:
            check = _check_certain_limit if rule.drop is None else _check_certain_drop
            value, breach, well = check(rule, flat, until, reference)
            if well and rule is not given:  # a wider window has values from before the fault
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
    mean, falling = series.between(until - rule.window, until).mean, rule.below is not None
    limit = rule.below if rule.below is not None else rule.above
    assert mean is not None
    assert limit is not None
    worse = limit - mean if falling else mean - limit
    breach = worse > 0 and any(
        _is_below(reference, series.between(until - length, until), length, limit, falling, rule.min_values)
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
    part, falling = series.between(start, until), reference.higher_is_better
    day = series.between(start - DAY_MINUTES, start)
    if day.mean is None or part.mean is None or day.value_count < rule.min_values:
        return None, False, False
    assert rule.drop is not None
    worse = (day.mean - part.mean) * (1 if falling else -1)
    breach = False
    for length in (WIDER * rule.window, DAY_MINUTES) if worse >= rule.drop else ():
        before = series.between(start - length, start)
        if before.mean is not None and before.value_count >= rule.min_values:
            window, usual = (length, float(before.value_count)), before.mean
            if reference.metric in FAILURES:  # none in some hours is not never
                usual = (max(0.0, usual) * window[1] + 1) / (window[1] + 1)
            breach |= _is_below(reference, part, rule.window, usual, falling, rule.min_values, window)
    return worse, breach, not breach and worse <= rule.drop - rule.hysteresis


def _find_recovery(
    rule: AlertRule, series: MetricSeries, until: int, reference: ReferencePeriod, is_known: bool
) -> float | None:
    """Return the value of the end of a wide window where that is well again; None where it is not.

    `is_known` where the window of the rule has values enough to say; otherwise the wide one is wider.
    """
    start = until - min(rule.window * WIDER ** (1 if is_known else 2), DAY_MINUTES)
    past, usual = series.between(start - DAY_MINUTES, start), rule.above if rule.below is None else rule.below
    sign = 1 if (reference.higher_is_better if rule.drop is not None else rule.below is not None) else -1
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


def _is_below(
    reference: ReferencePeriod,
    series: MetricSeries,
    length: int,
    expected: float,
    falling: bool,
    min_values: int,
    before: tuple[int, float] | None = None,
) -> bool:
    """Return whether the mean of a window of `length` minutes is worse than expected by more than noise explains."""
    if series.mean is None or series.value_count < min_values or reference.noise is None:
        return False
    width = reference.high - reference.low
    shares = [(value - reference.low) / width for value in (series.mean, expected)]
    now, past = (min(1.0, max(0.0, share if falling else 1 - share)) for share in shares)
    error = estimate_error(reference.noise, (length, float(series.value_count)), before)
    if reference.metric in FAILURES:  # a reference with hardly any says little of their variance
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
