"""Drops without a fault: other shares of the cohorts while no cohort got worse, and days that the reference lacks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from ragfault.apps.watch.monitoring.noise import HOUR_MINUTES, is_weekend
from ragfault.apps.watch.monitoring.windows import MetricSeries, SeriesKey
from ragfault.text.number_format import format_percent, format_signed

SYSTEM_FIELDS = frozenset(("release", "model", "prompt_version"))
"""Fields that tell versions of the system; other shares of these are no other traffic."""
# fields that tell places of chunks
CHUNK_FIELDS = frozenset(("position", "chunks"))
# of the values of each window, in cohorts
LEAST_COVERAGE = 0.9
# of the values of each window, in cohorts that both have; others may have vanished
LEAST_COMMON = (0.05, 0.5)
# in these cohorts; of fewer the spread is not known
LEAST_VALUES = 30
# a cohort that dropped by more standard errors got worse itself
SHOWN_ERRORS = 2.5
# share of the drop that is left at equal shares of the cohorts, and its bound
MAX_REST, MAX_BOUND = 0.25, 0.5

# characters of a query
MAX_QUOTED = 60
# days of a weekend that a reference needs to tell how weekends are
LEAST_WEEKEND = 0.5

Window = tuple[int, int]


def describe_mix_shift(
    series_by_key: Mapping[SeriesKey, MetricSeries], metric: str, route: str | None, before: Window, after: Window
) -> str | None:
    """Describe the field whose other shares explain a drop between two windows; None where there is none.

    At the shares of before, at most a quarter of the drop is left, more than half of it is excluded, and no cohort is
    shown to have got worse by more than a quarter of it. Cohorts that appear or vanish are other traffic as well.
    Where versions of the system differ, and none got worse by itself, it is said which one took over.
    """
    cohorts: defaultdict[str, dict[str, tuple[MetricSeries, MetricSeries]]] = defaultdict(dict)
    for (name, where, cohort), series in series_by_key.items():
        field, _, value = (cohort or "").partition("=")
        if name == metric and where in (route, None) and field and field not in CHUNK_FIELDS:
            cohorts[field][value] = series.between(*before), series.between(*after)
    total = series_by_key[metric, route, None]
    windows = total.between(*before), total.between(*after)
    for field, parts in sorted(cohorts.items()):
        text = _describe_field(field, parts, windows)
        if text is not None:
            return text
    return None


def describe_unknown_days(
    series: MetricSeries, before: Window, after: Window, reference_name: str = "the reference", change: str = "the drop"
) -> str | None:
    """Describe why the reference cannot tell a drop from its missing days; None where it can.

    A drop at a weekend (UTC) may be what weekends do where the reference has less than half a day of one, and so may
    one on other days where it has none of these, unless the mean fell on the days that it does have: shown by the
    values there, to at least a quarter of the drop.
    """
    reference, later = series.between(*before), series.between(*after)
    known = [_select_days(reference, weekend) for weekend in (False, True)]
    absent = [len(np.unique(part.minutes // HOUR_MINUTES)) < 24 * LEAST_WEEKEND for part in known]
    if absent[0] == absent[1] or reference.mean is None or later.mean is None:
        return None
    name = "weekend" if absent[1] else "day but those of a weekend"
    old, new = known[not absent[1]], _select_days(later, not absent[1])
    drop = later.mean - reference.mean
    if old.mean is not None and new.mean is not None and new.value_count > 1:
        moved = new.mean - old.mean
        error = math.sqrt(old.variance / old.value_count + new.variance / new.value_count)
        if moved * drop > 0 and abs(moved) > max(MAX_REST * abs(drop), SHOWN_ERRORS * error):
            return None
    days = "at weekends" if absent[1] else "on the other days"
    return f"{reference_name} has no {name} (UTC), and {change} is shown only {days}: it may come each week"


def describe_query_change(
    before: Sequence[tuple[str, float]], since: Sequence[tuple[str, float]], drop: float
) -> str | None:
    """Describe the query asked most since, where a drop is its own; None where others dropped as well, or are few.

    Without it at most a quarter of the drop is left, and more than half of it is excluded. A query of more than half of
    the values since may explain a drop that is not shown without it: copies of one trace are not independent.
    """
    [(query, count)] = Counter(query for query, _ in since).most_common(1) or [("", 0)]
    sides = [np.array([value for name, value in side if name != query]) for side in (before, since)]
    if count < 2 or min(map(len, sides)) < LEAST_VALUES:
        return None
    rest, error = (
        float(sides[1].mean() - sides[0].mean()),
        math.sqrt(sum(side.var(ddof=1) / len(side) for side in sides)),
    )
    explains, without = "explains it", "the mean"
    if abs(rest) > MAX_REST * abs(drop) or abs(rest) + 2 * error > MAX_BOUND * abs(drop):
        if 2 * count <= len(since) or (rest * drop > 0 and abs(rest) > 2 * error):
            return None
        explains, without = "may explain it", "no drop is shown: the mean"
    quoted = "".join(filter(str.isprintable, query))[:MAX_QUOTED]
    return (
        f"one query, asked {count:,} times since, {explains}: “{quoted}”; without it {without} moved by "
        f"{format_signed(rest)}"
    )


def _select_days(series: MetricSeries, weekend: bool) -> MetricSeries:
    """Select the minutes with values at weekends, or on the other days."""
    at = (series.n > 0) & (is_weekend(series.minutes) == weekend)
    return MetricSeries(
        series.minutes[at], series.n[at], series.sum[at], series.squares[at], series.bins[at], series.unscored[at], ()
    )


def _describe_field(
    field: str, cohorts: Mapping[str, tuple[MetricSeries, MetricSeries]], windows: tuple[MetricSeries, MetricSeries]
) -> str | None:
    both = {value: parts for value, parts in cohorts.items() if min(part.value_count for part in parts) > 1}
    every, counts = (
        [sum(parts[side].value_count for parts in group.values()) for side in (0, 1)] for group in (cohorts, both)
    )
    means = [window.mean for window in windows]
    if means[0] is None or means[1] is None:
        return None
    for known, common, window, least in zip(every, counts, windows, LEAST_COMMON, strict=True):
        # cohorts of a field are those of all routes
        size = window.value_count
        if abs(known - size) > (1 - LEAST_COVERAGE) * size or common < max(LEAST_VALUES, least * size):
            return None
    drop, rest, error = means[1] - means[0], 0.0, 0.0
    for old, new in both.values():
        weight, moved = old.value_count / counts[0], (new.mean or 0.0) - (old.mean or 0.0)
        variance = old.variance / old.value_count + new.variance / new.value_count
        if moved * drop > 0 and abs(moved) > max(MAX_REST * abs(drop), SHOWN_ERRORS * math.sqrt(variance)):
            return None
        rest, error = rest + weight * moved, error + weight**2 * variance
    if abs(rest) > MAX_REST * abs(drop) or abs(rest) + 2 * math.sqrt(error) > MAX_BOUND * abs(drop):
        return None
    shares = {value: [parts[side].value_count / every[side] for side in (0, 1)] for value, parts in cohorts.items()}
    value, (old_share, new_share) = max(shares.items(), key=lambda item: abs(item[1][1] - item[1][0]))
    scope = "" if len(both) == len(cohorts) else f", over the values of {field} that both times have,"
    meaning = f"other traffic, unless {field} tells versions of the system"
    if field in SYSTEM_FIELDS:
        meaning = f"no {field.replace('_', ' ')} got worse by itself; compare those that differ"
    return (
        f"the share of {field}={value} moved from {format_percent(old_share)} to {format_percent(new_share)}, and at "
        f"equal shares{scope} the mean moved by {format_signed(rest)}: {meaning}"
    )
