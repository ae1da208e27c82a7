"""A comparison of two runs: for the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ragfault.findings import Change, Comparison
from ragfault.report import markdown as md
from ragfault.report.plain import LAYERS, clean, clip
from ragfault.report.terminal import paint
from ragfault.report.wording import (
    GLYPHS,
    STATES,
    aside,
    difference,
    facts,
    layered,
    moved,
    moves,
    p_value,
    rectified,
    segment,
    state,
    terms,
    titled,
    unmeasured,
    whole,
    worse,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "builtins",
    "grid",
    "inset",
    "judged",
    "line",
    "listed",
    "markdown",
    "put_right",
    "rows",
    "terminal",
    "to_json",
    "warnings",
]

COLUMNS = (
    ("metric", 0),
    ("before → after", 0),
    ("difference, 95 % interval", 0),
    ("", 0),
    ("needed", 90),
    ("p", 100),
    ("n", 112),
    ("one side only", 124),
)
"""The columns of the changes, and from which width each has room."""

SIGNS = {"worse": "🔻 **worse**", "better": "🔺 better", "steady": "steady", "cannot tell": "❔"}


def terminal(
    found: Comparison | Sequence[Comparison], *, width: int | None = None, colour: bool = False
) -> str:
    """The changes by layer as text for a terminal, with the traces that made a metric worse.

    Several comparisons are those of segments, one after the other. Texts of traces are printed without control
    characters and escape sequences.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    parts: list[RenderableType] = []
    for each in [found] if isinstance(found, Comparison) else found:
        parts += _page(each, width)
    return paint(parts, width=width, colour=colour)


def line(*parts: str | tuple[str, str]) -> Text:
    """A line of plain and styled pieces; never markup."""
    from rich.text import Text

    return Text.assemble(*parts)


def inset(depth: int, *parts: str | tuple[str, str]) -> RenderableType:
    """A line set in, as are the lines it wraps to."""
    from rich.padding import Padding

    return Padding(line(*parts), (0, 0, 0, depth))


def warnings(found: Comparison) -> list[RenderableType]:
    """What keeps the runs from being fully comparable."""
    return [line(("warning: ", "yellow"), clean(text)) for text in found.warnings]


def grid(changes: Sequence[Change], width: int) -> Table:
    """The changes as a table, with as many columns as there is room for."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    shown = [head for head, least in COLUMNS if width >= least]
    for head in shown:
        side: Any = "right" if head in ("needed", "p", "n") else "left"
        table.add_column(head, justify=side, overflow="fold", no_wrap=head not in ("metric", "one side only"))
    for change in changes:
        verdict = "same chunks" if change.same else change.verdict
        cells = (
            line(titled(change)),
            line(moved(change)),
            line(difference(change)),
            line((f"{GLYPHS[change.verdict]} {verdict}", STATES[change.verdict])),
            line(f"{change.needed:,}" if change.needed else ""),
            line(p_value(change)),
            line(f"{change.n:,}"),
            line((aside(change), "dim")),
        )
        table.add_row(*cells[: len(shown)])
    return table


def _page(found: Comparison, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [_head(found), line("; ".join(facts(found))), *warnings(found)]
    for layer, changes in layered(found.changes):
        parts += [line((f"\n{LAYERS[layer]}", "bold cyan")), grid(changes, width)]
    parts += put_right(found)
    silent = unmeasured(found.changes)
    if silent:
        parts.append(line(("\nNot measured on both sides: ", "bold cyan"), (", ".join(silent), "dim")))
    lost = worse(found.changes)
    if lost:
        parts.append(line(("\nWhat got worse", "bold cyan"), ("   the traces that moved most", "dim")))
        parts += [inset(2, (clean(change.metric), "bold"), f"   {moves(change)}") for change in lost]
    return [*parts, line(f"\n{whole(found)}"), line((terms(found), "dim")), line("")]


def put_right(found: Comparison) -> list[RenderableType]:
    """How differences were rectified by labels."""
    told = rectified(found)
    return (
        [line(), *(inset(0 if not at else 2, (text, "dim")) for at, text in enumerate(told))] if told else []
    )


def _head(found: Comparison) -> Text:
    names = f"{clip(found.baseline, 60)} → {clip(found.candidate, 60)}"
    if found.by is None:
        return line((names, "bold"))
    return line((f"{clean(found.by)} {segment(found.segment)}", "bold"), f"   {names}")


def markdown(found: Comparison | Sequence[Comparison]) -> str:
    """The changes as GitHub-flavoured Markdown; the first line says what came of it."""
    lines: list[str] = []
    for each in [found] if isinstance(found, Comparison) else found:
        lines += _section(each)
    return "\n".join(lines) + "\n"


def rows(changes: Sequence[Change]) -> list[str]:
    """The changes as the lines of a Markdown table."""
    cells = [
        (
            md.code(change.metric) + (" ↓" if change.better == "lower" else ""),
            moved(change),
            difference(change),
            p_value(change).replace("<", "&lt;"),
            f"{SIGNS[change.verdict]}{_needed(change)}",
            f"{change.n:,}",
            aside(change),
        )
        for change in changes
    ]
    heads = ("Metric", "Before → after", "Difference, 95 % interval", "p:", "", "n:", "One side only")
    return md.table(heads, cells)


def _needed(change: Change) -> str:
    """What a sign leaves unsaid."""
    word = state(change)
    return f" {word}" if change.verdict == "cannot tell" else word.removeprefix(change.verdict)


def _section(found: Comparison) -> list[str]:
    names = f"{md.escape(clip(found.baseline, 60))} → {md.escape(clip(found.candidate, 60))}"
    part = "" if found.by is None else f"{md.escape(found.by)} {md.escape(segment(found.segment))}: "
    mark = "🔻 " if worse(found.changes) else ""
    lines = [f"### {mark}{part}{md.escape(whole(found))}", ""]
    lines += [f"{names}: {md.escape('; '.join(facts(found)))}. {terms(found)}.", ""]
    lines += [f"> ⚠️ {md.escape(text)}\n" for text in found.warnings]
    for layer, changes in layered(found.changes):
        lines += [f"**{LAYERS[layer]}**", "", *rows(changes), ""]
    lines += listed(rectified(found))
    silent = unmeasured(found.changes)
    if silent:
        lines += [f"Not measured on both sides: {', '.join(map(md.code, silent))}.", ""]
    lost = [f"- {md.code(change.metric)}: {md.escape(moves(change))}" for change in worse(found.changes)]
    return [*lines, *(["**What got worse**", "", *lost, ""] if lost else [])]


def listed(texts: Sequence[str]) -> list[str]:
    """Sentences as a list, with an empty line after it; nothing for none."""
    return [*(f"- {md.escape(text)}" for text in texts), ""] if texts else []


def builtins(found: Comparison) -> dict[str, Any]:
    """A comparison as plain values; each change says its verdict as well."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    plain["changes"] = [judged(change) for change in found.changes]
    return plain


def judged(change: Change) -> dict[str, Any]:
    """A change as plain values, with its verdict."""
    return {"metric": change.metric, "verdict": change.verdict, **msgspec.to_builtins(change)}


def to_json(found: Comparison | Sequence[Comparison]) -> str:
    """A comparison as JSON, or those of segments as a list; an interval's end that is infinite is null."""
    plain = builtins(found) if isinstance(found, Comparison) else [builtins(each) for each in found]
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
