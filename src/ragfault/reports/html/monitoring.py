"""Metrics over time as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.analysis.monitoring.monitor import DropIncident, MonitorReport, RollingLine
from ragfault.analysis.monitoring.windows import MetricDistribution
from ragfault.reports.charts import build_insight_chart, import_altair, render_chart_svg
from ragfault.reports.html.elements import Markup, Node, clean_label, tag, wrap_table
from ragfault.reports.html.page import build_security_policy, fill_template, load_assets
from ragfault.reports.output import write_report_file
from ragfault.reports.terminal.monitoring import (
    build_alert_rows,
    build_drift_row,
    describe_blame,
    describe_break,
    describe_monitoring_terms,
    describe_topic_drift,
    format_duration,
    format_metric_route,
    format_minute,
    list_cohorts,
    list_rolling_metrics,
    list_routes,
    summarize_monitor,
)
from ragfault.text.number_format import format_interval, format_number, format_signed

if TYPE_CHECKING:
    from altair import LayerChart


CHART_WIDTH, CHART_HEIGHT = 480, 150
TRIAD_METRICS = ("context_relevance", "groundedness", "answer_relevance")
MINUTE_MS = 60_000
"""Milliseconds."""


def write_monitor_html(monitor: MonitorReport, path: str | Path, *, force: bool = False) -> Path:
    """Write traffic over time as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written; MissingExtra where
    the packages that draw the charts are not installed.
    """
    return write_report_file(path, render_monitor_html(monitor), force=force)


def render_monitor_html(monitor: MonitorReport) -> str:
    """Traffic over time as one HTML page; traces are named by their ids, their texts do not appear on it."""
    style, script = load_assets("page.css", "agreement.css"), load_assets("theme.js", "bisection.js")
    sections: list[tuple[str, str, Node]] = [
        ("breaks", "What broke", _build_breaks(monitor)),
        (
            "triad",
            "The triad over time",
            _build_line_charts(monitor, [e for e in monitor.lines if e.metric in TRIAD_METRICS]),
        ),
        (
            "lines",
            "Other metrics",
            _build_line_charts(monitor, [e for e in monitor.lines if e.metric not in TRIAD_METRICS]),
        ),
        ("means", "Rolling means", [_build_mean_table(monitor, route) for route in list_routes(monitor)]),
        ("alerts", "Alerts", _build_alert_table(monitor)),
        ("distributions", "Distributions", _build_distribution_table(monitor)),
        ("insights", "Insights", _build_insight_charts(monitor)),
        ("cohorts", "Cohorts", _build_cohort_table(monitor)),
        ("together", "Metrics together", _build_correlation_table(monitor)),
        ("drift", "Against the evaluation set", _build_drift(monitor)),
    ]
    kept = [each for each in sections if each[2]]
    links = [tag("a", text, href=f"#{where}") for where, text, _ in kept]
    body = [tag("section", tag("h2", text), inside, id=where) for where, text, inside in kept]
    name = clean_label(summarize_monitor(monitor), 400)
    facts = [
        describe_monitoring_terms(monitor),
        *(f"{format_minute(mark.minute)}: {mark.text}" for mark in monitor.marks),
    ]
    return fill_template(
        load_assets("monitor.html"),
        policy=build_security_policy(script, style),
        title=tag("title", f"{name} – ragfault monitor"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag("ul", [tag("li", clean_label(text, 400)) for text in facts], class_="facts"),
        nav=tag("nav", links, aria_label="Sections"),
        body=Markup("\n".join(body)),
    )


def _build_table(heads: Sequence[str], rows: Sequence[Sequence[Node]], name: str) -> Markup:
    top = tag("tr", [tag("th", text or "what", scope="col") for text in heads])
    body = [
        tag("tr", tag("th", _build_cell(first), scope="row"), [tag("td", _build_cell(each)) for each in rest])
        for first, *rest in rows
    ]
    return wrap_table(tag("table", tag("thead", top), tag("tbody", body)), name)


def _build_cell(node: Node) -> Node:
    return node if isinstance(node, Markup) or not isinstance(node, str) else clean_label(node, 240)


def _build_breaks(monitor: MonitorReport) -> Markup:
    if not monitor.incidents:
        return tag("p", "No drop is called.", class_="empty")
    return tag("ul", [_build_break(monitor, each) for each in monitor.incidents], class_="remedies")


def _build_break(monitor: MonitorReport, drop: DropIncident) -> Markup:
    made = drop.reference
    fault = drop.location.fault
    layer = tag("span", fault.layer if fault else "cannot tell", class_="sign bad" if fault else "sign warn")
    return tag(
        "li",
        tag("h3", clean_label(format_metric_route(made.metric, made.route), 160)),
        tag("p", layer),
        tag("p", clean_label(describe_break(drop), 800)),
        tag("ul", [tag("li", clean_label(text, 800)) for text in describe_blame(monitor, drop)]),
    )


def _build_line_charts(monitor: MonitorReport, lines: Sequence[RollingLine]) -> Markup | None:
    drawn = [
        _build_line_figure(monitor, each) for each in lines if any(mean is not None for mean in each.means)
    ]
    return tag("div", drawn, class_="figures") if drawn else None


def _build_line_figure(monitor: MonitorReport, line: RollingLine) -> Markup:
    """A metric over time: the rolling mean, its interval, marks, and where a drop began."""
    title = f"{format_metric_route(line.metric, line.route)}, rolling mean of {format_duration(line.window)}"
    return tag(
        "figure",
        tag("figcaption", clean_label(title, 200)),
        render_chart_svg(_build_line_chart(monitor, line), clean_label(title, 200)),
    )


def _build_line_chart(monitor: MonitorReport, line: RollingLine) -> LayerChart:
    alt = import_altair()
    rows = [
        {"time": MINUTE_MS * minute, "mean": mean, "low": low, "high": high}
        for minute, mean, low, high in zip(line.minutes, line.means, line.lows, line.highs, strict=True)
    ]
    time = alt.X(
        "time:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(labelOverlap=True, grid=False)
    )
    up = alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=rows)).encode(x=time)
    band = base.mark_area(color="var(--line)", opacity=0.6).encode(
        y=alt.Y("low:Q", title=None, scale=up), y2="high:Q"
    )
    mean = base.mark_line(color="var(--relevance)", strokeWidth=1.5).encode(y=alt.Y("mean:Q", scale=up))
    upright = [
        alt.Chart(alt.Data(values=moments))
        .mark_rule(color=colour, strokeDash=dash)
        .encode(x=time, description="tip:N")
        for moments, colour, dash in (
            (_list_deployment_marks(monitor, line), "var(--muted)", [4, 3]),
            (_list_drop_starts(monitor, line), "var(--bad)", [1, 0]),
        )
        if moments
    ]
    layers: LayerChart = alt.layer(band, mean, *upright).properties(width=CHART_WIDTH, height=CHART_HEIGHT)
    return layers


def _list_deployment_marks(monitor: MonitorReport, line: RollingLine) -> list[dict[str, Any]]:
    return [
        {
            "time": MINUTE_MS * mark.minute,
            "tip": f"{format_minute(mark.minute)}: {clean_label(mark.text, 80)}",
        }
        for mark in monitor.marks
        if mark.route in (None, line.route) and monitor.first <= mark.minute <= monitor.last
    ]


def _list_drop_starts(monitor: MonitorReport, line: RollingLine) -> list[dict[str, Any]]:
    return [
        {
            "time": MINUTE_MS * one.detection.onset,
            "tip": f"a drop began at {format_minute(one.detection.onset)}",
        }
        for one in monitor.incidents
        if (one.reference.metric, one.reference.route) == (line.metric, line.route)
    ]


def _build_mean_table(monitor: MonitorReport, route: str | None) -> Markup:
    heads = ["metric"]
    for window in monitor.options.windows:
        heads += [f"{format_duration(window)}, 95 %", "against before"]
    rows = []
    for metric, mine, _ in list_rolling_metrics(monitor, route):
        cells: list[Node] = [metric]
        for each in mine:
            cells += [format_interval(each.interval), format_interval(each.delta, signed=True)]
        rows.append(cells)
    name = clean_label(route, 60) if route else "all traffic"
    return tag("div", tag("h3", name), _build_table(heads, rows, f"of {name}"))


def _build_alert_table(monitor: MonitorReport) -> Markup:
    if not monitor.events:
        return tag("p", "No alert fired.", class_="empty")
    return _build_table(
        ("time", "", "severity", "rule", "where", "figure"), build_alert_rows(monitor.events), "of alerts"
    )


def _build_distribution_table(monitor: MonitorReport) -> Markup | None:
    rows = [
        (
            format_metric_route(each.metric, each.route),
            _draw_distribution(each),
            " / ".join(format_number(value) for value in each.quartiles),
            f"{each.n:,}",
            ", ".join(
                f"{clean_label(worst.trace, 60)} ({format_number(worst.value)})" for worst in each.outliers
            ),
        )
        for each in monitor.distributions
    ]
    heads = ("metric", "values", "quartiles", "n", "outliers")
    return _build_table(heads, rows, "of distributions") if rows else None


def _draw_distribution(distribution: MetricDistribution) -> Markup:
    """The histogram of a window."""
    tallest = max(distribution.bins)
    bars = []
    for at, count in enumerate(distribution.bins):
        tall = max(1.5, round(26 * count / tallest, 2)) if count else 0
        where = f"{format_number(distribution.edges[at])} to {format_number(distribution.edges[at + 1])}"
        bar = tag("rect", x=at * 6 + 0.5, y=27 - tall, width=5, height=tall) if count else None
        area = tag("rect", class_="area", x=at * 6, y=0, width=6, height=28)
        bars.append(tag("g", bar, area, data_tip=f"{where}: {count:,}"))
    return tag(
        "svg",
        bars,
        class_="hist",
        viewBox="0 0 120 28",
        role="img",
        aria_label=f"distribution of {distribution.n:,} values",
    )


def _build_insight_charts(monitor: MonitorReport) -> Markup | None:
    names = {"position": "position", "chunks": "number of chunks"}
    figures = []
    for each in monitor.insights:
        what = "Mean relevance" if each.measure == "relevance" else "Share of chunks used"
        title = f"{what} by {names.get(each.by, each.by)}"
        figures.append(
            tag("figure", tag("figcaption", title), render_chart_svg(build_insight_chart(each), title))
        )
    return tag("div", figures, class_="figures") if figures else None


def _build_cohort_table(monitor: MonitorReport) -> Markup | None:
    rows = [
        (
            each.cohort or "",
            each.metric,
            format_interval(each.interval),
            f"{each.interval.n if each.interval else 0:,}",
        )
        for each in list_cohorts(monitor)
    ]
    return _build_table(("cohort", "metric", "95 %", "n"), rows, "of cohorts") if rows else None


def _build_correlation_table(monitor: MonitorReport) -> Markup | None:
    rows = [
        (
            f"{each.first}, {each.second}",
            f"{format_signed(each.r)} [{format_signed(each.low)}, {format_signed(each.high)}]",
            f"{each.n:,}",
        )
        for each in monitor.correlations
    ]
    return _build_table(("metrics", "correlation, 95 %", "traces"), rows, "of correlations") if rows else None


def _build_drift(monitor: MonitorReport) -> Markup | None:
    if monitor.drift is None:
        return None
    rows = [build_drift_row(each) for each in monitor.drift.scores]
    table = _build_table(("metric", "live less evaluated, 95 %", "distance", "p"), rows, "of drift")
    return tag("div", tag("p", clean_label(describe_topic_drift(monitor.drift), 800)), table)
