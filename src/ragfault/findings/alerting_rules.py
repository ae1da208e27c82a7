"""The rules of alerts: what a rolling mean may come to before somebody is told, built in or written in TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.errors import InputError, UnknownName, UsageError
from ragfault.findings.grid import bare
from ragfault.findings.health import ALERTS
from ragfault.findings.monitoring_windows import DAY, Key, Series, difference, interval
from ragfault.findings.tree import TREE
from ragfault.runs import Measure

__all__ = [
    "CALLED",
    "RULES",
    "SEVERITIES",
    "Reading",
    "Rule",
    "load_rules",
    "minutes",
    "most_severe",
    "read_rules",
    "readings",
]

Severity = Literal["critical", "high", "medium", "warning"]

SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "warning")
"""The most urgent first."""

SURE = 0.999
"""The confidence with which a drop must be one: rules are looked at again and again, and 95 % would cry wolf."""

UNITS = {"m": 1, "h": 60, "d": 1440}
_LENGTH = re.compile(r"(\d+)\s*([mhd])")


class Rule(Struct, frozen=True, kw_only=True):
    """When somebody is told: a metric's rolling mean beyond a limit, for so long."""

    name: str
    metric: str
    """As it prints or its bare name; "*": every metric of the decision tree, and the triad."""
    route: str | None = None
    """None: every route, each by itself."""
    window: int = 30
    """Minutes."""
    below: float | None = None
    """The rolling mean is below this …"""
    above: float | None = None
    """… or above this …"""
    drop: float | None = None
    """… or at least so much worse than the day that ended where the window begins, in the metric's units …"""
    called: bool = False
    """… or the sequential test has called a drop."""
    severity: Severity = "high"
    lasting: int = 0
    """How many minutes it must be so before it fires, and be well again before it resolves."""
    clear: float = 0.0
    """How far back over its limit the mean must be to count as well again (hysteresis)."""
    cooldown: int = 0
    """Minutes after resolving in which it does not fire again."""
    repeat: int | None = None
    """After so many minutes of firing that nobody acknowledged it is told again; None: once is enough."""
    certain: bool = False
    """Whether the whole 95 % interval must be beyond the limit; of a drop, the 99.9 % interval must leave out none."""
    least: int = 1
    """Windows with fewer values say nothing."""


class Reading(Struct, frozen=True, kw_only=True):
    """What a rule sees on a route at one time."""

    rule: Rule
    metric: str
    route: str | None
    value: float | None
    """The figure that is held against the limit; None: too few values to say."""
    breach: bool = False
    """Beyond the limit."""
    well: bool = False
    """Back over it by as much as resolving asks for; never together with `breach`."""
    traces: tuple[str, ...] = ()
    """The worst traces of the window."""


def _levels() -> Iterator[Rule]:
    """Warning and critical, by metric."""
    for metric, warning, critical in (
        ("context_relevance", 0.6, 0.4),
        ("groundedness", 0.7, 0.5),
        ("answer_relevance", 0.6, 0.4),
        ("triad", 0.65, 0.45),
    ):
        for severity, limit in (("warning", warning), ("critical", critical)):
            yield Rule(
                name=f"{severity.upper()}_{metric.upper()}",
                metric=metric,
                below=limit,
                severity=severity,  # type: ignore[arg-type]
                clear=0.02,
                lasting=5,
                least=10,
            )


def _health() -> Iterator[Rule]:
    """LOW_RELEVANCE, LOW_USAGE and MISSING_CONTEXT."""
    for name, severity, metric, limit in ALERTS:
        side = {"above": limit} if metric == "missing" else {"below": limit}
        yield Rule(
            name=name, metric=metric, severity=severity, clear=0.02, lasting=5, least=10, **side  # type: ignore[arg-type]
        )  # fmt: skip


CALLED = Rule(name="DROP", metric="*", called=True, severity="high")
"""A drop that the sequential test called."""

RULES: tuple[Rule, ...] = (
    *_health(),
    *_levels(),
    Rule(
        name="ROLLING_DROP",
        metric="*",
        window=90,
        drop=0.02,
        severity="warning",
        lasting=30,
        clear=0.005,
        certain=True,
        least=30,
    ),
    Rule(
        name="ROLLING_FALL",
        metric="*",
        window=30,
        drop=0.05,
        severity="high",
        lasting=10,
        clear=0.01,
        certain=True,
        least=30,
    ),
    CALLED,
)
"""The rules where none are given."""


# --- from TOML ---------------------------------------------------------------------------------------

KEYS = {
    "name": "name", "metric": "metric", "route": "route", "window": "window", "below": "below", "above": "above",
    "drop": "drop", "called": "called", "severity": "severity", "for": "lasting", "clear": "clear",
    "cooldown": "cooldown", "repeat": "repeat", "certain": "certain", "least": "least",
}  # fmt: skip
"""Key of a [[rule]] → field of the record."""

TIMES = ("window", "for", "cooldown", "repeat")


def minutes(text: str) -> int:
    """A length of time in minutes.

    Raises UsageError for anything but a whole number of minutes, hours or days.

    >>> minutes("90m"), minutes("24h"), minutes("7d")
    (90, 1440, 10080)
    """
    shape = _LENGTH.fullmatch(text.strip())
    if shape is None:
        raise UsageError(
            f'"{text}" is not a length of time. Write a whole number of minutes, hours or days: 30m, 24h, 7d.'
        )
    return int(shape[1]) * UNITS[shape[2]]


def read_rules(text: str, where: str = "rules") -> tuple[Rule, ...]:
    """Rules from TOML: a table [[rule]] each, and `builtin = false` to leave out the built-in ones.

    Raises InputError where it is not TOML or a value is of the wrong kind, UnknownName for a key or a severity that
    does not exist, UsageError for a rule without a limit, with two, or with the name of another.

    >>> found = read_rules("builtin = false\\nrule = [{metric = 'triad', below = 0.6}]")
    >>> found[0].name, found[0].window
    ('triad<0.6', 30)
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not TOML: {error}") from None
    for key in table:
        if key not in ("builtin", "rule"):
            raise UnknownName(f"key of {where}", key, ["builtin", "rule"])
    builtin, rows = table.get("builtin", True), table.get("rule", [])
    if (
        not isinstance(builtin, bool)
        or not isinstance(rows, list)
        or not all(isinstance(r, dict) for r in rows)
    ):
        raise InputError(
            f"{where}: builtin is true or false, and each rule is a table [[rule]] with its keys below."
        )
    own = [_rule(row, f"rule {at} of {where}") for at, row in enumerate(rows, start=1)]
    names = [rule.name for rule in own]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f'{where} has {names.count(name)} rules called "{name}". Give each a name of its own.'
            )
    return (*(rule for rule in (RULES if builtin else ()) if rule.name not in names), *own)


def load_rules(path: str | Path) -> tuple[Rule, ...]:
    """The rules of a TOML file; raises what `read_rules` raises, and InputError where it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    return read_rules(text, str(path))


def _rule(row: Mapping[str, Any], where: str) -> Rule:
    """One rule, each value checked."""
    made: dict[str, Any] = {}
    for key, value in row.items():
        if key not in KEYS:
            raise UnknownName(f"key of {where}", key, KEYS)
        if key == "severity" and value not in SEVERITIES:
            raise UnknownName(f"severity in {where}", str(value), SEVERITIES)
        made[KEYS[key]] = _minutes(value, key, where) if key in TIMES else value
    if "metric" not in made:
        raise InputError(
            f'{where} names no metric. Write metric = "groundedness", or "*" for those of the tree.'
        )
    limits = [key for key in ("below", "above", "drop") if key in row] + (
        ["called"] if row.get("called") else []
    )
    if len(limits) != 1:
        told = " and ".join(limits) if limits else "none"
        raise UsageError(f"{where} needs one of below, above, drop and called = true; it has {told}.")
    made.setdefault("name", _name(made, limits[0]))
    try:
        found = msgspec.convert(made, Rule)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None
    return _sensible(found, where)


def _minutes(value: Any, key: str, where: str) -> int:
    if not isinstance(value, str):
        raise InputError(f'{where}: {key} should be a text such as "30m", not {value!r}.')
    return minutes(value)


def _name(made: Mapping[str, Any], limit: str) -> str:
    sign = {"below": "<", "above": ">", "drop": " drops by ", "called": " drops"}[limit]
    route = f" at {made['route']}" if made.get("route") else ""
    return f"{made['metric']}{sign}{'' if limit == 'called' else made[limit]}{route}"


def _sensible(rule: Rule, where: str) -> Rule:
    if rule.window < 1 or rule.least < 1 or rule.clear < 0 or (rule.drop is not None and rule.drop <= 0):
        raise UsageError(
            f"{where}: a window has a minute or more, least is 1 or more, clear is not below 0, and a drop is above 0."
        )
    return rule


# --- what rules see -----------------------------------------------------------------------------------


def readings(
    rules: Iterable[Rule],
    all_: Mapping[Key, Series],
    measures: Mapping[str, Measure],
    until: int,
    called: Iterable[tuple[str, str | None]] = (),
) -> tuple[Reading, ...]:
    """What each rule sees on each route in the window that ends at a minute, exclusive.

    `called` names the metrics and routes on which a drop is called and not yet over. A user's rule may name a metric
    that is not there: it then sees nothing.
    """
    open_ = set(called)
    found = []
    for rule in rules:
        for key, each in all_.items():
            if key[2] is None and key[0] in measures and _meant(rule, key):
                found.append(_reading(rule, key, each, measures[key[0]], until, open_))
    return tuple(found)


def _meant(rule: Rule, key: Key) -> bool:
    """Whether a rule is about a metric on a route."""
    if rule.route is not None and rule.route != key[1]:
        return False
    if rule.metric == "*":
        return bare(key[0]) in (*TREE, "triad")
    return rule.metric in (key[0], bare(key[0]))


def _reading(
    rule: Rule, key: Key, each: Series, measure: Measure, until: int, open_: set[tuple[str, str | None]]
) -> Reading:
    part = each.between(until - rule.window, until)
    telling = tuple(worst.trace for worst in part.telling(5))
    if rule.called:
        there = (key[0], key[1]) in open_
        return Reading(
            rule=rule, metric=key[0], route=key[1], value=part.mean, breach=there, well=not there, traces=telling
        )  # fmt: skip
    mean = part.mean
    if mean is None or part.traces < rule.least:
        return Reading(rule=rule, metric=key[0], route=key[1], value=None)
    before = each.between(until - rule.window - DAY, until - rule.window)
    if rule.drop is not None:
        value, breach, well = _dropped(rule, before, part, measure)
    else:
        value, breach, well = mean, *_beyond(rule, part, measure)
    return Reading(
        rule=rule, metric=key[0], route=key[1], value=value, breach=breach, well=well, traces=telling
    )


def _beyond(rule: Rule, part: Series, measure: Measure) -> tuple[bool, bool]:
    """Whether the mean of a window is beyond a limit, and whether it is well."""
    mean = part.mean
    assert mean is not None
    found = interval(part, measure) if rule.certain else None
    if rule.below is not None:
        breach = (mean if found is None else found.high) < rule.below
        return breach, not breach and mean >= rule.below + rule.clear
    assert rule.above is not None
    breach = (mean if found is None else found.low) > rule.above
    return breach, not breach and mean <= rule.above - rule.clear


def _dropped(rule: Rule, before: Series, part: Series, measure: Measure) -> tuple[float | None, bool, bool]:
    """By how much a window is worse than the day before it, and what that says."""
    if before.mean is None or part.mean is None or before.traces < rule.least:
        return None, False, False
    assert rule.drop is not None
    sign = 1 if measure.better == "higher" else -1
    worse = sign * (before.mean - part.mean)
    breach = worse >= rule.drop
    if breach and rule.certain:
        gap = difference(before, part, measure, SURE)
        breach = gap is not None and (gap.high < 0 if sign > 0 else gap.low > 0)
    return worse, breach, not breach and worse <= rule.drop - rule.clear


def most_severe(rules: Sequence[Rule]) -> Severity | None:
    """The most urgent severity among some rules; None of none."""
    return min((rule.severity for rule in rules), key=SEVERITIES.index, default=None)
