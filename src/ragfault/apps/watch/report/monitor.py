"""The report of traffic over time: what broke and the alerts first, then rolling means, cohorts and drift."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ragfault.apps.watch.monitoring.rollups import OPERATION_TITLES, STEP_METRICS
from ragfault.apps.watch.report.charts import draw_rolling_mean
from ragfault.report.charts import svg
from ragfault.report.document import (
    PAGE_ONLY,
    Block,
    Chart,
    Details,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictKind,
    VerdictMark,
    build_section,
    build_warnings,
)
from ragfault.report.format import format_duration, format_minute, join_names
from ragfault.report.safe_text import clean_label, clip_text
from ragfault.report.wording import describe_sample_size
from ragfault.text.number_format import (
    MISSING,
    format_bounds,
    format_count,
    format_interval,
    format_number,
    format_p_value,
    format_signed,
)

if TYPE_CHECKING:
    from ragfault.apps.watch.monitoring.alerts import AlertTransition
    from ragfault.apps.watch.monitoring.drift import ScoreDrift, TrafficDrift
    from ragfault.apps.watch.monitoring.monitor import DetectedDrop, MonitorMark, MonitorReport, RollingLine
    from ragfault.apps.watch.monitoring.windows import RollingMean

SECONDARY_METRICS = ("relevance", "usage", "missing", "latency", "error")
"""Metrics shown beside those watched for drops."""

TRIAD_METRICS = ("context_relevance", "groundedness", "answer_relevance")

SPARK_LEVELS = "▁▂▃▄▅▆▇█"
SPARKLINE_CELLS = 24
"""Length of a sparkline."""

SPARKLINE_MIN_RANGE = 0.1
"""The least range that a sparkline is drawn over, so that small changes do not look like large ones."""

ALERTS_SHOWN = 12
"""Number of alerts shown before the others are folded."""

WIDE_ROOM = 150
"""Columns of a terminal from which all windows are shown, not the shortest only."""

ALERT_KINDS: dict[str, VerdictKind] = {"firing": "bad", "reminder": "unsure", "resolved": "good"}

ALERT_COLUMNS = (
    TableColumn("Time"),
    TableColumn(""),
    TableColumn("Severity"),
    TableColumn("Rule"),
    TableColumn("Where"),
    TableColumn("Figure", numeric=True),
)
DISTRIBUTION_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Quartiles"),
    TableColumn("n", numeric=True),
    TableColumn("Outliers"),
)
COHORT_COLUMNS = (TableColumn("Cohort"), TableColumn("Metric"), TableColumn("95 %"), TableColumn("n", numeric=True))
CORRELATION_COLUMNS = (TableColumn("Metrics"), TableColumn("Correlation, 95 %"), TableColumn("Traces", numeric=True))
DRIFT_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Live less evaluated, 95 %"),
    TableColumn("Distance", numeric=True),
    TableColumn("p", numeric=True),
)


def build_first_screen(monitor: MonitorReport) -> ReportDocument:
    """Build what is read first: what changed, where, since when and why, and the alerts."""
    title, body = summarize_monitor(monitor), [*_build_drops(monitor), *_build_alerts(monitor)]
    hint = Paragraph(
        (StyledText("--full", "code"), " shows the rolling means of every route, cohorts and drift."), "note"
    )
    lead = (Heading(title, 1), Paragraph(describe_monitoring_settings(monitor), "note"))
    return ReportDocument(title, (*lead, *build_warnings(monitor.warnings)), (*body, hint))


def build_monitor(monitor: MonitorReport) -> ReportDocument:
    """Build the report of traffic over time; traces are named by id, their texts do not appear in it."""
    title = summarize_monitor(monitor)
    settings = Paragraph(describe_monitoring_settings(monitor), "note")
    body = [
        *_build_drops(monitor),
        *_build_alerts(monitor),
        *_build_charts(monitor),
        *_build_means(monitor),
        *_build_marks(monitor),
        *_build_distributions(monitor),
        *_build_cohorts(monitor),
        *_build_correlations(monitor),
        *_build_drift(monitor.drift),
    ]
    if monitor.unwatched:
        names = join_names(format_metric_route(*pair) for pair in monitor.unwatched)
        body.append(Paragraph(f"Not watched for drops, too few values in the reference: {names}", "note"))
    lead = (Heading(title, 1), settings, *build_warnings(monitor.warnings))
    return ReportDocument(title, lead, tuple(body))


def format_metric_route(metric: str, route: str | None) -> str:
    """Format a metric and its route."""
    return clip_text(metric, 80) + (f" at {clip_text(route, 40)}" if route else "")


def describe_drop(drop: DetectedDrop) -> str:
    """Describe a break in a sentence."""
    call, reference = drop.detection, drop.reference
    fault = drop.location.fault
    lead = f"{fault.layer.capitalize()} broke ({fault.title}): " if fault else ""
    kind = next((kind for kind, name in STEP_METRICS.items() if name == reference.metric), None)
    title = f"{kind.capitalize()} steps broke" if kind else OPERATION_TITLES.get(reference.metric)
    lead = f"{title}: " if title else lead
    when = f"since {format_minute(call.onset)} [{format_minute(call.earliest)}, {format_minute(call.latest)}]"
    over = f"; back at {format_minute(call.recovered_at)}" if call.recovered_at else ""
    unknown = "" if fault or title else f"; {drop.explanation or 'which layer, the data cannot tell'}"
    return f"{lead}{_describe_move(drop)} {when}, called at {format_minute(call.detected_at)}{over}{unknown}."


def _describe_move(drop: DetectedDrop) -> str:
    """Describe which metric moved, and by how much."""
    reference, moved = drop.reference, drop.difference
    ends = sorted(math.copysign(1.0, moved.mean) * end + 0.0 for end in (moved.low, moved.high))
    size = f"{format_number(abs(moved.mean))} [{format_number(ends[0])}, {format_number(ends[1])}]"
    word = "fell" if reference.higher_is_better else "rose"
    return f"{format_metric_route(reference.metric, reference.route)} {word} by {size}"


def summarize_monitor(monitor: MonitorReport) -> str:
    """Summarize the result of monitoring in a sentence."""
    span = f"{format_duration(monitor.last - monitor.first)} of traffic"
    alerts = format_count(len(monitor.fired), "alert")
    if len(monitor.unwatched) >= len(monitor.lines):
        why = "no metric has enough values in the reference"
        return f"Nothing is watched for drops in {span}, since {why}; {alerts} fired."
    if not monitor.drops:
        return f"No drop is called in {span}; {alerts} fired."
    changes = group_drops(monitor.drops)
    others = sum(change[0].explanation is not None for change in changes)
    apart = f"; {others:,} of the changes may have another cause than a fault" if others else ""
    count = f"{format_count(len(changes), 'change')} in {span}{apart}, {alerts} fired."
    return f"{_name_change(max(changes, key=_is_fault))}. {count}"


def group_drops(drops: Sequence[DetectedDrop]) -> list[list[DetectedDrop]]:
    """Group the drops that are one change: on one route, of one layer, beginning at times that may be the same."""
    changes: list[list[DetectedDrop]] = []
    for drop in drops:
        change = next((change for change in changes if _is_one_change(change[0], drop)), None)
        if change is None:
            changes.append([drop])
        else:
            change.append(drop)
    return changes


def _is_one_change(first: DetectedDrop, other: DetectedDrop) -> bool:
    faults = [drop.location.fault.layer if drop.location.fault else None for drop in (first, other)]
    overlap = first.detection.earliest <= other.detection.latest and other.detection.earliest <= first.detection.latest
    return first.reference.route == other.reference.route and faults[0] == faults[1] and overlap


def _is_fault(change: Sequence[DetectedDrop]) -> bool:
    return change[0].location.fault is not None


def _name_change(change: Sequence[DetectedDrop]) -> str:
    """Name what changed, where and since when."""
    drop = change[0]
    reference, fault = drop.reference, drop.location.fault
    where = f" at {clip_text(reference.route, 40)}" if reference.route else ""
    size = f"{clip_text(reference.metric, 80)} {format_signed(drop.difference.mean)}"
    more = f" and {format_count(len(change) - 1, 'other metric')}" if len(change) > 1 else ""
    what = f"{fault.layer.capitalize()} broke{where}" if fault else f"Something changed{where}"
    over = f" until {format_minute(drop.detection.recovered_at)}" if drop.detection.recovered_at else ""
    return f"{what} since {format_minute(drop.detection.onset)}{over}: {size}{more}"


def describe_monitoring_settings(monitor: MonitorReport) -> str:
    """Describe the period, the reference and the test of the monitoring."""
    reference = monitor.drops[0].reference if monitor.drops else None
    until = f", the reference until {format_minute(reference.last)}" if reference else ""
    sample = f"{describe_sample_size(monitor.sample, monitor.population)}; " if monitor.population else ""
    if monitor.stray:
        left_out = f"{format_count(monitor.stray, 'trace')} ignored, far in time from all others"
        sample = f"{left_out}: check the clocks; {sample}"
    return (
        f"{sample}{format_minute(monitor.first)} to {format_minute(monitor.last)} UTC{until}; "
        f"at most {monitor.options.rate:g} false alarms of the sequential test per metric and route in a month, "
        f"however often one looks: {monitor.promise}"
    )


def _select_nearby_marks(monitor: MonitorReport, drop: DetectedDrop) -> list[MonitorMark]:
    """Select the marks that a break may go back to: from an hour before its earliest beginning to its latest."""
    first, last = drop.detection.earliest - 60, drop.detection.latest
    return [
        mark for mark in monitor.marks if first <= mark.minute <= last and mark.route in (None, drop.reference.route)
    ]


def _describe_causes_and_remedies(monitor: MonitorReport, drop: DetectedDrop) -> list[str]:
    """Describe what to do about a break: suspects, remedies, marks, and the traces that show it."""
    fault = drop.location.fault
    lines = []
    if fault:
        lines += [
            f"look at: {', '.join(suspect.stage for suspect in fault.suspects)}",
            f"how to fix it: {'; '.join(fault.remedies)}",
        ]
    marks = [
        f"{clip_text(mark.text, 80)} ({format_minute(mark.minute)})" for mark in _select_nearby_marks(monitor, drop)
    ]
    if marks:
        lines.append(f"shortly before: {', '.join(marks)}")
    return [*lines, f"traces that show it: {join_names(drop.traces)}"]


def _list_routes(monitor: MonitorReport) -> list[str | None]:
    """List the routes, in order."""
    return sorted({row.route for row in monitor.rolling_means if row.cohort is None}, key=lambda name: name or "")


def _list_rolling_metrics(
    monitor: MonitorReport, route: str | None
) -> Iterator[tuple[str, list[RollingMean], RollingLine | None]]:
    """List the metrics to show of a route, each with its rolling means and its line over time."""
    lines = {row.metric: row for row in monitor.lines if row.route == route}
    for metric in (*lines, *(name for name in SECONDARY_METRICS if name not in lines)):
        mine = [e for e in monitor.rolling_means if e.metric == metric and e.route == route and e.cohort is None]
        if any(row.interval for row in mine):
            yield metric, mine, lines.get(metric)


def _list_cohorts(monitor: MonitorReport) -> list[RollingMean]:
    """List the figures of cohorts over the longest window, of the metrics that are watched."""
    metrics, window = {row.metric for row in monitor.lines}, max(monitor.options.windows)
    return [
        row
        for row in monitor.rolling_means
        if row.cohort and row.window == window and row.metric in metrics and row.interval
    ]


def _build_drops(monitor: MonitorReport) -> list[Block]:
    """Build each change with the layer to blame, its first drop in a sentence, its other drops, and what to do."""
    blocks: list[Block] = []
    for drop, *others in group_drops(monitor.drops):
        fault = drop.location.fault
        mark = VerdictMark(fault.layer, "bad") if fault else VerdictMark("cannot tell")
        lines = _describe_causes_and_remedies(monitor, drop)
        if others:
            moved = [
                f"{_describe_move(other)}, called at {format_minute(other.detection.detected_at)}" for other in others
            ]
            lines.insert(0, f"with it: {'; '.join(moved)}")
        title = format_metric_route(drop.reference.metric, drop.reference.route)
        blocks += [Heading(title, 3, mark), Paragraph(describe_drop(drop)), Listing(tuple(lines))]
    return build_section("Changes", *blocks) if blocks else []


def _build_alerts(monitor: MonitorReport) -> list[Block]:
    """Build the latest alerts, those that still fire, and the earlier ones folded."""
    if not monitor.events:
        return []
    firing = [
        f"{alert.rule.name} ({format_metric_route(alert.metric, alert.route)})" for alert in monitor.alert_state.firing
    ]
    still = [Paragraph(f"firing at the end: {', '.join(firing)}")] if firing else []
    earlier = monitor.events[:-ALERTS_SHOWN]
    folded: list[Block] = [
        Paragraph(f"and {len(earlier):,} before", "note"),
        Details("Earlier alerts", (_build_alert_table(earlier),), PAGE_ONLY),
    ]
    table = _build_alert_table(monitor.events[-ALERTS_SHOWN:])
    return build_section("Alerts", table, *still, *(folded if earlier else []))


def _build_alert_table(events: Sequence[AlertTransition]) -> Table:
    rows = tuple(
        (
            format_minute(event.time / 60),
            VerdictMark(event.kind, ALERT_KINDS[event.kind]),
            event.severity,
            clip_text(event.rule, 60),
            format_metric_route(event.metric, event.route),
            MISSING if event.value is None else format_number(event.value),
        )
        for event in events
    )
    return Table(ALERT_COLUMNS, rows)


def _build_charts(monitor: MonitorReport) -> list[Block]:
    """Draw the rolling mean of each metric that has a value, the triad first, and the insights."""
    triad = [line for line in monitor.lines if line.metric in TRIAD_METRICS]
    others = [line for line in monitor.lines if line.metric not in TRIAD_METRICS]
    insights = [Chart(svg.insight_title(insight), svg.draw_insight(insight)) for insight in monitor.insights]
    sections = {
        "The triad over time": _draw_lines(monitor, triad),
        "Other metrics": _draw_lines(monitor, others),
        "Insights": insights,
    }
    return [block for title, charts in sections.items() if charts for block in build_section(title, *charts)]


def _draw_lines(monitor: MonitorReport, lines: Sequence[RollingLine]) -> list[Chart]:
    charts = []
    for line in lines:
        route = format_metric_route(line.metric, line.route)
        title = clean_label(f"{route}, rolling mean of {format_duration(line.window)}", 200)
        if drawing := draw_rolling_mean(monitor, line, title):
            charts.append(Chart(title, drawing))
    return charts


def _build_means(monitor: MonitorReport) -> list[Block]:
    """Build the rolling means of each route over each window, each against the time before."""
    columns = [TableColumn("Metric")]
    for place, window in enumerate(monitor.options.windows):
        room = WIDE_ROOM if place else 0
        columns += [
            TableColumn(f"{format_duration(window)}, 95 %", room=room),
            TableColumn("Against before", room=room),
        ]
    columns.append(TableColumn("Over time"))
    blocks: list[Block] = []
    for route in _list_routes(monitor):
        rows = tuple(
            (
                StyledText(metric, "code"),
                *(cell for mean in means for cell in (format_interval(mean.interval), _format_delta(mean))),
                draw_sparkline(line.means) if line else "",
            )
            for metric, means, line in _list_rolling_metrics(monitor, route)
        )
        title = f"Route {clip_text(route, 60)}" if route else "All traffic"
        blocks += [Heading(title, 3), Table(tuple(columns), rows)]
    return build_section("Rolling means", *blocks) if blocks else []


def _format_delta(rolling: RollingMean) -> Text:
    """Format a change against the time before; one that leaves out 0 stands out."""
    moved = rolling.delta
    clear = moved is not None and (moved.low > 0 or moved.high < 0)
    return StyledText(format_interval(moved, signed=True), "strong" if clear else "muted")


def _build_marks(monitor: MonitorReport) -> list[Block]:
    lines = tuple(f"{format_minute(mark.minute)}: {clip_text(mark.text, 100)}" for mark in monitor.marks)
    return build_section("Deployments and notes", Listing(lines))


def _build_distributions(monitor: MonitorReport) -> list[Block]:
    """Build the distribution of each metric as a drawing, with its quartiles and outliers."""
    charts = [
        Chart(
            format_metric_route(item.metric, item.route),
            svg.draw_bins(item.bins, item.edges, f"distribution of {item.n:,} values"),
        )
        for item in monitor.distributions
    ]
    rows = tuple(
        (
            format_metric_route(item.metric, item.route),
            " / ".join(format_number(value) for value in item.quartiles),
            f"{item.n:,}",
            ", ".join(f"{clip_text(row.trace, 60)} ({format_number(row.value)})" for row in item.outliers),
        )
        for item in monitor.distributions
    )
    table = Table(DISTRIBUTION_COLUMNS, rows)
    return [Details("Distributions", (table, *charts), PAGE_ONLY)] if rows else []


def _build_cohorts(monitor: MonitorReport) -> list[Block]:
    rows = tuple(
        (clip_text(row.cohort or "", 60), row.metric, format_interval(row.interval), f"{row.interval.n:,}")
        for row in _list_cohorts(monitor)
        if row.interval
    )
    window = StyledText(f" · {format_duration(max(monitor.options.windows))}", "muted")
    return build_section(("Cohorts", window), Table(COHORT_COLUMNS, rows)) if rows else []


def _build_correlations(monitor: MonitorReport) -> list[Block]:
    rows = tuple(
        (f"{pair.first}, {pair.second}", f"{format_signed(pair.r)} {format_bounds(pair)}", f"{pair.n:,}")
        for pair in monitor.correlations
    )
    return build_section("Correlations", Table(CORRELATION_COLUMNS, rows)) if rows else []


def _build_drift(drift: TrafficDrift | None) -> list[Block]:
    if drift is None:
        return []
    table = Table(DRIFT_COLUMNS, tuple(map(_build_drift_row, drift.scores)))
    return build_section(f"Against {clip_text(drift.run, 60)}", table, Paragraph(_describe_topic_drift(drift)))


def _build_drift_row(drift: ScoreDrift) -> tuple[Text, ...]:
    return (
        StyledText(clip_text(drift.metric, 60), "code"),
        format_interval(drift.difference, signed=True),
        format_number(drift.distance),
        format_p_value(drift.adjusted),
    )


def _describe_topic_drift(drift: TrafficDrift) -> str:
    """Describe how far topics have moved, in a sentence."""
    topics = drift.topics
    if topics is None:
        return "Topics cannot be compared: a side has no query with a word."
    more = f" More of: {join_names(topics.risen_stems)}." if topics.risen_stems else ""
    less = f" Less of: {join_names(topics.fallen_stems)}." if topics.fallen_stems else ""
    old, new = topics.queries
    return (
        f"Topics of {new:,} live queries lie {format_number(topics.distance)} from those of {old:,} evaluated ones; "
        f"mere chance gives {format_number(topics.low)} to {format_number(topics.high)} (p "
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
