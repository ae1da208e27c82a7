"""Agreement of a judge with human labels as one self-contained HTML page."""

from __future__ import annotations

from markupsafe import Markup

from ragfault.evaluation.agreement import AgreementCurves, JudgeMeasurement
from ragfault.reports.charts import vega
from ragfault.reports.html.environment import render_page
from ragfault.reports.terminal.agreement import (
    METRIC_HEADINGS,
    SLICE_FIGURES,
    SLICE_HEADINGS,
    build_figure_rows,
    build_metric_cells,
    describe_measurement,
    format_view_title,
    get_positive_name,
    list_closing_notes,
    summarize_agreement,
)
from ragfault.text.number_format import format_interval, format_number


def render_agreement_html(measurement: JudgeMeasurement) -> str:
    """Render a measurement as one HTML page; texts of files and traces are escaped.

    Raises MissingExtra where the packages that draw the charts are not installed.
    """
    bad, curves = get_positive_name(measurement), measurement.curves
    slice_figures = [name for name in SLICE_FIGURES if measurement.overall.figure(name) is not None]
    optional = (
        ("metrics", "Metric by metric", measurement.metrics),
        ("rows", f"By {measurement.by or ''}", measurement.slices),
        ("charts", "Charts", curves),
    )
    return render_page(
        "agreement.html",
        ("page.css", "agreement.css"),
        ("theme.js", "open_theme.js"),
        name=summarize_agreement(measurement),
        facts=[
            f"from {', '.join(measurement.source)}",
            *describe_measurement(measurement),
            *list_closing_notes(measurement),
        ],
        sections=[("figures", "Figures"), *((id, title) for id, title, content in optional if content)],
        figure_heads=["figure", *map(format_view_title, measurement.views)],
        figure_rows=build_figure_rows(measurement),
        metric_heads=METRIC_HEADINGS,
        metric_rows=[build_metric_cells(metric) for metric in measurement.metrics],
        by=measurement.by or "",
        slice_heads=[
            measurement.by or "",
            "n",
            *(SLICE_HEADINGS[name].format(bad=bad) for name in slice_figures),
        ],
        slice_rows=[
            [row.value or "", f"{row.n:,}", *(format_interval(row.figure(name), 3) for name in slice_figures)]
            for row in measurement.slices
        ],
        charts=[] if curves is None else _build_charts(measurement, curves),
        calibration_heads=("mean score", f"share {bad}", "n"),
        calibration_rows=[
            [format_number(point.mean, 3), format_number(point.share, 3), f"{point.n:,}"]
            for point in (curves.calibration if curves else ())
        ],
    )


def _build_charts(measurement: JudgeMeasurement, curves: AgreementCurves) -> list[tuple[str, Markup]]:
    """Draw scores by label, calibration and ROC, each with a caption."""
    relevance = measurement.task == "relevance"
    bad, good = get_positive_name(measurement), "not relevant" if relevance else "good"
    score = "relevance" if relevance else "score: the judge's probability that it is bad"
    charts = [
        (
            f"Scores by label. The further apart {bad} (above) and {good} (below) lie, the better they are separated.",
            vega.build_distribution_chart(curves, (bad, good), score),
            "scores by label",
        ),
        (
            "Calibration, in bins of about equal mass. On the dashed line a score equals the share of positives.",
            vega.build_calibration_chart(curves, score, bad),
            "calibration",
        ),
    ]
    if curves.roc:
        caption = "ROC: hits against false alarms at every threshold. The dashed line is guessing."
        charts.append((caption, vega.build_roc_chart(curves), "ROC"))
    return [(caption, vega.render_chart_svg(chart, title)) for caption, chart, title in charts]
