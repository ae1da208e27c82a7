"""SVG drawings that take their colors from the page: histograms, intervals and insights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from ragfault.report.safe_text import clean_label
from ragfault.text.number_format import format_count, format_number, has_too_few

if TYPE_CHECKING:
    from ragfault.diagnosis.records import ChunkInsight, MetricAggregate

Node = str | Markup | None | Iterable["Node"]

HISTOGRAM_BINS = 20
ROW_HEIGHT = 26
"""Height of a row of an insight or a forest plot."""


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
