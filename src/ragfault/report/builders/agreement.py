"""The reports of a judge held to human labels: how far it agrees with them, and what a calibration to them gains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragfault.report.charts import plots
from ragfault.report.document import (
    PAGE_ONLY,
    Block,
    Chart,
    Details,
    Heading,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_section,
)
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.stats.estimates import BASE_RATES, BootstrapEstimate
from ragfault.text.number_format import (
    MISSING,
    format_cost,
    format_count,
    format_interval,
    format_number,
    format_percent,
)

if TYPE_CHECKING:
    from ragfault.judges.calibration import CalibrationLine, JudgeCalibration
    from ragfault.labels.judges.measurement import (
        AgreementCurves,
        GeneratorOrder,
        JudgeMeasurement,
        JudgeSpeed,
        MetricAgreement,
        UnitAgreement,
    )

FIGURE_TITLES = {
    "positives": "share {bad}", "f1": "F1", "precision": "precision", "recall": "recall",
    "recall_at_precision": "recall at precision 0.80", "auroc": "AUROC", "average_precision": "average precision",
    "auroc_within": "AUROC within {within}", "balanced_accuracy": "balanced accuracy at its own decision",
    "best_balanced_accuracy": "– at the best threshold", "balanced_accuracy_lost": "– loss by the threshold",
    "sensitivity": "sensitivity at its own decision", "specificity": "specificity at its own decision",
    "kappa": "Cohen's kappa at its own decision", "alpha": "Krippendorff's alpha",
    "kappa_linear": "weighted kappa of grades, linear", "kappa_quadratic": "– quadratic",
    "alpha_ordinal": "Krippendorff's alpha of grades", "calibration_error": "calibration error",
    "bias": "bias: mean score less share {bad}", "brier": "Brier score", "unsure": "share unsure",
    "accuracy": "accuracy at its own decision", "accuracy_sure": "– where it is sure",
    "accuracy_unsure": "– where it is unsure", "verbosity": "verbosity: longer is rated better",
    "order_flips": "decisions moved by chunk order", "order_shift": "– mean change of the score",
    **{f"f1_at_{100 * rate:.0f}": f"– if {100 * rate:.0f} % are {{bad}}" for rate in BASE_RATES},
}  # fmt: skip
"""Figure → its name in words."""

SLICE_TITLES = {
    "auroc": "AUROC", "balanced_accuracy": "own bal. acc.", "auroc_within": "within", "positives": "{bad}", "f1": "F1",
    "calibration_error": "cal. error",
}  # fmt: skip
"""Figure of a row of the column that units are divided by → the title of its column, the most important first."""
SLICE_NAME_WIDTH, INTERVAL_WIDTH = 32, 19
"""Characters of a terminal for the name and the size of a row, and for a figure with its interval."""

METRIC_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Layer", room=90),
    TableColumn("n", numeric=True),
    TableColumn("Judge", numeric=True),
    TableColumn("Labels", numeric=True),
    TableColumn("Judge less labels"),
    TableColumn("Correlation"),
)
ORDER_COLUMNS = (
    TableColumn("Generator"),
    TableColumn("n", numeric=True),
    TableColumn("Labelled bad", numeric=True),
    TableColumn("Mean score", numeric=True),
    TableColumn("Rank by labels", numeric=True),
    TableColumn("Rank by judge", numeric=True),
)
CALIBRATION_COLUMNS = (TableColumn(""), TableColumn("Before"), TableColumn("After"))

FOLD_TERMS = "The thresholds of the folds stay as they were chosen; best thresholds are chosen again in each resample."


def build_measurement(measurement: JudgeMeasurement) -> ReportDocument:
    """Build the report of a judge measured against labels: every figure, by metric and column, and what it rests on."""
    title = summarize_agreement(measurement)
    heads = [format_count(view.n, view.unit) for view in measurement.views]
    columns = (TableColumn("Figure"), *map(TableColumn, heads))
    body: list[Block] = [Table(columns, tuple(_list_figures(measurement)))]
    if measurement.metrics:
        body += build_section("Metric by metric", Table(METRIC_COLUMNS, tuple(map(_build_metric, measurement.metrics))))
    for column in measurement.by:
        body += build_section(f"By {clip_text(column, 60)}", _build_slices(measurement, column))
    for order in measurement.generator_rankings:
        body += build_section(_summarize_order(order), _build_order(order))
    if measurement.curves is not None:
        body += _draw_curves(measurement, measurement.curves)
    notes = [Paragraph(note, "note") for note in _list_closing_notes(measurement)]
    terms = [Paragraph(line, "note") for line in _describe_measurement(measurement)]
    return ReportDocument(title, (Heading(title, 1), *terms), (*body, *build_section("Notes", *notes)))


def summarize_agreement(measurement: JudgeMeasurement) -> str:
    """Summarize who was measured on what, in a line."""
    overall = measurement.overall
    name = clean_text(measurement.judge).split(" ")[0]
    units = f"{format_count(overall.n, overall.unit)} of {format_count(measurement.traces, 'trace')}"
    units = format_count(overall.n, overall.unit) if overall.unit == "answer" else units
    positives = f"{overall.positives:,} {_name_positive(measurement)} ({clip_text(measurement.positive, 80)})"
    return f"{name} against human labels: {units}, {positives}"


def _name_positive(measurement: JudgeMeasurement) -> str:
    return "relevant" if measurement.task == "relevance" else "bad"


def _describe_measurement(measurement: JudgeMeasurement) -> Iterator[str]:
    """Describe the terms, and who was left out and why."""
    groups = f"by {clip_text(measurement.columns.group, 40)}" if measurement.columns.group else "of one trace each"
    yield f"from {', '.join(clip_text(source, 120) for source in measurement.source)}"
    yield f"judge {clean_text(measurement.judge)}"
    yield f"{format_count(measurement.overall.groups, 'group')} {groups}; {_describe_f1_threshold(measurement)}"
    out = [
        (measurement.unlabelled, "without a label"),
        (measurement.skipped, "lines or labels that cannot be read"),
        (measurement.failed, "on which the judge failed"),
        (measurement.unjudged, "on which the judge gave no verdict"),
    ]
    left = ", ".join(f"{count:,} {why}" for count, why in out if count)
    if left:
        yield f"left out: {left}"
    for why, count in list(measurement.failures.items())[:3]:
        yield f"failed on {count:,}: {clip_text(why, 120)}"


def _describe_f1_threshold(measurement: JudgeMeasurement) -> str:
    """Describe where F1, precision and recall are taken."""
    cut = "undefined" if measurement.cut is None else f"{measurement.cut:.2f}"
    if measurement.threshold == "cv":
        return f"F1 at the best threshold of the other folds ({cut} on average)"
    return f"F1 at its own decision ({cut})" if measurement.threshold == "own" else f"F1 at {cut}"


def _list_figures(measurement: JudgeMeasurement) -> Iterator[tuple[Text, ...]]:
    """List all figures, with a cell for each kind of unit."""
    within = ", ".join(clip_text(column, 30) for column in measurement.within)
    for figure in measurement.overall.figures:
        name = FIGURE_TITLES.get(figure.name, figure.name).format(bad=_name_positive(measurement), within=within)
        cells = [_format_figure(view, figure.name) for view in measurement.views]
        if cells[0] == MISSING and figure.reason:
            cells[0] = f"{MISSING} {figure.reason}"
        yield (name, *cells)


def _format_figure(view: UnitAgreement, name: str) -> str:
    return format_interval(view.figure(name), 3)


def _build_metric(metric: MetricAgreement) -> tuple[Text, ...]:
    gap = metric.difference
    return (
        StyledText(clip_text(metric.metric, 40), "code"),
        metric.layer,
        f"{metric.n:,}",
        format_number(metric.judge.mean, 2),
        format_number(metric.human.mean, 2),
        # Of groups, whose number the terms state.
        format_interval(BootstrapEstimate(gap.mean, gap.low, gap.high), 2),
        format_interval(metric.correlation, 2),
    )


def _build_slices(measurement: JudgeMeasurement, column: str) -> Table:
    """Build a row for each value of a column; a narrow terminal shows only the first figures."""
    names = [name for name in SLICE_TITLES if measurement.overall.figure(name) is not None]
    columns = [
        TableColumn(
            SLICE_TITLES[name].format(bad=_name_positive(measurement)),
            room=(SLICE_NAME_WIDTH + place * INTERVAL_WIDTH) if place > 2 else 0,
        )
        for place, name in enumerate(names, 1)
    ]
    rows = tuple(
        (clip_text(row.value or "", 24), f"{row.n:,}", *(format_interval(row.figure(name), 2) for name in names))
        for row in measurement.slices
        if row.column == column
    )
    return Table((TableColumn(clip_text(column, 24)), TableColumn("n", numeric=True), *columns), rows)


def _summarize_order(order: GeneratorOrder) -> str:
    """Summarize how far the judge has the generators in the order of people."""
    where = f" where {clip_text(order.by or '', 30)} is {clip_text(order.value, 30)}" if order.value else ""
    tau = order.kendall_tau
    value = tau.reason or "" if tau.value is None else f"Kendall's τ {format_interval(tau, 3, signed=True)}"
    return f"Order of {clip_text(order.column, 30)}{where}: {value}"


def _build_order(order: GeneratorOrder) -> Table:
    """Build a row for each generator, the best by people first."""
    by_judge = sorted(rate.judge for rate in order.generators)
    rows = tuple(
        (
            clip_text(rate.name, 40),
            f"{rate.n:,}",
            format_number(rate.human, 3),
            format_number(rate.judge, 3),
            str(rank),
            str(1 + by_judge.index(rate.judge)),
        )
        for rank, rate in enumerate(order.generators, 1)
    )
    return Table(ORDER_COLUMNS, rows)


def _draw_curves(measurement: JudgeMeasurement, curves: AgreementCurves) -> list[Block]:
    """Draw scores by label, calibration and ROC, each with a caption, and list the bins of the calibration."""
    relevance = measurement.task == "relevance"
    bad, good = _name_positive(measurement), "not relevant" if relevance else "good"
    score = "relevance" if relevance else "score: the judge's probability that it is bad"
    apart = f"The further apart {bad} (above) and {good} (below) lie, the better they are separated."
    line = "On the dashed line a score equals the share of positives."
    bins = tuple(
        (format_number(point.mean, 3), format_number(point.share, 3), f"{point.n:,}") for point in curves.calibration
    )
    columns = (TableColumn("Mean score"), TableColumn(f"Share {bad}"), TableColumn("n", numeric=True))
    charts: list[Block] = [
        Chart(f"Scores by label. {apart}", plots.draw_distribution(curves, (bad, good), score)),
        Chart(f"Calibration, in bins of about equal mass. {line}", plots.draw_calibration(curves, score, bad)),
    ]
    if curves.roc:
        caption = "ROC: hits against false alarms at every threshold. The dashed line is guessing."
        charts.append(Chart(caption, plots.draw_roc(curves)))
    return [*charts, Details("Calibration, bin by bin", (Table(columns, bins),), PAGE_ONLY)]


def _list_closing_notes(measurement: JudgeMeasurement) -> Iterator[str]:
    """List the notes, the marked stretches, how intervals are made, and the speed."""
    yield from map(clean_text, measurement.notes)
    if measurement.span_agreement is not None:
        spans = {figure.name: format_interval(figure, 3) for figure in measurement.span_agreement.figures}
        yield (
            f"{format_count(measurement.span_agreement.spans, 'marked span')}: {spans['found']} are touched by a claim "
            f"that it calls bad; of characters precision {spans['precision']}, recall {spans['recall']}, F1 "
            f"{spans['f1']}"
        )
    if measurement.cells:
        names = ", ".join(clip_text(name, 40) for name in measurement.within)
        yield f"AUROC within {names}: {format_count(measurement.cells, 'group')} with both kinds"
    if measurement.permutations:
        yield f"order of chunks: {format_count(measurement.permutations, 'trace')} judged again in another order"
    draws = f"{measurement.resamples:,} resamples, seed {measurement.seed}"
    yield f"{100 * measurement.confidence:g} % intervals over groups, {draws}. {FOLD_TERMS}"
    yield format_speed(measurement.speed)


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
    unit_cost = f" ({format_cost(paid.cost / speed.traces)} a trace)" if paid.cost and speed.traces else ""
    tokens = paid.prompt + paid.completion
    return f"{rate}; {paid.calls:,} calls, {paid.cached:,} from the cache, {tokens:,} tokens, {cost}{unit_cost}"


def build_calibration(calibration: JudgeCalibration) -> ReportDocument:
    """Build the report of what a calibration gains on held-out folds, for claims and for answers."""
    title = f"Calibration to these labels {'helps' if calibration.helps else 'is not shown to help'}"
    judge = Paragraph(f"judge {clean_text(calibration.judge)}", "note")
    body = [block for line in calibration.lines for block in _build_calibration_line(line)]
    if all(line.unit != "claim" for line in calibration.lines):
        body.append(Paragraph("Claims stay as they are: no label says which claim is bad"))
    folds = "Figures are of five held-out folds by groups; bias is the judge's mean less that of the labels"
    mark = VerdictMark("helps", "good") if calibration.helps else VerdictMark("not shown", "unsure")
    return ReportDocument(title, (Heading(title, 1, mark), judge), (*body, Paragraph(folds, "note")))


def _build_calibration_line(line: CalibrationLine) -> list[Block]:
    """Build one kind of unit: the figures before and after, and whether the calibration is applied to it."""
    units = f"{format_count(line.n, line.unit)} in {format_count(line.groups, 'group')}"
    table = Table(CALIBRATION_COLUMNS, tuple(_list_calibration_rows(line)))
    applied = Paragraph(f"{'applied' if line.helps else 'not applied'}: {line.reason}")
    formula: list[Block] = []
    if line.helps:
        threshold = "" if line.threshold is None else f"; bad from a probability of {line.threshold:.3f}"
        intercept = f"{'+' if line.intercept >= 0 else '−'} {format_number(abs(line.intercept))}"
        formula = [Paragraph(f"log-odds of bad × {format_number(line.slope)} {intercept}{threshold}", "note")]
    return build_section(f"{units}, {format_percent(line.base_rate)} labelled bad", table, applied, *formula)


def _list_calibration_rows(line: CalibrationLine) -> Iterator[tuple[Text, ...]]:
    mean = "mean groundedness" if line.unit == "claim" else "the mean probability of an answer"
    both = (line.before, line.after)
    biases = [BootstrapEstimate(figures.bias, figures.bias_low, figures.bias_high) for figures in both]
    yield ("calibration error", *(format_number(figures.calibration_error) for figures in both))
    yield (f"bias of {mean}", *(format_interval(bias, signed=True) for bias in biases))
    yield ("F1", *(format_number(figures.f1) for figures in both))
