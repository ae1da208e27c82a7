"""The card of a judge, for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec

from ragfault.cards import Card, Measured
from ragfault.report.markdown import escape
from ragfault.report.markdown import table as piped
from ragfault.report.plain import clean, figure, percent
from ragfault.report.terminal import paint
from ragfault.stats import Estimate, Interval

if TYPE_CHECKING:
    from rich.padding import Padding

__all__ = ["figures", "render_markdown", "render_terminal", "to_json"]

HEADS = (
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

FITTED = " ¹"
"""Stands beside the sets that the judge was fitted on, in part."""


def to_json(card: Card) -> str:
    """The card as JSON, as it stands in the package."""
    return msgspec.json.format(msgspec.json.encode(card), indent=2).decode() + "\n"


def render_markdown(card: Card) -> str:
    """The card as a Markdown page."""
    lines = [f"# The judge {escape(card.judge)}", "", escape(card.summary), ""]
    lines += [f"- **{name}:** {escape(text)}" for name, text in _facts(card)]
    lines += ["", "## Measured against people", "", *figures(card), "", "## Known weaknesses", ""]
    lines += [f"- {escape(text)}" for text in card.weaknesses]
    return "\n".join(lines) + "\n"


def figures(card: Card) -> list[str]:
    """The figures of a card as the lines of a Markdown table, with notes and commands below."""
    rows = [
        [escape(each.set) + (FITTED if each.trained_on else ""), *_row(each)[1:]] for each in card.measured
    ]
    heads = [head[0].upper() + head[1:] for head in HEADS]
    return [*piped(heads, rows), "", *(line for each in _notes(card) for line in (escape(each), ""))][:-1]


def render_terminal(card: Card, *, width: int | None = None, colour: bool = False) -> str:
    """The card as text for a terminal of this width (the present one's, where none is given)."""
    from rich.padding import Padding
    from rich.text import Text

    width = width or shutil.get_terminal_size((100, 24)).columns
    parts: list[Text | Padding] = [Text.assemble((clean(card.judge), "bold"), f"   {clean(card.summary)}")]
    for name, text in _facts(card):
        parts.append(Padding(Text.assemble((f"{name}: ", "dim"), clean(text)), (0, 0, 0, 2)))
    parts.append(Text("\nMeasured against people", "bold cyan"))
    parts += [piece for each in card.measured for piece in _lines(each)]
    parts += [Padding(Text(line, "dim"), (0, 0, 0, 2)) for line in _notes(card)]
    parts.append(Text("\nKnown weaknesses", "bold cyan"))
    parts += [Padding(Text(f"- {clean(text)}"), (0, 0, 0, 2)) for text in card.weaknesses]
    return paint(parts, width=width, colour=colour)


def _lines(each: Measured) -> tuple[Padding, Padding]:
    """An entry as a heading and a line of figures."""
    from rich.padding import Padding
    from rich.text import Text

    cells = dict(zip((head.removesuffix(":") for head in HEADS), _row(each), strict=True))
    said = ", ".join(f"{name} {cell}" for name, cell in list(cells.items())[3:] if cell not in ("", "–"))
    title = Text.assemble(
        (clean(cells["set"]), "bold"), f"   {cells['what was judged']}, by {cells['level']}"
    )
    return Padding(title, (0, 0, 0, 2)), Padding(Text(clean(said)), (0, 0, 0, 4))


def _facts(card: Card) -> list[tuple[str, str]]:
    return [
        ("fingerprint", card.fingerprint),
        ("reads", card.reads),
        ("made from", "; ".join(card.training) or "nothing"),
        ("licence", card.licence),
        ("size", card.size),
        ("speed", card.speed),
    ]


def _row(each: Measured) -> tuple[str, ...]:
    """The cells of an entry, in the order of HEADS."""
    return (
        each.set + (FITTED if each.trained_on else ""),
        each.shape,
        each.level,
        f"{each.n:,}",
        percent(each.share_bad),
        _span(each.auroc),
        _span(each.auroc_within),
        _span(each.f1),
        _span(each.sensitivity),
        _span(each.specificity),
        _span(each.balanced_accuracy),
        _span(each.calibration_error, short=True),
    )


def _span(found: Estimate | Interval | None, *, short: bool = False) -> str:
    """A figure with its interval; a dash where there is none."""
    if found is None:
        return "–"
    value = found.mean if isinstance(found, Interval) else found.value
    if value is None:
        return "–"
    if short or found.low is None or found.high is None:
        return figure(value)
    return f"{figure(value)} [{figure(found.low)}, {figure(found.high)}]"


def _notes(card: Card) -> list[str]:
    """What must be known to read the figures, and the commands that measure them anew."""
    notes = [
        "Positive is what is bad. AUROC: 0.5 is guessing; within: inside groups that give nothing away by style. "
        "F1 is at the threshold that is best on the other folds; sensitivity, specificity and their mean, the balanced "
        "accuracy, are by the judge's own word. Intervals are 95 %, by sources or queries."
    ]
    if any(each.trained_on for each in card.measured):
        notes.append("¹ The judge was fitted on other sources of the same set: elsewhere expect less.")
    for name, entries in _sets(card).items():
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


def _sets(card: Card) -> dict[str, list[Measured]]:
    """The entries of each set."""
    found: dict[str, list[Measured]] = {}
    for each in card.measured:
        found.setdefault(each.set, []).append(each)
    return found
