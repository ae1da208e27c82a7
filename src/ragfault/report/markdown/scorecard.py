"""The scorecard of a run as GitHub-flavored Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.diagnosis.records import Diagnosis, Findings, MetricAggregate
from ragfault.report.format import (
    LAYER_TITLES,
    TARGET_RESULTS,
    clip_text,
    describe_quantiles,
    explain_corrections,
    get_correction_heading,
    group_by_layer,
    group_failures,
    group_unmeasured_metrics,
    list_corrections,
    list_parts,
    select_segment_metrics,
    summarize_problems,
)
from ragfault.report.markdown.syntax import build_markdown_table, escape_markdown, format_code, format_metric
from ragfault.report.run_verdict import describe_share
from ragfault.report.wording import (
    describe_alert,
    describe_gold_agreement,
    describe_judge_trust,
    describe_judge_usage,
    describe_trace_count,
    describe_warnings,
)
from ragfault.text.number_format import format_bounds, format_interval, format_number, format_share

MAX_SEGMENTS = 20
"""Number of segments shown."""


def render_scorecard_markdown(findings: Findings) -> str:
    """Render the findings as one Markdown page."""
    manifest = findings.manifest
    origin = f"judge {escape_markdown(manifest.judge)} · {escape_markdown(manifest.created)}"
    facts = f"{describe_trace_count(manifest, findings.scorecard.aggregates)} · {origin}"
    if manifest.failed:
        facts += f" · {manifest.failed:,} scores failed"
    if manifest.skipped:
        facts += f" · {manifest.skipped:,} bad lines left out"
    facts = " · ".join([facts, *describe_judge_usage(findings)])
    lines = [
        f"# {escape_markdown(findings.run)}",
        "",
        facts,
        *([f"\n{escape_markdown(warning)}"] if (warning := describe_warnings(findings)) else []),
        *([f"\n{escape_markdown(trusted)}"] if (trusted := describe_judge_trust(manifest.judge)) else []),
        *([f"\n{escape_markdown('; '.join(gold))}"] if (gold := describe_gold_agreement(findings)) else []),
        *_build_layers(findings),
        *_build_corrections(findings),
        *_build_unmeasured(findings),
        *_build_tradeoffs(findings),
        *_build_rag_health(findings),
        *_build_quality(findings),
        *_build_segments(findings),
        *_build_insights(findings),
        *_build_worst_traces(findings.worst),
        *_build_remedies(findings),
    ]
    return "\n".join(lines) + "\n"


def _format_target(item: MetricAggregate) -> str:
    if item.target is None or item.result is None:
        return ""
    return f"`{item.target.sign} {item.target.value:g}` **{TARGET_RESULTS[item.result]}**"


def _build_section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _build_layers(findings: Findings) -> list[str]:
    health = {items.layer: items for items in findings.health}
    lines: list[str] = []
    for layer, items in group_by_layer(findings.scorecard):
        layer_health = health.get(layer)  # type: ignore[call-overload]
        above = []
        if layer_health is not None and layer_health.interval is not None:
            names = ", ".join(map(format_code, list_parts(layer_health, findings.scorecard.traces)))
            above = [f"Health **{format_interval(layer_health.interval)}**, the mean of {names}.", ""]
        rows = [
            (
                format_metric(item),
                format_number(item.interval.mean),
                format_bounds(item.interval, "{} – {}"),
                f"{item.scored:,}",
                f"{item.undefined:,}",
                f"{item.failed:,}",
                _format_target(item),
            )
            for item in items
            if item.interval
        ]
        heads = ("Metric", "Mean:", "95 % interval", "Scored:", "Undefined:", "Failed:", "Target")
        tails = [f"- {escape_markdown(text)}" for text in describe_quantiles(items)]
        below = ["", *tails] if tails else []
        lines += _build_section(LAYER_TITLES[layer], [*above, *build_markdown_table(heads, rows), *below])
    return lines


def _build_corrections(findings: Findings) -> list[str]:
    title = get_correction_heading(findings.scorecard)
    if title is None:
        return []
    rows = [
        (format_metric(item), format_interval(item.interval), escape_markdown(text))
        for item, text in list_corrections(findings.scorecard)
    ]
    lines = build_markdown_table(("Metric", "As judged", title.capitalize()), rows) if rows else []
    explanations = [escape_markdown(line) for line in explain_corrections(findings.scorecard)]
    return _build_section(title.capitalize(), [*lines, *([""] if lines else []), " ".join(explanations)])


def _build_unmeasured(findings: Findings) -> list[str]:
    return [
        line
        for title, groups in (
            ("Lost to failures", group_failures(findings.scorecard)),
            ("Not measured", group_unmeasured_metrics(findings.scorecard)),
        )
        for line in _build_section(
            title, [f"- {', '.join(map(format_code, names))}: {escape_markdown(reason)}" for reason, names in groups]
        )
    ]


def _build_tradeoffs(findings: Findings) -> list[str]:
    rows = [
        [
            f"{format_code(name)} {format_interval(side.interval) if side and side.interval else 'not measured'}"
            for name, side in zip(pair.names, (pair.first, pair.second), strict=True)
        ]
        for pair in findings.pairs
    ]
    return _build_section("Trade-offs", build_markdown_table(("One", "Other"), rows) if rows else [])


def _build_rag_health(findings: Findings) -> list[str]:
    rag = findings.rag
    figures = rag.figures.items()
    rows = [(format_code(name), format_interval(interval), f"{interval.n:,}") for name, interval in figures]
    alerts = [f"- **{alert.name}**: {describe_alert(alert)}" for alert in rag.alerts]
    lines = build_markdown_table(("Figure", "Mean", "Traces:"), rows) if rows else []
    return _build_section("RAG health", [*lines, *([""] if alerts else []), *alerts])


def _build_quality(findings: Findings) -> list[str]:
    if not any(level.count for level in findings.quality):
        return []
    rows = [(level.name, f"{level.count:,}", format_share(level.share), level.action) for level in findings.quality]
    without = ["", f"{findings.unrated:,} traces have no triad."] if findings.unrated else []
    return _build_section(
        "Quality of the answers", [*build_markdown_table(("Level", "Traces:", "Share", "Action"), rows), *without]
    )


def _build_segments(findings: Findings) -> list[str]:
    if not findings.segments:
        return []
    names = select_segment_metrics(findings.scorecard)
    by = escape_markdown(findings.segments[0].by or "")
    rows = [
        (
            "(none)" if card.segment is None else escape_markdown(clip_text(card.segment, 60)),
            format_metric(item),
            format_interval(item.interval),
            f"{item.scored:,}/{item.traces:,}",
            _format_target(item),
        )
        for card in findings.segments[:MAX_SEGMENTS]
        for item in card.aggregates
        if item.metric in names
    ]
    if not rows:
        return []
    more = len(findings.segments) - MAX_SEGMENTS
    rest = ["", f"… and {more:,} more."] if more > 0 else []
    return _build_section(f"By {by}", [*build_markdown_table((by, "Metric", "Mean", "Scored:", "Target"), rows), *rest])


INSIGHT_PROPERTIES = {"chunks": "number of chunks", "length": "length in characters", "age": "age in days"}


def _build_insights(findings: Findings) -> list[str]:
    rows = [
        (
            insight.measure,
            INSIGHT_PROPERTIES.get(insight.by, insight.by),
            escape_markdown(clip_text(bucket.label, 60)),
            format_interval(bucket.interval),
            f"{bucket.interval.n:,}",
            f"{bucket.traces:,}",
        )
        for insight in findings.insights
        for bucket in insight.buckets
    ]
    heads = ("Measure", "By", "Bucket", "Mean", "Chunks:", "Traces:")
    return _build_section("Insights", build_markdown_table(heads, rows) if rows else [])


def _build_worst_traces(diagnoses: Sequence[Diagnosis]) -> list[str]:
    lines = []
    for diagnosis in diagnoses:
        triad = "" if diagnosis.triad is None else f", triad {format_number(diagnosis.triad)} ({diagnosis.quality})"
        query = escape_markdown(clip_text(diagnosis.query, 200))
        lines.append(f"- **{escape_markdown(clip_text(diagnosis.trace, 60))}**{triad}: {query}")
        if diagnosis.assessment is not None:
            lines.append(f"  - {diagnosis.assessment.sentence}")
        for title, count, text in summarize_problems(diagnosis):
            lines.append(f"  - {title}{f' ×{count}' if count > 1 else ''}: {escape_markdown(text)}")
    return _build_section("Worst traces", lines)


def _build_remedies(findings: Findings) -> list[str]:
    rows = [
        (
            remedy.title,
            f"{remedy.problems:,}",
            f"{remedy.traces:,}",
            describe_share(remedy),
            "; ".join(remedy.steps),
            ", ".join(escape_markdown(clip_text(name, 60)) for name in remedy.examples),
        )
        for remedy in findings.remedies
    ]
    heads = ("Problem", "Problems:", "Traces:", "Share of traces", "What to change", "Such as")
    return _build_section("What to change", build_markdown_table(heads, rows) if rows else [])
