"""Runs and results of analyses as HTML fragments for notebooks, without script or style sheet."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.diagnosis.records import Diagnosis, Findings, MetricAggregate
from ragfault.diagnosis.run_analysis import analyze
from ragfault.io.runs.run import Run
from ragfault.report.builders.catalogue import RECORD_BUILDERS
from ragfault.report.charts.svg import tag
from ragfault.report.format import LAYER_TITLES, group_by_layer
from ragfault.report.html.environment import create_environment
from ragfault.report.renderers.html import render_html_fragment
from ragfault.text.number_format import format_count, format_interval

INTERVAL_WIDTH, INTERVAL_MARGIN = 120, 5


@lru_cache(maxsize=1)
def _load_macros() -> Any:
    names = {"LAYER_TITLES": LAYER_TITLES, "draw_plain_interval": draw_plain_interval}
    return create_environment().get_template("notebook.html").make_module(names)


def render_run(run: Run) -> Markup:
    """Render a run, analyzed with the default targets."""
    return render_findings(analyze(run))


def render_findings(findings: Findings) -> Markup:
    """Render an analyzed run: every metric by layer with its mean, its interval, and the traces with a value."""
    manifest = findings.manifest
    judge = manifest.judge.partition(" ")[0] or "none"
    title = f"{findings.run}: {format_count(manifest.traces, 'trace')}, judge {judge}"
    return Markup(_load_macros().scorecard(title, group_by_layer(findings.scorecard)).strip())


def render_diagnosis(diagnosis: Diagnosis) -> Markup:
    """Render a diagnosis: every problem of the trace with its reason, and its remedies."""
    return Markup(_load_macros().diagnosis(diagnosis, PROBLEM_KINDS).strip())


NOTEBOOK_RENDERERS: dict[type, Callable[[Any], Markup]] = {
    Run: render_run,
    Findings: render_findings,
    Diagnosis: render_diagnosis,
}
"""Type that a notebook shows as HTML → the function that renders it."""


def render_notebook_html(result: Any) -> Markup:
    """Render a run or a result of an analysis as a fragment of HTML; raises KeyError for another type."""
    if build := RECORD_BUILDERS.get(type(result)):
        return render_html_fragment(build(result))
    return NOTEBOOK_RENDERERS[type(result)](result)


def draw_plain_interval(aggregate: MetricAggregate) -> Markup | None:
    """Draw the interval on the metric's range without classes; None where either is unknown."""
    interval, low, high = aggregate.decision_interval, aggregate.low, aggregate.high
    if interval is None or low is None or high is None or high <= low:
        return None

    def place(value: float) -> float:
        return round(INTERVAL_MARGIN + INTERVAL_WIDTH * min(1.0, max(0.0, (value - low) / (high - low))), 1)

    line: dict[str, str | int | float | bool | None] = {"y1": 6, "y2": 6, "stroke": "currentColor"}
    return tag(
        "svg",
        tag("line", x1=INTERVAL_MARGIN, x2=INTERVAL_MARGIN + INTERVAL_WIDTH, stroke_opacity="0.25", **line),
        tag("line", x1=place(interval.low), x2=place(interval.high), stroke_width=4, stroke_opacity="0.55", **line),
        tag("circle", cx=place(interval.mean), cy=6, r=4, fill="currentColor"),
        width=INTERVAL_WIDTH + 2 * INTERVAL_MARGIN,
        height=12,
        role="img",
        aria_label=format_interval(interval),
    )
