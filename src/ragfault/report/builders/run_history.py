"""The report of a sequence of runs: what broke where, each step, and each metric run by run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ragfault.report.document import (
    VERDICT_KINDS,
    Block,
    Heading,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_section,
    build_warnings,
)
from ragfault.report.format import LAYER_TITLES
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.report.wording import name_metric
from ragfault.text.number_format import format_number, format_p_value

if TYPE_CHECKING:
    from ragfault.comparison.run_history import MetricHistory, MetricShift, RunBreak, RunHistory, RunStep

MEANS_SHOWN = 8
"""Number of means of a metric in a line; of more, the first and the last ones are shown."""

METRIC_VERDICTS = {"worse": "worse", "better": "better", "recovered": "steady", "cannot tell": "cannot tell"}
"""The verdict on a metric's history → that of a change, whose sign and colour it takes."""

STEP_COLUMNS = (TableColumn("Verdict"), TableColumn("Step"), TableColumn("Why", prose=True))
BREAK_COLUMNS = (TableColumn("At run"), TableColumn("Layer"), TableColumn("Metrics"), TableColumn("Recovered"))
CAUSE_COLUMNS = (TableColumn("Cause"), TableColumn("Bad answers, run by run"), TableColumn("Where"))
METRIC_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Means, run by run"),
    TableColumn(""),
    TableColumn("Where"),
    TableColumn("p", numeric=True),
)


def build_history(history: RunHistory) -> ReportDocument:
    """Build the report of a sequence of runs."""
    steps = [
        (VerdictMark(step.verdict), format_step(step), step.sentence) for step in (*history.steps, history.overall)
    ]
    title: Text = ("The steps", StyledText(" · each bisected, and the last run against the first", "muted"))
    body = build_section(title, Table(STEP_COLUMNS, tuple(steps)))
    breaks = tuple(
        (
            "little by little" if part.gradual else part.run,
            part.layer or "cannot tell",
            ", ".join(part.metrics),
            f"at {part.recovered_at}" if part.recovered_at else "not shown",
        )
        for part in history.breaks
    )
    body += build_section("What broke, and what recovered", Table(BREAK_COLUMNS, breaks)) if breaks else []
    body += _build_causes(history)
    for layer, name in LAYER_TITLES.items():
        rows = tuple(_build_metric_row(entry) for entry in history.metrics if entry.layer == layer)
        body += build_section(name, Table(METRIC_COLUMNS, rows)) if rows else []
    body += [Paragraph(text, "note") for text in explain_unplaced(history)]
    if history.broken_at is not None:
        before = history.runs[history.runs.index(history.broken_at) - 1]
        command = StyledText(f"ragfault bisect {clip_text(before, 60)} {clip_text(history.broken_at, 60)}", "code")
        body.append(Paragraph(("The whole tree, with example traces: ", command)))
    return ReportDocument(
        f"{history.runs[0]} → {history.runs[-1]}",
        (Heading(summarize_history(history), 1, VerdictMark(history.verdict)), *build_warnings(history.warnings)),
        tuple(body),
    )


def _build_causes(history: RunHistory) -> list[Block]:
    """Build the table of bad answers by cause, run by run; nothing if no answer is bad for one of the causes."""
    rows = [
        (entry.title, format_values(entry.answers), format_places(entry.shifts, "rose")) for entry in history.causes
    ]
    if not rows:
        return []
    total = ("all bad answers", format_values(history.bad), "")
    return build_section("Why answers are bad", Table(CAUSE_COLUMNS, (*rows, total)))


def _build_metric_row(entry: MetricHistory) -> tuple[Text, ...]:
    mark = VerdictMark(entry.verdict, VERDICT_KINDS[METRIC_VERDICTS[entry.verdict]])
    return name_metric(entry), format_values(entry.means), mark, format_shifts(entry), format_p_value(entry.adjusted)


def summarize_history(history: RunHistory) -> str:
    """Summarize what broke in the sequence, where, and whether it recovered, in a sentence."""
    names = f"{len(history.runs)} runs, {clip_text(history.runs[0], 60)} to {clip_text(history.runs[-1], 60)}"
    over = f"over {history.traces:,} traces that are in all of {names}"
    overall = history.overall
    if history.breaks:
        sentence = "; ".join(describe_break(part, history) for part in history.breaks)
        sentence = f"{sentence[0].upper()}{sentence[1:]}"
        overall_note = f" The last run is worse than the first: {clean_text(overall.sentence)}"
        lasting = any(part.recovered_at is None for part in history.breaks)
        return f"{sentence}; {over}.{overall_note if overall.verdict == 'fault' and not lasting else ''}"
    if overall.verdict == "fault":
        return (
            f"No single run is shown to have broken, but {clip_text(overall.candidate, 60)} is worse than "
            f"{clip_text(overall.baseline, 60)}: {clean_text(overall.sentence)}"
        )
    if history.verdict == "no fault":
        return f"No run broke: every step, and the last run against the first, is shown to have no fault, {over}."
    return f"No metric of the tree is shown to have broken {over}."


def explain_unplaced(history: RunHistory) -> list[str]:
    """Explain, in sentences, why metrics with a small p cannot be told; none where there is no such metric."""
    level = history.alpha / 2
    unplaced: list[MetricHistory] = []
    above: list[MetricHistory] = []
    for entry in history.metrics:
        if entry.verdict == "cannot tell" and entry.adjusted <= history.alpha:
            (unplaced if entry.adjusted <= level else above).append(entry)
    changed = sum(entry.adjusted <= level for entry in history.metrics)
    reasons = (
        (
            unplaced,
            f"p says that something changed over the runs, but no run is shown at which it did: each place is tested "
            f"at {format_number(level)} divided by the {changed} metrics that changed",
        ),
        (above, f"p is corrected for all metrics, and the levels have half of alpha, {format_number(level)}"),
    )
    return [
        f"Cannot tell although p is small: {reason}: "
        + ", ".join(f"{clean_text(entry.metric)} (p {format_p_value(entry.adjusted)})" for entry in entries)
        for entries, reason in reasons
        if entries
    ]


def describe_break(part: RunBreak, history: RunHistory) -> str:
    """Describe one break: the run, the layer, the metrics, and the run at which they were back."""
    names = f"{', '.join(map(clean_text, part.metrics[:4]))}{', …' if len(part.metrics) > 4 else ''}"
    if part.gradual:
        span = f"{clip_text(history.runs[0], 60)} to {clip_text(history.runs[-1], 60)}"
        return f"worse little by little from {span}, no single run explains it: {names}"
    layer = f" ({part.layer}: {clean_text(part.title or '')})" if part.layer else ""
    back = ", not shown to have recovered" if part.recovered_at is None else ""
    if part.recovered_at is not None:
        back = f", recovered at {clip_text(part.recovered_at, 60)}"
    return f"worse at {clip_text(part.run, 60)}{layer}{back}: {names}"


def format_values(values: Sequence[float]) -> str:
    """Format the counts or means of the runs, one by one."""
    texts = [f"{value:,}" if isinstance(value, int) else format_number(value) for value in values]
    if len(texts) > MEANS_SHOWN:
        texts[MEANS_SHOWN // 2 : -MEANS_SHOWN // 2] = ["…"]
    return " ".join(texts)


def format_shifts(entry: MetricHistory) -> str:
    """Format where a metric changed, and between which runs that may have been."""
    if entry.gradual:
        return "little by little"
    return format_places(entry.shifts, "dropped" if entry.better == "higher" else "rose")


def format_places(shifts: Sequence[MetricShift], worse: Literal["dropped", "rose"]) -> str:
    """Format at which run each change came, and between which runs that may have been."""
    texts = []
    for shift in shifts:
        first, last = (clip_text(name, 60) for name in shift.between)
        spread = f" ({first} to {last})" if first != last else ""
        texts.append(f"{'worse' if shift.state == worse else 'better'} at {clip_text(shift.run, 60)}{spread}")
    return ", ".join(texts)


def format_step(step: RunStep) -> str:
    """Format the two runs of a step."""
    return f"{clip_text(step.baseline, 60)} → {clip_text(step.candidate, 60)}"
