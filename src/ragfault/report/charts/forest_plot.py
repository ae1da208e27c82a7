"""Forest plot of the changes between two runs, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from ragfault.report.charts.svg import ROW_HEIGHT, build_sign, tag
from ragfault.report.comparison_wording import VERDICT_GLYPHS, describe_verdict, format_change, group_changes
from ragfault.report.safe_text import clean_label
from ragfault.report.wording import format_metric
from ragfault.text.number_format import format_number, format_signed

if TYPE_CHECKING:
    from ragfault.comparison.records import MetricChange

EDGE_PERCENT = 4
"""Margin at the ends of the plot, in percent of its width."""
CHANGE_TINTS = {"worse": "bad", "better": "good", "steady": "so", "cannot tell": "warn"}
"""Verdict on a metric → the tint of its sign."""

TICK_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


def draw_forest_plot(changes: Sequence[MetricChange]) -> Markup | None:
    """Draw the changes as rows of a figure on one scale; None where no difference is known.

    Each row says in words what its drawing shows, so that nothing hangs on seeing it.
    """
    drawable = [
        change_item for _, part in group_changes(changes) for change_item in part if change_item.difference is not None
    ]
    if not drawable:
        return None
    reach = _compute_scale_limit(drawable)
    items = [
        tag(
            "li",
            tag("span", clean_label(format_metric(change), 80), class_="forest-name"),
            _draw_forest_row(change, reach),
            tag("span", clean_label(format_change(change)), class_="figure forest-figure"),
            build_sign(
                VERDICT_GLYPHS[change.verdict], clean_label(describe_verdict(change)), CHANGE_TINTS[change.verdict]
            ),
        )
        for change in drawable
    ]
    axis = tag(
        "li", tag("span", class_="forest-name"), _draw_forest_axis(reach), class_="forest-axis", aria_hidden="true"
    )
    explanation = (
        "Each line is the 95 % interval of candidate less baseline, its dot the mean; the upright line marks no "
        "difference, and the band around it the margin within which a change does not matter."
    )
    return tag("div", tag("p", explanation, class_="note"), tag("ul", items, axis, class_="forest"))


def describe_forest_row(change: MetricChange) -> str:
    """Describe what the drawing of a change shows: where its interval lies against the margin and zero.

    >>> from ragfault.comparison.records import MetricChange
    >>> from ragfault.stats.estimates import Difference
    >>> found = Difference(-0.2, -0.3, -0.1, 0.05, 99.0, -0.2, 100, 100, "t")
    >>> describe_forest_row(MetricChange(metric="m", layer="retrieval", better="higher", state="dropped", baseline=0.9,
    ...     candidate=0.7, difference=found, p=0.001, adjusted=0.001, equivalence_p=1.0, margin=0.02,
    ...     detectable=None, needed=None, n=100))
    'm: the whole interval, −0.300 to −0.100, lies below the margin of 0.020'
    """
    difference, margin = change.difference, change.margin
    if difference is None:
        return f"{clean_label(change.metric, 80)}: not known"
    if difference.high < -margin or difference.low > margin:
        where = f"lies {'below' if difference.high < -margin else 'above'} the margin of"
    elif difference.low >= -margin and difference.high <= margin:
        where = "lies within the margin of"
    else:
        zero = "leaves out" if difference.low > 0 or difference.high < 0 else "includes"
        where = f"{zero} zero and reaches over the margin of"
    ends = f"{format_signed(difference.low)} to {format_signed(difference.high)}"
    return f"{clean_label(change.metric, 80)}: the whole interval, {ends}, {where} {format_number(margin)}"


def _compute_scale_limit(changes: Sequence[MetricChange]) -> float:
    """Compute how far the scale goes to either side: over every finite end and margin, rounded up."""
    ends = [
        abs(end)
        for change in changes
        if change.difference is not None
        for end in (change.difference.low, change.difference.mean, change.difference.high, change.margin)
        if math.isfinite(end)
    ]
    most = max(ends, default=1.0) * 1.05
    step = _choose_tick_step(most)
    return math.ceil(round(most / step, 9)) * step


def _choose_tick_step(most: float) -> float:
    """Choose the distance of the ticks, so that there are at most four to a side."""
    size = 10.0 ** max(0, math.ceil(math.log10(most))) if most > 4 else 1.0
    return next((step * size for step in TICK_STEPS if 4 * step * size >= most), size)


def _scale_position(value: float, reach: float) -> float:
    """Return the position of a value in the drawing, in percent of its width."""
    share = (min(reach, max(-reach, value)) + reach) / (2 * reach)
    return round(EDGE_PERCENT + (100 - 2 * EDGE_PERCENT) * share, 3)


def _draw_forest_row(change: MetricChange, reach: float) -> Markup:
    """Draw the drawing of one change; it is as wide as there is room, so that places across are in percent."""
    difference = change.difference
    assert difference is not None
    middle, zero = ROW_HEIGHT / 2, f"{_scale_position(0, reach)}%"
    left, right = _scale_position(difference.low, reach), _scale_position(difference.high, reach)
    start, end = _scale_position(-change.margin, reach), _scale_position(change.margin, reach)
    description, kind = describe_forest_row(change), CHANGE_TINTS[change.verdict]
    return tag(
        "svg",
        tag("title", description),
        tag("rect", class_="margin", x=f"{start}%", y=0, width=f"{round(end - start, 3)}%", height=ROW_HEIGHT),
        tag("line", class_="zero", x1=zero, x2=zero, y1=0, y2=ROW_HEIGHT),
        tag("line", class_=f"reach {kind}", x1=f"{left}%", x2=f"{right}%", y1=middle, y2=middle),
        [_draw_interval_end(value, x, kind) for value, x in ((difference.low, left), (difference.high, right))],
        tag("circle", class_=f"mean {kind}", cx=f"{_scale_position(difference.mean, reach)}%", cy=middle, r=4),
        height=ROW_HEIGHT,
        role="img",
        aria_label=description,
    )


def _draw_interval_end(end: float, place: float, kind: str) -> Markup:
    """Draw the end of an interval: a stroke, or an arrow where it goes on for ever."""
    middle = ROW_HEIGHT / 2
    if math.isfinite(end):
        x = f"{place}%"
        return tag("line", class_=f"reach {kind}", x1=x, x2=x, y1=middle - 4, y2=middle + 4)
    side = 6 if end > 0 else -6
    points = f"{side},{middle} 0,{middle - 5} 0,{middle + 5}"
    arrow = tag("polygon", class_=f"mean {kind}", points=points)
    return tag("svg", arrow, x=f"{place}%", overflow="visible", aria_hidden="true")


def _draw_forest_axis(reach: float) -> Markup:
    """Draw the scale below the rows."""
    step = _choose_tick_step(reach)
    count = round(reach / step)
    marks = []
    for index in range(-count, count + 1):
        x, text = f"{_scale_position(index * step, reach)}%", f"{index * step:+g}" if index else "0"
        marks.append(tag("line", class_="zero", x1=x, x2=x, y1=0, y2=4))
        marks.append(tag("text", text.replace("-", "−"), x=x, y=17, text_anchor="middle"))
    return tag("svg", marks, height=20, aria_hidden="true")
