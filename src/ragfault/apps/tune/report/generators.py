"""Choices of a generator for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.apps.tune.generators.choice import describe_spending, list_noise_notes
from ragfault.apps.tune.generators.records import GeneratorChoice, GeneratorFigures
from ragfault.report.format import clean_text
from ragfault.report.markdown.syntax import build_markdown_table, escape_markdown
from ragfault.report.terminal.layout import build_table, render_rich
from ragfault.text.number_format import format_cost, format_interval, format_number, format_p_value, format_signed

if TYPE_CHECKING:
    from rich.console import RenderableType

HEADINGS = ("generator", "questions", "value", "undefined", "US$", "ms", "p50 ms", "p95 ms", "tokens", "frontier")
DROP_HEADINGS = ("left after", "generator", "why", "behind the leader", "p")


def build_figure_cells(row: GeneratorFigures, frontier: tuple[str, ...]) -> tuple[str, ...]:
    """Build the cells of a generator: HEADINGS."""
    return (
        clean_text(row.name),
        f"{row.n:,}",
        format_interval(row, 3),
        f"{row.undefined:,}",
        "–" if row.cost is None else format_cost(row.cost),
        "–" if row.latency is None else format_number(row.latency, 0),
        "–" if row.latency_p50 is None else format_number(row.latency_p50, 0),
        "–" if row.latency_p95 is None else format_number(row.latency_p95, 0),
        "–" if row.tokens is None else format_number(row.tokens, 0),
        "yes" if row.name in frontier else "",
    )


def build_measured_table(choice: GeneratorChoice) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Build headings and rows of the generators that were measured; the frontier where no others were raced."""
    end = len(HEADINGS) - bool(choice.raced)
    return HEADINGS[:end], [build_figure_cells(row, choice.frontier)[:end] for row in choice.measured]


def condense_figures(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Condense a table of figures to the width of a terminal.

    Both quantiles stand in one column, the frontier is a star at the name, and columns without any value are left out.

    >>> condense_figures(HEADINGS, [("a", "40", "0.7", "0", "–", "–", "30", "90", "–", "yes")])
    (['generator', 'questions', 'value', 'p50/p95 ms'], [['a *', '40', '0.7', '30/90']])
    """
    p50 = heads.index("p50 ms")
    marked_rows = [[f"{row[0]} *" if row[-1] == "yes" else row[0], *row[1:]] for row in rows]
    joined = [
        [*row[:p50], "–" if row[p50] == row[p50 + 1] == "–" else f"{row[p50]}/{row[p50 + 1]}", *row[p50 + 2 :]]
        for row in marked_rows
    ]
    titles = [*heads[:p50], "p50/p95 ms", *heads[p50 + 2 :]]
    used = [
        i
        for i, title in enumerate(titles)
        if i < 3 or (title != "frontier" and any(row[i] not in ("–", "0", "") for row in joined))
    ]
    return [titles[place] for place in used], [[row[place] for place in used] for row in joined]


def list_drops(choice: GeneratorChoice) -> list[tuple[str, ...]]:
    """Return the rows of the generators that left the race: DROP_HEADINGS."""
    return [
        (
            f"{step.questions:,} questions",
            clean_text(gone.name),
            gone.reason,
            format_signed(gone.behind, 3),
            format_p_value(gone.p),
        )
        for step in choice.rounds
        for gone in step.dropped
    ]


def describe_terms(choice: GeneratorChoice) -> str:
    """Describe on how many questions a choice rests, and what it took."""
    bounds = f" subject to {', '.join(map(str, choice.bounds))}" if choice.bounds else ""
    chose = f"{choice.selection_questions:,} questions chose, " if choice.selection_questions else ""
    return (
        f"{choice.metric}{bounds} · judge {choice.judge.split()[0]} · {chose}{choice.holdout_questions:,} measured · "
        f"{describe_spending(choice)}"
    )


def list_remarks(choice: GeneratorChoice) -> list[str]:
    """Return what qualifies a choice, as sentences."""
    lines = list(choice.notes)
    gain = choice.gain
    if gain is not None:
        if choice.selection_questions:
            lines.append(
                f"On the questions that chose, the gain was {format_signed(gain.selection_gain, 3)}: too high on "
                "average, because it was chosen there."
            )
        if gain.verdict != "no gain shown":
            lines.append(
                f"Corrected for being shown only because it is significant: {format_signed(gain.corrected_gain, 3)}."
            )
        lines.append(f"So many questions show a gain of {format_number(gain.detectable, 3)} with 80 % power.")
        if gain.human_correction is not None and gain.human_correction.difference is None:
            lines.append(f"Not corrected by people: {gain.human_correction.reason}.")
    if choice.undecided:
        lines.append(f"Not told apart from {choice.chosen} in the race: {', '.join(choice.undecided)}.")
    if choice.control is not None:
        lines.append(
            f"Control, second answers of {choice.present} against its first: "
            f"{format_interval(choice.control.difference, 3, signed=True)} (p {format_p_value(choice.control.p)})."
        )
    else:
        lines.append("No control of nothing against nothing: there is one answer to each question.")
    return [clean_text(line) for line in (*lines, *list_noise_notes(choice.noise))]


def render_choice_terminal(choice: GeneratorChoice, *, color: bool = False) -> str:
    """Render the recommendation first, then the figures, the race and the remarks."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(f"Recommended: {clean_text(choice.recommended)}. {clean_text(choice.reason)}", style="bold"),
        Text(describe_terms(choice), style="dim"),
        Text("\nOn the held-out questions" if choice.selection_questions else "\nOn the questions", style="bold cyan"),
        build_table(*condense_figures(*build_measured_table(choice))),
    ]
    if choice.raced:
        parts += [
            Text("\nOn the questions that chose, as far as each came", style="bold cyan"),
            build_table(
                *condense_figures(HEADINGS, [build_figure_cells(row, choice.frontier) for row in choice.raced])
            ),
        ]
    if drops := list_drops(choice):
        parts += [Text("\nThe race", style="bold cyan"), build_table(DROP_HEADINGS, drops)]
    star = ["* On the frontier: no other generator is better in one figure and no worse in the rest."]
    parts += [Text(""), *(Text(line) for line in (*(star if choice.frontier else []), *list_remarks(choice)))]
    return render_rich(parts, color=color)


def render_choice_markdown(choice: GeneratorChoice) -> str:
    """Render a choice as Markdown: the recommendation, the figures, the race and the remarks."""
    blocks = [
        f"**Recommended: {escape_markdown(choice.recommended)}.** {escape_markdown(choice.reason)}",
        escape_markdown(describe_terms(choice)),
        "## Held-out questions" if choice.selection_questions else "## Questions",
        _table(*build_measured_table(choice)),
    ]
    if choice.raced:
        rows = [build_figure_cells(row, choice.frontier) for row in choice.raced]
        blocks += ["## Questions that chose", _table(HEADINGS, rows)]
    if drops := list_drops(choice):
        blocks += ["## The race", _table(DROP_HEADINGS, drops)]
    blocks += ["\n".join(f"- {escape_markdown(line)}" for line in list_remarks(choice))]
    return "\n\n".join(blocks) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(build_markdown_table(headings, [[escape_markdown(cell) for cell in row] for row in rows]))
