"""Two judges beside each other, for the terminal, as JSON and as one self-contained page."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragfault.agreement import JudgesCompared, Split
from ragfault.findings.flaking import Flakiness
from ragfault.report.agreement import counted, to_json, told_speed
from ragfault.report.markup import Markup, label, tag
from ragfault.report.pieces import scroll
from ragfault.report.plain import clean, clip
from ragfault.report.saving import save
from ragfault.report.sheet import carried, fill, policy
from ragfault.report.terminal import paint
from ragfault.stats import Estimate

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["flakiness", "render_judges", "terminal", "to_json", "write_judges"]

KINDS = ("verdicts on", "n", "only first, only second", "alike", "kappa", "alpha")
METRICS = ("metric", "layer", "n", "first", "second", "second less first", "correlation")
FLAKY = ("metric", "n", "within a trace", "traces that move", "reliability", "drift of the mean")
SHOWN = 10
"""How many items on which the judges differ the terminal shows."""

NAMES = {
    "chunk": "relevance of chunks",
    "use": "use of chunks",
    "claim": "support of claims",
    "citation": "citations",
    "fact": "expected facts",
    "recall": "what the chunks cover",
    "refusal": "refusals",
}


def terminal(found: JudgesCompared, *, width: int | None = None, colour: bool = False) -> str:
    """Both judges, how far they agree, what metrics come to, and where they differ most."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(_headline(found), style="bold")]
    parts += [Text(line, style="dim") for line in _facts(found)]
    parts += [Text("\nVerdicts", style="bold cyan"), _table(KINDS, _kinds(found))]
    parts += [Text("\nMetrics", style="bold cyan"), _table(METRICS, _metrics(found))]
    if found.splits:
        parts.append(Text(f"\nWhere they differ most, of {counted(found.differ, 'item')}", style="bold cyan"))
    for split in found.splits[:SHOWN]:
        parts.append(Text.assemble((clip(split.trace, 40), "bold"), f"  {_said(split)}"))
        parts.append(Padding(Text(clip(split.item, 200)), (0, 0, 0, 2)))
        parts += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in _reasons(split)]
    notes = ("", "kappa is linear and alpha ordinal for levels of relevance; 95 % intervals over traces")
    parts += [Text(line, style="dim") for line in notes]
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def flakiness(found: Flakiness, *, width: int | None = None, colour: bool = False) -> str:
    """How far a judge differs from itself, metric by metric."""
    from rich.text import Text

    name = clean(found.judge).split(" ")[0]
    told = f"{name}, {found.repeats} times over {counted(found.traces, 'trace')}"
    parts: list[RenderableType] = [Text(told, style="bold"), Text(f"judge {clean(found.judge)}", style="dim")]
    if found.steady:
        parts.append(Text("It said the same each time: no interval needs to be wider."))
    else:
        rows = [
            [
                one.metric,
                f"{one.n:,}",
                f"{one.deviation:.3f}",
                f"{100 * one.flips:.0f} %",
                "–" if one.reliability is None else f"{one.reliability:.2f}",
                f"{one.drift:.3f}",
            ]
            for one in found.metrics
        ]
        parts += [Text(""), _table(FLAKY, rows)]
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _headline(found: JudgesCompared) -> str:
    names = [clean(name).split(" ")[0] for name in found.judges]
    return f"{names[0]} beside {names[1]}: {counted(found.traces, 'trace')}"


def _facts(found: JudgesCompared) -> list[str]:
    """Who the judges are, what they cost, and what they lost."""
    lines = []
    for place, judge, speed, lost in zip(
        ("first", "second"), found.judges, found.speeds, found.failed, strict=True
    ):
        told = f"; {told_speed(speed)}" if speed is not None else ""
        failed = f"; lost something on {counted(lost, 'trace')}" if lost else ""
        lines.append(f"{place}: {clean(judge)}{told}{failed}")
    return lines


def _span(found: Estimate, digits: int = 2) -> str:
    if found.value is None:
        return "– all the same"
    if found.low is None or found.high is None or math.isinf(found.high - found.low):
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _kinds(found: JudgesCompared) -> list[list[str]]:
    return [
        [
            NAMES[one.kind],
            f"{one.n:,}",
            f"{one.alone[0]:,}, {one.alone[1]:,}",
            _span(one.accuracy),
            _span(one.kappa),
            _span(one.alpha),
        ]
        for one in found.kinds
    ]


def _metrics(found: JudgesCompared) -> list[list[str]]:
    rows = []
    for one in found.metrics:
        gap = Estimate(one.difference.mean, one.difference.low, one.difference.high)
        means = [f"{mean.mean:.3f}" for mean in one.means]
        together = "–" if one.correlation.value is None else _span(one.correlation)
        rows.append([one.metric, one.layer, f"{one.n:,}", *means, _span(gap, 3), together])
    return rows


def _said(split: Split) -> str:
    """What each says of an item."""
    words = [
        {True: "yes", False: "no"}[word] if isinstance(word, bool) else str(word) for word in split.words
    ]
    return f"{NAMES[split.kind]}: {words[0]}, {words[1]}"


def _reasons(split: Split) -> list[str]:
    places = zip(("first", "second"), split.reasons, strict=True)
    return [f"{place}: {clip(reason, 300)}" for place, reason in places if reason]


# --- as a page -------------------------------------------------------------------------------------


def write_judges(found: JudgesCompared, path: str | Path, *, force: bool = False) -> Path:
    """Write a comparison of judges as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written.
    """
    return save(path, render_judges(found), force=force)


def render_judges(found: JudgesCompared) -> str:
    """A comparison of judges as one HTML page; texts of traces are escaped."""
    style, script = carried("page.css", "agreement.css"), carried("theme.js", "bisection.js")
    name = label(_headline(found), 300)
    splits = [
        [split.trace, _said(split), split.item, " ".join(_reasons(split)) or "–"] for split in found.splits
    ]
    heads = ("trace", "first, second", "item", "reasons")
    sections = [
        ("verdicts", "Verdicts", _grid(KINDS, _kinds(found), "of verdicts")),
        ("metrics", "Metrics", _grid(METRICS, _metrics(found), "of metrics")),
        (
            "splits",
            f"Where they differ most, of {counted(found.differ, 'item')}",
            _grid(heads, splits, "of differences"),
        ),
    ]
    return fill(
        carried("agreement.html"),
        policy=policy(script, style),
        title=tag("title", f"{name} – ragfault judge compare"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag("ul", [tag("li", label(line, 600)) for line in _facts(found)], class_="facts"),
        nav=tag("nav", [tag("a", text, href=f"#{at}") for at, text, _ in sections], aria_label="Sections"),
        body=Markup(
            "\n".join(tag("section", tag("h2", text), inside, id=at) for at, text, inside in sections)
        ),
    )


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Markup:
    """A table whose first column names its rows."""
    head = tag("tr", [tag("th", text, scope="col") for text in heads])
    body = [
        tag(
            "tr", tag("th", label(row[0], 80), scope="row"), [tag("td", label(cell, 600)) for cell in row[1:]]
        )
        for row in rows
    ]
    return scroll(tag("table", tag("thead", head), tag("tbody", body), class_="measured"), name)
