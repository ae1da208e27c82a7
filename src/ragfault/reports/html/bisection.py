"""Bisection as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragfault.analysis import Bisection
from ragfault.reports import comparison_text
from ragfault.reports.html.environment import render_page
from ragfault.reports.output import write_report_file
from ragfault.reports.terminal.bisection import SegmentBisections

VERDICT_TINTS = {"fault": "bad", "no fault": "good", "cannot tell": "warn"}
VERDICT_GLYPHS = {"fault": "✗", "no fault": "✓", "cannot tell": "?"}
OUTCOME_TINTS = {
    "fault": "bad",
    "ruled out": "good",
    "cannot tell": "warn",
    "not reached": "none",
    "not measured": "none",
}


def write_bisection_html(
    bisection: Bisection | SegmentBisections, path: str | Path, *, by: str = "", force: bool = False
) -> Path:
    """Write a bisection, or those of segments, as one HTML page and return the path.

    Raises OutputError where a file exists at the path (unless `force`) or it cannot be written.
    """
    return write_report_file(path, render_bisection_html(bisection, by=by), force=force)


def render_bisection_html(bisection: Bisection | SegmentBisections, *, by: str = "") -> str:
    """Render a bisection as one HTML page; each of several segments (divided `by` a field) has its own section."""
    context: dict[str, Any]
    if isinstance(bisection, Bisection):
        comparison = bisection.comparison
        faults = [("faults", "Faults")] if bisection.faults else []
        links = [("tree", "Tree"), ("differences", "Differences"), ("changes", "Table")]
        context = {"bisection": bisection, "sections": [("verdict", "Verdict"), *faults, *links]}
    else:
        comparison = bisection[0][1].comparison
        links = [
            (f"segment-{index}", f"{by} {comparison_text.format_segment(segment)}")
            for index, (segment, _) in enumerate(bisection)
        ]
        context = {
            "bisection": None,
            "sections": [("verdict", "Verdict"), *links],
            "segments": bisection,
            "by": by,
            "verdict": comparison_text.combine_verdicts(part for _, part in bisection),
            "sentence": comparison_text.summarize_segments(bisection, by),
        }
    return render_page(
        "bisection.html",
        ("page.css", "bisection.css"),
        ("theme.js", "open_theme.js"),
        name=f"{comparison.baseline} → {comparison.candidate}",
        comparison=comparison,
        test_terms=comparison_text.describe_test_terms(comparison),
        TINTS=VERDICT_TINTS,
        SIGNS=VERDICT_GLYPHS,
        OUTCOMES=comparison_text.BRANCH_OUTCOMES,
        OUTCOME_TINTS=OUTCOME_TINTS,
        describe_pairing=comparison_text.describe_pairing,
        describe_ppi=comparison_text.describe_ppi,
        group_changes=comparison_text.group_changes,
        list_unmeasured=comparison_text.list_unmeasured,
        **context,
    )
