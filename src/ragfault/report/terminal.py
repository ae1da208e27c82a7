"""A run's findings for the terminal, at any width, with or without colour."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragfault.findings import Aggregate, Alert, Diagnosis, Findings
from ragfault.report.asked import asked
from ragfault.report.plain import (
    LAYERS,
    RESULTS,
    beside,
    by_layer,
    clean,
    clip,
    corrections,
    figure,
    interval,
    kinds,
    lost,
    named,
    notes,
    percent,
    plural,
    silent,
    told,
)
from ragfault.report.trust import trust

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["describe", "paint", "render"]

WIDE, NARROW = 100, 84
"""From which width a bar is drawn, and below which the counts share one column."""

CELLS = 20
"""How long a bar is, where there is room for it beside the figures."""

FIGURES = 92
"""The columns that the figures of a metric take."""

SEGMENTS = 10
"""How many segments are shown."""

FIRM = ("metric", "95 % interval", "scored")
"""The columns whose cells are not broken."""

STYLES = {"pass": "green", "fail": "red", "cannot tell": "yellow"}


def render(findings: Findings, *, width: int | None = None, colour: bool = False) -> str:
    """The findings as text for a terminal of this width (the present one's, where none is given).

    Texts of traces are printed as they are, save that control characters and escape sequences are left out.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    return paint(_page(findings, width), width=width, colour=colour)


def describe(found: Iterable[Diagnosis], *, width: int | None = None, colour: bool = False) -> str:
    """Diagnoses in full: every problem of each trace with its reason, and what mends it."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    parts: list[RenderableType] = []
    for diagnosis in found:
        parts += _diagnosis(diagnosis)
    return paint(parts, width=width, colour=colour)


def paint(parts: Iterable[RenderableType], *, width: int, colour: bool) -> str:
    """What rich would print of these, as text."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=max(40, width),
        force_terminal=colour,
        force_jupyter=False,
        color_system="standard" if colour else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for part in parts:
        console.print(part)
    return _text(console)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _line(*parts: str | tuple[str, str]) -> Text:
    """A line of plain and styled pieces; never markup."""
    from rich.text import Text

    return Text.assemble(*parts)


def _inset(depth: int, *parts: str | tuple[str, str]) -> RenderableType:
    """A line set in, as are the lines it wraps to."""
    from rich.padding import Padding

    return Padding(_line(*parts), (0, 0, 0, depth))


def _table(*columns: tuple[str, str]) -> Table:
    """A table without a frame; each column by its heading and "left" or "right"."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading, side in columns:
        table.add_column(heading, justify=side, overflow="fold", no_wrap=heading in FIRM)  # type: ignore[arg-type]
    return table


def _page(findings: Findings, width: int) -> list[RenderableType]:
    return [
        *_head(findings),
        *_layers(findings, width),
        *_corrected(findings),
        *_silent(findings),
        *_pairs(findings),
        *_rag(findings),
        *_quality(findings),
        *_segments(findings, width),
        *_worst(findings.worst),
        *_remedies(findings),
    ]


def _head(findings: Findings) -> list[RenderableType]:
    made = findings.manifest
    failed = f" · {made.failed:,} scores failed" if made.failed else ""
    skipped = f" · {made.skipped:,} bad lines left out" if made.skipped else ""
    facts = f"   {plural(made.traces)} · judge {clean(made.judge)}{failed}{skipped}"
    lines = [*asked(findings), *filter(None, [trust(made.judge)])]
    return [_line((clean(findings.run), "bold"), facts), *(_inset(2, line) for line in lines)]


def _layers(findings: Findings, width: int) -> list[RenderableType]:
    health = {found.layer: found for found in findings.health}
    parts: list[RenderableType] = []
    for layer, found in by_layer(findings.scorecard):
        line: list[str | tuple[str, str]] = [("\n" + LAYERS[layer], "bold cyan")]
        whole = health.get(layer)  # type: ignore[call-overload]
        if whole is not None and whole.interval is not None:
            names = " + ".join(part.metric for part in whole.parts)
            line += [f"   health {interval(whole.interval)}", (f"   mean of {names}", "dim")]
        parts += [_line(*line), _metrics(found, width)]
    return parts


def _metrics(found: Sequence[Aggregate], width: int) -> Table:
    """The metrics of a layer: mean, interval, counts, target."""
    counts = ("scored", "undefined", "failed") if width >= NARROW else ("scored",)
    cells = min(CELLS, width - FIGURES)
    bars = [("", "left")] if width >= WIDE else []
    table = _table(
        ("metric", "left"),
        ("mean", "right"),
        ("95 % interval", "left"),
        *bars,
        *((name, "right") for name in counts),
        ("target", "left"),
    )
    for item in found:
        assert item.interval is not None
        name = clean(item.metric) + (" ↓" if item.better == "lower" else "")
        numbers = (
            [f"{item.scored:,}", f"{item.undefined:,}", f"{item.failed:,}"]
            if width >= NARROW
            else [f"{item.scored:,}" + ("" if item.scored == item.traces else f" of {item.traces:,}")]
        )
        table.add_row(
            _line(name),
            figure(item.interval.mean),
            f"{figure(item.interval.low)} – {figure(item.interval.high)}",
            *([_bar(item, cells)] if bars else []),
            *numbers,
            _target(item),
        )
    return table


def _bar(item: Aggregate, cells: int) -> Text:
    """The interval drawn on the metric's range; nothing where that has no end."""
    if item.interval is None or item.low is None or item.high is None or item.high <= item.low:
        return _line("")
    span = item.high - item.low
    low, mean, high = (
        min(cells - 1, max(0, int((end - item.low) / span * cells)))
        for end in (item.interval.low, item.interval.mean, item.interval.high)
    )
    signs = ["·"] * cells
    signs[low : high + 1] = "─" * (high + 1 - low)
    signs[mean] = "●"
    return _line(("".join(signs), STYLES.get(item.result or "", "")))


def _target(item: Aggregate) -> Text:
    if item.target is None or item.result is None:
        return _line("")
    return _line(f"{item.target.sign} {item.target.value:g} ", (RESULTS[item.result], STYLES[item.result]))


def _corrected(findings: Findings) -> list[RenderableType]:
    """The figures as judged and corrected for the judge's error, or rectified by labels, side by side."""
    title = beside(findings.scorecard)
    if title is None:
        return []
    table = _table(("metric", "left"), ("as judged", "left"), (title, "left"))
    for item, text in corrections(findings.scorecard):
        name = clean(item.metric) + (" ↓" if item.better == "lower" else "")
        table.add_row(_line(name), interval(item.interval), text)
    told = [_inset(2, (line, "dim")) for line in notes(findings.scorecard)]
    return [_line((f"\n{title.capitalize()}", "bold cyan")), *([table] if table.rows else []), *told]


def _silent(findings: Findings) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for title, groups in (
        ("Lost to failures", lost(findings.scorecard)),
        ("Not measured", silent(findings.scorecard)),
    ):
        if groups:
            parts.append(_line((f"\n{title}", "bold cyan")))
            parts += [_line(f"{named(names)}: ", (reason, "dim")) for reason, names in groups]
    return parts


def _pairs(findings: Findings) -> list[RenderableType]:
    if not findings.pairs:
        return []
    table = _table(("", "left"), ("", "left"), ("", "left"))
    for pair in findings.pairs:
        sides = [
            f"{name} {interval(found.interval) if found and found.interval else 'not measured'}"
            for name, found in zip(pair.names, (pair.first, pair.second), strict=True)
        ]
        table.add_row(sides[0], "↔", sides[1])
    table.show_header = False
    return [_line(("\nTrade-offs", "bold cyan"), ("   read together", "dim")), table]


def _rag(findings: Findings) -> list[RenderableType]:
    rag = findings.rag
    figures = (
        ("average relevance", rag.relevance),
        ("context usage rate", rag.usage),
        ("missing-context rate", rag.missing),
        ("ranking efficiency", rag.ranking),
        ("optimal context hit rate", rag.optimal),
    )
    known = [(name, found) for name, found in figures if found is not None]
    if not known:
        return []
    table = _table(("", "left"), ("", "left"), ("", "left"))
    table.show_header = False
    for name, found in known:
        unit = "chunks" if found is rag.usage else "traces"
        table.add_row(name, interval(found), f"{found.n:,} {unit}")
    return [_line(("\nRAG health", "bold cyan")), table, *map(_alert, rag.alerts)]


def _alert(alert: Alert) -> Text:
    side = "above" if alert.value > alert.limit else "below"
    sure = "with its whole interval" if alert.certain else "but not with its whole interval"
    return _line(
        (alert.name, "red" if alert.severity == "high" else "yellow"),
        f"   {figure(alert.value)} is {side} {alert.limit:g}, {sure}",
    )


def _quality(findings: Findings) -> list[RenderableType]:
    if not any(found.count for found in findings.quality):
        return []
    table = _table(("level", "left"), ("traces", "right"), ("share", "left"), ("action", "left"))
    for found in findings.quality:
        share = found.share
        ends = f"{percent(share.mean)} [{percent(share.low)}, {percent(share.high)}]" if share else "–"
        table.add_row(found.name, f"{found.count:,}", ends, found.action)
    without = f"   {findings.unrated:,} without a triad" if findings.unrated else ""
    return [_line(("\nQuality of the answers", "bold cyan"), ("   by triad", "dim"), without), table]


def _segments(findings: Findings, width: int) -> list[RenderableType]:
    """The scorecard by segment, for the metrics that have a target and those of the triad."""
    if not findings.segments:
        return []
    names = told(findings.scorecard)
    by = clean(findings.segments[0].by or "")
    heads = [(by, "left"), ("metric", "left"), ("mean", "left"), ("scored", "right"), ("target", "left")]
    table = _table(*(heads if width >= NARROW else heads[:3]))
    for card in findings.segments[:SEGMENTS]:
        first = _line("(none)" if card.segment is None else clip(card.segment, 30))
        for item in card.aggregates:
            if item.metric in names:
                counts = f"{item.scored:,}/{item.traces:,}"
                cells = first, _line(clean(item.metric)), interval(item.interval), counts, _target(item)
                table.add_row(*cells[: len(table.columns)])
                first = _line("")
    more = len(findings.segments) - SEGMENTS
    rest = [_line((f"… and {more:,} more", "dim"))] if more > 0 else []
    return [_line((f"\nBy {by}", "bold cyan")), table, *rest]


def _worst(found: Sequence[Diagnosis]) -> list[RenderableType]:
    if not found:
        return []
    parts: list[RenderableType] = [_line(("\nWorst traces", "bold cyan"))]
    for diagnosis in found:
        parts.append(_title(diagnosis))
        for title, count, text in kinds(diagnosis):
            times = f" ×{count}" if count > 1 else ""
            parts.append(_inset(4, f"{title}{times}: ", (text, "dim")))
    return parts


def _title(found: Diagnosis) -> RenderableType:
    triad = "" if found.triad is None else f"   triad {figure(found.triad)}, {found.quality}"
    return _inset(2, (clip(found.trace, 60), "bold"), triad, f"   {clip(found.query, 200)}")


def _diagnosis(found: Diagnosis) -> list[RenderableType]:
    parts: list[RenderableType] = [_title(found)]
    if not found.problems:
        return [*parts, _inset(4, f"no problem among {found.checked:,} things looked at")]
    steps: dict[str, None] = {}
    for problem in found.problems:
        where = f" [{clip(problem.chunk, 60)}]" if problem.chunk is not None else ""
        reason = f"   {clean(problem.reason)}" if problem.reason else ""
        parts.append(
            _inset(
                4,
                (problem.kind.replace("_", " "), "yellow"),
                f"{where}: {clip(problem.text, 600)}",
                (reason, "dim"),
            )
        )
        steps |= dict.fromkeys(problem.remedies)
    return [*parts, _inset(4, ("to mend it: ", "green"), "; ".join(steps), "\n")]


def _remedies(findings: Findings) -> list[RenderableType]:
    if not findings.remedies:
        return []
    parts: list[RenderableType] = [_line(("\nWhat to change", "bold cyan"))]
    for found in findings.remedies:
        share = (
            f"{percent(found.share.mean)} of traces [{percent(found.share.low)}, {percent(found.share.high)}]"
        )
        parts += [
            _inset(2, (found.title, "bold"), f"   {found.problems:,} on {found.traces:,} traces, {share}"),
            _inset(4, "; ".join(found.steps)),
            _inset(4, (f"such as {named(found.examples)}", "dim")),
        ]
    return parts
