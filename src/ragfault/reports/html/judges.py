"""Comparison of two judges as one self-contained HTML page."""

from __future__ import annotations

from ragfault.evaluation.agreement import JudgeComparison
from ragfault.reports.html.environment import render_page
from ragfault.reports.terminal.judges import (
    METRIC_HEADINGS,
    VERDICT_HEADINGS,
    build_metric_rows,
    build_verdict_rows,
    describe_judges,
    format_reasons,
    format_verdict_pair,
    summarize_judges,
)
from ragfault.text.number_format import format_count


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
        metric_heads=METRIC_HEADINGS,
        metric_rows=build_metric_rows(comparison),
        disagreement_rows=[
            [split.trace, format_verdict_pair(split), split.item, " ".join(format_reasons(split)) or "–"]
            for split in comparison.disagreements
        ],
    )
