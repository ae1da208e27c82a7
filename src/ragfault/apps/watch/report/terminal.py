"""Metrics over time for the terminal, with sparklines, and as JSON."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ragfault.apps.watch.monitoring.alerts import AlertTransition
from ragfault.apps.watch.monitoring.drift import ScoreDrift, TrafficDrift
from ragfault.apps.watch.monitoring.monitor import DetectedDrop, MonitorMark, MonitorReport, RollingLine
from ragfault.apps.watch.monitoring.rollups import OPERATION_TITLES, STEP_METRICS
from ragfault.apps.watch.monitoring.windows import RollingMean
from ragfault.report.format import clean_text, clip_text, format_duration, format_minute, join_names
from ragfault.report.terminal.layout import build_line, build_table, indent_line, render_rich
from ragfault.report.wording import describe_sample_size
from ragfault.text.number_format import format_count, format_interval, format_number, format_p_value, format_signed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


SECONDARY_METRICS = ("relevance", "usage", "missing", "latency", "error")
"""Metrics shown beside those watched for drops."""

SPARK_LEVELS = "▁▂▃▄▅▆▇█"
SPARKLINE_CELLS = 24
"""Length of a sparkline."""

SPARKLINE_MIN_RANGE = 0.1
"""The least range that a sparkline is drawn over, so that small changes do not look like large ones."""

ALERTS_SHOWN = 12
"""Number of alerts shown."""

UNBROKEN_COLUMNS = ("metric", "time", "over time")
"""The columns whose cells are not broken."""

ALERT_STYLES = {"firing": "red", "reminder": "yellow", "resolved": "green"}


def format_metric_route(metric: str, route: str | None) -> str:
    """Format a metric and its route."""
    return clip_text(metric, 80) + (f" at {clip_text(route, 40)}" if route else "")


def describe_drop(drop: DetectedDrop) -> str:
    """Describe a break in a sentence."""
    call, reference, moved = drop.detection, drop.reference, drop.difference
    fault = drop.location.fault
    lead = f"{fault.layer.capitalize()} broke ({fault.title}): " if fault else ""
    kind = next((kind for kind, name in STEP_METRICS.items() if name == reference.metric), None)
    title = f"{kind.capitalize()} steps broke" if kind else OPERATION_TITLES.get(reference.metric)
    lead = f"{title}: " if title else lead
    ends = sorted(math.copysign(1.0, moved.mean) * end + 0.0 for end in (moved.low, moved.high))
    size = f"{format_number(abs(moved.mean))} [{format_number(ends[0])}, {format_number(ends[1])}]"
    when = f"since {format_minute(call.onset)} [{format_minute(call.earliest)}, {format_minute(call.latest)}]"
    over = f"; back at {format_minute(call.recovered_at)}" if call.recovered_at else ""
    where, word = (
        format_metric_route(reference.metric, reference.route),
        "fell" if reference.higher_is_better else "rose",
    )
    unknown = "" if fault or title else f"; {drop.explanation or 'which layer, the data cannot tell'}"
    return f"{lead}{where} {word} by {size} {when}, called at {format_minute(call.detected_at)}{over}{unknown}."


def summarize_monitor(monitor: MonitorReport) -> str:
    """Summarize the result of monitoring in a sentence."""
    span = f"{format_duration(monitor.last - monitor.first)} of traffic"
    alerts = format_count(len(monitor.fired), "alert")
    if len(monitor.unwatched) >= len(monitor.lines):
        why = "no metric has enough values in the reference"
        return f"Nothing is watched for drops in {span}, since {why}; {alerts} fired."
    if not monitor.drops:
        return f"No drop is called in {span}; {alerts} fired."
    names = {format_metric_route(drop.reference.metric, drop.reference.route) for drop in monitor.drops}
    layers = dict.fromkeys(drop.location.fault.layer for drop in monitor.drops if drop.location.fault)
    blame = f", naming {' and '.join(layers)}" if layers else ""
    others = sum(drop.location.fault is None and drop.explanation is not None for drop in monitor.drops)
    apart = f"; something else than a fault may explain {others:,} of the drops" if others else ""
    return f"{format_count(len(names), 'metric')} dropped in {span}{blame}{apart}; {alerts} fired."


def describe_monitoring_settings(monitor: MonitorReport) -> str:
    """Describe the period, the reference and the test of the monitoring."""
    reference = monitor.drops[0].reference if monitor.drops else None
    until = f", the reference until {format_minute(reference.last)}" if reference else ""
    sample = f"{describe_sample_size(monitor.sample, monitor.population)}; " if monitor.population else ""
    if monitor.stray:
        left_out = f"{format_count(monitor.stray, 'trace')} left out, far in time from all others"
        sample = f"{left_out}: look at the clocks; {sample}"
    return (
        f"{sample}{format_minute(monitor.first)} to {format_minute(monitor.last)} UTC{until}; "
        f"at most {monitor.options.rate:g} false alarms of the sequential test per metric and route in a month, "
        f"however often one looks: {monitor.promise}"
    )


def select_nearby_marks(monitor: MonitorReport, drop: DetectedDrop) -> list[MonitorMark]:
    """Select the marks that a break may go back to: from an hour before its earliest beginning to its latest."""
    first, last = drop.detection.earliest - 60, drop.detection.latest
    return [
        mark for mark in monitor.marks if first <= mark.minute <= last and mark.route in (None, drop.reference.route)
    ]


def describe_causes_and_remedies(monitor: MonitorReport, drop: DetectedDrop) -> list[str]:
    """Describe what to do about a break: suspects, remedies, marks, and the traces that show it."""
    fault = drop.location.fault
    lines = []
    if fault:
        lines += [
            f"look at: {', '.join(suspect.stage for suspect in fault.suspects)}",
            f"how to fix it: {'; '.join(fault.remedies)}",
        ]
    marks = [
        f"{clip_text(mark.text, 80)} ({format_minute(mark.minute)})" for mark in select_nearby_marks(monitor, drop)
    ]
    if marks:
        lines.append(f"shortly before: {', '.join(marks)}")
    return [*lines, f"traces that show it: {join_names(drop.traces)}"]


def list_routes(monitor: MonitorReport) -> list[str | None]:
    """List the routes, in order."""
    return sorted({row.route for row in monitor.rolling_means if row.cohort is None}, key=lambda name: name or "")


def list_rolling_metrics(
    monitor: MonitorReport, route: str | None
) -> Iterator[tuple[str, list[RollingMean], RollingLine | None]]:
    """List the metrics to show of a route, each with its rolling means and its line over time."""
    lines = {row.metric: row for row in monitor.lines if row.route == route}
    for metric in (*lines, *(name for name in SECONDARY_METRICS if name not in lines)):
        mine = [e for e in monitor.rolling_means if e.metric == metric and e.route == route and e.cohort is None]
        if any(row.interval for row in mine):
            yield metric, mine, lines.get(metric)


def list_cohorts(monitor: MonitorReport) -> list[RollingMean]:
    """List the figures of cohorts over the longest window, of the metrics that are watched."""
    metrics, window = {row.metric for row in monitor.lines}, max(monitor.options.windows)
    return [
        row
        for row in monitor.rolling_means
        if row.cohort and row.window == window and row.metric in metrics and row.interval
    ]


def build_alert_rows(events: Sequence[AlertTransition]) -> list[tuple[str, str, str, str, str, str]]:
    """Build the rows of alerts: time, transition, severity, rule, metric with route, and value."""
    return [
        (
            format_minute(event.time / 60),
            event.kind,
            event.severity,
            clip_text(event.rule, 60),
            format_metric_route(event.metric, event.route),
            "–" if event.value is None else format_number(event.value),
        )
        for event in events
    ]


def build_drift_row(drift: ScoreDrift) -> tuple[str, str, str, str]:
    """Build a metric of the evaluation set beside live traffic."""
    return (
        clip_text(drift.metric, 60),
        format_interval(drift.difference, signed=True),
        format_number(drift.distance),
        format_p_value(drift.adjusted),
    )


def describe_topic_drift(drift: TrafficDrift) -> str:
    """Describe how far topics have moved, in a sentence."""
    topics = drift.topics
    if topics is None:
        return "Topics cannot be compared: a side has no query with a word."
    more = f" More of: {join_names(topics.risen_stems)}." if topics.risen_stems else ""
    less = f" Less of: {join_names(topics.fallen_stems)}." if topics.fallen_stems else ""
    old, new = topics.queries
    return (
        f"Topics of {new:,} live queries lie {format_number(topics.distance)} from those of {old:,} evaluated ones; "
        f"chance alone gives {format_number(topics.low)} to {format_number(topics.high)} (p "
        f"{topics.p:.3f}).{more}{less}"
    )


def draw_sparkline(means: Sequence[float | None], cells: int = SPARKLINE_CELLS) -> str:
    """Draw means over time as a sparkline, from the least to the greatest of them.

    >>> draw_sparkline([0.2, 0.5, None, 0.8], 4)
    '▁▄ █'
    """
    known = [mean for mean in means if mean is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    if high - low < SPARKLINE_MIN_RANGE:
        low, high = (low + high - SPARKLINE_MIN_RANGE) / 2, (low + high + SPARKLINE_MIN_RANGE) / 2
    step = max(1, -(-len(means) // cells))
    levels = []
    for index in range(0, len(means), step):
        part = [mean for mean in means[index : index + step] if mean is not None]
        share = (sum(part) / len(part) - low) / (high - low) if part else 0.0
        levels.append(SPARK_LEVELS[min(7, max(0, int(8 * share)))] if part else " ")
    return "".join(levels)


def render_monitor_terminal(monitor: MonitorReport, *, width: int | None = None, color: bool = False) -> str:
    """Render for a terminal what broke and the alerts first, then each route's rolling means, cohorts and drift."""
    width = width or shutil.get_terminal_size((110, 24)).columns
    style = "red" if monitor.drops or monitor.fired else "green"
    parts: list[RenderableType] = [
        build_line((summarize_monitor(monitor), f"bold {style}")),
        build_line((describe_monitoring_settings(monitor), "dim")),
        *(build_line((f"beware: {clean_text(text)}", "yellow")) for text in monitor.warnings),
        *_build_drops(monitor),
        *_build_alerts(monitor),
    ]
    for route in list_routes(monitor):
        title = f"\nRoute {clip_text(route, 60)}" if route else "\nAll traffic"
        parts += [build_line((title, "bold cyan")), _build_mean_table(monitor, route, width)]
    parts += [*_build_marks(monitor), *_build_cohorts(monitor), *_build_correlations(monitor), *_build_drift(monitor)]
    if monitor.unwatched:
        text = join_names(format_metric_route(*pair) for pair in monitor.unwatched)
        parts.append(build_line((f"\nNot watched for drops, too few values in the reference: {text}", "dim")))
    return render_rich(parts, width=width, color=color)


def _build_drops(monitor: MonitorReport) -> Iterator[RenderableType]:
    last: list[str] = []
    for drop in monitor.drops:
        *advice, shown = describe_causes_and_remedies(monitor, drop)
        yield build_line()
        yield build_line(("✗ ", "red"), describe_drop(drop))
        for text in (*(advice if advice != last else ()), shown):
            yield indent_line(2, (text, "dim"))
        last = advice


def _build_mean_table(monitor: MonitorReport, route: str | None, width: int) -> Table:
    """Build the rolling means of a route, with as many windows as there is room for."""
    shown = monitor.options.windows if width >= 150 else monitor.options.windows[:1]
    heads = [head for window in shown for head in (f"{format_duration(window)}, 95 %", "against before")]
    table = build_table(("metric", *heads, "over time"), unbroken=UNBROKEN_COLUMNS)
    for metric, mine, line in list_rolling_metrics(monitor, route):
        cells = []
        for rolling in mine:
            if rolling.window in shown:
                cells += [build_line(format_interval(rolling.interval)), _build_delta(rolling)]
        table.add_row(build_line(clean_text(metric)), *cells, build_line(draw_sparkline(line.means) if line else ""))
    return table


def _build_delta(rolling: RollingMean) -> Any:
    moved = rolling.delta
    clear = moved is not None and (moved.low > 0 or moved.high < 0)
    return build_line((format_interval(moved, signed=True), "bold" if clear else "dim"))


def _build_alerts(monitor: MonitorReport) -> Iterator[RenderableType]:
    if not monitor.events:
        return
    yield build_line(("\nAlerts", "bold cyan"))
    table = build_table(("time", "", "severity", "rule", "where", "figure"), unbroken=UNBROKEN_COLUMNS)
    for time, kind, severity, rule, where, value in build_alert_rows(monitor.events[-ALERTS_SHOWN:]):
        table.add_row(
            time, build_line((kind, ALERT_STYLES[kind])), severity, build_line(rule), build_line(where), value
        )
    yield table
    if len(monitor.events) > ALERTS_SHOWN:
        yield build_line((f"and {len(monitor.events) - ALERTS_SHOWN:,} before", "dim"))
    still = [
        f"{clip_text(a.rule.name, 60)} ({format_metric_route(a.metric, a.route)})" for a in monitor.alert_state.firing
    ]
    if still:
        yield build_line(f"firing at the end: {', '.join(still)}")


def _build_marks(monitor: MonitorReport) -> Iterator[RenderableType]:
    if monitor.marks:
        yield build_line(("\nMarks", "bold cyan"))
        for mark in monitor.marks:
            yield build_line(f"{format_minute(mark.minute)}  {clip_text(mark.text, 100)}")


def _build_cohorts(monitor: MonitorReport) -> Iterator[RenderableType]:
    rows = list_cohorts(monitor)
    if rows:
        yield build_line(("\nCohorts", "bold cyan"), (f"   {format_duration(max(monitor.options.windows))}", "dim"))
        table = build_table(("cohort", "metric", "95 %", "n"), unbroken=UNBROKEN_COLUMNS)
        for row in rows:
            size = row.interval.n if row.interval else 0
            table.add_row(
                build_line(clip_text(row.cohort or "", 60)),
                clean_text(row.metric),
                format_interval(row.interval),
                f"{size:,}",
            )
        yield table


def _build_correlations(monitor: MonitorReport) -> Iterator[RenderableType]:
    if monitor.correlations:
        yield build_line(("\nTogether", "bold cyan"), ("   correlation of metrics", "dim"))
        for pair in monitor.correlations:
            ends = (
                f"{format_signed(pair.r)} [{format_signed(pair.low)}, {format_signed(pair.high)}] on {pair.n:,} traces"
            )
            yield build_line(f"{clean_text(pair.first)}, {clean_text(pair.second)}: {ends}")


def _build_drift(monitor: MonitorReport) -> Iterator[RenderableType]:
    if monitor.drift is None:
        return
    yield build_line(
        ("\nAgainst ", "bold cyan"), (clip_text(monitor.drift.run, 60), "bold cyan"), ("   live less evaluated", "dim")
    )
    rows = [[build_line(cell) for cell in build_drift_row(score)] for score in monitor.drift.scores]
    yield build_table(("metric", "difference, 95 %", "distance", "p"), rows, unbroken=UNBROKEN_COLUMNS)
    yield build_line(describe_topic_drift(monitor.drift))
