"""Bisection as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragfault.analysis import Bisection, BranchDecision, Comparison, ExampleTrace, LayerFault, MetricChange
from ragfault.reports.charts import CHANGE_TINTS, draw_forest_plot
from ragfault.reports.comparison_text import (
    BRANCH_OUTCOMES,
    VERDICT_GLYPHS,
    combine_verdicts,
    describe_pairing,
    describe_ppi,
    describe_test_terms,
    describe_unpaired,
    describe_verdict,
    format_change,
    format_evidence,
    format_means,
    format_metric,
    format_ruling_reason,
    format_segment,
    format_trace_values,
    group_changes,
    list_unmeasured,
    summarize_segments,
    summarize_verdict,
)
from ragfault.reports.html.elements import Markup, Node, build_sign, clean_label, tag, wrap_table
from ragfault.reports.html.page import build_security_policy, fill_template, load_assets
from ragfault.reports.output import write_report_file
from ragfault.reports.terminal.bisection import SegmentBisections
from ragfault.text.number_format import format_p_value

BISECTION_TINTS = {"fault": "bad", "no fault": "good", "cannot tell": "warn"}
"""The verdict → its tint."""

BISECTION_SIGNS = {"fault": "✗", "no fault": "✓", "cannot tell": "?"}
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
    """Write a bisection, or those of segments, as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written.
    """
    return write_report_file(path, render_bisection_html(bisection, by=by), force=force)


def render_bisection_html(bisection: Bisection | SegmentBisections, *, by: str = "") -> str:
    """A bisection as one HTML page; of several segments (divided `by` a field) each has a part of its own."""
    whole = isinstance(bisection, Bisection)
    first = bisection if isinstance(bisection, Bisection) else bisection[0][1]
    made = first.comparison
    style, script = load_assets("page.css", "bisection.css"), load_assets("theme.js", "bisection.js")
    names = f"{clean_label(made.baseline, 80)} → {clean_label(made.candidate, 80)}"
    return fill_template(
        load_assets("bisection.html"),
        policy=build_security_policy(script, style),
        title=tag("title", f"{names} – ragfault bisection"),
        name=tag("bdi", names),
        style=style,
        script=script,
        head=_build_run_facts(made),
        nav=_build_navigation(bisection, by),
        body=_build_bisection(first) if whole else _build_segments(bisection, by),  # type: ignore[arg-type]
    )


def _build_run_facts(comparison: Comparison) -> Markup:
    """What was compared, when each was made, and by whom they were judged."""
    old, new = comparison.manifests
    sides = ((comparison.baseline, old), (comparison.candidate, new))
    rows: list[tuple[str, Node]] = [
        (what, f"{clean_label(name, 60)}, {run.traces:,} traces, {_format_time(run.created)}")
        for what, (name, run) in zip(("Baseline", "Candidate"), sides, strict=True)
    ]
    judges = [tag("code", clean_label(name, 160) or "none") for name in dict.fromkeys((old.judge, new.judge))]
    rows += [
        ("Judge", [judges[0], *([" → ", judges[1]] if judges[1:] else [])]),
        ("Terms", describe_test_terms(comparison)),
    ]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", text)) for name, text in rows], class_="run")


def _format_time(text: str) -> str:
    """A time to the minute, in UTC as runs write it."""
    return f"{clean_label(text, 40)[:16].replace('T', ' ')} UTC"


def _build_navigation(bisection: Bisection | SegmentBisections, by: str) -> Markup:
    if isinstance(bisection, Bisection):
        links = [
            ("verdict", "Verdict"),
            ("tree", "Tree"),
            ("differences", "Differences"),
            ("changes", "Table"),
        ]
        links[1:1] = [("faults", "Faults")] if bisection.faults else []
    else:
        links = [("verdict", "Verdict")]
        links += [
            (f"segment-{at}", f"{clean_label(by, 40)} {clean_label(format_segment(name), 40)}")
            for at, (name, _) in enumerate(bisection)
        ]
    return tag("nav", [tag("a", text, href=f"#{name}") for name, text in links], aria_label="Sections")


def _build_verdict(verdict: str, sentence: str, *more: Node) -> Markup:
    """The verdict on top, in one sentence."""
    box = tag(
        "div",
        tag("p", tag("span", BISECTION_SIGNS[verdict], aria_hidden="true"), f" {verdict}", class_="word"),
        tag("p", clean_label(sentence, 1200), class_="sentence"),
        class_=f"verdict {BISECTION_TINTS[verdict]}",
    )
    return tag("section", tag("h2", "Verdict"), box, *more, id="verdict", tabindex=-1)


def _build_pairing(comparison: Comparison) -> list[Markup]:
    """How the runs were paired, and what keeps them from being fully comparable."""
    warned = [
        tag("li", build_sign("▲", "warning", "warn"), f" {clean_label(text, 600)}")
        for text in comparison.warnings
    ]
    paired = tag("p", clean_label("; ".join(describe_pairing(comparison)), 600), ".", class_="paired")
    right = [tag("li", clean_label(text, 600)) for text in describe_ppi(comparison)]
    lists = [
        tag("ul", each, class_=name) for each, name in ((warned, "warnings"), (right, "evidence")) if each
    ]
    return [paired, *lists]


def _build_bisection(bisection: Bisection) -> Markup:
    """The sections of one bisection."""
    made = bisection.comparison
    parts = [_build_verdict(bisection.verdict, summarize_verdict(bisection), *_build_pairing(made))]
    if bisection.faults:
        faults = [_build_fault(fault, 3) for fault in bisection.faults]
        parts.append(tag("section", tag("h2", "Faults"), faults, id="faults"))
    tree = tag(
        "section",
        tag("h2", "The tree as it was walked"),
        _build_tree(bisection.tree),
        _build_clues(bisection, 3),
        id="tree",
    )
    drawn = draw_forest_plot(made.changes, "Candidate less baseline") or tag(
        "p", "No difference is known.", class_="empty"
    )
    parts += [tree, tag("section", tag("h2", "Differences"), drawn, id="differences")]
    parts.append(
        tag("section", tag("h2", "The metrics of the tree"), _build_change_table(made), id="changes")
    )
    return Markup("\n".join(parts))


def _build_segments(segments: SegmentBisections, by: str) -> Markup:
    """A line for each segment, then each in full."""
    rows = [
        tag(
            "tr",
            tag("th", tag("a", clean_label(format_segment(name), 60), href=f"#segment-{at}"), scope="row"),
            tag("td", build_sign(BISECTION_SIGNS[each.verdict], each.verdict, BISECTION_TINTS[each.verdict])),
            tag("td", clean_label(summarize_verdict(each), 1200)),
        )
        for at, (name, each) in enumerate(segments)
    ]
    heads = tag(
        "tr", [tag("th", text, scope="col") for text in (clean_label(by, 40), "verdict", "in a sentence")]
    )
    listed = wrap_table(
        tag("table", tag("thead", heads), tag("tbody", rows), class_="segments-table"), "of segments"
    )
    verdict = combine_verdicts(each for _, each in segments)
    parts = [_build_verdict(verdict, summarize_segments(segments, by), listed)]
    for at, (name, each) in enumerate(segments):
        parts.append(
            tag(
                "section",
                tag("h2", f"{clean_label(by, 40)} {clean_label(format_segment(name), 60)}"),
                tag(
                    "p",
                    build_sign(BISECTION_SIGNS[each.verdict], each.verdict, BISECTION_TINTS[each.verdict]),
                    f" {clean_label(summarize_verdict(each), 1200)}",
                ),
                _build_pairing(each.comparison),
                [_build_fault(fault, 3) for fault in each.faults],
                tag("h3", "The tree as it was walked"),
                _build_tree(each.tree),
                tag("h3", "Differences"),
                draw_forest_plot(each.comparison.changes, "Candidate less baseline"),
                id=f"segment-{at}",
            )
        )
    return Markup("\n".join(parts))


def _build_fault(fault: LayerFault, level: int) -> Markup:
    """A fault: its evidence, what to look at and why, what mends it, and the traces that show it."""
    shown = [
        tag(
            "li",
            build_sign(VERDICT_GLYPHS[each.verdict], each.verdict, CHANGE_TINTS[each.verdict]),
            f" {clean_label(format_metric(each), 80)} {format_evidence(each)}",
        )
        for each in fault.evidence
    ]
    because = [tag("li", clean_label(clue.text, 300)) for clue in fault.differences]
    cards: list[Node] = [
        _build_card(level, "Look at", tag("ol", [tag("li", clean_label(each)) for each in fault.suspects])),
        _build_card(level, "Because", tag("ul", because)) if because else None,
        _build_card(
            level, "To mend it", tag("ul", [tag("li", clean_label(each)) for each in fault.remedies])
        ),
    ]
    return tag(
        "article",
        tag(f"h{level}", clean_label(summarize_verdict(fault), 300)),
        tag(
            "p",
            f"Branch {clean_label(fault.branch, 80)} of the tree. The evidence, by gold first:",
            class_="note",
        ),
        tag("ul", shown, class_="evidence"),
        tag("div", cards, class_="cards"),
        [
            tag(f"h{level + 1}", "The traces that show it best, before and after"),
            [_build_example_trace(each) for each in fault.examples],
        ]
        if fault.examples
        else None,
        class_="fault",
    )


def _build_card(level: int, title: str, body: Markup) -> Markup:
    return tag("div", tag(f"h{level + 1}", title), body, class_="card")


def _build_example_trace(example: ExampleTrace) -> Markup:
    """A trace, with what stood there before and what stands there after."""
    values = f"{clean_label(example.metric, 80)} {format_trace_values(example)}"
    sides = [
        tag(
            "div",
            tag("p", word, class_="note"),
            tag("p", _format_lines(text), class_="text", dir="auto"),
            class_="side",
        )
        for word, text in (("before", example.before), ("after", example.after))
    ]
    return tag(
        "div",
        tag(
            "p",
            tag("strong", tag("bdi", clean_label(example.trace, 120))),
            " ",
            tag("span", values, class_="note figure"),
        ),
        tag("p", clean_label(example.query, 400), dir="auto"),
        tag("div", sides, class_="pair"),
        class_="telling",
    )


def _format_lines(text: str | None) -> str:
    """A text of several lines, made visible line by line."""
    if not text:
        return "– nothing –"
    return "\n".join(clean_label(part, 2000) for part in text.splitlines())


def _build_tree(rulings: Sequence[BranchDecision]) -> Markup:
    """The branches in order, each with what became of it and why."""
    items = [
        tag(
            "li",
            tag("span", BRANCH_OUTCOMES[each.outcome][0], class_="dot", aria_hidden="true"),
            tag("b", clean_label(each.branch, 80)),
            build_sign(BRANCH_OUTCOMES[each.outcome][0], each.outcome, OUTCOME_TINTS[each.outcome]),
            tag("span", f" {clean_label(each.layer, 40)}", class_="note"),
            tag("p", clean_label(format_ruling_reason(each), 600), class_="why"),
            class_=OUTCOME_TINTS[each.outcome],
        )
        for each in rulings
    ]
    return tag("ol", items, class_="tree")


def _build_clues(bisection: Bisection, level: int) -> list[Markup]:
    """The circumstances in which the runs differ."""
    if not bisection.differences:
        return []
    rows = [
        tag("li", clean_label(clue.text, 300), tag("span", f" → {', '.join(clue.suspects)}", class_="note"))
        for clue in bisection.differences
    ]
    return [
        tag(f"h{level}", "Circumstances in which the runs differ"),
        tag("ul", rows, class_="evidence"),
    ]


def _build_change_table(comparison: Comparison) -> Markup:
    """The changes in figures, by layer."""
    heads = (
        "metric",
        "baseline → candidate",
        "difference, 95 % interval",
        "margin",
        "p",
        "",
        "n",
        "needed",
        "one side only",
    )
    top = tag("tr", [tag("th", head or tag("span", "state", class_="hidden"), scope="col") for head in heads])
    changes = [change for _, part in group_changes(comparison.changes) for change in part]
    table = tag(
        "table",
        tag("thead", top),
        tag("tbody", [_build_change_row(each) for each in changes]),
        class_="changes",
    )
    silent = list_unmeasured(comparison.changes)
    note = f"Not measured on both sides: {clean_label(', '.join(silent), 600)}." if silent else None
    return tag(
        "div",
        wrap_table(table, "of the metrics of the tree"),
        tag("p", note, class_="note") if note else None,
    )


def _build_change_row(change: MetricChange) -> Markup:
    figures = [
        format_means(change),
        format_change(change),
        f"{change.margin:g}",
        format_p_value(change.adjusted),
    ]
    return tag(
        "tr",
        tag("th", clean_label(format_metric(change), 80), scope="row"),
        [tag("td", text, class_="figure") for text in figures],
        tag(
            "td",
            build_sign(
                VERDICT_GLYPHS[change.verdict],
                clean_label(describe_verdict(change).split(" (n")[0]),
                CHANGE_TINTS[change.verdict],
            ),
        ),
        tag("td", f"{change.n:,}", class_="figure"),
        tag("td", f"{change.needed:,}" if change.needed else "", class_="figure"),
        tag("td", describe_unpaired(change)),
    )
