"""SVG drawings that take their colors from the page: histograms, intervals, insights and forest plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from ragfault.comparison.records import MetricChange
from ragfault.diagnosis.records import ChunkInsight, MetricAggregate
from ragfault.report.format import clean_label
from ragfault.report.wording import VERDICT_GLYPHS, describe_verdict, format_change, format_metric, group_changes
from ragfault.text.number_format import format_count, format_number, format_signed, has_too_few

Node = str | Markup | None | Iterable["Node"]

HISTOGRAM_BINS = 20


def tag(name: str, *children: Node, **attributes: str | int | float | bool | None) -> Markup:
    """Build an element with its children; texts and values of attributes are escaped.

    An underscore in an attribute stands for a dash, one at its end for nothing. True gives an attribute
    without a value, False and None leave it out.

    >>> tag("p", "1 < 2 ", tag("b", "yes"), class_="sum", data_tip='"')
    Markup('<p class="sum" data-tip="&#34;">1 &lt; 2 <b>yes</b></p>')
    """
    start = name + "".join(_format_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{start}>{join_nodes(children)}</{name}>")


def join_nodes(node: Node) -> Markup:
    """Join nodes; texts are escaped."""
    if node is None:
        return Markup("")
    if isinstance(node, Markup):
        return node
    if isinstance(node, str):
        return escape(node)
    return Markup("".join(join_nodes(child) for child in node))


def _format_attribute(key: str, value: str | int | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def build_sign(glyph: str, text: str, kind: str) -> Markup:
    """Build a glyph and a word, tinted by kind; the word repeats what the color shows."""
    return tag("span", tag("span", glyph, aria_hidden="true"), " ", text, class_=f"sign {kind}")


def draw_histogram(values: Sequence[float], low: float | None, high: float | None) -> Markup:
    """Draw values in 20 equal bins from `low` to `high`; an open end is the least or greatest value.

    >>> draw_histogram([0.1, 0.1, 0.9], 0, 1).count("<title>")
    20
    """
    start = min(values) if low is None else low
    end = max(values) if high is None else high
    if end <= start:
        start, end = start - 0.5, start + 0.5
    width = (end - start) / HISTOGRAM_BINS
    counts = [0] * HISTOGRAM_BINS
    for value in values:
        counts[min(HISTOGRAM_BINS - 1, max(0, math.floor((value - start) / width)))] += 1
    edges = [start + index * width for index in range(HISTOGRAM_BINS + 1)]
    return draw_bins(counts, edges, f"distribution from {format_number(start)} to {format_number(end)}")


def draw_bins(counts: Sequence[int], edges: Sequence[float], name: str) -> Markup:
    """Draw counts of bins as a histogram, with a tooltip for each bin."""
    tallest = max([1, *counts])
    columns = []
    for index, count in enumerate(counts):
        height = max(1.5, round(26 * count / tallest, 2))
        column = tag("rect", x=index * 6 + 0.5, y=27 - height, width=5, height=height) if count else None
        area = tag("rect", class_="area", x=index * 6, y=0, width=6, height=28)
        where = f"{format_number(edges[index])} to {format_number(edges[index + 1])}"
        columns.append(tag("g", tag("title", f"{where}: {format_count(count, 'trace')}"), column, area))
    return tag("svg", columns, class_="hist", viewBox="0 0 120 28", role="img", aria_label=name)


def draw_interval(aggregate: MetricAggregate) -> Markup | None:
    """Draw a mean and its interval on the metric's range, with a tick at the target.

    None where the metric has no bounded range or no value.
    """
    low, high, interval = aggregate.low, aggregate.high, aggregate.interval
    if low is None or high is None or interval is None or high <= low:
        return None
    target = None if aggregate.target is None else aggregate.target.value
    least, most = (None, None) if has_too_few(interval) else (interval.low, interval.high)
    return draw_whisker(interval.mean, least, most, (low, high), target)


def draw_whisker(
    mean: float, low: float | None, high: float | None, ends: tuple[float, float], target: float | None = None
) -> Markup:
    """Draw a mean and its interval (None: unknown) between the ends of a range, with a tick at the target."""

    def at(value: float) -> float:
        inside = min(ends[1], max(ends[0], value))
        return round(3 + 114 * (inside - ends[0]) / ((ends[1] - ends[0]) or 1.0), 2)

    parts = [tag("line", class_="track", x1=3, x2=117, y1=10, y2=10)]
    if target is not None:
        parts.append(tag("line", class_="goal", x1=at(target), x2=at(target), y1=2, y2=18))
    if low is not None and high is not None:
        parts.append(tag("line", class_="range", x1=at(low), x2=max(at(high), at(low) + 0.5), y1=10, y2=10))
    parts.append(tag("circle", cx=at(mean), cy=10, r=3.5))
    return tag("svg", parts, class_="whisker", viewBox="0 0 120 20", aria_hidden="true")


INSIGHT_PROPERTIES = {
    "chunks": "number of chunks", "position": "position of the chunk", "length": "length of the chunk, in characters",
    "turn": "turn of the conversation", "age": "age of the chunk, in days", "route": "route",
}  # fmt: skip
"""Properties of chunks and traces that insights are by → their names in titles."""

ROW_HEIGHT, EDGE_PERCENT = 26, 4
"""Height of a row of an insight or a forest plot, and the margin at the ends of the latter in percent of its width."""


def insight_title(insight: ChunkInsight) -> str:
    """Return the title of an insight: measure and property."""
    measure = "Mean relevance" if insight.measure == "relevance" else "Share of chunks used"
    return f"{measure} by {INSIGHT_PROPERTIES[insight.by]}"


def draw_insight(insight: ChunkInsight) -> Markup:
    """Draw an insight as rows on a scale from 0 to 1: each bucket's mean as a length, its interval, and its count."""
    rows = []
    for bucket in insight.buckets:
        interval, name = bucket.interval, clean_label(bucket.label, 40)
        bounds = f"{format_number(interval.mean)} [{format_number(interval.low)}, {format_number(interval.high)}]"
        tip = f"{name}: {bounds}, {format_count(interval.n, 'chunk')} of {format_count(bucket.traces, 'trace')}"
        low, high = 100 * interval.low, 100 * interval.high
        drawing = tag(
            "svg",
            tag("title", tip),
            tag("rect", class_=insight.measure, x=0, y=3, width=f"{100 * interval.mean:.1f}%", height=ROW_HEIGHT - 6),
            tag("line", class_="range", x1=f"{low:.1f}%", x2=f"{high:.1f}%", y1=ROW_HEIGHT / 2, y2=ROW_HEIGHT / 2),
            height=ROW_HEIGHT,
            role="img",
            aria_label=tip,
        )
        figure = tag("span", f"{format_number(interval.mean)} ", tag("span", f"n {interval.n:,}", class_="note"))
        rows.append(tag("li", tag("span", name, class_="bucket-name"), drawing, figure))
    ticks = [tag("span", f"{tick:g}") for tick in (0, 0.5, 1)]
    axis = tag("li", tag("span"), tag("span", ticks, class_="bucket-axis"), tag("span"), aria_hidden="true")
    return tag("ul", rows, axis, class_="buckets")


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
        "Each line is the 95 % interval of candidate less baseline, its dot the mean; the upright line is no "
        "difference, and the band around it the margin within which a change does not matter."
    )
    return tag("div", tag("p", explanation, class_="note"), tag("ul", items, axis, class_="forest"))


def describe_forest_row(change: MetricChange) -> str:
    """Describe what the drawing of a change shows: where its interval lies against the margin and zero.

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
