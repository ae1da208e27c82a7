"""The reports of an analyzed run: the short verdict that `evaluate` prints, and the whole scorecard."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ragfault.report.builders.attempts import build_attempts, describe_attempts
from ragfault.report.builders.causes import CAUSES_SHOWN, build_head, describe_cause_agreement, describe_health
from ragfault.report.builders.diagnosis import list_assessment, name_trace
from ragfault.report.document import (
    PAGE_ONLY,
    Block,
    Details,
    Heading,
    IntervalMark,
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
    join_text,
)
from ragfault.report.format import (
    LAYER_TITLES,
    TARGET_RESULTS,
    describe_quantiles,
    explain_corrections,
    format_time,
    get_correction_heading,
    group_by_layer,
    group_failures,
    group_unmeasured_metrics,
    join_names,
    list_corrections,
    select_segment_metrics,
    summarize_problems,
)
from ragfault.report.run_verdict import (
    NAMED_METRICS,
    describe_answer_key,
    describe_metrics,
    describe_share,
    describe_targets,
)
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.report.wording import (
    describe_alert,
    describe_gold_agreement,
    describe_judge_trust,
    describe_judge_usage,
    describe_trace_count,
    format_segment,
    list_run_warnings,
    list_unusable_verdicts,
    name_metric,
    summarize_judge_trust,
)
from ragfault.text.number_format import format_bounds, format_interval, format_number, format_share, has_too_few

if TYPE_CHECKING:
    from ragfault.diagnosis.records import Diagnosis, Findings, HealthAlert, LayerHealth, MetricAggregate

METRIC_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Mean", numeric=True),
    TableColumn("95 % interval"),
    TableColumn("", room=110, graphic=True),
    TableColumn("Scored", numeric=True),
    TableColumn("Undefined", numeric=True, room=90),
    TableColumn("Failed", numeric=True, room=90),
    TableColumn("Target"),
)
QUALITY_COLUMNS = (
    TableColumn("Level"),
    TableColumn("Traces", numeric=True),
    TableColumn("Share"),
    TableColumn("Action"),
)
HEALTH_COLUMNS = (TableColumn("Figure"), TableColumn("Mean"), TableColumn("Traces", numeric=True))
INSIGHT_COLUMNS = (
    TableColumn("Measure"),
    TableColumn("By"),
    TableColumn("Bucket"),
    TableColumn("Mean"),
    TableColumn("Chunks", numeric=True),
    TableColumn("Traces", numeric=True),
)

INSIGHT_PROPERTIES = {"chunks": "number of chunks", "length": "length in characters", "age": "age in days"}
"""Properties of chunks that insights are by, in words; the others are words already."""

LEAST_CAUSES_SHOWN = 4
"""Causes that have a row of their own on every first screen, however long its other lines are."""
SEGMENTS_SHOWN = 20
METRICS_NAMED = 3
"""Metrics that the verdict names for a reason why they were not measured."""

SENTENCE_LIMIT = 230
"""Characters of a sentence of the verdict: three lines of a terminal of 80 columns."""

RESULT_KINDS: dict[str, VerdictKind] = {"pass": "good", "fail": "bad", "cannot tell": "unsure"}
SEVERITY_KINDS: dict[str, VerdictKind] = {"high": "bad", "medium": "unsure"}


def build_findings(findings: Findings) -> ReportDocument:
    """Build the whole report of a run: the verdict, every metric by layer, the worst traces and what to change."""
    card = findings.scorecard
    body: list[Block] = [
        *_list_trust(findings),
        *build_section("Targets", *map(Paragraph, describe_targets(findings))),
        *_build_layers(findings),
        *build_attempts(findings.attempts),
        *_build_corrections(findings),
        *build_section("Lost to failures", _list_reasons(group_failures(card))),
        *build_section("Not measured", _list_reasons(group_unmeasured_metrics(card))),
        *_build_tradeoffs(findings),
        *_build_rag_health(findings),
        *_build_quality(findings),
        *_build_segments(findings),
        *_build_insights(findings),
        *build_section("Worst traces", _list_worst_traces(findings.worst)),
        *build_section("What to change", _list_remedies(findings)),
    ]
    return ReportDocument(findings.run, _build_lead(findings, None), tuple(body))


def build_verdict(
    findings: Findings, place: str | None = None, *, causes: int = CAUSES_SHOWN, has_chosen_metrics: bool = False
) -> ReportDocument:
    """Build the first screen of a run: how many answers are bad, why, what to fix first, and trust in the judge.

    With `place`, where the run lies, the commands that show more of it come last. Metrics that the user chose come
    before the answers.
    """
    lead = _build_lead(findings, SENTENCE_LIMIT, place, causes, has_chosen_metrics)
    body: list[Block] = [*_list_trust_briefly(findings), *_list_gaps(findings)]
    if place is not None:
        body += build_section("Next", _list_next_commands(place))
    return ReportDocument(findings.run, lead, tuple(body))


def build_verdicts(
    findings: Findings, place: str | None = None, *, has_chosen_metrics: bool = False
) -> Iterator[ReportDocument]:
    """Build the first screen with as many causes as it may name, then with fewer, for a terminal of a few lines."""
    for causes in range(CAUSES_SHOWN, LEAST_CAUSES_SHOWN - 1, -1):
        yield build_verdict(findings, place, causes=causes, has_chosen_metrics=has_chosen_metrics)


def _build_lead(
    findings: Findings,
    limit: int | None,
    place: str | None = None,
    causes: int = CAUSES_SHOWN,
    has_chosen_metrics: bool = False,
) -> tuple[Block, ...]:
    """Build what was evaluated, warnings, and the answers with their causes."""
    manifest = findings.manifest
    total = manifest.scored + manifest.undefined + manifest.failed
    judge = manifest.judge or "none"
    facts = [
        describe_trace_count(manifest, findings.scorecard.aggregates),
        f"judge {judge if limit is None else clip_text(judge.partition(' ')[0], 40)}",
        *([format_time(manifest.created)] if limit is None else []),
        *([f"{manifest.failed:,} of {total:,} scores failed"] if manifest.failed else []),
        *([f"{manifest.skipped:,} bad lines left out"] if manifest.skipped else []),
    ]
    name = findings.run if limit is None else clip_text(findings.run, 60)
    warnings = build_warnings(list_run_warnings(findings))
    chosen = [describe_metrics(findings.scorecard.aggregates, NAMED_METRICS)] if has_chosen_metrics else []
    head = [*map(Paragraph, chosen), *build_head(findings, place, shown=causes)]
    head += map(Paragraph, describe_attempts(findings.attempts))
    return (Heading(name, 1), Paragraph(" · ".join(facts), "note"), *warnings, *head)


def _list_trust(findings: Findings) -> list[Block]:
    """List what the judge cost, what the answer key says, and how far the judge agrees with people and with gold."""
    measured = filter(None, [describe_judge_trust(findings.manifest.judge)])
    key = describe_answer_key(findings.key_outcomes)
    gold, people = describe_gold_agreement(findings), describe_cause_agreement(findings.cause_agreement)
    texts = chain(describe_judge_usage(findings), key, measured, gold, people)
    return [Paragraph(clean_text(text), "note") for text in texts]


def _list_trust_briefly(findings: Findings) -> list[Block]:
    """List what the judge cost, its agreement with people, and which of its verdicts gold shows to be wrong."""
    measured = filter(None, [summarize_judge_trust(findings.manifest.judge)])
    texts = chain(describe_judge_usage(findings), measured, list_unusable_verdicts(findings))
    return [Paragraph(_clip_sentence(text, SENTENCE_LIMIT), "note") for text in texts]


def _clip_sentence(text: str, limit: int) -> str:
    """Clip a sentence, behind one of its parts where it has several."""
    text = clean_text(text)
    if len(text) <= limit:
        return text
    parts = text[:limit].rpartition("; ")[0]
    return f"{parts}; …" if parts else clip_text(text, limit)


def _list_gaps(findings: Findings) -> list[Block]:
    """List the scores lost to failures, and the metrics that were not measured, in a sentence each."""
    texts = [
        f"Lost to failures: {_name_some(names)}: {reason}" for reason, names in group_failures(findings.scorecard)[:1]
    ]
    groups = [f"{_name_some(names)} ({reason})" for reason, names in group_unmeasured_metrics(findings.scorecard)]
    if groups:
        texts.append(f"Not measured: {'; '.join(groups)}")
    return [Paragraph(_clip_sentence(text, SENTENCE_LIMIT), "note") for text in texts]


def _name_some(names: Sequence[str]) -> str:
    more = len(names) - METRICS_NAMED
    return join_names(names[:METRICS_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _list_next_commands(place: str) -> Listing:
    run = shlex.quote(clean_text(place))
    page = shlex.quote(clean_text(place).rstrip("/") + ".html")
    commands = {
        f"ragfault report {run}": "every metric, by layer and route",
        f"ragfault report {run} -o {page}": "a page with every trace",
    }
    # A comment of the shell, so that a copied line still runs.
    return Listing(
        tuple((StyledText(command, "code"), StyledText(f" # {words}", "muted")) for command, words in commands.items())
    )


def _build_layers(findings: Findings) -> Iterator[Block]:
    health: dict[str, LayerHealth] = {items.layer: items for items in findings.health}
    for layer, items in group_by_layer(findings.scorecard):
        yield Heading(LAYER_TITLES[layer])
        of_layer = health.get(layer)
        if of_layer is not None and of_layer.interval is not None:
            yield Paragraph(f"Health {format_interval(of_layer.interval)}: {describe_health(of_layer)}.", "note")
        yield Table(METRIC_COLUMNS, tuple(map(_build_metric_row, items)))
        if quantiles := describe_quantiles(items):
            yield Listing(tuple(quantiles))


def _build_metric_row(item: MetricAggregate) -> tuple[Text, ...]:
    assert item.interval is not None
    return (
        name_metric(item),
        format_number(item.interval.mean),
        format_bounds(item.interval, "{} – {}"),
        _draw_interval(item),
        _count_scored(item),
        f"{item.undefined:,}",
        f"{item.failed:,}",
        _build_target(item),
    )


def _count_scored(item: MetricAggregate) -> str:
    return f"{item.scored:,}" if item.scored == item.traces else f"{item.scored:,} of {item.traces:,}"


def _draw_interval(item: MetricAggregate) -> Text:
    """Draw the interval on the metric's range; nothing where that has no end, or of too few values."""
    interval, low, high = item.interval, item.low, item.high
    if interval is None or low is None or high is None or high <= low or has_too_few(interval):
        return ""
    mean, start, end = (
        min(1.0, max(0.0, (value - low) / (high - low))) for value in (interval.mean, interval.low, interval.high)
    )
    return IntervalMark(mean, start, end, RESULT_KINDS.get(item.result or "", "steady"))


def _build_target(item: MetricAggregate) -> Text:
    if item.target is None or item.result is None:
        return ""
    target = f"{item.target.sign} {item.target.value:g} "
    return (target, VerdictMark(TARGET_RESULTS[item.result], RESULT_KINDS[item.result]))


def _build_corrections(findings: Findings) -> list[Block]:
    """Build the figures as judged and corrected for the judge's error, or corrected by labels, side by side."""
    title = get_correction_heading(findings.scorecard)
    if title is None:
        return []
    rows = tuple(
        (name_metric(item), format_interval(item.interval), text) for item, text in list_corrections(findings.scorecard)
    )
    columns = (TableColumn("Metric"), TableColumn("As judged"), TableColumn(title.capitalize()))
    notes = [Paragraph(text, "note") for text in explain_corrections(findings.scorecard)]
    return build_section(title.capitalize(), *([Table(columns, rows)] if rows else []), *notes)


def _list_reasons(groups: Sequence[tuple[str, list[str]]]) -> Listing:
    return Listing(tuple((join_names(names), StyledText(f": {reason}", "muted")) for reason, names in groups))


def _build_tradeoffs(findings: Findings) -> list[Block]:
    rows = tuple(
        tuple(
            join_text(StyledText(name, "code"), f" {format_interval(side and side.interval)}")
            if side and side.interval
            else join_text(StyledText(name, "code"), " not measured")
            for name, side in zip(pair.names, (pair.first, pair.second), strict=True)
        )
        for pair in findings.pairs
    )
    title: Text = ("Trade-offs", StyledText(" · read together", "muted"))
    return build_section(title, Table((TableColumn("One"), TableColumn("Other")), rows)) if rows else []


def _build_rag_health(findings: Findings) -> list[Block]:
    figures = findings.rag.figures.items()
    rows = tuple((StyledText(name, "code"), format_interval(interval), f"{interval.n:,}") for name, interval in figures)
    alerts = Listing(tuple(map(_describe_alert, findings.rag.alerts)))
    return build_section("RAG health", Table(HEALTH_COLUMNS, rows), alerts) if rows else []


def _describe_alert(alert: HealthAlert) -> Text:
    return (VerdictMark(alert.name, SEVERITY_KINDS[alert.severity]), f": {describe_alert(alert)}")


def _build_quality(findings: Findings) -> list[Block]:
    if not any(level.count for level in findings.quality):
        return []
    rows = tuple(
        (level.name, f"{level.count:,}", format_share(level.share), level.action) for level in findings.quality
    )
    without = [Paragraph(f"{findings.unrated:,} traces have no triad.", "note")] if findings.unrated else []
    title: Text = ("Quality of the answers", StyledText(" · by triad", "muted"))
    return build_section(title, Table(QUALITY_COLUMNS, rows), *without)


def _build_segments(findings: Findings) -> list[Block]:
    """Build the scorecard by segment, for the metrics that have a target and those of the triad."""
    names = select_segment_metrics(findings.scorecard)
    rows = tuple(
        (
            format_segment(card.segment),
            name_metric(item),
            format_interval(item.interval),
            _count_scored(item),
            _build_target(item),
        )
        for card in findings.segments[:SEGMENTS_SHOWN]
        for item in card.aggregates
        if item.metric in names
    )
    if not rows:
        return []
    by = findings.segments[0].by or ""
    columns = (
        TableColumn(by),
        TableColumn("Metric"),
        TableColumn("Mean"),
        TableColumn("Scored", numeric=True, room=84),
        TableColumn("Target", room=84),
    )
    more = len(findings.segments) - SEGMENTS_SHOWN
    rest = [Paragraph(f"… and {more:,} more", "note")] if more > 0 else []
    return build_section(f"By {by}", Table(columns, rows), *rest)


def _build_insights(findings: Findings) -> list[Block]:
    rows = tuple(
        (
            insight.measure,
            INSIGHT_PROPERTIES.get(insight.by, insight.by),
            clip_text(bucket.label, 60),
            format_interval(bucket.interval),
            f"{bucket.interval.n:,}",
            f"{bucket.traces:,}",
        )
        for insight in findings.insights
        for bucket in insight.buckets
    )
    return (
        [Details("Insights: relevance and use of chunks", (Table(INSIGHT_COLUMNS, rows),), PAGE_ONLY)] if rows else []
    )


def _list_worst_traces(diagnoses: Sequence[Diagnosis]) -> Listing:
    items: list[Text | Listing] = []
    for diagnosis in diagnoses:
        problems: list[Text] = [
            (f"{title}{f' ×{count:,}' if count > 1 else ''}: ", StyledText(text, "muted"))
            for title, count, text in summarize_problems(diagnosis)
        ]
        items += [name_trace(diagnosis), Listing((*list_assessment(diagnosis), *problems))]
    return Listing(tuple(items))


def _list_remedies(findings: Findings) -> Listing:
    """List what to change, the commonest problem first: how many traces, the steps, and traces that show it."""
    items: list[Text | Listing] = []
    for remedy in findings.remedies:
        share = f": {remedy.problems:,} on {remedy.traces:,} traces, {describe_share(remedy)} of traces"
        examples = StyledText(f"such as {join_names(remedy.examples)}", "muted")
        items += [(StyledText(remedy.title, "strong"), share), Listing(("; ".join(remedy.steps), examples))]
    return Listing(tuple(items))
