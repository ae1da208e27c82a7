"""The report of a tuning: what is recommended and why, the pipelines, the gain of each step, and the frontier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ragfault.apps.tune.recommendation import RULE
from ragfault.apps.tune.report.frontier import SearchPoint, build_frontier_charts
from ragfault.apps.tune.results import summarize_tuning
from ragfault.diagnosis.question_levels import describe_level
from ragfault.report.document import (
    PAGE_ONLY,
    Block,
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
)
from ragfault.report.safe_text import clean_text
from ragfault.retrieval.pipeline_config import format_pipeline_config
from ragfault.text.number_format import MISSING, format_interval, format_number, format_p_value, format_signed

if TYPE_CHECKING:
    from ragfault.apps.tune.results import Gain, MeasuredPipeline, TuningResult

GAIN_COLUMNS = (
    TableColumn("Step"),
    TableColumn("By"),
    TableColumn("Instead of"),
    TableColumn("Gain"),
    TableColumn("p", numeric=True),
    TableColumn("ms", numeric=True, room=90),
    TableColumn("Tokens", numeric=True, room=100),
    TableColumn(""),
)

GAIN_KINDS: dict[str, VerdictKind] = {"gains": "better", "loses": "worse", "no gain shown": "unsure"}


def build_tuning(result: TuningResult) -> ReportDocument:
    """Build the report of a tuning; every figure is of questions that took no part in the search."""
    lead: tuple[Block, ...] = (
        Heading(clean_text(summarize_tuning(result)), 1),
        Paragraph(describe_tuning_terms(result), "note"),
        Paragraph(RULE, "note"),
        *(Paragraph(note, "note") for note in result.notes),
        Listing(
            (
                ("recommended: ", StyledText(result.config.name, "code")),
                ("best-scoring: ", StyledText(result.best.name, "code")),
            )
        ),
    )
    body: list[Block] = build_section("On the held-out questions", *_build_measured(result))
    body += _build_levels(result)
    for title, gains in (
        ("Whole pipelines", result.gains),
        ("Gain of each step of the best-scoring pipeline", result.ablations),
        ("Alternatives tried (gain of the best-scoring pipeline over each)", result.rejected),
    ):
        body += build_section(title, _build_gains(gains)) if gains else []
    body.append(
        Details(f"The {len(result.trials)} trials, on the questions that chose", (_build_trials(result),), PAGE_ONLY)
    )
    lines = tuple(StyledText(line, "code") for line in format_pipeline_config(result.config).splitlines() if line)
    config = Details("The recommended pipeline: pipeline.toml", (Listing(lines),), PAGE_ONLY)
    terms = "Intervals and tests are paired by question, resampled by group, and corrected by Holm."
    return ReportDocument("tuning", lead, (*body, config, Paragraph(terms, "note")))


def describe_tuning_terms(result: TuningResult) -> str:
    """Describe on how many questions it rests, and what it took."""
    bounds = f" subject to {', '.join(map(str, result.bounds))}" if result.bounds else ""
    return (
        f"{clean_text(result.metric)}{bounds} · {result.selection_questions:,} questions chose, "
        f"{result.holdout_questions:,} others measured · grouped by {clean_text(result.grouped_by)} · "
        f"{result.seconds:,.0f} s"
    )


def _list_columns(result: TuningResult) -> tuple[TableColumn, ...]:
    return (
        TableColumn("Pipeline"),
        TableColumn(result.metric),
        TableColumn("Recall", numeric=True),
        TableColumn("Precision", numeric=True),
        TableColumn("IoU", numeric=True, room=100),
        TableColumn("ms", numeric=True),
        TableColumn("p50 ms", numeric=True, room=90),
        TableColumn("p95 ms", numeric=True, room=100),
        TableColumn("Tokens", numeric=True),
    )


def _build_levels(result: TuningResult) -> list[Block]:
    """Build what made questions and those of people say of each pipeline; nothing where none is made."""
    levels = [(row.name, level) for row in result.measured for level in row.levels]
    if not levels:
        return []
    if all(level.own is None for _, level in levels):
        return [Paragraph(describe_level(level), "warning") for level in result.measured[0].levels]
    rows = tuple(
        (
            StyledText(name, "code"),
            level.metric,
            f"{format_number(level.synthetic.mean, 3)} ({level.synthetic.n:,})",
            MISSING if level.own is None else f"{format_interval(level.own, 3)} ({level.own.n:,})",
        )
        for name, level in levels
    )
    columns = (
        TableColumn("Pipeline"),
        TableColumn("Metric"),
        TableColumn("Made questions"),
        TableColumn("Questions of people"),
    )
    terms = Paragraph("Only questions of people give a level; made ones compare pipelines.", "note")
    return build_section("Level", Table(columns, rows), terms)


def _build_pipeline(row: MeasuredPipeline) -> tuple[Text, ...]:
    return (
        StyledText(row.name, "code"),
        format_interval(row, 3),
        format_number(row.recall, 3),
        format_number(row.precision, 3),
        format_number(row.iou, 3),
        format_number(row.ms, 1),
        format_number(row.p50, 1),
        format_number(row.p95, 1),
        format_number(row.tokens, 0),
    )


def _build_measured(result: TuningResult) -> list[Block]:
    """Build the charts of the frontier, and one table of its pipelines and the named ones."""
    places = {point.measured.config.name: point.undominated for point in result.frontier}
    named = {row.config.name for row in result.measured}
    others = [point.measured for point in result.frontier if point.measured.config.name not in named]
    rows = [*result.measured, *others]
    points = [
        SearchPoint(row.name, row.value, {"milliseconds": row.ms, "tokens": row.tokens}, row.config == result.config)
        for row in rows
    ]
    cells = tuple(
        (*_build_pipeline(row), MISSING if (mark := places.get(row.config.name)) is None else "yes" if mark else "")
        for row in rows
    )
    table = Table((*_list_columns(result), TableColumn("Frontier")), cells)
    terms = "Frontier: on the questions that chose, no other pipeline is better in value, ms or tokens and no worse."
    return [*build_frontier_charts(points, result.metric), table, Paragraph(terms, "note")]


def _build_trials(result: TuningResult) -> Table:
    columns = (
        TableColumn("Pipeline"),
        TableColumn("Questions", numeric=True),
        TableColumn(result.metric, numeric=True),
        TableColumn("ms", numeric=True),
        TableColumn("Tokens", numeric=True),
    )
    rows = tuple(
        (
            StyledText(trial.name, "code"),
            f"{trial.questions:,}",
            format_number(trial.value, 3),
            format_number(trial.ms, 1),
            format_number(trial.tokens, 0),
        )
        for trial in result.trials
    )
    return Table(columns, rows)


def _build_gains(gains: Iterable[Gain]) -> Table:
    rows = tuple(
        (
            "pipeline" if gain.component == gain.chosen else gain.component,
            gain.chosen,
            gain.alternative,
            format_interval(gain.difference, signed=True),
            format_p_value(gain.adjusted_p),
            format_signed(gain.ms, 1),
            format_signed(gain.tokens, 0),
            VerdictMark(gain.verdict, GAIN_KINDS[gain.verdict]),
        )
        for gain in gains
    )
    return Table(GAIN_COLUMNS, rows)
