"""The report of a bisection: the layer that broke, the evidence, what to look at, and the tree as it was walked."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.comparison.records import Bisection, ExampleTrace, LayerFault
from ragfault.report.builders.answer_changes import (
    CAUSES_SHOWN,
    build_cause_changes,
    describe_answer_changes,
    describe_example,
    describe_harm,
    describe_origin,
    list_answer_notes,
    summarize_harm,
)
from ragfault.report.builders.comparison import (
    build_change_notes,
    build_change_table,
    build_pairing,
    build_runs,
    draw_changes,
    name_runs,
)
from ragfault.report.comparison_wording import (
    combine_verdicts,
    describe_segment,
    describe_setting,
    format_evidence,
    format_ruling_reason,
    format_suspect,
    format_trace_values,
    group_changes,
    list_warnings,
    summarize_segments,
    summarize_verdict,
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
    join_text,
    lower_headings,
)
from ragfault.report.format import LAYER_TITLES
from ragfault.report.wording import format_segment, name_metric

SegmentBisections = Sequence[tuple[str, Bisection]]
"""The bisections of segments, each with its name."""

SUSPECTS_HINT = "a guess: the first is right 67 % of the time, one of the three 87 %"
"""Share of the 67 trials with kinds of fault that were new to the rules when they were run (`benchmarks/RESULTS.md`:
fresh, fresh-2 before the rules were changed, fresh-3) in which a right stage was first, and among three."""

FAULTS_SHOWN = 3
"""Number of faults that the lead describes."""

EXAMPLES_SHOWN = 3
"""Number of example traces of a fault that a terminal shows."""

TREE_COLUMNS = (TableColumn("Outcome"), TableColumn("Branch"), TableColumn("Why"))


def build_bisection(
    bisection: Bisection | SegmentBisections, by: str = "", *, causes: int | None = None
) -> ReportDocument:
    """Build the report of a bisection; of those of segments, divided `by` a field, the faults stand in full.

    The lead says what happened to the answers, for which causes, which layer broke, since what, and one example. With
    a number of `causes` it is that of a first screen: with so many of them, and one warning.
    """
    if not isinstance(bisection, Bisection):
        return _build_segments(bisection, by)
    comparison, answers = bisection.comparison, bisection.comparison.answers
    title = Heading(summarize_bisection(bisection), 1, VerdictMark(bisection.verdict))
    harm = [] if summarize_harm(bisection.faults, answers) is None else [Paragraph(summarize_verdict(bisection))]
    notes = [] if answers is None else [Paragraph(note, "note") for note in list_answer_notes(answers)]
    return ReportDocument(
        name_runs(comparison),
        (title, *_build_harm(bisection, causes or CAUSES_SHOWN), *_build_pairing(bisection, causes is not None)),
        (*harm, *notes, *_build_findings(bisection), *build_runs(comparison)),
    )


def summarize_bisection(bisection: Bisection) -> str:
    """Summarize a bisection in its first sentence: the layers that broke and the answers, else the verdict."""
    return summarize_harm(bisection.faults, bisection.comparison.answers) or summarize_verdict(bisection)


def _build_harm(bisection: Bisection, causes: int) -> list[Block]:
    """Build what the first sentence rests on: each fault by the answers it made bad, its origin, causes, an example."""
    answers, faults = bisection.comparison.answers, bisection.faults
    if answers is None:
        return []
    if summarize_harm(faults, answers) is None:
        text = describe_answer_changes(answers)
        blocks: list[Block] = [Paragraph(f"{text}.")]
        return [*blocks, *build_cause_changes(answers, causes)] if answers.became_bad else blocks
    texts: list[Text | None] = [*map(describe_harm, faults[:FAULTS_SHOWN]), describe_origin(faults[0])]
    texts += [describe_segment(segment) for segment in bisection.segments[:1]]
    texts += [describe_setting(setting) for setting in bisection.settings if setting.outcome == "supported"][:1]
    example = describe_example(faults, answers)
    return [
        *(Paragraph(text) for text in texts if text is not None),
        *build_cause_changes(answers, causes),
        *([] if example is None else [Paragraph(example)]),
    ]


def _build_segments(segments: SegmentBisections, by: str) -> ReportDocument:
    title = Heading(summarize_segments(segments, by), 1, VerdictMark(combine_verdicts(part for _, part in segments)))
    rows = tuple(
        (VerdictMark(part.verdict), format_segment(name), summarize_bisection(part)) for name, part in segments
    )
    columns = (TableColumn("Verdict"), TableColumn(by), TableColumn("Why", prose=True))
    body: list[Block] = []
    for name, part in segments:
        if part.verdict == "fault":
            blocks = [*_build_pairing(part, False), *lower_headings(_build_findings(part))]
            body += [Heading(f"{by} {format_segment(name)}"), *blocks]
    comparison = segments[0][1].comparison
    return ReportDocument(name_runs(comparison), (title, Table(columns, rows)), (*body, *build_runs(comparison)))


def _build_pairing(bisection: Bisection, brief: bool) -> list[Block]:
    warnings = list_warnings(bisection.comparison, summarize_bisection(bisection))
    return build_pairing(bisection.comparison, warnings, brief=brief)


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
