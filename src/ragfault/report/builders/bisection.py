"""The report of a bisection: the layer that broke, the evidence, what to look at, and the tree as it was walked."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.comparison.records import Bisection, ExampleTrace, LayerFault
from ragfault.report.builders.comparison import (
    build_change_notes,
    build_change_table,
    build_runs,
    draw_changes,
    name_runs,
)
from ragfault.report.document import (
    Block,
    Details,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_section,
    build_warnings,
    join_text,
    lower_headings,
)
from ragfault.report.format import LAYER_TITLES
from ragfault.report.wording import (
    combine_verdicts,
    describe_pairing,
    describe_segment,
    describe_setting,
    format_evidence,
    format_ruling_reason,
    format_segment,
    format_suspect,
    format_trace_values,
    group_changes,
    list_warnings,
    name_metric,
    summarize_segments,
    summarize_verdict,
)

SegmentBisections = Sequence[tuple[str, Bisection]]
"""The bisections of segments, each with its name."""

SUSPECTS_HINT = "a guess: the first is right 67 % of the time, one of the three 87 %"
"""Share of the 67 trials with kinds of fault that were new to the rules when they were run (`docs/faults.md`: fresh,
fresh-2 before the rules were changed, fresh-3) in which a right stage was first, and among three."""

EXAMPLES_SHOWN = 3
"""Number of example traces of a fault that a terminal shows."""

TREE_COLUMNS = (TableColumn("Outcome"), TableColumn("Branch"), TableColumn("Why"))


def build_bisection(bisection: Bisection | SegmentBisections, by: str = "") -> ReportDocument:
    """Build the report of a bisection; of those of segments, divided `by` a field, the faults stand in full."""
    if not isinstance(bisection, Bisection):
        return _build_segments(bisection, by)
    comparison = bisection.comparison
    title = Heading(summarize_verdict(bisection), 1, VerdictMark(bisection.verdict))
    return ReportDocument(
        name_runs(comparison),
        (title, *_build_pairing(bisection)),
        (*_build_findings(bisection), *build_runs(comparison)),
    )


def _build_segments(segments: SegmentBisections, by: str) -> ReportDocument:
    title = Heading(summarize_segments(segments, by), 1, VerdictMark(combine_verdicts(part for _, part in segments)))
    rows = tuple((VerdictMark(part.verdict), format_segment(name), summarize_verdict(part)) for name, part in segments)
    columns = (TableColumn("Verdict"), TableColumn(by), TableColumn("Why", prose=True))
    body: list[Block] = [Table(columns, rows)]
    for name, part in segments:
        if part.verdict == "fault":
            blocks = [*_build_pairing(part), *lower_headings(_build_findings(part))]
            body += [Heading(f"{by} {format_segment(name)}"), *blocks]
    comparison = segments[0][1].comparison
    return ReportDocument(name_runs(comparison), (title,), (*body, *build_runs(comparison)))


def _build_pairing(bisection: Bisection) -> list[Block]:
    comparison = bisection.comparison
    pairing = Paragraph(f"{name_runs(comparison)}: {'; '.join(describe_pairing(comparison))}", "note")
    return [pairing, *build_warnings(list_warnings(comparison, summarize_verdict(bisection)))]


def _build_findings(bisection: Bisection) -> list[Block]:
    """Build the faults, where they are confined to, the tree and the metrics that it was walked by."""
    comparison = bisection.comparison
    body: list[Block] = []
    for fault in bisection.faults:
        title: Text = (summarize_verdict(fault), StyledText(f" · branch {fault.branch}", "muted"))
        body += build_section(title, _list_evidence(fault))
    search: Text = ("Segments", StyledText(" · by a search over every field", "muted"))
    body += build_section(search, Listing(tuple(map(describe_segment, bisection.segments))))
    body += build_section("Changed settings", Listing(tuple(map(describe_setting, bisection.settings))))
    rulings = tuple(
        (VerdictMark(ruling.outcome), ruling.branch, format_ruling_reason(ruling)) for ruling in bisection.tree
    )
    body += build_section("The decision tree", Table(TREE_COLUMNS, rulings))
    clues = tuple(
        (clue.text, StyledText(f" → {', '.join(clue.suspects)}", "muted")) if clue.suspects else clue.text
        for clue in bisection.differences
    )
    body += build_section("Differences between the runs", Listing(clues))
    metrics: list[Block] = [*draw_changes(comparison)]
    for layer, changes in group_changes(comparison.changes):
        metrics += [Heading(LAYER_TITLES[layer], 3), build_change_table(changes)]
    return [
        *body,
        *([Details("The metrics of the tree", tuple(metrics))] if metrics else []),
        *build_change_notes(comparison),
    ]


def _list_evidence(fault: LayerFault) -> Listing:
    """List what shows a fault, the stages to look at and why, how to fix it, and example traces."""
    items: list[Text | Listing] = [
        join_text(name_metric(change), f" {format_evidence(change)}") for change in fault.evidence
    ]
    if fault.suspects:
        items += [(StyledText("Likely stage", "strong"), f" ({SUSPECTS_HINT}):")]
        items.append(Listing(tuple(map(format_suspect, fault.suspects)), ordered=True))
    if fault.differences:
        items += [StyledText("Because", "strong"), Listing(tuple(clue.text for clue in fault.differences))]
    items.append((StyledText("How to fix it: ", "strong"), "; ".join(fault.remedies)))
    if fault.examples:
        items.append((StyledText("Example traces", "strong"), f", by {fault.examples[0].metric}:"))
        examples = [item for example in fault.examples for item in _list_example(example)]
        items.append(Listing(tuple(examples), shown=EXAMPLES_SHOWN))
    return Listing(tuple(items))


def _list_example(example: ExampleTrace) -> tuple[Text | Listing, ...]:
    """List an example trace: its values and its query, then its answer or chunk before and after."""
    name: Text = (
        StyledText(example.trace, "strong"),
        f" {format_trace_values(example)}: ",
        StyledText(example.query, "quote"),
    )
    texts = tuple(
        (StyledText(f"{word}: ", "muted"), StyledText(text, "quote"))
        for word, text in (("before", example.before), ("after", example.after))
        if text is not None
    )
    return (name, Listing(texts)) if texts else (name,)
