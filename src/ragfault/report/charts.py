"""Charts as SVG that takes its colours from the page.

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

from ragfault.errors import MissingExtra
from ragfault.findings import Aggregate, Insight
from ragfault.report.markup import Markup, label, number, tag

if TYPE_CHECKING:
    from altair import LayerChart

__all__ = ["altair", "chart", "draw", "histogram", "whisker"]

WHAT = "the HTML report"
FONT = "system-ui, sans-serif"
BINS = 20
PADDING = {"left": 2, "top": 4, "right": 34, "bottom": 4}
"""Room on the right for figures that a reader's font sets wider than the one they were measured in."""

_ELEMENTS = frozenset({"svg", "g", "path", "rect", "line", "text", "tspan", "circle", "defs", "clipPath"})
_DROPPED = frozenset({"style", "class", "id", "role", "aria-label", "aria-roledescription", "href"})


def chart(insight: Insight) -> LayerChart:
    """An insight as an Altair chart: a bar for each bucket's mean, its interval, and its count.

    Raises MissingExtra where Altair is not installed.
    """
    alt = altair()
    rows = [
        {
            "bucket": label(bucket.label, 40),
            "mean": bucket.interval.mean,
            "low": bucket.interval.low,
            "high": bucket.interval.high,
            "figure": f"{number(bucket.interval.mean)}  n {bucket.interval.n:,}",
            "tip": (
                f"{label(bucket.label, 80)}: {number(bucket.interval.mean)} "
                f"[{number(bucket.interval.low)}, {number(bucket.interval.high)}], "
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


def draw(drawing: LayerChart, title: str) -> Markup:
    """An Altair chart as inline SVG, named by `title`, with the figures of its marks as tooltips.

    Raises MissingExtra where vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra(WHAT, "report") from None
    spec = drawing.to_dict() | {"config": _config(), "background": "transparent", "padding": PADDING}
    root = _clean(ElementTree.fromstring(vl_convert.vegalite_to_svg(spec)))
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", title)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def altair() -> Any:
    """The package that charts are made with; raises MissingExtra where it is not installed."""
    try:
        import altair as package
    except ImportError:
        raise MissingExtra(WHAT, "report") from None
    return package


def _config() -> dict[str, Any]:
    """How charts look: the page's own type and colours."""
    axis = {"labelColor": "var(--muted)", "gridColor": "var(--line)", "labelFontSize": 11, "labelPadding": 6}
    return {"font": FONT, "view": {"stroke": None}, "axis": axis, "axisY": {"grid": False, "minExtent": 84}}


def _clean(node: ElementTree.Element) -> ElementTree.Element:
    """A drawn element with known parts only; the labels of marks become tooltips."""
    name = node.tag.rpartition("}")[2]
    kept = ElementTree.Element(name)
    kept.text, kept.tail = node.text, node.tail
    for key, value in node.attrib.items():
        if key not in _DROPPED and not key.startswith(("on", "{")):
            kept.set(key, value)
    if node.get("aria-roledescription") in ("bar", "rule") and node.get("aria-label"):
        kept.set("data-tip", node.attrib["aria-label"])
    kept.extend(_clean(child) for child in node if child.tag.rpartition("}")[2] in _ELEMENTS)
    return kept


# --- small drawings beside figures -----------------------------------------------------------------


def histogram(values: Sequence[float], low: float | None, high: float | None) -> Markup:
    """How the values lie, in 20 equal bins from `low` to `high`, or over what there is where these are open.

    >>> histogram([0.1, 0.1, 0.9], 0, 1).count("data-tip")
    20
    """
    start = min(values) if low is None else low
    end = max(values) if high is None else high
    if end <= start:
        start, end = start - 0.5, start + 0.5
    width = (end - start) / BINS
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, max(0, math.floor((value - start) / width)))] += 1
    tallest = max(counts)
    bars = [
        _bar(at, found, tallest, f"{number(start + at * width)} to {number(start + (at + 1) * width)}")
        for at, found in enumerate(counts)
    ]
    name = f"distribution from {number(start)} to {number(end)}"
    return tag("svg", bars, class_="hist", viewBox="0 0 120 28", role="img", aria_label=name)


def _bar(at: int, found: int, tallest: int, where: str) -> Markup:
    size = round(26 * found / tallest, 2)
    tall = max(1.5, size) if found else 0
    shown = tag("rect", x=at * 6 + 0.5, y=27 - tall, width=5, height=tall) if found else None
    area = tag("rect", class_="area", x=at * 6, y=0, width=6, height=28)
    return tag("g", shown, area, data_tip=f"{where}: {found:,} {'trace' if found == 1 else 'traces'}")


def whisker(aggregate: Aggregate) -> Markup | None:
    """A mean and its interval on the metric's whole range, with a tick at the target.

    None where the metric has no bounded range or no value.
    """
    low, high, interval = aggregate.low, aggregate.high, aggregate.interval
    if low is None or high is None or interval is None or high <= low:
        return None

    def at(value: float) -> float:
        return round(3 + 114 * (min(high, max(low, value)) - low) / (high - low), 2)

    left, right = at(interval.low), at(interval.high)
    parts = [
        tag("line", class_="track", x1=3, x2=117, y1=10, y2=10),
        tag("line", class_="range", x1=left, x2=max(right, left + 0.5), y1=10, y2=10),
        tag("circle", cx=at(interval.mean), cy=10, r=3.5),
    ]
    if aggregate.target is not None:
        goal = at(aggregate.target.value)
        parts.insert(1, tag("line", class_="goal", x1=goal, x2=goal, y1=2, y2=18))
    return tag("svg", parts, class_="whisker", viewBox="0 0 120 20", aria_hidden="true")
