"""How far a judge agrees with people, for the terminal and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ragfault.agreement import Agreement, Figure, Measurement, MetricAgreement, Speed
from ragfault.report.plain import clean, clip
from ragfault.report.terminal import paint

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = [
    "HEADS",
    "METRIC_HEADS",
    "SHORT",
    "TITLES",
    "caption",
    "closing",
    "counted",
    "facts",
    "figure",
    "headline",
    "kind",
    "metric_cells",
    "render",
    "title",
    "to_json",
    "told_speed",
]

TITLES = {
    "positives": "share {bad}",
    "f1": "F1",
    "precision": "precision",
    "recall": "recall",
    "auroc": "AUROC",
    "average_precision": "average precision",
    "auroc_within": "AUROC within {within}",
    "balanced_accuracy": "balanced accuracy at its own word",
    "best_balanced_accuracy": "– at the best threshold",
    "balanced_accuracy_lost": "– lost by the threshold",
    "sensitivity": "sensitivity at its own word",
    "specificity": "specificity at its own word",
    "kappa": "Cohen's kappa at its own word",
    "alpha": "Krippendorff's alpha",
    "kappa_linear": "weighted kappa of grades, linear",
    "kappa_quadratic": "– quadratic",
    "alpha_ordinal": "Krippendorff's alpha of grades",
    "calibration_error": "calibration error",
    "brier": "Brier score",
    "unsure": "share unsure",
    "accuracy": "accuracy at its own word",
    "accuracy_sure": "– where it is sure",
    "accuracy_unsure": "– where it is unsure",
}
"""Figure → its name in words."""

SHORT = ("positives", "f1", "auroc", "auroc_within", "balanced_accuracy", "calibration_error")
"""The figures of a row."""

HEADS = {
    "positives": "{bad}",
    "f1": "F1",
    "auroc": "AUROC",
    "auroc_within": "within",
    "balanced_accuracy": "own bal. acc.",
    "calibration_error": "cal. error",
}
"""The same as heads of columns."""


METRIC_HEADS = ("metric", "layer", "n", "judge", "people", "judge less people", "correlation")
"""The heads of the columns of the metrics."""


def to_json(found: Struct) -> str:
    """A measurement as JSON, every figure at full precision."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def render(found: Measurement, *, width: int | None = None, colour: bool = False) -> str:
    """Every figure with its interval, the rows of the column it was divided by, and what to beware of."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(headline(found), style="bold")]
    parts += [Text(line, style="dim") for line in facts(found)]
    parts += [Text(""), _figures(found)]
    if found.metrics:
        parts += [Text("\nMetric by metric", style="bold cyan"), _metrics(found)]
    if found.slices:
        parts += [Text(f"\nBy {clip(found.by or '', 40)}", style="bold cyan"), _rows(found)]
    parts += [Text(line, style="dim") for line in ("", *closing(found))]
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def headline(found: Measurement) -> str:
    """Who was measured on what, in a line."""
    whole = found.whole
    name = clean(found.judge).split(" ")[0]
    units = f"{counted(whole.n, whole.unit)} of {counted(found.traces, 'trace')}"
    units = counted(whole.n, whole.unit) if whole.unit == "answer" else units
    return f"{name} against people: {units}, {whole.positives:,} {kind(found)} ({clip(found.positive, 80)})"


def kind(found: Measurement) -> str:
    """What a positive unit is."""
    return "relevant" if found.task == "relevance" else "bad"


def facts(found: Measurement) -> list[str]:
    """The terms, and who was left out and why."""
    groups = f"by {clip(found.columns.group, 40)}" if found.columns.group else "of one trace each"
    lines = [f"judge {clean(found.judge)}", f"{counted(found.whole.groups, 'group')} {groups}; {_cut(found)}"]
    out = [
        (found.unlabelled, "without a label"),
        (found.skipped, "lines or labels that cannot be read"),
        (found.failed, "on which the judge failed"),
        (found.silent, "on which the judge said nothing"),
    ]
    left = ", ".join(f"{count:,} {why}" for count, why in out if count)
    if left:
        lines.append(f"left out: {left}")
    lines += [f"failed on {count:,}: {clip(why, 120)}" for why, count in list(found.failures.items())[:3]]
    return lines + [clean(note) for note in found.notes]


def _cut(found: Measurement) -> str:
    """Where F1, precision and recall are taken."""
    at = "undefined" if found.cut is None else f"{found.cut:.2f}"
    if found.threshold == "cv":
        return f"F1 at the best threshold of the other folds ({at} on average)"
    return f"F1 at its own word ({at})" if found.threshold == "own" else f"F1 at {at}"


def closing(found: Measurement) -> list[str]:
    """The marked stretches, the speed, and how intervals are made."""
    lines = []
    if found.marked is not None:
        told = {one.name: figure(one) for one in found.marked.figures}
        lines.append(
            f"{counted(found.marked.spans, 'marked span')}: {told['found']} are touched by a claim that it calls bad; "
            f"of characters precision {told['precision']}, recall {told['recall']}, F1 {told['f1']}"
        )
    if found.cells:
        names = ", ".join(clip(name, 40) for name in found.within)
        lines.append(f"AUROC within {names}: {counted(found.cells, 'group')} with both kinds")
    shown = f"{100 * found.confidence:g} % intervals over groups, {found.resamples:,} resamples, seed {found.seed}"
    return [*lines, shown, told_speed(found.speed)]


def told_speed(speed: Speed) -> str:
    """How fast a judge was, and what its calls came to, in a line."""
    where = "" if speed.wall else " on one core"
    rate = (
        f"{speed.rate:,.0f} traces/s{where}" if speed.rate and speed.rate >= 10 else "too few traces to time"
    )
    if speed.rate and speed.rate < 10:
        rate = f"{speed.rate:,.2f} traces/s{where}"
    memory = f", {speed.memory / 2**20:,.0f} MiB at the peak" if speed.memory else ""
    if speed.usage is None:
        return f"{rate}{memory}"
    paid = speed.usage
    cost = "at no known price" if paid.cost is None else f"US$ {paid.cost:,.4f}"
    tokens = paid.prompt + paid.completion
    return f"{rate}; {paid.calls:,} calls, {paid.cached:,} from the cache, {tokens:,} tokens, {cost}"


def title(name: str, found: Measurement) -> str:
    """The name of a figure in words."""
    within = ", ".join(clip(column, 30) for column in found.within)
    return TITLES.get(name, name).format(bad=kind(found), within=within)


def caption(view: Agreement) -> str:
    """The units of a view, counted."""
    return counted(view.n, view.unit)


def counted(count: int, name: str) -> str:
    """A number of things in words.

    >>> counted(1, "claim"), counted(2500, "answer")
    ('1 claim', '2,500 answers')
    """
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def figure(one: Figure | None, digits: int = 3) -> str:
    """A figure and its interval, or a dash.

    >>> figure(Figure(name="auroc", value=0.8, low=0.75, high=0.84)), figure(Figure(name="auroc", value=0.8))
    ('0.800 [0.750, 0.840]', '0.800')
    """
    if one is None or one.value is None:
        return "–"
    if one.low is None or one.high is None:
        return f"{one.value:.{digits}f}"
    return f"{one.value:.{digits}f} [{one.low:.{digits}f}, {one.high:.{digits}f}]"


def _table(heads: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for at, head in enumerate(heads):
        table.add_column(head, justify="left", no_wrap=not at, overflow="fold")
    return table


def _figures(found: Measurement) -> RenderableType:
    """All figures, a column for each kind of unit."""
    table = _table(["", *(caption(view) for view in found.views)])
    for one in found.whole.figures:
        cells = [figure(view.figure(one.name)) for view in found.views]
        if cells[0] == "–" and one.reason:
            cells[0] = f"– {one.reason}"
        table.add_row(title(one.name, found), *cells)
    return table


def metric_cells(one: MetricAgreement, digits: int = 3) -> list[str]:
    """What a metric comes to by the judge and by people, in the order of METRIC_HEADS."""

    def span(mean: float, low: float | None, high: float | None) -> str:
        return figure(Figure(name=one.metric, value=mean, low=low, high=high), digits)

    gap, together = one.difference, one.correlation
    return [
        clip(one.metric, 40),
        one.layer,
        f"{one.n:,}",
        f"{one.judge.mean:.{digits}f}",
        f"{one.people.mean:.{digits}f}",
        span(gap.mean, gap.low, gap.high),
        "–" if together.value is None else span(together.value, together.low, together.high),
    ]


def _metrics(found: Measurement) -> RenderableType:
    """A row for each metric that the labels can speak of."""
    table = _table(METRIC_HEADS)
    for one in found.metrics:
        table.add_row(*metric_cells(one, 2))
    return table


def _rows(found: Measurement) -> RenderableType:
    """A row for each value of the column."""
    names = [name for name in SHORT if found.whole.figure(name) is not None]
    table = _table([clip(found.by or "", 24), "n", *(HEADS[name].format(bad=kind(found)) for name in names)])
    for row in found.slices:
        table.add_row(
            clip(row.value or "", 24), f"{row.n:,}", *(figure(row.figure(name), 2) for name in names)
        )
    return table
