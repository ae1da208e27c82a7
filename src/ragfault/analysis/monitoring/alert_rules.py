"""Alert rules: limits on rolling means, built in or read from TOML, and their evaluation on roll-ups."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.analysis.comparison.decision_tree import TREE_METRICS
from ragfault.analysis.monitoring.windows import DAY_MINUTES, MetricSeries, SeriesKey, window_difference, window_mean
from ragfault.analysis.score_matrix import metric_name
from ragfault.analysis.scorecard import HEALTH_ALERTS
from ragfault.errors import InputError, UnknownName, UsageError
from ragfault.io.runs import MetricInfo

Severity = Literal["critical", "high", "medium", "warning"]

SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "warning")  # the most urgent first

DROP_CONFIDENCE = 0.999
"""The confidence with which a drop must be one: rules are looked at again and again, and 95 % would cry wolf."""

UNIT_MINUTES = {"m": 1, "h": 60, "d": 1440}
_DURATION_PATTERN = re.compile(r"(\d+)\s*([mhd])")


class AlertRule(Struct, frozen=True, kw_only=True):
    """Alert rule: the rolling mean of a metric beyond a limit, for a duration."""

    name: str
    metric: str  # as it prints or its bare name; "*": every metric of the decision tree, and the triad
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
    """Whether the whole 95 % interval must be beyond the limit; of a drop, the 99.9 % interval must leave out none."""
    min_values: int = 1  # windows with fewer values say nothing


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
    """Yield a warning and a critical rule for each metric."""
    for metric, warning, critical in (
        ("context_relevance", 0.6, 0.4),
        ("groundedness", 0.7, 0.5),
        ("answer_relevance", 0.6, 0.4),
        ("triad", 0.65, 0.45),
    ):
        for severity, limit in (("warning", warning), ("critical", critical)):
            yield AlertRule(
                name=f"{severity.upper()}_{metric.upper()}",
                metric=metric,
                below=limit,
                severity=severity,  # type: ignore[arg-type]
                hysteresis=0.02,
                duration=5,
                min_values=10,
            )


def _health_rules() -> Iterator[AlertRule]:
    """Yield LOW_RELEVANCE, LOW_USAGE and MISSING_CONTEXT."""
    for name, severity, metric, limit in HEALTH_ALERTS:
        side = {"above": limit} if metric == "missing" else {"below": limit}
        yield AlertRule(
            name=name, metric=metric, severity=severity, hysteresis=0.02, duration=5, min_values=10, **side  # type: ignore[arg-type]
        )  # fmt: skip


DROP_RULE = AlertRule(name="DROP", metric="*", drop_detected=True, severity="high")
"""A drop that the sequential test called."""

DEFAULT_RULES: tuple[AlertRule, ...] = (
    *_health_rules(),
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
    DROP_RULE,
)
"""The rules where none are given."""


RULE_KEYS = {
    "name": "name", "metric": "metric", "route": "route", "window": "window", "below": "below", "above": "above",
    "drop": "drop", "called": "drop_detected", "severity": "severity", "for": "duration", "clear": "hysteresis",
    "cooldown": "cooldown", "repeat": "repeat", "certain": "certain", "least": "min_values",
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
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source} is not TOML: {error}") from None
    for key in table:
        if key not in ("builtin", "rule"):
            raise UnknownName(f"key of {source}", key, ["builtin", "rule"])
    builtin, rows = table.get("builtin", True), table.get("rule", [])
    if not isinstance(builtin, bool) or not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise InputError(f"{source}: builtin is true or false, and each rule is a table [[rule]] with its keys below.")
    own = [_parse_rule(row, f"rule {at} of {source}") for at, row in enumerate(rows, start=1)]
    names = [rule.name for rule in own]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'{source} has {names.count(name)} rules called "{name}". Give each a name of its own.')
    return (*(rule for rule in (DEFAULT_RULES if builtin else ()) if rule.name not in names), *own)


def load_rules(path: str | Path) -> tuple[AlertRule, ...]:
    """Load the rules of a TOML file. Raises what `parse_rules` raises; InputError where it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    return parse_rules(text, str(path))


def _parse_rule(row: Mapping[str, Any], source: str) -> AlertRule:
    """Parse one rule and check each value."""
    fields: dict[str, Any] = {}
    for key, value in row.items():
        if key not in RULE_KEYS:
            raise UnknownName(f"key of {source}", key, RULE_KEYS)
        if key == "severity" and value not in SEVERITIES:
            raise UnknownName(f"severity in {source}", str(value), SEVERITIES)
        fields[RULE_KEYS[key]] = _parse_duration(value, key, source) if key in DURATION_KEYS else value
    if "metric" not in fields:
        raise InputError(f'{source} names no metric. Write metric = "groundedness", or "*" for those of the tree.')
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
    if rule.window < 1 or rule.min_values < 1 or rule.hysteresis < 0 or (rule.drop is not None and rule.drop <= 0):
        raise UsageError(
            f"{source}: a window has a minute or more, least is 1 or more, clear is not below 0, and a drop is above 0."
        )
    return rule


def evaluate_rules(
    rules: Iterable[AlertRule],
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    until: int,
    dropped: Iterable[tuple[str, str | None]] = (),
) -> tuple[RuleReading, ...]:
    """Evaluate each rule on each route, in the window that ends before the minute `until`.

    `called` names the metrics and routes on which a drop is called and not yet over. A user's rule may name a metric
    that is not there: it then sees nothing.
    """
    open_ = set(dropped)
    readings = []
    for rule in rules:
        for key, series in series_by_key.items():
            if key[2] is None and key[0] in measures and _applies_to(rule, key):
                readings.append(_evaluate_rule(rule, key, series, measures[key[0]], until, open_))
    return tuple(readings)


def _applies_to(rule: AlertRule, key: SeriesKey) -> bool:
    """Return whether a rule applies to a metric on a route."""
    if rule.route is not None and rule.route != key[1]:
        return False
    if rule.metric == "*":
        return metric_name(key[0]) in (*TREE_METRICS, "triad")
    return rule.metric in (key[0], metric_name(key[0]))


def _evaluate_rule(
    rule: AlertRule,
    key: SeriesKey,
    series: MetricSeries,
    measure: MetricInfo,
    until: int,
    dropped: set[tuple[str, str | None]],
) -> RuleReading:
    part = series.between(until - rule.window, until)
    traces = tuple(worst.trace for worst in part.worst_traces(5))
    if rule.drop_detected:
        there = (key[0], key[1]) in dropped
        return RuleReading(
            rule=rule, metric=key[0], route=key[1], value=part.mean, breach=there, recovered=not there, traces=traces
        )  # fmt: skip
    mean = part.mean
    if mean is None or part.value_count < rule.min_values:
        return RuleReading(rule=rule, metric=key[0], route=key[1], value=None)
    before = series.between(until - rule.window - DAY_MINUTES, until - rule.window)
    if rule.drop is not None:
        value, breach, well = _check_drop(rule, before, part, measure)
    else:
        value, breach, well = mean, *_check_limit(rule, part, measure)
    return RuleReading(
        rule=rule, metric=key[0], route=key[1], value=value, breach=breach, recovered=well, traces=traces
    )


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
        gap = window_difference(before, series, measure, DROP_CONFIDENCE)
        breach = gap is not None and (gap.high < 0 if sign > 0 else gap.low > 0)
    return worse, breach, not breach and worse <= rule.drop - rule.hysteresis


def worst_severity(rules: Sequence[AlertRule]) -> Severity | None:
    """Return the most urgent severity of some rules; None for no rule."""
    return min((rule.severity for rule in rules), key=SEVERITIES.index, default=None)
