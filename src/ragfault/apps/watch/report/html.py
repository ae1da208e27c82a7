"""Metrics over time as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from ragfault.apps.watch.monitoring.monitor import DetectedDrop, MonitorReport, RollingLine
from ragfault.apps.watch.report.charts import draw_rolling_mean
from ragfault.apps.watch.report.terminal import (
    build_alert_rows,
    build_drift_row,
    describe_causes_and_remedies,
    describe_drop,
    describe_monitoring_settings,
    describe_topic_drift,
    format_metric_route,
    list_cohorts,
    list_rolling_metrics,
    list_routes,
    summarize_monitor,
)
from ragfault.report.charts import svg
from ragfault.report.format import clean_label, format_duration, format_minute
from ragfault.report.html.environment import render_page
from ragfault.text.number_format import format_bounds, format_interval, format_number, format_signed

TRIAD_METRICS = ("context_relevance", "groundedness", "answer_relevance")


def render_monitor_html(monitor: MonitorReport) -> str:
    """Render traffic over time as one HTML page; traces are named by id, their texts do not appear on it."""
    charts = [section for section in _build_chart_sections(monitor) if section[2]]
    tables = [section for section in _build_tables(monitor) if section[3]]
    drift = [("drift", "Against the evaluation set")] if monitor.drift else []
    return render_page(
        "monitoring.html",
        ("page.css", "agreement.css"),
        ("theme.js", "open_theme.js"),
        package="ragfault.apps.watch.report",
        name=summarize_monitor(monitor),
        facts=[
            describe_monitoring_settings(monitor),
            *(f"beware: {text}" for text in monitor.warnings),
            *(f"{format_minute(mark.minute)}: {mark.text}" for mark in monitor.marks),
        ],
        sections=[
            ("drops", "Drops"),
            *((id, title) for id, title, _ in charts),
            ("means", "Rolling means"),
            ("alerts", "Alerts"),
            *((id, title) for id, title, _, _ in tables),
            *drift,
        ],
        drops=[_describe_drop(monitor, drop) for drop in monitor.drops],
        chart_sections=charts,
        mean_tables=[_build_mean_table(monitor, route) for route in list_routes(monitor)],
        alert_rows=build_alert_rows(monitor.events),
        tables=tables,
        drift_rows=None if monitor.drift is None else [build_drift_row(row) for row in monitor.drift.scores],
        drift_sentence="" if monitor.drift is None else describe_topic_drift(monitor.drift),
    )


def _describe_drop(monitor: MonitorReport, drop: DetectedDrop) -> tuple[str, str | None, str, list[str]]:
    """Return the title, the layer to blame, a sentence and advice."""
    title = format_metric_route(drop.reference.metric, drop.reference.route)
    fault = drop.location.fault
    return (title, fault.layer if fault else None, describe_drop(drop), describe_causes_and_remedies(monitor, drop))


def _build_chart_sections(monitor: MonitorReport) -> Iterator[tuple[str, str, list[tuple[str, Markup]]]]:
    triad = [line for line in monitor.lines if line.metric in TRIAD_METRICS]
    others = [line for line in monitor.lines if line.metric not in TRIAD_METRICS]
    yield "triad", "The triad over time", _draw_lines(monitor, triad)
    yield "lines", "Other metrics", _draw_lines(monitor, others)
    yield (
        "insights",
        "Insights",
        [(svg.insight_title(insight), svg.draw_insight(insight)) for insight in monitor.insights],
    )


def _draw_lines(monitor: MonitorReport, lines: Sequence[RollingLine]) -> list[tuple[str, Markup]]:
    """Draw the rolling mean of each metric that has a value."""
    figures = []
    for line in lines:
        route = format_metric_route(line.metric, line.route)
        title = clean_label(f"{route}, rolling mean of {format_duration(line.window)}", 200)
        if drawing := draw_rolling_mean(monitor, line, title):
            figures.append((title, drawing))
    return figures


def _build_mean_table(monitor: MonitorReport, route: str | None) -> tuple[str, list[str], list[list[str]]]:
    heads = ["metric"]
    for window in monitor.options.windows:
        heads += [f"{format_duration(window)}, 95 %", "against before"]
    rows = []
    for metric, means, _ in list_rolling_metrics(monitor, route):
        cells = [
            text
            for mean in means
            for text in (format_interval(mean.interval), format_interval(mean.delta, signed=True))
        ]
        rows.append([metric, *cells])
    return route or "all traffic", heads, rows


def _build_tables(monitor: MonitorReport) -> Iterator[tuple[str, str, tuple[str, ...], list[tuple[Any, ...]]]]:
    distributions = [
        (
            format_metric_route(dist.metric, dist.route),
            svg.draw_bins(dist.bins, dist.edges, f"distribution of {dist.n:,} values"),
            " / ".join(format_number(value) for value in dist.quartiles),
            f"{dist.n:,}",
            ", ".join(f"{clean_label(row.trace, 60)} ({format_number(row.value)})" for row in dist.outliers),
        )
        for dist in monitor.distributions
    ]
    yield ("distributions", "Distributions", ("metric", "values", "quartiles", "n", "outliers"), distributions)
    cohorts = [
        (row.cohort or "", row.metric, format_interval(row.interval), f"{row.interval.n:,}")
        for row in list_cohorts(monitor)
        if row.interval
    ]
    yield "cohorts", "Cohorts", ("cohort", "metric", "95 %", "n"), cohorts
    correlations = [
        (f"{pair.first}, {pair.second}", f"{format_signed(pair.r)} {format_bounds(pair)}", f"{pair.n:,}")
        for pair in monitor.correlations
    ]
    yield "correlations", "Correlations", ("metrics", "correlation, 95 %", "traces"), correlations
