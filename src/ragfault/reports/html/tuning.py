"""Results of tuning as one self-contained HTML page."""

from __future__ import annotations

from ragfault.reports.charts import vega
from ragfault.reports.html.environment import render_page
from ragfault.reports.terminal.tuning import (
    PIPELINE_HEADINGS,
    STEP_HEADINGS,
    build_gain_cells,
    build_pipeline_cells,
    describe_tuning_terms,
    summarize_tuning,
)
from ragfault.retrieval.pipeline_config import format_pipeline_config
from ragfault.tuning import TuningResult


def render_tuning_html(result: TuningResult) -> str:
    """Render a tuning as one HTML page; names of questions and documents do not appear on it.

    Raises MissingExtra where the packages that draw the charts are not installed.
    """
    charts = [
        (
            f"{result.metric} and {unit}",
            vega.render_chart_svg(vega.build_cost_chart(result, cost), f"frontier: {unit}"),
        )
        for cost, unit in vega.COST_LABELS.items()
    ]
    recall = vega.render_chart_svg(vega.build_recall_chart(result.frontier), "precision and recall")
    return render_page(
        "tuning.html",
        ("page.css", "agreement.css"),
        ("theme.js", "open_theme.js"),
        name=summarize_tuning(result),
        facts=(describe_tuning_terms(result), *result.notes),
        sections=(
            ("gain", "On the held-out questions"),
            ("steps", "What each step brings"),
            ("rejected", "Tried and not taken"),
            ("frontier", "Frontier"),
            ("words", "In words"),
            ("recipe", "pipeline.toml"),
        ),
        result=result,
        pipeline=format_pipeline_config(result.config),
        pipeline_heads=[result.metric if head == "metric" else head for head in PIPELINE_HEADINGS],
        pipeline_rows=[build_pipeline_cells(row) for row in result.measured],
        step_heads=STEP_HEADINGS,
        gain_rows=[build_gain_cells(gain) for gain in (*result.gains, *result.ablations)],
        rejected_rows=[build_gain_cells(gain) for gain in result.rejected],
        frontier_rows=[build_pipeline_cells(point.measured) for point in result.frontier],
        charts=[*charts, ("precision and recall", recall)],
    )
