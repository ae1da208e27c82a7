"""The report of a choice of a generator: the recommendation, the figures, the race and what qualifies them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ragfault.apps.tune.generators.choice import describe_spending, list_noise_notes
from ragfault.apps.tune.recommendation import RULE
from ragfault.apps.tune.report.frontier import SearchPoint, build_frontier_charts
from ragfault.report.document import (
    Block,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    build_section,
)
from ragfault.report.safe_text import clean_text
from ragfault.text.number_format import (
    MISSING,
    format_cost,
    format_interval,
    format_number,
    format_p_value,
    format_signed,
)

if TYPE_CHECKING:
    from ragfault.apps.tune.generators.records import GeneratorChoice, GeneratorFigures

FIGURE_COLUMNS = (
    TableColumn("Generator"),
    TableColumn("Questions", numeric=True),
    TableColumn("Value"),
    TableColumn("Undefined", numeric=True),
    TableColumn("US$", numeric=True),
    TableColumn("ms", numeric=True),
    TableColumn("p50 ms", numeric=True),
    TableColumn("p95 ms", numeric=True),
    TableColumn("Tokens", numeric=True),
)
DROP_COLUMNS = (
    TableColumn("Left after"),
    TableColumn("Generator"),
    TableColumn("Why"),
    TableColumn("Behind the leader", numeric=True),
    TableColumn("p", numeric=True),
)

ALWAYS_SHOWN = 3
"""Columns of figures that are shown even where no generator has a value."""


def build_choice(choice: GeneratorChoice) -> ReportDocument:
    """Build the report of a choice: what to use and why, then the figures on questions that did not choose."""
    title = f"Recommended: {choice.recommended}"
    lead = (
        Heading(f"{title}. {clean_text(choice.reason)}", 1),
        Paragraph(_describe_terms(choice), "note"),
        Paragraph(RULE, "note"),
    )
    measured = "On the held-out questions" if choice.selection_questions else "On the questions"
    points = [
        SearchPoint(
            row.name, row.value, {"US$": row.cost, "milliseconds": row.latency_p50}, row.name == choice.recommended
        )
        for row in choice.raced or choice.measured
    ]
    charts = build_frontier_charts(points, choice.metric)
    body: list[Block] = build_section(measured, *charts, _build_figures(choice.measured, choice.frontier))
    if choice.raced:
        raced = "On the questions that chose, as far as each came"
        body += build_section(raced, _build_figures(choice.raced, choice.frontier))
    drops = tuple(_list_drops(choice))
    body += build_section("The race", Table(DROP_COLUMNS, drops)) if drops else []
    star = ["* On the frontier: no other generator is better in one figure and no worse in the rest."]
    remarks = (*(star if choice.frontier else []), *_list_remarks(choice))
    return ReportDocument("generator", lead, (*body, *build_section("Remarks", Listing(remarks))))


def _build_figures(rows: Sequence[GeneratorFigures], frontier: tuple[str, ...]) -> Table:
    """Build the figures of generators, those on the frontier with a star; without columns that have no value."""
    cells = [_build_cells(row, row.name in frontier) for row in rows]
    used = [
        place
        for place in range(len(FIGURE_COLUMNS))
        if place < ALWAYS_SHOWN or any(row[place] not in (MISSING, "0") for row in cells)
    ]
    columns = tuple(FIGURE_COLUMNS[place] for place in used)
    return Table(columns, tuple(tuple(row[place] for place in used) for row in cells))


def _build_cells(row: GeneratorFigures, on_frontier: bool) -> tuple[Text, ...]:
    return (
        (StyledText(row.name, "code"), " *") if on_frontier else StyledText(row.name, "code"),
        f"{row.n:,}",
        format_interval(row, 3),
        f"{row.undefined:,}",
        MISSING if row.cost is None else format_cost(row.cost),
        format_number(row.latency, 0),
        format_number(row.latency_p50, 0),
        format_number(row.latency_p95, 0),
        format_number(row.tokens, 0),
    )


def _list_drops(choice: GeneratorChoice) -> Iterator[tuple[Text, ...]]:
    for step in choice.rounds:
        for gone in step.dropped:
            questions = f"{step.questions:,} questions"
            yield (questions, gone.name, gone.reason, format_signed(gone.behind, 3), format_p_value(gone.p))


def _describe_terms(choice: GeneratorChoice) -> str:
    """Describe the questions behind a choice, and its cost."""
    bounds = f" subject to {', '.join(map(str, choice.bounds))}" if choice.bounds else ""
    chose = f"{choice.selection_questions:,} questions chose, " if choice.selection_questions else ""
    return (
        f"{choice.metric}{bounds} · judge {choice.judge.split()[0]} · {chose}{choice.holdout_questions:,} measured · "
        f"{describe_spending(choice)}"
    )


def _list_remarks(choice: GeneratorChoice) -> list[str]:
    """List what qualifies a choice, as sentences."""
    lines = list(choice.notes)
    gain = choice.gain
    if gain is not None:
        if choice.selection_questions:
            lines.append(
                f"On the questions that chose, the gain was {format_signed(gain.selection_gain, 3)}: too high on "
                "average, because it was chosen there."
            )
        if gain.verdict != "no gain shown":
            lines.append(f"Gain corrected for selection by significance: {format_signed(gain.corrected_gain, 3)}.")
        lines.append(
            f"With this many questions, a gain of {format_number(gain.detectable, 3)} is detected with 80 % power."
        )
        if gain.human_correction is not None and gain.human_correction.difference is None:
            lines.append(f"Not corrected by people: {gain.human_correction.reason}.")
    if choice.undecided:
        lines.append(f"Not distinguishable from {choice.chosen} in the race: {', '.join(choice.undecided)}.")
    if choice.control is not None:
        lines.append(
            f"Control, second answers of {choice.present} against its first: "
            f"{format_interval(choice.control.difference, 3, signed=True)} (p {format_p_value(choice.control.p)})."
        )
    else:
        lines.append("No control: each question has only one answer.")
    return [clean_text(line) for line in (*lines, *list_noise_notes(choice.noise))]
