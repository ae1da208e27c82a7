"""SVG charts of live traffic: trends, sparklines and the steps of a trace, styled by CSS classes only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup
from msgspec.structs import replace

from ragfault.apps.watch.server.api.traffic_views import TrendPoint
from ragfault.apps.watch.server.storage.records import TimelineMark
from ragfault.io.runs.run import MetricInfo
from ragfault.model.grouping import group_by
from ragfault.model.records import Step, Trace
from ragfault.report.charts.plots import (
    PlotArea,
    draw_mark,
    draw_plot,
    draw_time_axis,
    draw_vertical_axis,
    place_across,
    place_up,
)
from ragfault.report.charts.svg import tag
from ragfault.report.safe_text import clean_label
from ragfault.stats.distributions import t_quantile
from ragfault.text.number_format import format_number

MAX_LINES = 6
"""Largest number of lines in one chart; each has its own colour and dash."""

MIN_POINT_VALUES, MIN_POINTS = 8, 24
"""Average number of values per point, and the least number of points of a line."""


def draw_trend(
    lines: Mapping[str, Sequence[TrendPoint]],
    measure: MetricInfo,
    marks: Sequence[TimelineMark],
    times: tuple[int, int],
    name: str | None = None,
    from_first: bool = True,
) -> Markup | None:
    """Draw means over time, one line per name, with marks as vertical lines; None without a value.

    `measure` gives the range, `times` are the first and the last minute, `name` replaces the metric in the description.
    The time before the first value is left out where `from_first` is True. Behind a line lies the 95 % interval of its
    means, where the sums of squares are known.
    """
    known = {line: [point for point in points if point.mean is not None] for line, points in lines.items()}
    values = [point.mean or 0.0 for points in known.values() for point in points]
    if not values:
        return None
    last = times[1]
    start = min(point.minute for points in known.values() for point in points)
    first = max(times[0], start - max(1, (last - start) // 20)) if from_first else times[0]
    low, high = _axis_range(measure, values)
    area = PlotArea(
        across=(first, max(last, first + 1)),
        up=(low, high),
        width=760,
        height=240,
        left=56,
        right=10,
        top=14,
        bottom=34,
    )
    return draw_plot(
        area,
        f"{clean_label(name or measure.name, 160)} over time, from {format_number(low)} to {format_number(high)}",
        draw_vertical_axis(area, [low + (high - low) * i / 4 for i in range(5)]),
        draw_time_axis(area, 5),
        [
            draw_mark(area, mark.time.timestamp() / 60, clean_label(mark.text, 120), "deployed", i)
            for i, mark in enumerate(marks, 1)
            if mark.time is not None and first <= mark.time.timestamp() / 60 <= last
        ],
        [_draw_line(area, line, points, i) for i, (line, points) in enumerate(list(known.items())[:MAX_LINES])],
        _draw_brush(area),
    )


def _draw_brush(area: PlotArea) -> Markup:
    """Draw the field on which a script lets the reader choose a time, with its first and last minute."""
    return tag(
        "rect",
        class_="brush",
        x=area.left,
        y=area.top,
        width=area.width - area.left - area.right,
        height=area.height - area.top - area.bottom,
        data_first=area.across[0],
        data_last=area.across[1],
    )


def group_by_route(points: Sequence[TrendPoint]) -> dict[str, list[TrendPoint]]:
    """Group points by route; routes without a value are left out."""
    lines = group_by(points, lambda point: point.route or "no route")
    return {name: those for name, those in lines.items() if any(point.mean is not None for point in those)}


def coarsen_lines(lines: Mapping[str, Sequence[TrendPoint]], grain: int) -> tuple[int, dict[str, list[TrendPoint]]]:
    """Merge points until they hold eight values on average, down to 24 points; return minutes per point and the lines.

    >>> few = [TrendPoint(minute=at, route=None, n=1, mean=at % 2, undefined=0, failed=0) for at in range(96)]
    >>> found, lines = coarsen_lines({"m": few}, 1)
    >>> found, lines["m"][0].n, lines["m"][0].mean
    (4, 4, 0.5)
    """
    all_ = [point for points in lines.values() for point in points]
    if not all_:
        return grain, {}
    first, last = min(point.minute for point in all_), max(point.minute for point in all_)
    merged = {name: list(points) for name, points in lines.items()}
    while (last - first) / (2 * grain) >= MIN_POINTS - 1 and _is_sparse(merged):
        grain *= 2
        merged = {name: _merge_points(points, first, grain) for name, points in merged.items()}
    return grain, merged


def _is_sparse(lines: Mapping[str, Sequence[TrendPoint]]) -> bool:
    sizes = [point.n for points in lines.values() for point in points if point.n]
    return bool(sizes) and sum(sizes) < MIN_POINT_VALUES * len(sizes)


def _merge_points(points: Sequence[TrendPoint], first: int, grain: int) -> list[TrendPoint]:
    """Merge the points of each segment."""
    merged: dict[int, TrendPoint] = {}
    for point in points:
        minute = point.minute - (point.minute - first) % grain
        there = merged.get(minute)
        merged[minute] = replace(point, minute=minute) if there is None else _merge_pair(there, point)
    return list(merged.values())


def _merge_pair(first: TrendPoint, second: TrendPoint) -> TrendPoint:
    n = first.n + second.n
    total = (first.mean or 0.0) * first.n + (second.mean or 0.0) * second.n
    return replace(
        first,
        n=n,
        mean=total / n if n else None,
        undefined=first.undefined + second.undefined,
        failed=first.failed + second.failed,
        squares=None if first.squares is None or second.squares is None else first.squares + second.squares,
    )


def _axis_range(measure: MetricInfo, values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the vertical axis: that of the metric, or of the values where it is open."""
    low = min([0.0, *values]) if measure.low is None else measure.low
    high = max(values) * 1.05 if measure.high is None else measure.high
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _draw_line(area: PlotArea, name: str, points: Sequence[TrendPoint], index: int) -> Markup:
    placed = [(place_across(area, point.minute), place_up(area, point.mean or 0.0), point) for point in points]
    dots = [
        tag("circle", tag("title", _describe_point(name, point)), cx=x, cy=y, r=3 if len(placed) < 80 else 2)
        for x, y, point in placed
    ]
    path = " ".join(f"{x:g},{y:g}" for x, y, _ in placed)
    return tag("g", _draw_band(area, points), tag("polyline", points=path), dots, class_=f"line-{index}")


def _draw_band(area: PlotArea, points: Sequence[TrendPoint]) -> Markup | None:
    """Draw the intervals of the means as a band; None where fewer than two points have one."""
    bounds = [(point.minute, bound) for point in points if (bound := compute_interval(point)) is not None]
    if len(bounds) < 2:
        return None
    low, high = area.up
    upper = [(minute, min(high, ends[1])) for minute, ends in bounds]
    lower = [(minute, max(low, ends[0])) for minute, ends in reversed(bounds)]
    path = " ".join(f"{place_across(area, minute):g},{place_up(area, value):g}" for minute, value in (*upper, *lower))
    return tag("polygon", points=path, class_="band")


MIN_VARIANCE = 1e-12
"""Variance below which values are the same: what is left is rounding."""


def compute_interval(point: TrendPoint) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of a point by Student's t, its values taken as independent.

    None for fewer than two values, where all are the same (a few equal values say nothing of how they vary), and where
    the sum of squares is not known.

    >>> point = TrendPoint(minute=0, route=None, n=4, mean=0.5, undefined=0, failed=0, squares=1.5)
    >>> [round(end, 3) for end in compute_interval(point)]
    [-0.15, 1.15]
    """
    if point.mean is None or point.squares is None or point.n < 2:
        return None
    variance = max(0.0, point.squares - point.n * point.mean**2) / (point.n - 1)
    if variance < MIN_VARIANCE:
        return None
    half = t_quantile(0.975, point.n - 1) * math.sqrt(variance / point.n)
    return point.mean - half, point.mean + half


def _describe_point(name: str, point: TrendPoint) -> str:
    moment = datetime.fromtimestamp(60 * point.minute, UTC)
    ends = compute_interval(point)
    interval = "" if ends is None else f" [{format_number(ends[0])}, {format_number(ends[1])}]"
    return f"{clean_label(name, 60)}, {moment:%Y-%m-%d %H:%M}: {format_number(point.mean)}{interval}, n {point.n:,}"


def draw_sparkline(values: Sequence[float | None], low: float | None, high: float | None) -> Markup | None:
    """Draw the trend of a metric without axes; None for fewer than two values.

    >>> draw_sparkline([0.5, None, 1.0], 0, 1).count("polyline")
    2
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    values = values[next(i for i, value in enumerate(values) if value is not None) :]
    start = min(known) if low is None else low
    end = max(known) if high is None else high
    reach = end - start or 1.0
    step = 118 / (len(values) - 1)
    path = " ".join(
        f"{1 + i * step:.1f},{26 - 24 * (value - start) / reach:.1f}"
        for i, value in enumerate(values)
        if value is not None
    )
    return tag("svg", tag("polyline", points=path), class_="spark", viewBox="0 0 120 28", aria_hidden="true")


MAX_DEPTH = 8
"""Depth of the tree of steps that is still indented."""

MAX_STEPS = 500
"""Steps of a trace that its page shows."""


class StepRow(NamedTuple):
    """A step as the page of a trace shows it."""

    depth: int
    """Number of steps around it."""
    name: str
    step: Step | None
    """None: known only by its latency."""
    start: float | None
    """Milliseconds from the start of the trace."""
    duration: float | None
    drawing: Markup | None = None
    """Its time within the trace; None where it was not recorded."""


def order_steps(steps: Sequence[Step]) -> list[tuple[int, Step]]:
    """Order steps as a tree, each after the one that it is part of, with its depth; every step occurs once.

    A step whose parent is missing stands at the top, and so does the first one of a circle.

    >>> steps = (Step(id="b", parent="a"), Step(id="a"), Step(id="c", parent="c"))
    >>> [(depth, step.id) for depth, step in order_steps(steps)]
    [(0, 'a'), (1, 'b'), (0, 'c')]
    """
    known = {step.id for step in steps}
    parts: dict[str | None, list[int]] = {}
    for at, step in enumerate(steps):
        is_top = step.parent is None or step.parent not in known or step.parent == step.id
        parts.setdefault(None if is_top else step.parent, []).append(at)
    ordered: list[tuple[int, Step]] = []
    met: set[int] = set()
    for root in (*parts.get(None, ()), *range(len(steps))):
        waiting = [(0, root)]
        while waiting:
            depth, at = waiting.pop()
            if at in met:
                continue
            met.add(at)
            ordered.append((depth, steps[at]))
            waiting += ((depth + 1, part) for part in reversed(parts.get(steps[at].id, ())))
    return ordered


def list_steps(trace: Trace) -> list[StepRow]:
    """List the steps of a trace as a tree; without steps, retrieval and generation in sequence, as far as known."""
    if trace.steps:
        rows = [
            StepRow(min(depth, MAX_DEPTH), step.name or step.kind or step.id, step, step.start, step.duration)
            for depth, step in order_steps(trace.steps)[:MAX_STEPS]
        ]
    else:
        rows, at = [], 0.0
        for name in ("retrieval", "generation", "total"):
            took = getattr(trace.latency, name, None)
            if took is not None:
                rows.append(StepRow(0, name, None, 0.0 if name == "total" else at, took))
                at += took
    times = [(row.start or 0.0, row.duration or 0.0) for row in rows if _is_timed(row)]
    if not times:
        return rows
    first = min(start for start, _ in times)
    reach = max(start + took for start, took in times) - first or 1.0
    return [row._replace(drawing=_draw_time(row, first, reach)) if _is_timed(row) else row for row in rows]


def _is_timed(row: StepRow) -> bool:
    known = [value for value in (row.start, row.duration) if value is not None]
    return bool(known) and all(map(math.isfinite, known))


def _draw_time(row: StepRow, first: float, reach: float) -> Markup:
    start, took = (row.start or 0.0) - first, max(0.0, row.duration or 0.0)
    return tag(
        "svg",
        tag("rect", class_="track", x=0, y=5, width=400, height=2),
        tag(
            "rect",
            class_="took",
            x=round(400 * start / reach, 1),
            y=0,
            width=max(2.0, round(400 * took / reach, 1)),
            height=12,
        ),
        viewBox="0 0 402 12",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
