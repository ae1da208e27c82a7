"""A sequence of runs, and where each metric broke: for the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec

from ragfault.findings import History, Step
from ragfault.report import markdown as md
from ragfault.report.comparison import inset, line
from ragfault.report.plain import LAYERS, clean, clip, figure
from ragfault.report.terminal import paint
from ragfault.report.wording import GLYPHS, STATES

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["markdown", "sentence", "terminal", "to_json"]

SHOWN = 8
"""How many means of a metric stand in a line; of more, the first and the last ones."""


def sentence(found: History) -> str:
    """Where the sequence broke, in a sentence."""
    names = f"{len(found.runs)} runs, {clip(found.runs[0], 60)} to {clip(found.runs[-1], 60)}"
    over = f"over {found.traces:,} traces that are in all of {names}"
    if found.broken is None:
        return f"No metric of the tree is shown to have broken {over}."
    here = [clean(step.metric) for step in found.steps if step.worse and step.run == found.broken]
    listed = f"{', '.join(here[:4])}{', …' if len(here) > 4 else ''}"
    return f"Broke at {clip(found.broken, 60)}: {len(here)} metrics worse ({listed}) {over}."


def _verdict(step: Step) -> str:
    return "cannot tell" if step.run is None else "worse" if step.worse else "better"


def _means(step: Step) -> str:
    """The means, run by run."""
    texts = [figure(mean) for mean in step.means]
    if len(texts) > SHOWN:
        texts[SHOWN // 2 : -SHOWN // 2] = ["…"]
    return " ".join(texts)


def _place(step: Step) -> str:
    """Where a metric changed, and between which runs that may have been."""
    if step.run is None or step.between is None:
        return ""
    first, last = (clip(name, 60) for name in step.between)
    return f"at {clip(step.run, 60)}" + (f" ({first} to {last})" if first != last else "")


def terminal(found: History, *, width: int | None = None, colour: bool = False) -> str:
    """Each metric with its means and the run at which it changed, as text for a terminal."""
    from rich.table import Table

    style = "red" if found.broken is not None else "yellow"
    parts: list[RenderableType] = [line((sentence(found), f"bold {style}"))]
    parts += [line(("warning: ", "yellow"), clean(text)) for text in found.warnings]
    for layer, title in LAYERS.items():
        mine = [step for step in found.steps if step.layer == layer]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for head in ("metric", "means, run by run", "", "where", "p"):
            table.add_column(head, overflow="fold")
        for step in mine:
            verdict = _verdict(step)
            sign = line((f"{GLYPHS[verdict]} {verdict}", STATES[verdict]))
            where = line(_place(step))
            table.add_row(line(_name(step)), line(_means(step)), sign, where, line(f"{step.adjusted:.3f}"))
        if mine:
            parts += [line((f"\n{title}", "bold cyan")), table]
    if found.broken is not None:
        at = found.runs.index(found.broken)
        names = f"{clip(found.runs[at - 1], 60)} and {clip(found.broken, 60)}"
        parts.append(inset(0, f"\nWhich layer it was: bisect {names}."))
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def _name(step: Step) -> str:
    return clean(step.metric) + (" ↓" if step.better == "lower" else "")


def markdown(found: History) -> str:
    """The same as GitHub-flavoured Markdown; the first line is the verdict."""
    mark = "❌" if found.broken is not None else "❔"
    rows = [
        (
            md.code(step.metric) + (" ↓" if step.better == "lower" else ""),
            _means(step),
            _verdict(step),
            md.escape(_place(step)),
            f"{step.adjusted:.3f}",
        )
        for step in found.steps
    ]
    lines = [
        f"### {mark} {md.escape(sentence(found))}",
        "",
        *(f"> ⚠️ {md.escape(t)}\n" for t in found.warnings),
    ]
    return "\n".join([*lines, *md.table(("Metric", "Means", "", "Where", "p:"), rows)]) + "\n"


def to_json(found: History) -> str:
    """A history as JSON, with the run at which it broke."""
    plain = {"broken": found.broken, "sentence": sentence(found), **msgspec.to_builtins(found)}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
