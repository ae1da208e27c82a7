"""Runs, comparisons, bisections and gates as HTML fragments for notebooks, without script or style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.analysis import Bisection, Comparison, GateResult, LayerFault, MetricChange, analyze
from ragfault.analysis.records import MetricAggregate
from ragfault.io.runs import Run
from ragfault.reports.comparison_text import (
    describe_pairing,
    describe_verdict,
    format_change,
    format_evidence,
    format_means,
    format_ruling_reason,
    format_trace_values,
    group_changes,
    summarize_verdict,
)
from ragfault.reports.format import LAYER_TITLES, group_by_layer
from ragfault.reports.html.elements import Markup, Node, clean_label, tag
from ragfault.reports.terminal.gate import RESULT_SIGNS as RESULTS
from ragfault.text.number_format import format_interval, format_p_value

NOTEBOOK_RENDERERS = {
    ("ragfault.io.runs.run", "Run"): "render_scorecard",
    ("ragfault.analysis.comparison.records", "Comparison"): "render_comparison",
    ("ragfault.analysis.comparison.records", "Bisection"): "render_bisection",
    ("ragfault.analysis.records", "GateResult"): "render_gate",
}
"""What a notebook shows as HTML: module and name of the class → the function here."""

NOTEBOOK_COLORS = {"fault": "#c0392b", "no fault": "#1e8449", "cannot tell": "#b7791f"} | {
    "worse": "#c0392b",
    "better": "#1e8449",
    "steady": "#7f8c8d",
    "fail": "#c0392b",
    "pass": "#1e8449",
}
"""A verdict → its colour, which reads on a light ground and on a dark one."""

CELL_STYLE = "padding:.15em .8em .15em 0;text-align:left;vertical-align:top"
INTERVAL_WIDTH, INTERVAL_MARGIN = 120, 5
"""Width of an interval's drawing, and what is left beside it."""


def register_formatters(shell: Any) -> None:
    """Show the records of `SHOWN` as HTML in an IPython shell; their modules are not imported for it."""
    from importlib import import_module

    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), function in NOTEBOOK_RENDERERS.items():

        def show(found: Any, function: str = function) -> str:
            return str(getattr(import_module(__name__), function)(found))

        formatter.for_type_by_name(module, name, show)


def render_scorecard(run: Run) -> Markup:
    """A run: every metric by layer, its mean with its interval, and how many traces have a value."""
    found = analyze(run)
    made = found.manifest
    rows: list[Node] = []
    for title, parts in group_by_layer(found.scorecard):
        rows.append(_build_heading_row(LAYER_TITLES[title], 4))
        rows += [_build_metric_row(each) for each in parts]
    head = f"{found.run}: {made.traces:,} traces, judge {made.judge.partition(' ')[0]}"
    return _build_box(
        tag("strong", clean_label(head)), _build_table(("metric", "mean, 95 % interval", "", "scored"), rows)
    )


def _build_metric_row(aggregate: MetricAggregate) -> Markup:
    told = (
        format_interval(aggregate.decision_interval)
        if aggregate.decision_interval
        else "undefined"
        if aggregate.undefined
        else "–"
    )
    scored = f"{aggregate.scored:,}/{aggregate.traces:,}"
    return _build_row((clean_label(aggregate.metric), told, _draw_interval(aggregate), scored))


def _draw_interval(aggregate: MetricAggregate) -> Markup | None:
    """The interval on the metric's range; None where either is unknown."""
    at = aggregate.decision_interval
    if at is None or aggregate.low is None or aggregate.high is None or aggregate.high <= aggregate.low:
        return None
    low, mean, high = (
        round(
            INTERVAL_MARGIN
            + INTERVAL_WIDTH * min(1.0, max(0.0, (value - aggregate.low) / (aggregate.high - aggregate.low))),
            1,
        )
        for value in (at.low, at.mean, at.high)
    )
    line = tag(
        "line",
        x1=INTERVAL_MARGIN,
        x2=INTERVAL_MARGIN + INTERVAL_WIDTH,
        y1=6,
        y2=6,
        stroke="currentColor",
        stroke_opacity="0.25",
    )
    span = tag(
        "line", x1=low, x2=high, y1=6, y2=6, stroke="currentColor", stroke_width=4, stroke_opacity="0.55"
    )
    dot = tag("circle", cx=mean, cy=6, r=4, fill="currentColor")
    return tag(
        "svg",
        line,
        span,
        dot,
        width=INTERVAL_WIDTH + 2 * INTERVAL_MARGIN,
        height=12,
        role="img",
        aria_label=format_interval(at),
    )


def render_comparison(comparison: Comparison) -> Markup:
    """A comparison: every metric by layer, from what to what, its difference with the interval, what became of it."""
    head = f"{comparison.baseline} → {comparison.candidate}: {'; '.join(describe_pairing(comparison))}"
    return _build_box(
        tag("strong", clean_label(head, 300)),
        _build_warnings(comparison.warnings),
        _build_change_table(comparison.changes),
    )


def _build_change_table(changes: Sequence[MetricChange]) -> Markup:
    rows: list[Node] = []
    for layer, parts in group_changes(changes):
        rows.append(_build_heading_row(LAYER_TITLES[layer], 5))
        rows += [
            _build_row(
                (
                    clean_label(each.metric),
                    format_means(each),
                    format_change(each),
                    tag(
                        "span",
                        clean_label(describe_verdict(each)),
                        style=f"color:{NOTEBOOK_COLORS[each.verdict]}",
                    ),
                    format_p_value(each.adjusted),
                )
            )
            for each in parts
        ]
    return _build_table(("metric", "before → after", "difference, 95 % interval", "", "p"), rows)


def render_bisection(bisection: Bisection) -> Markup:
    """A bisection: the verdict, each fault with its evidence and the traces that show it, and the tree as walked."""
    head = tag(
        "strong", f"{bisection.verdict.upper()}: ", style=f"color:{NOTEBOOK_COLORS[bisection.verdict]}"
    )
    tree = [
        _build_row((each.outcome, clean_label(each.branch), clean_label(format_ruling_reason(each), 300)))
        for each in bisection.tree
    ]
    return _build_box(
        tag("p", head, tag("strong", clean_label(summarize_verdict(bisection), 500))),
        _build_warnings(bisection.comparison.warnings),
        [_build_fault(each) for each in bisection.faults],
        tag(
            "details", tag("summary", "The tree as it was walked"), _build_table(("", "branch", "why"), tree)
        ),
        tag(
            "details",
            tag("summary", "The metrics of the tree"),
            _build_change_table(bisection.comparison.changes),
        ),
    )


def _build_fault(fault: LayerFault) -> Markup:
    items = [f"{each.metric}: {format_evidence(each)}" for each in fault.evidence]
    items += [f"look at {', '.join(fault.suspects)}", *(f"because {each.text}" for each in fault.differences)]
    items.append(f"to mend it: {'; '.join(fault.remedies)}")
    rows = [
        _build_row(
            (
                clean_label(each.trace, 60),
                format_trace_values(each),
                clean_label(each.query),
                clean_label(each.before or "–"),
                clean_label(each.after or "–"),
            )
        )
        for each in fault.examples[:3]
    ]
    return tag(
        "div",
        tag("ul", [tag("li", clean_label(item, 400)) for item in items]),
        _build_table(("trace", "", "query", "before", "after"), rows) if rows else None,
    )


def render_gate(gate: GateResult) -> Markup:
    """A gate: what it decided, and every bar and metric with its reason."""
    told = [(each.result, str(each.threshold), each.reason) for each in gate.decisions]
    told += [(each.result, each.rule, each.reason) for each in gate.regression_decisions]
    rows = [
        _build_row(
            (
                tag("span", RESULTS[result], style=f"color:{NOTEBOOK_COLORS[result]}"),
                clean_label(rule),
                clean_label(why, 400),
            )
        )
        for result, rule, why in told
    ]
    head = tag(
        "strong",
        f"{RESULTS[gate.result]}: {clean_label(gate.run)}",
        style=f"color:{NOTEBOOK_COLORS[gate.result]}",
    )
    return _build_box(tag("p", head), _build_table(("", "bar", "why"), rows))


def _build_warnings(warnings: Sequence[str]) -> Markup | None:
    return (
        tag("ul", [tag("li", f"beware: {clean_label(each, 400)}") for each in warnings]) if warnings else None
    )


def _build_box(*children: Node) -> Markup:
    return tag("div", *children, class_="ragfault", style="overflow-x:auto")


def _build_heading_row(title: str, columns: int) -> Markup:
    return tag(
        "tr", tag("th", title, colspan=columns, scope="rowgroup", style=f"{CELL_STYLE};padding-top:.6em")
    )


def _build_row(cells: Sequence[Node]) -> Markup:
    return tag("tr", [tag("td", cell, style=CELL_STYLE) for cell in cells])


def _build_table(headings: Sequence[str], rows: Sequence[Node]) -> Markup:
    head = tag("tr", [tag("th", each, scope="col", style=CELL_STYLE) for each in headings])
    return tag("table", tag("thead", head), tag("tbody", *rows))
