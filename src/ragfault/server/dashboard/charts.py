"""SVG charts of live traffic: trends, sparklines, histograms, whiskers and waterfalls, styled by CSS classes only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from markupsafe import Markup
from msgspec.structs import replace

from ragfault.io.runs import MetricInfo
from ragfault.records import Trace
from ragfault.reports.charts.svg import tag
from ragfault.reports.format import clean_label
from ragfault.server.api.traffic_views import TrendPoint
from ragfault.server.storage import TimelineMark
from ragfault.text.number_format import format_number

MAX_LINES = 6
"""Largest number of lines in one chart; each has its own colour and dash."""

MIN_POINT_VALUES, MIN_POINTS = 8, 24
"""Average number of values per point, and the least number of points of a line."""

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 240, 56, 14, 34


def draw_trend(
    lines: Mapping[str, Sequence[TrendPoint]],
    measure: MetricInfo,
    marks: Sequence[TimelineMark],
    times: tuple[int, int],
    name: str | None = None,
) -> Markup | None:
    """Draw means over time, one line per name, with marks as vertical lines; None without a value.

    `measure` gives the range, `times` are the first and the last minute, `name` replaces the metric in the description.
    The time before the first value is left out.
    """
    known = {line: [point for point in points if point.mean is not None] for line, points in lines.items()}
    values = [point.mean or 0.0 for points in known.values() for point in points]
    if not values:
        return None
    low, high = _axis_range(measure, values)
    last = times[1]
    start = min(point.minute for points in known.values() for point in points)
    first = max(times[0], start - max(1, (last - start) // 20))

    def x(minute: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 10) * (minute - first) / max(1, last - first), 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

    paths = [
        _draw_line(line, [(x(p.minute), y(p.mean or 0.0), p) for p in points], at)
        for at, (line, points) in enumerate(list(known.items())[:MAX_LINES])
    ]
    name = clean_label(name or measure.name, 160)
    return tag(
        "svg",
        _draw_gridlines(low, high, y),
        [_draw_time_tick(first + (last - first) * at / 4, x, at % 2 == 1) for at in range(5)],
        [_draw_mark(at, mark, x) for at, mark in enumerate(marks, 1) if _is_within(mark, (first, last))],
        paths,
        class_="course",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{name} over time, from {format_number(low)} to {format_number(high)}",
    )


def group_by_route(points: Sequence[TrendPoint]) -> dict[str, list[TrendPoint]]:
    """Group points by route; routes without a value are left out."""
    lines: dict[str, list[TrendPoint]] = {}
    for point in points:
        lines.setdefault(point.route or "no route", []).append(point)
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
        first, n=n, mean=total / n if n else None,
        undefined=first.undefined + second.undefined, failed=first.failed + second.failed,
    )  # fmt: skip


def _axis_range(measure: MetricInfo, values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the vertical axis: that of the metric, or of the values where it is open."""
    low = min([0.0, *values]) if measure.low is None else measure.low
    high = max(values) * 1.05 if measure.high is None else measure.high
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _draw_line(name: str, points_placed: Sequence[tuple[float, float, TrendPoint]], index: int) -> Markup:
    path = " ".join(f"{x},{y}" for x, y, _ in points_placed)
    dots = [
        tag("circle", tag("title", _describe_point(name, point)), cx=x, cy=y, r=3 if len(points_placed) < 80 else 2)
        for x, y, point in points_placed
    ]
    return tag("g", tag("polyline", points=path), dots, class_=f"line-{index}")


def _describe_point(name: str, point: TrendPoint) -> str:
    moment = datetime.fromtimestamp(60 * point.minute, UTC)
    return f"{clean_label(name, 60)}, {moment:%Y-%m-%d %H:%M}: {format_number(point.mean)}, n {point.n:,}"


def _draw_gridlines(low: float, high: float, y: object) -> list[Markup]:
    """Draw horizontal gridlines with their values."""
    assert callable(y)
    lines = []
    for at in range(5):
        value = low + (high - low) * at / 4
        lines.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - 10, y1=y(value), y2=y(value)))
        lines.append(tag("text", format_number(value), class_="tick end", x=LEFT - 6, y=y(value) + 4))
    return lines


def _draw_time_tick(minute: float, x: object, is_between: bool) -> Markup:
    assert callable(x)
    moment = datetime.fromtimestamp(60 * minute, UTC)
    return tag(
        "text",
        f"{moment:%d %b %H:%M}",
        class_="tick middle between" if is_between else "tick middle",
        x=min(WIDTH - 80, max(80, x(minute))),
        y=HEIGHT - 6,
    )


def _is_within(mark: TimelineMark, times: tuple[int, int]) -> bool:
    return mark.time is not None and times[0] <= mark.time.timestamp() / 60 <= times[1]


def _draw_mark(index: int, mark: TimelineMark, x: object) -> Markup:
    assert callable(x)
    assert mark.time is not None
    place = x(mark.time.timestamp() / 60)
    return tag(
        "g",
        tag("title", clean_label(mark.text, 120)),
        tag("line", x1=place, x2=place, y1=TOP, y2=HEIGHT - BOTTOM),
        tag("text", str(index), class_="tick middle", x=place, y=TOP - 3),
        class_="deployed",
    )


def draw_sparkline(values: Sequence[float | None], low: float | None, high: float | None) -> Markup | None:
    """Draw the trend of a metric without axes; None for fewer than two values.

    >>> draw_sparkline([0.5, None, 1.0], 0, 1).count("polyline")
    2
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    values = values[next(at for at, value in enumerate(values) if value is not None) :]
    start = min(known) if low is None else low
    end = max(known) if high is None else high
    reach = end - start or 1.0
    step = 118 / (len(values) - 1)
    path = " ".join(
        f"{1 + at * step:.1f},{26 - 24 * (value - start) / reach:.1f}"
        for at, value in enumerate(values)
        if value is not None
    )
    return tag("svg", tag("polyline", points=path), class_="spark", viewBox="0 0 120 28", aria_hidden="true")


def draw_histogram(edges: Sequence[float], bins: Sequence[int], name: str) -> Markup:
    """Draw a histogram; each bin has a tooltip.

    >>> draw_histogram([0, 0.5, 1], [3, 1], "m").count("<rect")
    2
    """
    tallest, wide = max([1, *bins]), 240 / max(1, len(bins))
    rects = [
        tag(
            "rect",
            tag("title", f"{format_number(edges[at])} to {format_number(edges[at + 1])}: {n:,}"),
            x=round(at * wide + 0.5, 2),
            y=round(60 - 58 * n / tallest, 2),
            width=round(wide - 1, 2),
            height=round(58 * n / tallest, 2),
        )
        for at, n in enumerate(bins)
    ]
    shown = f"distribution of {clean_label(name, 80)} from {format_number(edges[0])} to {format_number(edges[-1])}"
    return tag("svg", rects, class_="hist wide", viewBox="0 0 240 61", role="img", aria_label=shown)


def list_stages(trace: Trace) -> list[tuple[str, float, float, int | None]]:
    """List the stages of a trace: name, start and duration in milliseconds, chunks returned.

    From its steps; otherwise retrieval and generation in sequence, as far as their durations are known.
    """
    if trace.steps:
        return [
            (
                step.name or step.kind or step.id,
                step.start or 0.0,
                step.duration or 0.0,
                None if step.chunks is None else len(step.chunks),
            )
            for step in trace.steps
            if step.start is not None or step.duration is not None
        ]
    if trace.latency is None:
        return []
    stages: list[tuple[str, float, float, int | None]] = []
    at = 0.0
    for name in ("retrieval", "generation"):
        took = getattr(trace.latency, name)
        if took is not None:
            stages.append((name, at, took, None))
            at += took
    if trace.latency.total is not None:
        stages.append(("total", 0.0, trace.latency.total, None))
    return stages


def draw_waterfall(trace: Trace) -> Markup | None:
    """Draw the stages of a trace over time with their figures in words; None where none was recorded."""
    stages = [stage for stage in list_stages(trace) if math.isfinite(stage[1]) and math.isfinite(stage[2])]
    if not stages:
        return None
    first = min(start for _, start, _, _ in stages)
    reach = max(start + took for _, start, took, _ in stages) - first or 1.0
    rows = [
        tag(
            "li",
            tag("span", clean_label(name, 60), class_="stage"),
            tag(
                "svg",
                tag("rect", class_="track", x=0, y=5, width=400, height=2),
                tag(
                    "rect",
                    class_="took",
                    x=round(400 * (start - first) / reach, 1),
                    y=0,
                    width=max(2.0, round(400 * max(0.0, took) / reach, 1)),
                    height=12,
                ),
                viewBox="0 0 402 12",
                preserveAspectRatio="none",
                aria_hidden="true",
            ),
            tag("span", _describe_stage(start - first, took, chunks), class_="figure note"),
        )
        for name, start, took, chunks in stages
    ]
    return tag("ol", rows, class_="waterfall")


def _describe_stage(start: float, duration: float, chunks: int | None) -> str:
    left = "" if chunks is None else f", {chunks:,} chunk{'' if chunks == 1 else 's'}"
    return f"{duration:,.0f} ms from {start:,.0f} ms{left}"
