"""Charts as SVG that takes its colors from the page: insight charts, histograms, intervals, forest plots.

Insights are Altair charts drawn to SVG by vl-convert when the report is made. The Vega libraries are not put into the
page: they are 0.9 MB of script, draw only after they are parsed, print badly, and evaluate expressions,
which the page's content security policy forbids. A drawn SVG costs some kilobytes, shows without a script, and
follows the light and dark theme because its colours are CSS variables. The tooltips that Vega would give are
the labels of the marks, shown by a few lines of the page's own script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree

from markupsafe import Markup

from ragfault.analysis import ChunkInsight
from ragfault.analysis.monitoring.monitor import MonitorReport, RollingLine
from ragfault.errors import MissingExtra
from ragfault.reports.format import clean_label, format_minute
from ragfault.text.number_format import format_number

if TYPE_CHECKING:
    from altair import LayerChart

    from ragfault.evaluation.agreement import AgreementCurves
    from ragfault.tuning import FrontierPoint, TuningResult


EXTRA_PURPOSE = "an HTML page with charts"
CHART_FONT = "system-ui, sans-serif"
SQUARE_SIZE = 300
"""Width and height of a square chart, in pixels."""
COST_LABELS = {"ms": "milliseconds", "tokens": "tokens"}
MINUTE_MS = 60_000
CHART_PADDING = {"left": 2, "top": 4, "right": 34, "bottom": 4}
"""Room on the right for figures that a reader's font sets wider than the one they were measured in."""

_ALLOWED_ELEMENTS = frozenset({"svg", "g", "path", "rect", "line", "text", "tspan", "circle", "defs", "clipPath"})
_DROPPED_ATTRIBUTES = frozenset({"style", "class", "id", "role", "aria-label", "aria-roledescription", "href"})


INSIGHT_PROPERTIES = {
    "chunks": "number of chunks",
    "position": "position of the chunk",
    "length": "length of the chunk, in characters",
    "turn": "turn of the conversation",
    "age": "age of the chunk, in days",
    "route": "route",
}


def insight_title(insight: ChunkInsight) -> str:
    """Return the title of an insight: measure and property."""
    measure = "Mean relevance" if insight.measure == "relevance" else "Share of chunks used"
    return f"{measure} by {INSIGHT_PROPERTIES[insight.by]}"


def build_insight_chart(insight: ChunkInsight) -> LayerChart:
    """Build an Altair bar chart of an insight: a column for each bucket's mean, its interval, and its count.

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
    columns = base.mark_bar(color=colour, height={"band": 0.62}).encode(
        x=alt.X("mean:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=end)
    )
    rules = base.mark_rule(color="var(--ink)", strokeWidth=1.5).encode(x="low:Q", x2="high:Q")
    text = base.mark_text(align="left", color="var(--muted)", x=268, fontSize=11).encode(text="figure:N")
    return cast("LayerChart", (columns + rules + text).properties(width=260, height=alt.Step(26)))


def render_chart_svg(drawing: LayerChart, title: str) -> Markup:
    """Render an Altair chart as inline SVG, named by `title`, with the figures of its marks as tooltips.

    Raises MissingExtra where vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra(EXTRA_PURPOSE, "report") from None
    spec = drawing.to_dict() | {"config": _build_chart_theme(), "background": "transparent", "padding": CHART_PADDING}
    root = _sanitize_svg(ElementTree.fromstring(vl_convert.vegalite_to_svg(spec)))
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", title)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def import_altair() -> Any:
    """Import the package that charts are made with; raises MissingExtra where it is not installed."""
    try:
        import altair as package
    except ImportError:
        raise MissingExtra(EXTRA_PURPOSE, "report") from None
    return package


def _build_chart_theme() -> dict[str, Any]:
    """Build how charts look: the page's own type and colours."""
    axis = {"labelColor": "var(--muted)", "gridColor": "var(--line)", "labelFontSize": 11, "labelPadding": 6}
    return {"font": CHART_FONT, "view": {"stroke": None}, "axis": axis, "axisY": {"grid": False, "minExtent": 84}}


def _sanitize_svg(node: ElementTree.Element) -> ElementTree.Element:
    """Sanitize a drawn element with known parts only; the labels of marks become tooltips."""
    name = node.tag.rpartition("}")[2]
    clean = ElementTree.Element(name)
    clean.text, clean.tail = node.text, node.tail
    for key, value in node.attrib.items():
        if key not in _DROPPED_ATTRIBUTES and not key.startswith(("on", "{")):
            clean.set(key, value)
    if node.get("aria-roledescription") in ("bar", "rule") and node.get("aria-label"):
        clean.set("data-tip", node.attrib["aria-label"])
    clean.extend(_sanitize_svg(child) for child in node if child.tag.rpartition("}")[2] in _ALLOWED_ELEMENTS)
    return clean


# --- agreement of a judge ------------------------------------------------------------------------


def _build_unit_axis(text: str) -> dict[str, Any]:
    """Build an axis from 0 to 1."""
    alt = import_altair()
    axis = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2~f", minExtent=40, grid=True, titleColor="var(--muted)")
    return {"title": text, "scale": alt.Scale(domain=[0, 1]), "axis": axis}


def build_distribution_chart(curves: AgreementCurves, names: tuple[str, str], score: str) -> LayerChart:
    """Build two histograms back to back: positives up, negatives down."""
    alt = import_altair()
    rows = [
        {"low": score_bin.low, "high": score_bin.high, "count": sign * count, "label": name}
        for score_bin in curves.scores
        for name, sign, count in zip(names, (1, -1), (score_bin.positive, score_bin.negative), strict=True)
    ]
    colours = alt.Scale(domain=list(names), range=["var(--bad)", "var(--use)"])
    axis = alt.Axis(labelExpr="abs(datum.value)", minExtent=40, tickCount=6, grid=True, titleColor="var(--muted)")
    columns = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("low:Q", **_build_unit_axis(score)),
            x2="high:Q",
            y=alt.Y("count:Q", title=" and below ".join(names) + ", counts", axis=axis),
            y2=alt.datum(0),
            color=alt.Color("label:N", scale=colours, legend=None),
        )
    )
    zero = alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(color="var(--edge)").encode(y="at:Q")
    return cast("LayerChart", (columns + zero).properties(width=SQUARE_SIZE, height=SQUARE_SIZE))


def _build_diagonal() -> Any:
    """Build the line on which both axes are equal."""
    alt = import_altair()
    ends = alt.Data(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}])
    return alt.Chart(ends).mark_line(color="var(--edge)", strokeDash=[4, 4]).encode(x="x:Q", y="y:Q")


def build_calibration_chart(curves: AgreementCurves, score: str, bad: str) -> LayerChart:
    """Build the curve of the share of bad items over the mean score."""
    alt = import_altair()
    rows = [{"mean": point.mean, "share": point.share, "n": point.n} for point in curves.calibration]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("mean:Q", **_build_unit_axis(score)), y=alt.Y("share:Q", **_build_unit_axis(f"share {bad}"))
    )
    line = base.mark_line(color="var(--relevance)", strokeWidth=2)
    points = base.mark_circle(color="var(--relevance)", size=60, opacity=1)
    return cast("LayerChart", (_build_diagonal() + line + points).properties(width=SQUARE_SIZE, height=SQUARE_SIZE))


def build_roc_chart(curves: AgreementCurves) -> LayerChart:
    """Build the ROC curve: hits over false alarms."""
    alt = import_altair()
    rows = [{"alarms": x, "hits": y, "at": at} for at, (x, y) in enumerate(curves.roc)]
    line = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(color="var(--relevance)", strokeWidth=2)
        .encode(
            x=alt.X("alarms:Q", **_build_unit_axis("false alarms")),
            y=alt.Y("hits:Q", **_build_unit_axis("hits")),
            order="at:Q",
        )
    )
    return cast("LayerChart", (_build_diagonal() + line).properties(width=SQUARE_SIZE, height=SQUARE_SIZE))


# --- tuning ----------------------------------------------------------------------------------------


def _build_points(points: Sequence[FrontierPoint], x: str, y: str) -> list[dict[str, Any]]:
    rows = []
    for point in points:
        across, up = getattr(point.measured, x), getattr(point.measured, y)
        tip = f"{clean_label(point.measured.name, 120)}: {up:.3f}, {across:,.1f}"
        rows.append({"x": across, "y": up, "chosen": point.recommended, "tip": tip})
    return rows


def build_cost_chart(result: TuningResult, cost: str) -> LayerChart:
    """Build the frontier of a tuning: value over a cost."""
    return _build_scatter_chart(_build_points(result.frontier, cost, "value"), COST_LABELS[cost], result.metric)


def build_recall_chart(points: Sequence[FrontierPoint]) -> LayerChart:
    """Build the frontier of precision over recall."""
    return _build_scatter_chart(_build_points(points, "recall", "precision"), "recall", "precision")


def _build_scatter_chart(rows: list[dict[str, Any]], across: str, up: str) -> LayerChart:
    """Build points, the recommended one filled."""
    alt = import_altair()
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("x:Q", title=across, scale=alt.Scale(zero=False)), y=alt.Y("y:Q", title=up, scale=alt.Scale(zero=False))
    )
    open_ = base.mark_point(color="var(--relevance)", size=60).encode(description="tip:N")
    full = base.transform_filter("datum.chosen").mark_circle(color="var(--use)", size=90).encode(description="tip:N")
    return cast("LayerChart", (open_ + full).properties(width=SQUARE_SIZE, height=200))


# --- metrics over time -----------------------------------------------------------------------------


def build_line_chart(monitor: MonitorReport, line: RollingLine) -> LayerChart:
    """Build a rolling mean with its band, deployments and starts of drops."""
    alt = import_altair()
    rows = [
        {"time": MINUTE_MS * minute, "mean": mean, "low": low, "high": high}
        for minute, mean, low, high in zip(line.minutes, line.means, line.lows, line.highs, strict=True)
    ]
    time = alt.X("time:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(labelOverlap=True, grid=False))
    up = alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=rows)).encode(x=time)
    band = base.mark_area(color="var(--line)", opacity=0.6).encode(y=alt.Y("low:Q", title=None, scale=up), y2="high:Q")
    mean = base.mark_line(color="var(--relevance)", strokeWidth=1.5).encode(y=alt.Y("mean:Q", scale=up))
    upright = [
        alt.Chart(alt.Data(values=moments)).mark_rule(color=colour, strokeDash=dash).encode(x=time, description="tip:N")
        for moments, colour, dash in (
            (_list_deployment_marks(monitor, line), "var(--muted)", [4, 3]),
            (_list_drop_starts(monitor, line), "var(--bad)", [1, 0]),
        )
        if moments
    ]
    return cast("LayerChart", alt.layer(band, mean, *upright).properties(width=480, height=150))


def _list_deployment_marks(monitor: MonitorReport, line: RollingLine) -> list[dict[str, Any]]:
    return [
        {"time": MINUTE_MS * mark.minute, "tip": f"{format_minute(mark.minute)}: {clean_label(mark.text, 80)}"}
        for mark in monitor.marks
        if mark.route in (None, line.route) and monitor.first <= mark.minute <= monitor.last
    ]


def _list_drop_starts(monitor: MonitorReport, line: RollingLine) -> list[dict[str, Any]]:
    return [
        {
            "time": MINUTE_MS * incident.detection.onset,
            "tip": f"a drop began at {format_minute(incident.detection.onset)}",
        }
        for incident in monitor.incidents
        if (incident.reference.metric, incident.reference.route) == (line.metric, line.route)
    ]
