"""HTML pages of single results: agreement, bisection, clusters and judges."""

from __future__ import annotations

from markupsafe import Markup

from ragfault.diagnosis.clusters.records import Cluster, ClusterReport
from ragfault.labels.judges.comparison import JudgeComparison
from ragfault.labels.judges.measurement import AgreementCurves, JudgeMeasurement
from ragfault.report.charts import plots
from ragfault.report.charts.svg import tag
from ragfault.report.format import LAYER_QUESTIONS, clean_label
from ragfault.report.html.environment import render_page
from ragfault.report.terminal import clusters as terminal_clusters
from ragfault.report.terminal.agreement import (
    METRIC_HEADINGS,
    ORDER_HEADINGS,
    SLICE_FIGURES,
    SLICE_HEADINGS,
    build_figure_rows,
    build_metric_cells,
    build_order_rows,
    describe_measurement,
    format_order_title,
    format_view_title,
    get_positive_name,
    list_closing_notes,
    summarize_agreement,
)
from ragfault.report.terminal.judges import METRIC_HEADINGS as JUDGE_METRIC_HEADINGS
from ragfault.report.terminal.judges import (
    VERDICT_HEADINGS,
    build_metric_rows,
    build_verdict_rows,
    describe_judges,
    format_reasons,
    format_verdict_pair,
    summarize_judges,
)
from ragfault.text.number_format import MISSING, format_count, format_interval, format_number, format_share


def render_agreement_html(measurement: JudgeMeasurement) -> str:
    """Render a measurement as one HTML page; texts of files and traces are escaped."""
    positive, curves = get_positive_name(measurement), measurement.curves
    slice_figures = [name for name in SLICE_FIGURES if measurement.overall.figure(name) is not None]
    optional = (
        ("metrics", "Metric by metric", measurement.metrics),
        ("rows", f"By {measurement.by or ''}", measurement.slices),
        ("rankings", "Order of generators", measurement.generator_rankings),
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
        slice_heads=[measurement.by or "", "n", *(SLICE_HEADINGS[name].format(bad=positive) for name in slice_figures)],
        slice_rows=[
            [row.value or "", f"{row.n:,}", *(format_interval(row.figure(name), 3) for name in slice_figures)]
            for row in measurement.slices
        ],
        order_heads=ORDER_HEADINGS,
        rankings=[
            (format_order_title(order, measurement), build_order_rows(order))
            for order in measurement.generator_rankings
        ],
        charts=[] if curves is None else _build_charts(measurement, curves),
        calibration_heads=("mean score", f"share {positive}", "n"),
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
            plots.draw_distribution(curves, (bad, good), score),
        ),
        (
            "Calibration, in bins of about equal mass. On the dashed line a score equals the share of positives.",
            plots.draw_calibration(curves, score, bad),
        ),
    ]
    if curves.roc:
        caption = "ROC: hits against false alarms at every threshold. The dashed line is guessing."
        charts.append((caption, plots.draw_roc(curves)))
    return charts


def render_clusters_html(clusters: ClusterReport) -> str:
    """Render clusters as one HTML page, with queries and problems of their example traces."""
    parts = [*clusters.clusters, *([clusters.ungrouped] if clusters.ungrouped else [])]
    return render_page(
        "clusters.html",
        ("page.css",),
        ("theme.js", "open_theme.js"),
        name=terminal_clusters.summarize_clusters(clusters),
        facts=[terminal_clusters.describe_clustering(clusters)],
        clusters=parts,
        cluster_rows=[_build_cluster_cells(cluster) for cluster in parts],
        gone=clusters.gone,
        format_size=terminal_clusters.format_cluster_size,
        list_kinds=terminal_clusters.list_problem_kinds,
    )


def _build_cluster_cells(cluster: Cluster) -> list[str]:
    """Build the row of a cluster; failures that are alike to no others have neither id, layer nor state."""
    single = cluster.id == "single"
    states = [cluster.state, terminal_clusters.describe_cluster_state(cluster)]
    return [
        tag("a", clean_label(cluster.name, 160), href=f"#{cluster.id}"),
        MISSING if single else cluster.id,
        MISSING if single else LAYER_QUESTIONS[cluster.layer][0],
        f"{cluster.size:,}",
        format_share(cluster.share),
        terminal_clusters.format_trend(cluster) or MISSING,
        MISSING if single else ", ".join(state for state in states if state),
    ]


def render_judges_html(comparison: JudgeComparison) -> str:
    """Render a comparison of judges as one HTML page; texts of traces are escaped."""
    count = format_count(comparison.disagreement_count, "item")
    return render_page(
        "judges.html",
        ("page.css", "agreement.css"),
        ("theme.js", "open_theme.js"),
        name=summarize_judges(comparison),
        facts=describe_judges(comparison),
        sections=[
            ("verdicts", "Verdicts"),
            ("metrics", "Metrics"),
            ("disagreements", f"Largest disagreements, of {count}"),
        ],
        verdict_heads=VERDICT_HEADINGS,
        verdict_rows=build_verdict_rows(comparison),
        metric_heads=JUDGE_METRIC_HEADINGS,
        metric_rows=build_metric_rows(comparison),
        disagreement_rows=[
            [split.trace, format_verdict_pair(split), split.item, " ".join(format_reasons(split)) or "–"]
            for split in comparison.disagreements
        ],
    )
