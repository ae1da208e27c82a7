"""Charts with two axes as SVG: the axes, and the charts of agreement drawn on them.

A chart is part of the page: it shows without a script, prints, and follows the theme because its colors are classes
of the style sheet. The figures of a mark are its `title`, which browsers show as a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from ragfault.report.charts.svg import Node, tag
from ragfault.report.safe_text import clean_label
from ragfault.text.number_format import format_number

if TYPE_CHECKING:
    from ragfault.labels.judges.measurement import AgreementCurves


UNIT_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Ticks of an axis of shares."""

TICK_SIZES = (1.0, 2.0, 2.5, 5.0, 10.0)


class PlotArea(NamedTuple):
    """Rectangle in a drawing whose sides are two linear scales."""

    across: tuple[float, float]
    """Values at the left and the right side."""
    up: tuple[float, float]
    """Values at the bottom and the top."""
    width: int = 400
    """Width of the drawing with its margins, in its own units, as are the next five."""
    height: int = 320
    left: int = 58
    right: int = 12
    top: int = 12
    bottom: int = 44


def place_across(area: PlotArea, value: float) -> float:
    """Return the x of a value.

    >>> place_across(PlotArea(across=(0, 1), up=(0, 1), width=120, left=10, right=10), 0.5)
    60.0
    """
    start, end = area.across
    return round(area.left + (area.width - area.left - area.right) * (value - start) / (end - start), 1)


def place_up(area: PlotArea, value: float) -> float:
    """Return the y of a value."""
    low, high = area.up
    return round(area.top + (area.height - area.top - area.bottom) * (high - value) / (high - low), 1)


def choose_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Choose at most `count` + 1 round values from `low` to `high`.

    >>> choose_ticks(0.31, 0.92), choose_ticks(0, 4200)
    ([0.4, 0.6, 0.8], [0.0, 1000.0, 2000.0, 3000.0, 4000.0])
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in TICK_SIZES if size * power >= rough * (1 - 1e-9))
    return [round(i * step, 12) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def draw_plot(area: PlotArea, name: str, *parts: Node) -> Markup:
    """Draw a chart of its parts, named for those who do not see it."""
    size = f"0 0 {area.width} {area.height}"
    return tag("svg", *parts, class_="chart", viewBox=size, role="img", aria_label=name)


def draw_vertical_axis(area: PlotArea, ticks: Iterable[float], title: str | None = None) -> Markup:
    """Draw gridlines with their values at the left, and a title that is turned by 90°."""
    lines = []
    for value in ticks:
        y = place_up(area, value)
        lines.append(tag("line", class_="grid", x1=area.left, x2=area.width - area.right, y1=y, y2=y))
        lines.append(tag("text", _format_tick(value), class_="tick end", x=area.left - 6, y=y + 4))
    return tag("g", lines, _draw_vertical_title(area, title) if title else None)


def _draw_vertical_title(area: PlotArea, title: str) -> Markup:
    middle = (area.top + area.height - area.bottom) / 2
    turn = f"translate(12 {middle:g}) rotate(-90)"
    return tag("text", clean_label(title, 60), class_="axis-title middle", transform=turn)


def draw_horizontal_axis(area: PlotArea, ticks: Iterable[float], title: str) -> Markup:
    """Draw upright gridlines with their values below, and a title."""
    lines = []
    for value in ticks:
        x = place_across(area, value)
        lines.append(tag("line", class_="grid", x1=x, x2=x, y1=area.top, y2=area.height - area.bottom))
        lines.append(tag("text", _format_tick(value), class_="tick middle", x=x, y=area.height - area.bottom + 17))
    middle = (area.left + area.width - area.right) / 2
    name = tag("text", clean_label(title, 60), class_="axis-title middle", x=middle, y=area.height - 6)
    return tag("g", lines, name)


def draw_time_axis(area: PlotArea, count: int) -> Markup:
    """Draw `count` evenly spaced times below; `area.across` is in minutes since 1970, and so in UTC."""
    first, last = area.across
    labels = []
    for index in range(count):
        minute = first + (last - first) * index / (count - 1)
        side = "" if index == 0 else "end" if index == count - 1 else "middle"
        classes = " ".join(part for part in ("tick", side, "between" if index % 2 else "") if part)
        text = f"{datetime.fromtimestamp(60 * minute, UTC):%d %b %H:%M}"
        labels.append(tag("text", text, class_=classes, x=place_across(area, minute), y=area.height - 6))
    return tag("g", labels)


def draw_mark(area: PlotArea, minute: float, text: str, kind: str, number: int | None = None) -> Markup:
    """Draw a moment as an upright line with its text as a tooltip, and its number at the top."""
    x = place_across(area, minute)
    above = None if number is None else tag("text", str(number), class_="tick middle", x=x, y=area.top - 3)
    line = tag("line", x1=x, x2=x, y1=area.top, y2=area.height - area.bottom)
    return tag("g", tag("title", text), line, above, class_=kind)


def _format_tick(value: float) -> str:
    return f"{value:,.6g}".replace("-", "−")


def pad_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values with a twentieth to either side; of a single value, one that holds it."""
    low, high = min(values), max(values)
    margin = (high - low) / 20 or abs(high) / 10 or 0.5
    return low - margin, high + margin


def draw_distribution(curves: AgreementCurves, names: tuple[str, str], score: str) -> Markup:
    """Draw two histograms of a score back to back: positives up, negatives down."""
    most = max([1, *(count for score_bin in curves.scores for count in (score_bin.positive, score_bin.negative))])
    area = PlotArea(across=(0, 1), up=(-most, most))
    ticks = [tick for tick in choose_ticks(0, most, 3) if tick == int(tick)]
    columns = [
        _draw_column(area, (score_bin.low, score_bin.high), sign * count, f"{name}: {count:,}", kind)
        for score_bin in curves.scores
        for name, sign, count, kind in (
            (names[0], 1, score_bin.positive, "bad"),
            (names[1], -1, score_bin.negative, "use"),
        )
        if count
    ]
    axis = draw_vertical_axis(area, (), " and below ".join(names) + ", counts")
    counts = [_draw_count_line(area, position, tick) for tick in ticks for position in sorted({tick, -tick})]
    return draw_plot(area, "scores by label", counts, axis, draw_horizontal_axis(area, UNIT_TICKS, score), columns)


def _draw_count_line(area: PlotArea, position: float, count: float) -> Markup:
    """Draw a gridline; counts below zero are counts, too, and have no sign."""
    y = place_up(area, position)
    line = tag("line", class_="grid", x1=area.left, x2=area.width - area.right, y1=y, y2=y)
    return tag("g", line, tag("text", _format_tick(count), class_="tick end", x=area.left - 6, y=y + 4))


def _draw_column(area: PlotArea, ends: tuple[float, float], value: float, tip: str, kind: str) -> Markup:
    """Draw a column from zero to a value."""
    left, right = (place_across(area, end) for end in ends)
    top, bottom = place_up(area, max(0.0, value)), place_up(area, min(0.0, value))
    where = f"{format_number(ends[0])} to {format_number(ends[1])}"
    return tag(
        "rect",
        tag("title", f"{where}, {tip}"),
        class_=f"column {kind}",
        x=left + 0.5,
        y=top,
        width=max(1.0, round(right - left - 1, 1)),
        height=round(bottom - top, 1),
    )


def draw_calibration(curves: AgreementCurves, score: str, bad: str) -> Markup:
    """Draw the share of bad items over the mean score, and the diagonal on which both are equal."""
    points = [
        (
            point.mean,
            point.share,
            f"mean score {format_number(point.mean)}, {format_number(point.share)} {bad}, n {point.n:,}",
        )
        for point in curves.calibration
    ]
    return _draw_unit_curve("calibration", points, score, f"share {bad}", dots=True)


def draw_roc(curves: AgreementCurves) -> Markup:
    """Draw the ROC curve: hits over false alarms."""
    return _draw_unit_curve("ROC", [(x, y, "") for x, y in curves.roc], "false alarms", "hits", dots=False)


def _draw_unit_curve(
    name: str, points: Sequence[tuple[float, float, str]], across: str, up: str, *, dots: bool
) -> Markup:
    """Draw a curve in the unit square with its diagonal."""
    area = PlotArea(across=(0, 1), up=(0, 1))
    placed = [(place_across(area, x), place_up(area, y), tip) for x, y, tip in points]
    ends = {"x1": place_across(area, 0), "y1": place_up(area, 0), "x2": place_across(area, 1), "y2": place_up(area, 1)}
    return draw_plot(
        area,
        name,
        draw_horizontal_axis(area, UNIT_TICKS, across),
        draw_vertical_axis(area, UNIT_TICKS, up),
        tag("line", class_="diagonal", **ends),
        tag("polyline", class_="curve", points=" ".join(f"{x:g},{y:g}" for x, y, _ in placed)),
        [tag("circle", tag("title", tip), class_="dot", cx=x, cy=y, r=4) for x, y, tip in placed] if dots else None,
    )
