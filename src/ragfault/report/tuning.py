"""What a tuning found, for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ragfault.report.markdown import escape, table
from ragfault.report.plain import clean
from ragfault.report.terminal import paint
from ragfault.report.wording import signed
from ragfault.tuning import Gain, Row, Tuned

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = [
    "FIGURES",
    "STEPS",
    "circumstances",
    "figures",
    "headline",
    "render",
    "tested",
    "to_json",
    "to_markdown",
]

FIGURES = ("pipeline", "metric", "recall", "precision", "IoU", "ms", "p95 ms", "tokens")
STEPS = ("step", "by", "instead of", "gain", "p", "ms", "tokens", "")
STYLES = {"gains": "green", "loses": "red", "no gain shown": "yellow"}


def figures(row: Row) -> tuple[str, ...]:
    """The cells of a row: FIGURES."""
    return (
        clean(row.name),
        f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]",
        f"{row.recall:.3f}",
        f"{row.precision:.3f}",
        f"{row.iou:.3f}",
        f"{row.ms:.1f}",
        f"{row.p95:.1f}",
        f"{row.tokens:,.0f}",
    )


def tested(gain: Gain) -> tuple[str, ...]:
    """The cells of a comparison: STEPS."""
    found = gain.difference
    return (
        clean(gain.what),
        clean(gain.ours),
        clean(gain.theirs),
        f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]",
        f"{gain.adjusted:.3f}",
        f"{gain.ms:+.1f}",
        f"{gain.tokens:+,.0f}",
        gain.shown,
    )


def headline(found: Tuned) -> str:
    """The gain over what is there, in a sentence."""
    return clean(found.sentences[0]) if found.sentences else "Nothing was measured."


def circumstances(found: Tuned) -> str:
    """On how many questions it rests, and what it took."""
    bounds = f" subject to {', '.join(map(str, found.bounds))}" if found.bounds else ""
    return (
        f"{clean(found.metric)}{bounds} · {found.selection:,} questions chose, {found.held_out:,} others measured · "
        f"grouped by {clean(found.grouped_by)} · {found.seconds:,.0f} s"
    )


def render(found: Tuned, *, width: int | None = None, colour: bool = False) -> str:
    """The gain first, then the pipelines, each step, and what was not taken."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(headline(found), style="bold"),
        Text(circumstances(found), style="dim"),
        *(Text(f"note: {clean(line)}", style="yellow") for line in found.notes),
        Text(f"\n{clean(found.recipe.name)}"),
        Text("\nOn the held-out questions", style="bold cyan"),
        _table(FIGURES, [figures(row) for row in found.rows]),
    ]
    for title, gains in _parts(found):
        if gains:
            parts += [Text(f"\n{title}", style="bold cyan"), _gains(gains)]
    parts += [Text("\nIn words", style="bold cyan"), *(Text(clean(line)) for line in found.sentences[1:])]
    return paint(parts, width=width or shutil.get_terminal_size((120, 24)).columns, colour=colour)


def _parts(found: Tuned) -> tuple[tuple[str, tuple[Gain, ...]], ...]:
    return (
        ("Against", found.gains),
        ("What each step brings", found.steps),
        ("Tried and not taken (the gain is of what was)", found.rejected),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _gains(gains: Sequence[Gain]) -> Table:
    from rich.text import Text

    table = _table(STEPS, [])
    for gain in gains:
        *cells, shown = tested(gain)
        table.add_row(*cells, Text(shown, style=STYLES[shown]))
    return table


def to_json(found: Tuned) -> str:
    """All of it as JSON."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def to_markdown(found: Tuned) -> str:
    """The same as the terminal's, as Markdown."""
    lines = ["# Tuning", "", f"**{escape(headline(found))}**", "", escape(circumstances(found)), ""]
    lines += [f"- {escape(line)}" for line in found.notes]
    lines += ["", f"Recommended: `{clean(found.recipe.name)}`", "", "## On the held-out questions", ""]
    heads = [found.metric if head == "metric" else head for head in FIGURES]
    lines += table(heads, [_escaped(figures(row)) for row in found.rows])
    for title, gains in _parts(found):
        if gains:
            lines += ["", f"## {title}", "", *table(STEPS, [_escaped(tested(gain)) for gain in gains])]
    lines += [
        "",
        "## Frontier",
        "",
        *table(heads, [_escaped(figures(point.row)) for point in found.frontier]),
    ]
    lines += ["", "## In words", "", *(f"- {escape(line)}" for line in found.sentences)]
    return "\n".join(lines) + "\n"


def _escaped(cells: Sequence[str]) -> list[str]:
    return [escape(text) for text in cells]
