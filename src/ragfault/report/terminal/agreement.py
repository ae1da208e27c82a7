"""Agreement of a judge with human labels, for the terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.judges.calibration import CalibrationLine, JudgeCalibration
from ragfault.labels.judges.measurement import (
    GeneratorOrder,
    JudgeMeasurement,
    JudgeSpeed,
    MetricAgreement,
    UnitAgreement,
)
from ragfault.report.format import clean_text, clip_text
from ragfault.report.terminal.layout import build_table, render_rich
from ragfault.stats.estimates import BootstrapEstimate
from ragfault.text.number_format import format_cost, format_count, format_interval, format_number, format_percent

if TYPE_CHECKING:
    from rich.console import RenderableType


FIGURE_TITLES = {
    "positives": "share {bad}", "f1": "F1", "precision": "precision", "recall": "recall",
    "recall_at_precision": "recall at precision 0.80", "auroc": "AUROC", "average_precision": "average precision",
    "auroc_within": "AUROC within {within}", "balanced_accuracy": "balanced accuracy at its own decision",
    "best_balanced_accuracy": "– at the best threshold", "balanced_accuracy_lost": "– loss by the threshold",
    "sensitivity": "sensitivity at its own decision", "specificity": "specificity at its own decision",
    "kappa": "Cohen's kappa at its own decision", "alpha": "Krippendorff's alpha",
    "kappa_linear": "weighted kappa of grades, linear", "kappa_quadratic": "– quadratic",
    "alpha_ordinal": "Krippendorff's alpha of grades", "calibration_error": "calibration error",
    "brier": "Brier score", "unsure": "share unsure", "accuracy": "accuracy at its own decision",
    "accuracy_sure": "– where it is sure", "accuracy_unsure": "– where it is unsure",
}  # fmt: skip
"""Figure → its name in words."""

SLICE_FIGURES = ("positives", "f1", "auroc", "auroc_within", "balanced_accuracy", "calibration_error")
"""The figures of a row."""

SLICE_HEADINGS = {
    "positives": "{bad}", "f1": "F1", "auroc": "AUROC", "auroc_within": "within", "balanced_accuracy": "own bal. acc.",
    "calibration_error": "cal. error",
}  # fmt: skip
"""The same as heads of columns."""


METRIC_HEADINGS = ("metric", "layer", "n", "judge", "labels", "judge less labels", "correlation")
"""The heads of the columns of the metrics."""


def render_agreement_terminal(measurement: JudgeMeasurement, *, width: int | None = None, color: bool = False) -> str:
    """Render every figure with its interval, the rows of the column it was divided by, and what to beware of."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(summarize_agreement(measurement), style="bold")]
    parts += [Text(line, style="dim") for line in describe_measurement(measurement)]
    parts += [Text(""), _build_figure_table(measurement)]
    if measurement.metrics:
        parts += [Text("\nMetric by metric", style="bold cyan"), _build_metric_table(measurement)]
    if measurement.slices:
        parts += [
            Text(f"\nBy {clip_text(measurement.by or '', 40)}", style="bold cyan"),
            _build_slice_table(measurement),
        ]
    for order in measurement.generator_rankings:
        parts += [
            Text(f"\n{format_order_title(order, measurement)}", style="bold cyan"),
            build_table(ORDER_HEADINGS, build_order_rows(order)),
        ]
    parts += [Text(line, style="dim") for line in ("", *list_closing_notes(measurement))]
    return render_rich(parts, width=width, color=color)


ORDER_HEADINGS = ("generator", "n", "labelled bad", "mean score", "rank by labels", "rank by judge")
"""The heads of the columns of an order of generators."""


def format_order_title(order: GeneratorOrder, measurement: JudgeMeasurement) -> str:
    """Format how far the judge has the generators in the order of people."""
    where = f" where {clip_text(measurement.by or '', 30)} is {clip_text(order.value, 30)}" if order.value else ""
    tau = order.kendall_tau
    value = tau.reason or "" if tau.value is None else f"Kendall's τ {format_interval(tau, 3, signed=True)}"
    return f"Order of {clip_text(order.column, 30)}{where}: {value}"


def build_order_rows(order: GeneratorOrder) -> list[list[str]]:
    """Build a row for each generator, the best by people first."""
    by_judge = sorted(rate.judge for rate in order.generators)
    return [
        [
            clip_text(rate.name, 40),
            f"{rate.n:,}",
            format_number(rate.human, 3),
            format_number(rate.judge, 3),
            str(i),
            str(1 + by_judge.index(rate.judge)),
        ]
        for i, rate in enumerate(order.generators, 1)
    ]


CALIBRATION_HEADINGS = ("", "before", "after")
"""The heads of the columns of a calibration."""


def render_calibration_terminal(calibration: JudgeCalibration, *, width: int | None = None, color: bool = False) -> str:
    """Render what a calibration gains on held-out folds, for claims and for answers."""
    from rich.text import Text

    verdict = "helps" if calibration.helps else "is not shown to help"
    parts: list[RenderableType] = [Text(f"Calibration to these labels {verdict}", style="bold")]
    parts.append(Text(f"judge {clean_text(calibration.judge)}", style="dim"))
    for line in calibration.lines:
        title = (
            f"\n{format_count(line.n, line.unit)} in {format_count(line.groups, 'group')}, "
            f"{format_percent(line.base_rate)} labelled bad"
        )
        parts += [Text(title, style="bold cyan"), build_table(CALIBRATION_HEADINGS, _list_calibration_rows(line))]
        parts.append(Text(("applied: " if line.helps else "not applied: ") + line.reason))
        if line.helps:
            threshold = "" if line.threshold is None else f"; bad from a probability of {line.threshold:.3f}"
            intercept = f"{'+' if line.intercept >= 0 else '−'} {format_number(abs(line.intercept))}"
            parts.append(Text(f"log-odds of bad × {format_number(line.slope)} {intercept}{threshold}", style="dim"))
    if all(line.unit != "claim" for line in calibration.lines):
        parts.append(Text("\nClaims stay as they are: no label says which claim is bad"))
    parts.append(
        Text(
            "\nFigures are of five held-out folds by groups; bias is the judge's mean less that of the labels",
            style="dim",
        )
    )
    return render_rich(parts, width=width, color=color)


def _list_calibration_rows(line: CalibrationLine) -> list[tuple[str, str, str]]:
    """List the rows of one kind of unit: name, before and after."""
    mean = "mean groundedness" if line.unit == "claim" else "the mean probability of an answer"
    both = (line.before, line.after)
    errors = [format_number(figures.calibration_error) for figures in both]
    biases = [
        format_interval(BootstrapEstimate(figures.bias, figures.bias_low, figures.bias_high), signed=True)
        for figures in both
    ]
    scores = [format_number(figures.f1) for figures in both]
    return [("calibration error", *errors), (f"bias of {mean}", *biases), ("F1", *scores)]  # type: ignore[list-item]


def summarize_agreement(measurement: JudgeMeasurement) -> str:
    """Summarize who was measured on what, in a line."""
    overall = measurement.overall
    name = clean_text(measurement.judge).split(" ")[0]
    units = f"{format_count(overall.n, overall.unit)} of {format_count(measurement.traces, 'trace')}"
    units = format_count(overall.n, overall.unit) if overall.unit == "answer" else units
    positives = f"{overall.positives:,} {get_positive_name(measurement)} ({clip_text(measurement.positive, 80)})"
    return f"{name} against human labels: {units}, {positives}"


def get_positive_name(measurement: JudgeMeasurement) -> str:
    """Return what a positive unit is."""
    return "relevant" if measurement.task == "relevance" else "bad"


def describe_measurement(measurement: JudgeMeasurement) -> list[str]:
    """Describe the terms, and who was left out and why."""
    groups = f"by {clip_text(measurement.columns.group, 40)}" if measurement.columns.group else "of one trace each"
    lines = [
        f"judge {clean_text(measurement.judge)}",
        f"{format_count(measurement.overall.groups, 'group')} {groups}; {_describe_f1_threshold(measurement)}",
    ]
    out = [
        (measurement.unlabelled, "without a label"),
        (measurement.skipped, "lines or labels that cannot be read"),
        (measurement.failed, "on which the judge failed"),
        (measurement.unjudged, "on which the judge gave no verdict"),
    ]
    left = ", ".join(f"{count:,} {why}" for count, why in out if count)
    if left:
        lines.append(f"left out: {left}")
    lines += [f"failed on {count:,}: {clip_text(why, 120)}" for why, count in list(measurement.failures.items())[:3]]
    return lines


def _describe_f1_threshold(measurement: JudgeMeasurement) -> str:
    """Describe where F1, precision and recall are taken."""
    cut = "undefined" if measurement.cut is None else f"{measurement.cut:.2f}"
    if measurement.threshold == "cv":
        return f"F1 at the best threshold of the other folds ({cut} on average)"
    return f"F1 at its own decision ({cut})" if measurement.threshold == "own" else f"F1 at {cut}"


def list_closing_notes(measurement: JudgeMeasurement) -> list[str]:
    """List the notes, the marked stretches, the speed, and how intervals are made."""
    lines = [clean_text(note) for note in measurement.notes]
    if measurement.span_agreement is not None:
        spans = {figure.name: format_interval(figure, 3) for figure in measurement.span_agreement.figures}
        lines.append(
            f"{format_count(measurement.span_agreement.spans, 'marked span')}: {spans['found']} are touched by a claim "
            f"that it calls bad; of characters precision {spans['precision']}, recall {spans['recall']}, F1 "
            f"{spans['f1']}"
        )
    if measurement.cells:
        names = ", ".join(clip_text(name, 40) for name in measurement.within)
        lines.append(f"AUROC within {names}: {format_count(measurement.cells, 'group')} with both kinds")
    draws = f"{measurement.resamples:,} resamples, seed {measurement.seed}"
    shown = f"{100 * measurement.confidence:g} % intervals over groups, {draws}"
    return [*lines, shown, format_speed(measurement.speed)]


def format_speed(speed: JudgeSpeed) -> str:
    """Format how fast a judge was, and what its calls came to, in a line."""
    where = "" if speed.wall_clock else " on one core"
    rate = f"{speed.rate:,.0f} traces/s{where}" if speed.rate and speed.rate >= 10 else "too few traces to time"
    if speed.rate and speed.rate < 10:
        rate = f"{speed.rate:,.2f} traces/s{where}"
    memory = f", {speed.memory / 2**20:,.0f} MiB at the peak" if speed.memory else ""
    if speed.usage is None:
        return f"{rate}{memory}"
    paid = speed.usage
    cost = "at no known price" if paid.cost is None else format_cost(paid.cost)
    tokens = paid.prompt + paid.completion
    return f"{rate}; {paid.calls:,} calls, {paid.cached:,} from the cache, {tokens:,} tokens, {cost}"


def format_figure_title(name: str, measurement: JudgeMeasurement) -> str:
    """Format the name of a figure in words."""
    within = ", ".join(clip_text(column, 30) for column in measurement.within)
    return FIGURE_TITLES.get(name, name).format(bad=get_positive_name(measurement), within=within)


def format_view_title(view: UnitAgreement) -> str:
    """Format the units of a view, counted."""
    return format_count(view.n, view.unit)


def build_figure_rows(measurement: JudgeMeasurement) -> list[list[str]]:
    """Build the rows of all figures, a column for each kind of unit."""
    rows = []
    for figure in measurement.overall.figures:
        cells = [format_interval(view.figure(figure.name), 3) for view in measurement.views]
        if cells[0] == "–" and figure.reason:
            cells[0] = f"– {figure.reason}"
        rows.append([format_figure_title(figure.name, measurement), *cells])
    return rows


def _build_figure_table(measurement: JudgeMeasurement) -> RenderableType:
    heads = ["", *(format_view_title(view) for view in measurement.views)]
    return build_table(heads, build_figure_rows(measurement), unbroken=("",))


def build_metric_cells(metric: MetricAgreement, digits: int = 3) -> list[str]:
    """Build what a metric comes to by the judge and by people, in the order of METRIC_HEADS."""
    gap, together = metric.difference, metric.correlation
    return [
        clip_text(metric.metric, 40),
        metric.layer,
        f"{metric.n:,}",
        format_number(metric.judge.mean, digits),
        format_number(metric.human.mean, digits),
        format_interval(BootstrapEstimate(gap.mean, gap.low, gap.high), digits),  # of groups, which are stated above
        format_interval(together, digits),
    ]


def _build_metric_table(measurement: JudgeMeasurement) -> RenderableType:
    """Build a row for each metric that the labels cover."""
    rows = [build_metric_cells(metric, 2) for metric in measurement.metrics]
    return build_table(METRIC_HEADINGS, rows, unbroken=METRIC_HEADINGS[:1])


def _build_slice_table(measurement: JudgeMeasurement) -> RenderableType:
    """Build a row for each value of the column."""
    names = [name for name in SLICE_FIGURES if measurement.overall.figure(name) is not None]
    by, bad = clip_text(measurement.by or "", 24), get_positive_name(measurement)
    rows = [
        (clip_text(row.value or "", 24), f"{row.n:,}", *(format_interval(row.figure(name), 2) for name in names))
        for row in measurement.slices
    ]
    return build_table([by, "n", *(SLICE_HEADINGS[name].format(bad=bad) for name in names)], rows, unbroken=(by,))
