"""HTML page of a tuning."""

from __future__ import annotations

from ragfault.apps.tune.report.charts import COST_LABELS, draw_cost_frontier, draw_recall_frontier
from ragfault.apps.tune.report.pipelines import (
    PIPELINE_HEADINGS,
    STEP_HEADINGS,
    build_frontier_cells,
    build_gain_cells,
    build_pipeline_cells,
    describe_tuning_terms,
    summarize_tuning,
)
from ragfault.apps.tune.results import TuningResult
from ragfault.report.html.environment import render_page
from ragfault.retrieval.pipeline_config import format_pipeline_config


def render_tuning_html(result: TuningResult) -> str:
    """Render a tuning as one HTML page; names of questions and documents do not appear on it."""
    charts = [(f"{result.metric} and {unit}", draw_cost_frontier(result, cost)) for cost, unit in COST_LABELS.items()]
    return render_page(
        "tuning.html",
        ("page.css", "agreement.css"),
        ("theme.js", "open_theme.js"),
        package="ragfault.apps.tune.report",
        name=summarize_tuning(result),
        facts=(describe_tuning_terms(result), *result.notes),
        sections=(
            ("gain", "On the held-out questions"),
            ("steps", "Gain of each step"),
            ("rejected", "Alternatives tried"),
            ("frontier", "Frontier"),
            ("words", "In words"),
            ("config", "pipeline.toml"),
        ),
        result=result,
        pipeline=format_pipeline_config(result.config),
        pipeline_heads=[result.metric if head == "metric" else head for head in PIPELINE_HEADINGS],
        pipeline_rows=[build_pipeline_cells(row) for row in result.measured],
        step_heads=STEP_HEADINGS,
        gain_rows=[build_gain_cells(gain) for gain in (*result.gains, *result.ablations)],
        rejected_rows=[build_gain_cells(gain) for gain in result.rejected],
        frontier_rows=[build_frontier_cells(point) for point in result.frontier],
        charts=[*charts, ("precision and recall", draw_recall_frontier(result.frontier))],
    )
