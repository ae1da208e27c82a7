"""Results of tuning as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.reports.charts import import_altair, render_chart_svg
from ragfault.reports.html.elements import Markup, Node, clean_label, tag, wrap_table
from ragfault.reports.html.page import build_security_policy, fill_template, load_assets
from ragfault.reports.output import write_report_file
from ragfault.reports.terminal.tuning import (
    PIPELINE_HEADINGS,
    STEP_HEADINGS,
    build_gain_cells,
    build_pipeline_cells,
    describe_tuning_terms,
    summarize_tuning,
)
from ragfault.retrieval.pipeline_config import format_pipeline_config
from ragfault.tuning import FrontierPoint, Gain, TuningResult

if TYPE_CHECKING:
    from altair import LayerChart


CHART_WIDTH = 300
"""The width of a chart."""
COST_LABELS = {"ms": "milliseconds", "tokens": "tokens"}


def write_tuning_html(result: TuningResult, path: str | Path, *, force: bool = False) -> Path:
    """Write a tuning as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written;
    MissingExtra where the packages that draw the charts are not installed.
    """
    return write_report_file(path, render_tuning_html(result), force=force)


def render_tuning_html(result: TuningResult) -> str:
    """A tuning as one HTML page; names of questions and documents do not appear on it."""
    style, script = load_assets("page.css", "agreement.css"), load_assets("theme.js", "bisection.js")
    heads = [result.metric if head == "metric" else head for head in PIPELINE_HEADINGS]
    sections: list[tuple[str, str, Node]] = [
        (
            "gain",
            "On the held-out questions",
            _build_table(heads, [build_pipeline_cells(row) for row in result.measured], "of pipelines"),
        ),
        ("steps", "What each step brings", _build_gain_table((*result.gains, *result.ablations))),
        ("rejected", "Tried and not taken", _build_gain_table(result.rejected)),
        ("frontier", "Frontier", _build_frontier(result, heads)),
        ("words", "In words", tag("ul", [tag("li", clean_label(line, 400)) for line in result.summary])),
        ("recipe", "pipeline.toml", tag("pre", tag("code", format_pipeline_config(result.config)))),
    ]
    links = [tag("a", text, href=f"#{where}") for where, text, _ in sections]
    body = [tag("section", tag("h2", text), inside, id=where) for where, text, inside in sections]
    name = clean_label(summarize_tuning(result), 400)
    return fill_template(
        load_assets("tuning.html"),
        policy=build_security_policy(script, style),
        title=tag("title", f"{name} – ragfault tune"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag(
            "ul",
            [tag("li", clean_label(line, 600)) for line in (describe_tuning_terms(result), *result.notes)],
            class_="facts",
        ),
        nav=tag("nav", links, aria_label="Sections"),
        body=Markup("\n".join(body)),
    )


def _build_table(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Markup:
    head = tag("tr", [tag("th", clean_label(text, 80) or "shown", scope="col") for text in heads])
    body = [
        tag(
            "tr",
            tag("th", clean_label(first, 240), scope="row"),
            [tag("td", clean_label(text, 120)) for text in rest],
        )
        for first, *rest in rows
    ]
    return wrap_table(tag("table", tag("thead", head), tag("tbody", body)), name)


def _build_gain_table(gains: Sequence[Gain]) -> Markup:
    if not gains:
        return tag("p", "Nothing.", class_="empty")
    return _build_table(STEP_HEADINGS, [build_gain_cells(gain) for gain in gains], "of gains")


def _build_frontier(result: TuningResult, heads: Sequence[str]) -> Markup:
    """The frontier as charts, value against each cost and precision against recall, with its figures below."""
    drawn = [
        tag(
            "figure",
            tag("figcaption", f"{clean_label(result.metric, 60)} and {name}"),
            render_chart_svg(_build_cost_chart(result, cost), f"frontier: {name}"),
        )
        for cost, name in COST_LABELS.items()
    ]
    both = render_chart_svg(_build_recall_chart(result.frontier), "precision and recall")
    drawn.append(tag("figure", tag("figcaption", "precision and recall"), both))
    rows = [build_pipeline_cells(point.measured) for point in result.frontier]
    note = (
        "The frontier by the questions that choose, and what it is held against; figures of the held-out ones. "
        "The recommended pipeline is filled."
    )
    return tag(
        "div",
        tag("p", note, class_="note"),
        tag("div", drawn, class_="agreement-charts"),
        _build_table(heads, rows, "of the frontier"),
    )


def _build_points(points: Sequence[FrontierPoint], x: str, y: str) -> list[dict[str, Any]]:
    return [
        {
            "x": getattr(point.measured, x),
            "y": getattr(point.measured, y),
            "chosen": point.recommended,
            "tip": f"{clean_label(point.measured.name, 120)}: {getattr(point.measured, y):.3f}, {getattr(point.measured, x):,.1f}",
        }
        for point in points
    ]


def _build_cost_chart(result: TuningResult, cost: str) -> LayerChart:
    return _build_scatter_chart(
        _build_points(result.frontier, cost, "value"), COST_LABELS[cost], result.metric
    )


def _build_recall_chart(points: Sequence[FrontierPoint]) -> LayerChart:
    return _build_scatter_chart(_build_points(points, "recall", "precision"), "recall", "precision")


def _build_scatter_chart(rows: list[dict[str, Any]], across: str, up: str) -> LayerChart:
    """Points, the recommended one filled."""
    alt = import_altair()
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("x:Q", title=across, scale=alt.Scale(zero=False)),
        y=alt.Y("y:Q", title=up, scale=alt.Scale(zero=False)),
    )
    open_ = base.mark_point(color="var(--relevance)", size=60).encode(description="tip:N")
    full = (
        base.transform_filter("datum.chosen")
        .mark_circle(color="var(--use)", size=90)
        .encode(description="tip:N")
    )
    layers: LayerChart = (open_ + full).properties(width=CHART_WIDTH, height=200)
    return layers
