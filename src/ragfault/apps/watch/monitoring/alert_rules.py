"""Alert rules: limits on rolling means, built in or read from TOML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.apps.watch.monitoring.change_detection import MIN_SLOWDOWN
from ragfault.apps.watch.monitoring.rollups import FAILURES, OPERATION_TITLES, STEP_METRICS
from ragfault.comparison.decision_tree import COST_METRICS, TREE_METRICS
from ragfault.diagnosis.records import HEALTH_ALERTS
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.metrics.aliases import resolve_alias
from ragfault.metrics.catalog import get_definitions
from ragfault.metrics.selection import METRIC_LEVELS
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.whole_files import parse_toml, read_text

Severity = Literal["critical", "high", "medium", "warning"]

# the most urgent first
SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "warning")

UNIT_MINUTES = {"m": 1, "h": 60, "d": 1440}
_DURATION_PATTERN = re.compile(r"(\d+)\s*([mhd])")


WATCHED_METRICS = (*TREE_METRICS, *COST_METRICS, "triad", *STEP_METRICS.values(), *OPERATION_TITLES)
"""Metrics that are tested for drops, by bare name."""


class AlertRule(Struct, frozen=True, kw_only=True):
    """Alert rule: the rolling mean of a metric beyond a limit, for a duration."""

    name: str
    # as it prints or its bare name; "*": every one of WATCHED_METRICS, but OPERATION_TITLES as called only
    metric: str
    # none: every route, each by itself
    route: str | None = None
    # minutes
    window: int = 30
    # the rolling mean is below this …
    below: float | None = None
    # … or above this …
    above: float | None = None
    drop: float | None = None
    """… or at least so much worse than the day that ended where the window begins, in the metric's units …"""
    # … or the sequential test has called a drop
    drop_detected: bool = False
    severity: Severity = "high"
    # how many minutes it must be so before it fires, and be well again before it resolves
    duration: int = 0
    # how far back over its limit the mean must be to count as well again (hysteresis)
    hysteresis: float = 0.0
    # minutes after resolving in which it does not fire again
    cooldown: int = 0
    repeat: int | None = None
    """After so many minutes of firing that nobody acknowledged it is told again; None: once is enough."""
    certain: bool = False
    """Whether the limit must be passed by more than the pattern of the week and the noise of the reference explain; as
    long as there is no reference, by the whole 95 % interval, and no drop is told."""
    # windows with fewer values say nothing
    min_values: int = 1
    unusual: bool = False
    """Whether it says nothing of a route whose mean is usually beyond the limit: the share of relevant chunks is low by
    design where a system retrieves many for each question."""


class RuleReading(Struct, frozen=True, kw_only=True):
    """Result of a rule on one metric and route at one time."""

    rule: AlertRule
    metric: str
    route: str | None
    # the figure that is held against the limit; None: too few values to say
    value: float | None
    # beyond the limit
    breach: bool = False
    # back over it by as much as resolving asks for; never together with `breach`
    recovered: bool = False
    # the worst traces of the window
    traces: tuple[str, ...] = ()


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
            unusual=name.startswith("WARNING_") or metric in COST_METRICS,
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
        # many of a few minutes: nobody should wait for an hour of them
        yield AlertRule(
            name=f"BURST_{name.upper()}",
            metric=name,
            window=10,
            drop=0.05,
            severity="high",
            duration=2,
            hysteresis=0.01,
            certain=True,
            min_values=30,
        )
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


# rule, metric, route; no route is the empty text
AlertKey = tuple[str, str, str]
