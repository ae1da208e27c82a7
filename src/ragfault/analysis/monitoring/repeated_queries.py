"""Drops of one repeated query, while all others are as they were: no layer is named for them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ragfault.analysis.correction import Floats
from ragfault.analysis.monitoring.monitor import DetectedDrop, MonitorReport
from ragfault.analysis.monitoring.traffic_mix import LEAST_VALUES, MAX_BOUND, MAX_REST
from ragfault.analysis.score_matrix import ScoreMatrix
from ragfault.io.runs import Run
from ragfault.text.number_format import format_signed

MAX_QUOTED = 60
"""Characters of a query that are quoted."""


def explain_by_query(report: MonitorReport, runs: Sequence[Run]) -> MonitorReport:
    """Name no layer for a drop of which at most a quarter is left without the query that was asked most since.

    The other queries must have 30 values or more before and since, and exclude more than half of the drop. Drops of
    what is no metric of the runs are left as they are.
    """
    return replace(
        report, drops=tuple(_explain_drop(drop, runs) if drop.location.fault else drop for drop in report.drops)
    )


def _explain_drop(drop: DetectedDrop, runs: Sequence[Run]) -> DetectedDrop:
    period, onset = drop.reference, drop.detection.onset
    rows = [row for run in runs for row in _iterate_values(run, period.metric, period.route)]
    before = [(query, value) for minute, query, value in rows if period.first <= minute < min(period.last, onset)]
    since = [(query, value) for minute, query, value in rows if onset <= minute < drop.until]
    [(query, count)] = Counter(query for query, _ in since).most_common(1) or [("", 0)]
    sides = [np.array([value for name, value in side if name != query]) for side in (before, since)]
    if count < 2 or min(map(len, sides)) < LEAST_VALUES:
        return drop
    whole, rest = drop.difference.mean, float(sides[1].mean() - sides[0].mean())
    error = math.sqrt(sum(side.var(ddof=1) / len(side) for side in sides))
    if abs(rest) > MAX_REST * abs(whole) or abs(rest) + 2 * error > MAX_BOUND * abs(whole):
        return drop
    quoted = "".join(filter(str.isprintable, query))[:MAX_QUOTED]
    text = f"one query, asked {count:,} times since, explains it: “{quoted}”; without it the mean moved by "
    return replace(drop, explanation=f"{text}{format_signed(rest)}", location=replace(drop.location, fault=None))


def _iterate_values(run: Run, metric: str, route: str | None) -> list[tuple[int, str, float]]:
    """Return minute, query and value of the timed traces of a route with a value; none where no score is of it."""
    if metric not in [measure.name for measure in run.manifest.metrics]:
        return []
    values: Floats = ScoreMatrix(run, metrics=[metric]).values[:, 0]
    columns = run.to_arrow("traces", ["time", "query", "route"])
    rows = zip(*(columns[name].to_pylist() for name in ("time", "query", "route")), values.tolist(), strict=True)
    return [
        (int(time.timestamp() // 60), query, value)
        for time, query, where, value in rows
        if time is not None and not math.isnan(value) and route in (None, where)
    ]
