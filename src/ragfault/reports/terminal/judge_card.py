"""Card of a judge for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec

from ragfault.judges.cards import CardEntry, JudgeCard
from ragfault.reports.format import clean_text
from ragfault.reports.markdown.scorecard import build_markdown_table as piped
from ragfault.reports.markdown.scorecard import escape_markdown
from ragfault.reports.terminal.scorecard import render_rich
from ragfault.text.number_format import format_interval, format_number, format_percent

if TYPE_CHECKING:
    from rich.padding import Padding


CARD_HEADINGS = (
    "set",
    "what was judged",
    "level",
    "n:",
    "bad:",
    "AUROC",
    "within",
    "F1",
    "sensitivity",
    "specificity",
    "balanced accuracy",
    "calibration error:",
)
"""The columns of the figures; a ":" stands for alignment to the right."""

FITTED_MARK = " ¹"
"""Stands beside the sets that the judge was fitted on, in part."""


def encode_card(card: JudgeCard) -> str:
    """The card as JSON, as it stands in the package."""
    return msgspec.json.format(msgspec.json.encode(card), indent=2).decode() + "\n"


def render_card_markdown(card: JudgeCard) -> str:
    """The card as a Markdown page."""
    lines = [f"# The judge {escape_markdown(card.judge)}", "", escape_markdown(card.summary), ""]
    lines += [f"- **{name}:** {escape_markdown(text)}" for name, text in _list_facts(card)]
    lines += ["", "## Measured against people", "", *build_figure_lines(card), "", "## Known weaknesses", ""]
    lines += [f"- {escape_markdown(text)}" for text in card.weaknesses]
    return "\n".join(lines) + "\n"


def build_figure_lines(card: JudgeCard) -> list[str]:
    """The figures of a card as the lines of a Markdown table, with notes and commands below."""
    rows = [
        [escape_markdown(each.set) + (FITTED_MARK if each.trained_on else ""), *_build_row(each)[1:]]
        for each in card.measured
    ]
    heads = [head[0].upper() + head[1:] for head in CARD_HEADINGS]
    return [
        *piped(heads, rows),
        "",
        *(line for each in _list_notes(card) for line in (escape_markdown(each), "")),
    ][:-1]


def render_card_terminal(card: JudgeCard, *, width: int | None = None, color: bool = False) -> str:
    """The card as text for a terminal of this width (the present one's, where none is given)."""
    from rich.padding import Padding
    from rich.text import Text

    width = width or shutil.get_terminal_size((100, 24)).columns
    parts: list[Text | Padding] = [
        Text.assemble((clean_text(card.judge), "bold"), f"   {clean_text(card.summary)}")
    ]
    for name, text in _list_facts(card):
        parts.append(Padding(Text.assemble((f"{name}: ", "dim"), clean_text(text)), (0, 0, 0, 2)))
    parts.append(Text("\nMeasured against people", "bold cyan"))
    parts += [piece for each in card.measured for piece in _build_measurement(each)]
    parts += [Padding(Text(line, "dim"), (0, 0, 0, 2)) for line in _list_notes(card)]
    parts.append(Text("\nKnown weaknesses", "bold cyan"))
    parts += [Padding(Text(f"- {clean_text(text)}"), (0, 0, 0, 2)) for text in card.weaknesses]
    return render_rich(parts, width=width, color=color)


def _build_measurement(entry: CardEntry) -> tuple[Padding, Padding]:
    """An entry as a heading and a line of figures."""
    from rich.padding import Padding
    from rich.text import Text

    cells = dict(zip((head.removesuffix(":") for head in CARD_HEADINGS), _build_row(entry), strict=True))
    said = ", ".join(f"{name} {cell}" for name, cell in list(cells.items())[3:] if cell not in ("", "–"))
    title = Text.assemble(
        (clean_text(cells["set"]), "bold"), f"   {cells['what was judged']}, by {cells['level']}"
    )
    return Padding(title, (0, 0, 0, 2)), Padding(Text(clean_text(said)), (0, 0, 0, 4))


def _list_facts(card: JudgeCard) -> list[tuple[str, str]]:
    return [
        ("fingerprint", card.fingerprint),
        ("reads", card.reads),
        ("made from", "; ".join(card.training) or "nothing"),
        ("licence", card.licence),
        ("size", card.size),
        ("speed", card.speed),
    ]


def _build_row(entry: CardEntry) -> tuple[str, ...]:
    """The cells of an entry, in the order of HEADS."""
    return (
        entry.set + (FITTED_MARK if entry.trained_on else ""),
        entry.shape,
        entry.level,
        f"{entry.n:,}",
        format_percent(entry.share_bad),
        format_interval(entry.auroc),
        format_interval(entry.auroc_within),
        format_interval(entry.f1),
        format_interval(entry.sensitivity),
        format_interval(entry.specificity),
        format_interval(entry.balanced_accuracy),
        format_number(entry.calibration_error.value if entry.calibration_error else None),
    )


def _list_notes(card: JudgeCard) -> list[str]:
    """What must be known to read the figures, and the commands that measure them anew."""
    notes = [
        "Positive is what is bad. AUROC: 0.5 is guessing; within: inside groups that give nothing away by style. "
        "F1 is at the threshold that is best on the other folds; sensitivity, specificity and their mean, the balanced "
        "accuracy, are by the judge's own word. Intervals are 95 %, by sources or queries."
    ]
    if any(each.trained_on for each in card.measured):
        notes.append("¹ The judge was fitted on other sources of the same set: elsewhere expect less.")
    for name, entries in _group_by_set(card).items():
        corrected = [
            f"By {each.level} it corrects the rates of {each.corrects} verdicts."
            for each in entries
            if each.corrects
        ]
        notes.append(
            " ".join(part for part in (f"{name}: {entries[0].split}.", entries[0].note, *corrected) if part)
        )
    return [
        *notes,
        *(f"Measured by: {command}" for command in dict.fromkeys(each.command for each in card.measured)),
    ]


def _group_by_set(card: JudgeCard) -> dict[str, list[CardEntry]]:
    """The entries of each set."""
    found: dict[str, list[CardEntry]] = {}
    for each in card.measured:
        found.setdefault(each.set, []).append(each)
    return found
