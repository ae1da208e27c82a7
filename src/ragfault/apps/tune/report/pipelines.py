"""The report of a tuning: what is recommended and why, the pipelines, the gain of each step, and the frontier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ragfault.apps.tune.recommendation import RULE
from ragfault.apps.tune.report.charts import COST_LABELS, draw_cost_frontier, draw_recall_frontier
from ragfault.diagnosis.question_levels import describe_level
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
)
from ragfault.report.safe_text import clean_text
from ragfault.retrieval.pipeline_config import format_pipeline_config
from ragfault.text.number_format import MISSING, format_interval, format_number, format_p_value, format_signed

if TYPE_CHECKING:
    from ragfault.apps.tune.results import FrontierPoint, Gain, MeasuredPipeline, TuningResult

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
        Heading(summarize_tuning(result), 1),
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
    measured = tuple(map(_build_pipeline, result.measured))
    body: list[Block] = build_section("On the held-out questions", Table(_list_columns(result), measured))
    body += _build_levels(result)
    for title, gains in (
        ("Whole pipelines", result.gains),
        ("Gain of each step of the best-scoring pipeline", result.ablations),
        ("Alternatives tried (gain of the best-scoring pipeline over each)", result.rejected),
    ):
        body += build_section(title, _build_gains(gains)) if gains else []
    body += _build_frontier(result)
    body += build_section("In words", Listing(result.summary[1:]))
    lines = tuple(StyledText(line, "code") for line in format_pipeline_config(result.config).splitlines() if line)
    config = Details("The recommended pipeline: pipeline.toml", (Listing(lines),), PAGE_ONLY)
    terms = "Intervals and tests are paired by question, resampled by group, and corrected by Holm."
    return ReportDocument("tuning", lead, (*body, config, Paragraph(terms, "note")))


def summarize_tuning(result: TuningResult) -> str:
    """Summarize what is recommended and why, in a line."""
    return clean_text(result.summary[0]) if result.summary else "Nothing was measured."


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


def _build_frontier(result: TuningResult) -> list[Block]:
    """Build the frontier as charts, and each pipeline with its place on the frontier or off it."""
    charts = [
        Chart(f"{result.metric} and {unit}", draw_cost_frontier(result, cost)) for cost, unit in COST_LABELS.items()
    ]
    table = Table((*_list_columns(result), TableColumn("Frontier")), tuple(map(_build_point, result.frontier)))
    title = "Frontier of value, ms and tokens on the questions that chose, measured on the held-out ones"
    recall = Chart("precision and recall", draw_recall_frontier(result.frontier))
    return build_section(title, *charts, recall, table)


def _build_point(point: FrontierPoint) -> tuple[Text, ...]:
    mark = MISSING if point.undominated is None else "yes" if point.undominated else ""
    return (*_build_pipeline(point.measured), mark)


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
