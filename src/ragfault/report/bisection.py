"""A bisection: for the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ragfault.findings import Bisection, Fault
from ragfault.report import markdown as md
from ragfault.report.comparison import builtins, grid, inset, judged, line, listed, put_right, rows, warnings
from ragfault.report.plain import LAYERS, clean, clip
from ragfault.report.terminal import paint
from ragfault.report.wording import (
    OUTCOMES,
    evidence,
    facts,
    fell,
    joint,
    layered,
    lead,
    reason,
    rectified,
    segment,
    summary,
    terms,
    titled,
    unmeasured,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["SIGNS", "VERDICTS", "Parts", "markdown", "terminal", "to_json"]

Parts = Sequence[tuple[str, Bisection]]
"""The bisections of segments, each with its name."""

VERDICTS = {"fault": "red", "no fault": "green", "cannot tell": "yellow"}
SIGNS = {"fault": "❌", "no fault": "✅", "cannot tell": "❔"}
MARKS = {"fault": "❌", "ruled out": "✅", "cannot tell": "❔", "not reached": "·", "not measured": "–"}

SHOWN = 3
"""How many of the telling traces are shown where there is little room."""


def terminal(
    found: Bisection | Parts, *, by: str = "", width: int | None = None, colour: bool = False
) -> str:
    """The verdict, each fault with what to look at, and the tree as it was walked, as text for a terminal.

    Of several segments (divided `by` a field) each has a line, and those at fault are told in full. Texts of
    traces are printed without control characters and escape sequences.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    parts = _whole(found, width) if isinstance(found, Bisection) else _segments(found, by, width)
    return paint(parts, width=width, colour=colour)


def _verdict(found: Bisection) -> RenderableType:
    return line((f"{found.verdict.upper()}: ", f"bold {VERDICTS[found.verdict]}"), (lead(found), "bold"))


def _whole(found: Bisection, width: int) -> list[RenderableType]:
    made = found.comparison
    names = f"{clip(made.baseline, 60)} → {clip(made.candidate, 60)}"
    parts: list[RenderableType] = [_verdict(found), line((f"{names}: {'; '.join(facts(made))}", "dim"))]
    parts += warnings(made)
    for fault in found.faults:
        parts += _fault(fault)
    parts += [*_tree(found), *_clues(found)]
    parts.append(line(("\nThe metrics of the tree", "bold cyan"), (f"   {terms(made)}", "dim")))
    for layer, changes in layered(made.changes):
        parts += [line((LAYERS[layer], "cyan")), grid(changes, width)]
    parts += put_right(made)
    silent = unmeasured(made.changes)
    if silent:
        parts.append(line(("Not measured on both sides: ", "dim"), ", ".join(silent)))
    return parts


def _segments(found: Parts, by: str, width: int) -> list[RenderableType]:
    verdict = joint(each for _, each in found)
    parts: list[RenderableType] = [
        line(
            (f"{verdict.upper()}: ", f"bold {VERDICTS[verdict]}"),
            (summary(found, by), "bold"),
        )
    ]
    for name, each in found:
        head = f"{each.verdict:<12}"
        parts.append(inset(2, (head, VERDICTS[each.verdict]), (segment(name), "bold"), f"   {lead(each)}"))
    for name, each in found:
        if each.verdict == "fault":
            parts += [line((f"\n── {clean(by)} {segment(name)} ──", "bold")), *_whole(each, width)]
    return parts


def _fault(fault: Fault) -> list[RenderableType]:
    parts: list[RenderableType] = [line((f"\n{lead(fault)}", "bold red"), f"   branch {clean(fault.branch)}")]
    parts += [inset(2, f"{titled(change)} {evidence(change)}") for change in fault.evidence]
    parts.append(inset(2, ("look at: ", "yellow"), clean(", ".join(fault.suspects))))
    parts += [inset(4, f"because {clean(clue.text)}") for clue in fault.clues]
    parts.append(inset(2, ("to mend it: ", "green"), clean("; ".join(fault.remedies))))
    if fault.telling:
        metric = clean(fault.telling[0].metric)
        parts.append(inset(2, ("the traces that show it best", "dim"), f", by {metric}:"))
    for found in fault.telling[:SHOWN]:
        parts.append(
            inset(4, (clip(found.trace, 60), "bold"), f"   {fell(found)}   {clip(found.query, 200)}")
        )
        for word, text in (("before", found.before), ("after", found.after)):
            if text is not None:
                parts.append(inset(6, (f"{word}: ", "dim"), clip(text, 300)))
    return parts


def _tree(found: Bisection) -> list[RenderableType]:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(max_width=26)
    table.add_column(overflow="fold")
    for ruling in found.tree:
        glyph, style = OUTCOMES[ruling.outcome]
        branch = (clean(ruling.branch), "bold")
        table.add_row(line((f"{glyph} {ruling.outcome}", style)), line(branch), line(reason(ruling)))
    return [line(("\nThe tree as it was walked", "bold cyan")), table]


def _clues(found: Bisection) -> list[RenderableType]:
    if not found.clues:
        return []
    heading = line(("\nCircumstances", "bold cyan"), ("   in which the runs differ", "dim"))
    return [heading, *(inset(2, f"{clean(clue.text)}", _pointing(clue.suspects)) for clue in found.clues)]


def _pointing(suspects: Sequence[str]) -> tuple[str, str]:
    return (f"   → {', '.join(suspects)}" if suspects else "", "dim")


def markdown(found: Bisection | Parts, *, by: str = "") -> str:
    """The same as GitHub-flavoured Markdown; the first line is the verdict."""
    if isinstance(found, Bisection):
        return "\n".join([*_heading(found), *_section(found)]) + "\n"
    verdict = joint(each for _, each in found)
    lines = [f"### {SIGNS[verdict]} {verdict}: {md.escape(summary(found, by))}", ""]
    cells = [
        (f"{SIGNS[each.verdict]} {each.verdict}", md.escape(segment(name)), md.escape(lead(each)))
        for name, each in found
    ]
    lines += [*md.table(("Verdict", md.escape(by), "In a sentence"), cells), ""]
    for name, each in found:
        if each.verdict == "fault":
            lines += [f"#### {md.escape(by)} {md.escape(segment(name))}", "", *_section(each)]
    return "\n".join(lines) + "\n"


def _heading(found: Bisection) -> list[str]:
    return [f"### {SIGNS[found.verdict]} {found.verdict}: {md.escape(lead(found))}", ""]


def _section(found: Bisection) -> list[str]:
    made = found.comparison
    names = f"{clip(made.baseline, 60)} → {clip(made.candidate, 60)}"
    lines = [md.escape(f"{names}: {'; '.join(facts(made))}."), ""]
    lines += [f"> ⚠️ {md.escape(text)}\n" for text in made.warnings]
    for fault in found.faults:
        lines += _blamed(fault)
    lines += ["**The tree as it was walked**", ""]
    cells = [
        (f"{MARKS[each.outcome]} {each.outcome}", md.escape(each.branch), md.escape(reason(each)))
        for each in found.tree
    ]
    lines += [*md.table(("Outcome", "Branch", "Why"), cells), ""]
    if found.clues:
        lines += ["**Circumstances in which the runs differ**", ""]
        lines += [*(f"- {md.escape(clue.text)}" for clue in found.clues), ""]
    changes = [change for _, part in layered(made.changes) for change in part]
    if changes:
        heading = f"<details><summary>The metrics of the tree: {terms(made)}</summary>"
        lines += [heading, "", *rows(changes), "", "</details>", ""]
    return [*lines, *listed(rectified(made))]


def _blamed(fault: Fault) -> list[str]:
    lines = [f"**{md.escape(lead(fault))}**", ""]
    lines += [f"- {md.code(change.metric)}: {evidence(change)}" for change in fault.evidence]
    lines.append(f"- **Look at** {md.escape(', '.join(fault.suspects))}")
    lines += [f"  - {md.escape(clue.text)}" for clue in fault.clues]
    lines += [f"- **To mend it:** {md.escape('; '.join(fault.remedies))}", ""]
    cells = [
        (
            md.escape(clip(each.trace, 60)),
            md.escape(clip(each.query, 120)),
            fell(each),
            md.escape(clip(each.before or "–", 240)),
            md.escape(clip(each.after or "–", 240)),
        )
        for each in fault.telling[:SHOWN]
    ]
    heads = ("Trace", "Query", md.code(fault.evidence[0].metric), "Before", "After")
    return [*lines, *([*md.table(heads, cells), ""] if cells else [])]


def to_json(found: Bisection | Parts, *, by: str = "") -> str:
    """A bisection as JSON, or those of segments with the verdict over all; an infinite end is null."""
    if isinstance(found, Bisection):
        plain = _builtins(found)
    else:
        parts = [{"segment": name, **_builtins(each)} for name, each in found]
        plain = {"verdict": joint(each for _, each in found), "by": by, "segments": parts}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def _builtins(found: Bisection) -> dict[str, Any]:
    """A bisection as plain values; each change says its verdict as well."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    plain["comparison"] = builtins(found.comparison)
    for fault, record in zip(plain["faults"], found.faults, strict=True):
        fault["evidence"] = [judged(change) for change in record.evidence]
    return plain
