"""Charts as SVG that takes its colors from the page: insight charts, histograms, intervals, forest plots.

Insights are Altair charts drawn to SVG by vl-convert when the report is made. The Vega libraries are not put into the
page: they are 0.9 MB of script, draw only after they are parsed, print badly, and evaluate expressions,
which the page's content security policy forbids. A drawn SVG costs some kilobytes, shows without a script, and
follows the light and dark theme because its colours are CSS variables. The tooltips that Vega would give are
the labels of the marks, shown by a few lines of the page's own script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ragfault.analysis import ChunkInsight, MetricAggregate, MetricChange
from ragfault.errors import MissingExtra
from ragfault.reports.comparison_text import (
    VERDICT_GLYPHS,
    describe_verdict,
    format_change,
    format_metric,
    group_changes,
)
from ragfault.reports.html.elements import Markup, build_sign, clean_label, tag
from ragfault.text.number_format import format_number, format_signed

if TYPE_CHECKING:
    from altair import LayerChart


EXTRA_PURPOSE = "the HTML report"
CHART_FONT = "system-ui, sans-serif"
HISTOGRAM_BINS = 20
CHART_PADDING = {"left": 2, "top": 4, "right": 34, "bottom": 4}
"""Room on the right for figures that a reader's font sets wider than the one they were measured in."""

_ALLOWED_ELEMENTS = frozenset(
    {"svg", "g", "path", "rect", "line", "text", "tspan", "circle", "defs", "clipPath"}
)
_DROPPED_ATTRIBUTES = frozenset(
    {"style", "class", "id", "role", "aria-label", "aria-roledescription", "href"}
)


def build_insight_chart(insight: ChunkInsight) -> LayerChart:
    """An insight as an Altair chart: a bar for each bucket's mean, its interval, and its count.

    Raises MissingExtra where Altair is not installed.
    """
    alt = import_altair()
    rows = [
        {
            "bucket": clean_label(bucket.label, 40),
            "mean": bucket.interval.mean,
            "low": bucket.interval.low,
            "high": bucket.interval.high,
            "figure": f"{format_number(bucket.interval.mean)}  n {bucket.interval.n:,}",
            "tip": (
                f"{clean_label(bucket.label, 80)}: {format_number(bucket.interval.mean)} "
                f"[{format_number(bucket.interval.low)}, {format_number(bucket.interval.high)}], "
                f"{bucket.interval.n:,} chunks of {bucket.traces:,} traces"
            ),
        }
        for bucket in insight.buckets
    ]
    colour = "var(--relevance)" if insight.measure == "relevance" else "var(--use)"
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("bucket:N", sort=None, title=None, axis=alt.Axis(labelLimit=150, ticks=False, domain=False)),
        description="tip:N",
    )
    end = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2~f", domain=False, ticks=False)
    bars = base.mark_bar(color=colour, height={"band": 0.62}).encode(
        x=alt.X("mean:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=end)
    )
    rules = base.mark_rule(color="var(--ink)", strokeWidth=1.5).encode(x="low:Q", x2="high:Q")
    text = base.mark_text(align="left", color="var(--muted)", x=268, fontSize=11).encode(text="figure:N")
    layers: LayerChart = (bars + rules + text).properties(width=260, height=alt.Step(26))
    return layers


def render_chart_svg(drawing: LayerChart, title: str) -> Markup:
    """An Altair chart as inline SVG, named by `title`, with the figures of its marks as tooltips.

    Raises MissingExtra where vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra(EXTRA_PURPOSE, "report") from None
    spec = drawing.to_dict() | {
        "config": _build_chart_theme(),
        "background": "transparent",
        "padding": CHART_PADDING,
    }
    root = _sanitize_svg(ElementTree.fromstring(vl_convert.vegalite_to_svg(spec)))
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", title)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def import_altair() -> Any:
    """The package that charts are made with; raises MissingExtra where it is not installed."""
    try:
        import altair as package
    except ImportError:
        raise MissingExtra(EXTRA_PURPOSE, "report") from None
    return package


def _build_chart_theme() -> dict[str, Any]:
    """How charts look: the page's own type and colours."""
    axis = {"labelColor": "var(--muted)", "gridColor": "var(--line)", "labelFontSize": 11, "labelPadding": 6}
    return {
        "font": CHART_FONT,
        "view": {"stroke": None},
        "axis": axis,
        "axisY": {"grid": False, "minExtent": 84},
    }


def _sanitize_svg(node: ElementTree.Element) -> ElementTree.Element:
    """A drawn element with known parts only; the labels of marks become tooltips."""
    name = node.tag.rpartition("}")[2]
    kept = ElementTree.Element(name)
    kept.text, kept.tail = node.text, node.tail
    for key, value in node.attrib.items():
        if key not in _DROPPED_ATTRIBUTES and not key.startswith(("on", "{")):
            kept.set(key, value)
    if node.get("aria-roledescription") in ("bar", "rule") and node.get("aria-label"):
        kept.set("data-tip", node.attrib["aria-label"])
    kept.extend(_sanitize_svg(child) for child in node if child.tag.rpartition("}")[2] in _ALLOWED_ELEMENTS)
    return kept


# --- small drawings beside figures -----------------------------------------------------------------


def draw_histogram(values: Sequence[float], low: float | None, high: float | None) -> Markup:
    """How the values lie, in 20 equal bins from `low` to `high`, or over what there is where these are open.

    >>> draw_histogram([0.1, 0.1, 0.9], 0, 1).count("data-tip")
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
    tallest = max(counts)
    bars = [
        _draw_histogram_bin(
            at,
            found,
            tallest,
            f"{format_number(start + at * width)} to {format_number(start + (at + 1) * width)}",
        )
        for at, found in enumerate(counts)
    ]
    name = f"distribution from {format_number(start)} to {format_number(end)}"
    return tag("svg", bars, class_="hist", viewBox="0 0 120 28", role="img", aria_label=name)


def _draw_histogram_bin(at: int, count: int, tallest: int, where: str) -> Markup:
    size = round(26 * count / tallest, 2)
    tall = max(1.5, size) if count else 0
    shown = tag("rect", x=at * 6 + 0.5, y=27 - tall, width=5, height=tall) if count else None
    area = tag("rect", class_="area", x=at * 6, y=0, width=6, height=28)
    return tag("g", shown, area, data_tip=f"{where}: {count:,} {'trace' if count == 1 else 'traces'}")


def draw_interval(aggregate: MetricAggregate) -> Markup | None:
    """Draw a mean and its interval on the metric's range, with a tick at the target.

    None where the metric has no bounded range or no value.
    """
    low, high, interval = aggregate.low, aggregate.high, aggregate.interval
    if low is None or high is None or interval is None or high <= low:
        return None
    target = None if aggregate.target is None else aggregate.target.value
    return draw_whisker(interval.mean, interval.low, interval.high, (low, high), target)


def draw_whisker(
    mean: float,
    low: float | None,
    high: float | None,
    ends: tuple[float, float],
    target: float | None = None,
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


CHANGE_TINTS = {"worse": "bad", "better": "good", "steady": "so", "cannot tell": "warn"}
"""What became of a metric → the tint of its sign."""

ROW_HEIGHT, EDGE_PERCENT = 26, 4
"""How high a row's drawing is, and the share of its width, in percent, that is left at its ends."""

TICK_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


def draw_forest_plot(changes: Sequence[MetricChange], title: str) -> Markup | None:
    """The changes as rows of a figure on one scale; None where no difference is known.

    Each row says in words what its drawing shows, so that nothing hangs on seeing it.
    """
    known = [each for _, part in group_changes(changes) for each in part if each.difference is not None]
    if not known:
        return None
    reach = _compute_scale_limit(known)
    items = [
        tag(
            "li",
            tag("span", clean_label(format_metric(change), 80), class_="forest-name"),
            _draw_forest_row(change, reach),
            tag("span", clean_label(format_change(change)), class_="figure forest-figure"),
            build_sign(
                VERDICT_GLYPHS[change.verdict],
                clean_label(describe_verdict(change)),
                CHANGE_TINTS[change.verdict],
            ),
        )
        for change in known
    ]
    axis = tag(
        "li",
        tag("span", class_="forest-name"),
        _draw_forest_axis(reach),
        class_="forest-axis",
        aria_hidden="true",
    )
    said = (
        "Each line is the 95 % interval of candidate less baseline, its dot the mean; the upright line is no "
        "difference, and the band around it the margin within which a change does not matter."
    )
    return tag(
        "figure",
        tag("figcaption", title),
        tag("p", said, class_="note"),
        tag("ul", items, axis, class_="forest"),
    )


def describe_forest_row(change: MetricChange) -> str:
    """What the drawing of a change shows: where its interval lies against the margin and zero.

    >>> from ragfault.stats import Difference
    >>> found = Difference(-0.2, -0.3, -0.1, 0.05, 99.0, -0.2, 100, 100, "t")
    >>> describe_forest_row(MetricChange(metric="m", layer="retrieval", better="higher", state="dropped", baseline=0.9,
    ...     candidate=0.7, difference=found, p=0.001, adjusted=0.001, equivalence_p=1.0, margin=0.02,
    ...     detectable=None, needed=None, n=100))
    'm: the whole interval, −0.300 to −0.100, lies below the margin of 0.020'
    """
    found, margin = change.difference, change.margin
    if found is None:
        return f"{clean_label(change.metric, 80)}: not known"
    if found.high < -margin or found.low > margin:
        where = f"lies {'below' if found.high < -margin else 'above'} the margin of"
    elif found.low >= -margin and found.high <= margin:
        where = "lies within the margin of"
    else:
        where = f"{'leaves out' if found.low > 0 or found.high < 0 else 'takes in'} zero and reaches over the margin of"
    ends = f"{format_signed(found.low)} to {format_signed(found.high)}"
    return f"{clean_label(change.metric, 80)}: the whole interval, {ends}, {where} {format_number(margin)}"


def _compute_scale_limit(changes: Sequence[MetricChange]) -> float:
    """How far the scale goes to either side: over every finite end and margin, rounded up."""
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
    """The distance of the ticks, so that there are at most four to a side."""
    size = 10.0 ** max(0, math.ceil(math.log10(most))) if most > 4 else 1.0
    return next((step * size for step in TICK_STEPS if 4 * step * size >= most), size)


def _scale_position(value: float, reach: float) -> float:
    """Where a value stands in the drawing, in percent of its width."""
    share = (min(reach, max(-reach, value)) + reach) / (2 * reach)
    return round(EDGE_PERCENT + (100 - 2 * EDGE_PERCENT) * share, 3)


def _draw_forest_row(change: MetricChange, reach: float) -> Markup:
    """The drawing of one change; it is as wide as there is room, so that places across are in percent."""
    found = change.difference
    assert found is not None
    middle, zero = ROW_HEIGHT / 2, f"{_scale_position(0, reach)}%"
    left, right = _scale_position(found.low, reach), _scale_position(found.high, reach)
    start, end = _scale_position(-change.margin, reach), _scale_position(change.margin, reach)
    said, kind = describe_forest_row(change), CHANGE_TINTS[change.verdict]
    return tag(
        "svg",
        tag("title", said),
        tag(
            "rect", class_="margin", x=f"{start}%", y=0, width=f"{round(end - start, 3)}%", height=ROW_HEIGHT
        ),
        tag("line", class_="zero", x1=zero, x2=zero, y1=0, y2=ROW_HEIGHT),
        tag("line", class_=f"reach {kind}", x1=f"{left}%", x2=f"{right}%", y1=middle, y2=middle),
        [_draw_interval_end(value, place, kind) for value, place in ((found.low, left), (found.high, right))],
        tag("circle", class_=f"mean {kind}", cx=f"{_scale_position(found.mean, reach)}%", cy=middle, r=4),
        height=ROW_HEIGHT,
        role="img",
        aria_label=said,
    )


def _draw_interval_end(end: float, place: float, kind: str) -> Markup:
    """The end of an interval: a stroke, or an arrow where it goes on for ever."""
    middle = ROW_HEIGHT / 2
    if math.isfinite(end):
        x = f"{place}%"
        return tag("line", class_=f"reach {kind}", x1=x, x2=x, y1=middle - 4, y2=middle + 4)
    side = 6 if end > 0 else -6
    points = f"{side},{middle} 0,{middle - 5} 0,{middle + 5}"
    arrow = tag("polygon", class_=f"mean {kind}", points=points)
    return tag("svg", arrow, x=f"{place}%", overflow="visible", aria_hidden="true")


def _draw_forest_axis(reach: float) -> Markup:
    """The scale below the rows."""
    step = _choose_tick_step(reach)
    count = round(reach / step)
    marks = []
    for at in range(-count, count + 1):
        x, text = f"{_scale_position(at * step, reach)}%", f"{at * step:+g}" if at else "0"
        marks.append(tag("line", class_="zero", x1=x, x2=x, y1=0, y2=4))
        marks.append(tag("text", text.replace("-", "−"), x=x, y=17, text_anchor="middle"))
    return tag("svg", marks, height=20, aria_hidden="true")
