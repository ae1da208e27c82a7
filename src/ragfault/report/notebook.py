"""Runs, comparisons and bisections as fragments of HTML for a notebook: no script, no style sheet, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.findings import Bisection, Change, Comparison, Fault, Gate, find
from ragfault.findings.records import Aggregate
from ragfault.report.gate import SIGNS as RESULTS
from ragfault.report.markup import Markup, Node, label, tag
from ragfault.report.plain import LAYERS, by_layer, interval
from ragfault.report.wording import (
    difference,
    evidence,
    facts,
    fell,
    layered,
    lead,
    moved,
    p_value,
    reason,
    state,
)
from ragfault.runs import Run

__all__ = ["SHOWN", "bisection", "comparison", "decided", "register", "scorecard"]

SHOWN = {
    ("ragfault.runs.run", "Run"): "scorecard",
    ("ragfault.findings.changes", "Comparison"): "comparison",
    ("ragfault.findings.changes", "Bisection"): "bisection",
    ("ragfault.findings.records", "Gate"): "decided",
}
"""What a notebook shows as HTML: module and name of the class → the function here."""

TINTS = {"fault": "#c0392b", "no fault": "#1e8449", "cannot tell": "#b7791f"} | {
    "worse": "#c0392b",
    "better": "#1e8449",
    "steady": "#7f8c8d",
    "fail": "#c0392b",
    "pass": "#1e8449",
}
"""A verdict → its colour, which reads on a light ground and on a dark one."""

CELL = "padding:.15em .8em .15em 0;text-align:left;vertical-align:top"
BAR, EDGE = 120, 5
"""Width of an interval's drawing, and what is left beside it."""


def register(shell: Any) -> None:
    """Show the records of `SHOWN` as HTML in an IPython shell; their modules are not imported for it."""
    from importlib import import_module

    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), function in SHOWN.items():

        def show(found: Any, function: str = function) -> str:
            return str(getattr(import_module(__name__), function)(found))

        formatter.for_type_by_name(module, name, show)


def scorecard(run: Run) -> Markup:
    """A run: every metric by layer, its mean with its interval, and how many traces have a value."""
    found = find(run)
    made = found.manifest
    rows: list[Node] = []
    for title, parts in by_layer(found.scorecard):
        rows.append(_heading(LAYERS[title], 4))
        rows += [_metric(each) for each in parts]
    head = f"{found.run}: {made.traces:,} traces, judge {made.judge.partition(' ')[0]}"
    return _box(tag("strong", label(head)), _table(("metric", "mean, 95 % interval", "", "scored"), rows))


def _metric(found: Aggregate) -> Markup:
    told = interval(found.decided) if found.decided else "undefined" if found.undefined else "–"
    scored = f"{found.scored:,}/{found.traces:,}"
    return _row((label(found.metric), told, _drawn(found), scored))


def _drawn(found: Aggregate) -> Markup | None:
    """The interval on the metric's range; None where either is unknown."""
    at = found.decided
    if at is None or found.low is None or found.high is None or found.high <= found.low:
        return None
    low, mean, high = (
        round(EDGE + BAR * min(1.0, max(0.0, (value - found.low) / (found.high - found.low))), 1)
        for value in (at.low, at.mean, at.high)
    )
    line = tag("line", x1=EDGE, x2=EDGE + BAR, y1=6, y2=6, stroke="currentColor", stroke_opacity="0.25")
    span = tag(
        "line", x1=low, x2=high, y1=6, y2=6, stroke="currentColor", stroke_width=4, stroke_opacity="0.55"
    )
    dot = tag("circle", cx=mean, cy=6, r=4, fill="currentColor")
    return tag("svg", line, span, dot, width=BAR + 2 * EDGE, height=12, role="img", aria_label=interval(at))


def comparison(found: Comparison) -> Markup:
    """A comparison: every metric by layer, from what to what, its difference with the interval, what became of it."""
    head = f"{found.baseline} → {found.candidate}: {'; '.join(facts(found))}"
    return _box(tag("strong", label(head, 300)), _warned(found.warnings), _changes(found.changes))


def _changes(changes: Sequence[Change]) -> Markup:
    rows: list[Node] = []
    for layer, parts in layered(changes):
        rows.append(_heading(LAYERS[layer], 5))
        rows += [
            _row(
                (
                    label(each.metric),
                    moved(each),
                    difference(each),
                    tag("span", label(state(each)), style=f"color:{TINTS[each.verdict]}"),
                    p_value(each),
                )
            )
            for each in parts
        ]
    return _table(("metric", "before → after", "difference, 95 % interval", "", "p"), rows)


def bisection(found: Bisection) -> Markup:
    """A bisection: the verdict, each fault with its evidence and the traces that show it, and the tree as walked."""
    head = tag("strong", f"{found.verdict.upper()}: ", style=f"color:{TINTS[found.verdict]}")
    tree = [_row((each.outcome, label(each.branch), label(reason(each), 300))) for each in found.tree]
    return _box(
        tag("p", head, tag("strong", label(lead(found), 500))),
        _warned(found.comparison.warnings),
        [_fault(each) for each in found.faults],
        tag("details", tag("summary", "The tree as it was walked"), _table(("", "branch", "why"), tree)),
        tag("details", tag("summary", "The metrics of the tree"), _changes(found.comparison.changes)),
    )


def _fault(found: Fault) -> Markup:
    items = [f"{each.metric}: {evidence(each)}" for each in found.evidence]
    items += [f"look at {', '.join(found.suspects)}", *(f"because {each.text}" for each in found.clues)]
    items.append(f"to mend it: {'; '.join(found.remedies)}")
    rows = [
        _row(
            (
                label(each.trace, 60),
                fell(each),
                label(each.query),
                label(each.before or "–"),
                label(each.after or "–"),
            )
        )
        for each in found.telling[:3]
    ]
    return tag(
        "div",
        tag("ul", [tag("li", label(item, 400)) for item in items]),
        _table(("trace", "", "query", "before", "after"), rows) if rows else None,
    )


def decided(found: Gate) -> Markup:
    """A gate: what it decided, and every bar and metric with its reason."""
    told = [(each.result, str(each.bar), each.reason) for each in found.decisions]
    told += [(each.result, each.rule, each.reason) for each in found.drops]
    rows = [
        _row((tag("span", RESULTS[result], style=f"color:{TINTS[result]}"), label(rule), label(why, 400)))
        for result, rule, why in told
    ]
    head = tag("strong", f"{RESULTS[found.result]}: {label(found.run)}", style=f"color:{TINTS[found.result]}")
    return _box(tag("p", head), _table(("", "bar", "why"), rows))


def _warned(warnings: Sequence[str]) -> Markup | None:
    return tag("ul", [tag("li", f"beware: {label(each, 400)}") for each in warnings]) if warnings else None


def _box(*children: Node) -> Markup:
    return tag("div", *children, class_="ragfault", style="overflow-x:auto")


def _heading(title: str, columns: int) -> Markup:
    return tag("tr", tag("th", title, colspan=columns, scope="rowgroup", style=f"{CELL};padding-top:.6em"))


def _row(cells: Sequence[Node]) -> Markup:
    return tag("tr", [tag("td", cell, style=CELL) for cell in cells])


def _table(headings: Sequence[str], rows: Sequence[Node]) -> Markup:
    head = tag("tr", [tag("th", each, scope="col", style=CELL) for each in headings])
    return tag("table", tag("thead", head), tag("tbody", *rows))
