"""The report of a comparison of two runs: what moved by layer, and the traces that made a metric worse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ragfault.comparison.records import Comparison, MetricChange
from ragfault.report.builders.answer_changes import (
    CAUSES_SHOWN,
    build_cause_changes,
    describe_answer_changes,
    list_answer_notes,
    mark_answers,
)
from ragfault.report.charts.forest_plot import draw_forest_plot
from ragfault.report.comparison_wording import (
    describe_pairing,
    describe_ppi,
    describe_quantile_changes,
    describe_test_terms,
    describe_unpaired,
    explain_undecided,
    find_useful_count,
    format_change,
    format_means,
    group_changes,
    list_regressions,
    list_unmeasured,
    list_warnings,
    summarize_comparison,
    summarize_movers,
)
from ragfault.report.document import (
    Block,
    Chart,
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
from ragfault.report.format import LAYER_TITLES, format_time
from ragfault.report.safe_text import clip_text
from ragfault.report.wording import format_segment, name_metric
from ragfault.text.number_format import format_count, format_p_value, has_too_few

CHANGE_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Before → after"),
    TableColumn("Difference, 95 % interval"),
    TableColumn(""),
    TableColumn("Needed", numeric=True, room=90),
    TableColumn("p", numeric=True, room=100),
    TableColumn("n", numeric=True, room=112),
    TableColumn("One side only", room=124),
)

SEGMENTS_SHOWN = 8
"""Segments that a terminal shows in a line each."""

MAX_REGRESSIONS = 5
"""Metrics that got worse whose traces a terminal names."""


def build_comparison(comparison: Comparison | Sequence[Comparison], *, causes: int | None = None) -> ReportDocument:
    """Build the report of a comparison; of those of several segments a line for each comes first.

    The lead says what happened to the answers, for which causes, and counts the metrics that moved. With a number of
    `causes` it is that of a first screen: with so many of them, and one warning.
    """
    if isinstance(comparison, Comparison):
        answers = _build_answers(comparison, causes or CAUSES_SHOWN)
        pairing = build_pairing(comparison, list_warnings(comparison), brief=causes is not None)
        lead = (_build_title(comparison, 1), *answers, *pairing)
        body = (*_build_changes(comparison), *build_runs(comparison))
        return ReportDocument(name_runs(comparison), lead, body)
    lines = tuple((StyledText(_name_segment(part), "strong"), f": {_summarize_segment(part)}") for part in comparison)
    parts: list[Block] = []
    for part in comparison:
        pairing = build_pairing(part, list_warnings(part))
        parts += [_build_title(part, 2), *pairing, *lower_headings(_build_changes(part))]
    return ReportDocument(
        name_runs(comparison[0]), (Listing(lines, shown=SEGMENTS_SHOWN),), (*parts, *build_runs(comparison[0]))
    )


def name_runs(comparison: Comparison) -> str:
    """Name the two runs: `old → new`."""
    return f"{clip_text(comparison.baseline, 60)} → {clip_text(comparison.candidate, 60)}"


def _name_segment(comparison: Comparison) -> str:
    return f"{comparison.by} {format_segment(comparison.segment)}"


def _build_title(comparison: Comparison, level: Literal[1, 2]) -> Heading:
    if comparison.by is not None:
        return Heading(f"{_name_segment(comparison)}: {_summarize_segment(comparison)}", level)
    if comparison.answers is None:
        worse = VerdictMark("worse") if list_regressions(comparison.changes) else None
        return Heading(summarize_comparison(comparison), level, worse)
    text = describe_answer_changes(comparison.answers)
    return Heading(f"{text}.", level, mark_answers(comparison.answers))


def _build_answers(comparison: Comparison, causes: int) -> list[Block]:
    """Build why answers became bad, and how many metrics moved; nothing if no answer is rated."""
    answers = comparison.answers
    if answers is None:
        return []
    notes = [Paragraph(note, "note") for note in list_answer_notes(answers)]
    return [*build_cause_changes(answers, causes), *notes, Paragraph(f"{summarize_comparison(comparison)}.")]


def _summarize_segment(comparison: Comparison) -> str:
    """Summarize what happened to the answers of a segment, and how many metrics moved."""
    answers = [] if comparison.answers is None else [describe_answer_changes(comparison.answers)]
    return "; ".join([*answers, summarize_comparison(comparison)])


def build_pairing(comparison: Comparison, warnings: Sequence[str], *, brief: bool = False) -> list[Block]:
    """Build how the runs were paired, and warnings; if `brief` the first warning, and no pairing that is complete."""
    texts = describe_pairing(comparison)
    pairing = Paragraph(f"{name_runs(comparison)}: {'; '.join(texts)}", "note")
    if not brief:
        return [pairing, *build_warnings(list(warnings))]
    more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
    shown = build_warnings([f"{warnings[0]}{more}"] if warnings else [])
    return shown if len(texts) == 1 and comparison.unpaired == (0, 0) else [pairing, *shown]


def _build_changes(comparison: Comparison) -> list[Block]:
    """Build the tables of all changes, and the traces that made metrics worse."""
    body: list[Block] = [*draw_changes(comparison)]
    for layer, changes in group_changes(comparison.changes):
        quantiles = Listing(tuple(describe_quantile_changes(changes)))
        body += build_section(LAYER_TITLES[layer], build_change_table(changes), quantiles)
    body += build_change_notes(comparison)
    lost = list_regressions(comparison.changes)
    losses = tuple(join_text(name_metric(change), f": {summarize_movers(change)}") for change in lost)
    movers = Listing(losses, shown=MAX_REGRESSIONS)
    body += build_section(("What got worse", StyledText(" · the traces that moved most", "muted")), movers)
    return body


def draw_changes(comparison: Comparison) -> list[Block]:
    """Draw the differences of shares and grades with their intervals; nothing where none is known."""
    drawable = [
        change
        for change in comparison.changes
        if change.difference
        and not has_too_few(change.difference)
        and max(map(abs, (change.difference.low, change.difference.high))) <= 1
    ]
    plot = draw_forest_plot(drawable)
    return [] if plot is None else [Chart("Candidate less baseline, with 95 % intervals", plot)]


def build_runs(comparison: Comparison) -> list[Block]:
    """Build what the two runs are, by whom they were judged, and the terms of the tests."""
    names = (clip_text(comparison.baseline, 60), clip_text(comparison.candidate, 60))
    sides = zip(("Baseline", "Candidate"), names, comparison.manifests, strict=True)
    lines: list[Text] = [
        f"{side}: {name}, {format_count(manifest.traces, 'trace')}, {format_time(manifest.created)}"
        for side, name, manifest in sides
    ]
    judges = dict.fromkeys(manifest.judge or "none" for manifest in comparison.manifests)
    lines += [f"Judge: {' → '.join(judges)}", f"Terms: {describe_test_terms(comparison)}"]
    return build_section("The runs", Listing(tuple(lines)))


def build_change_notes(comparison: Comparison) -> list[Block]:
    """Build what the tables of changes leave open: what cannot be told, corrections, and metrics without pairs."""
    notes: list[Block] = [Paragraph(line, "note") for line in explain_undecided(comparison)]
    corrections = describe_ppi(comparison)
    if corrections:
        notes += [Paragraph(corrections[0], "note"), Listing(tuple(corrections[1:]))]
    silent = list_unmeasured(comparison.changes)
    if silent:
        notes.append(Paragraph(f"Not measured on both sides: {', '.join(silent)}.", "note"))
    return notes


def build_change_table(changes: Sequence[MetricChange]) -> Table:
    """Build the changes as a table, with the verdict on each."""
    rows: list[tuple[Text, ...]] = []
    for change in changes:
        needed = find_useful_count(change)
        kind = VerdictMark(change.verdict).kind
        rows.append(
            (
                name_metric(change),
                format_means(change),
                format_change(change),
                VerdictMark("identical" if change.identical else change.verdict, kind),
                f"{needed:,}" if needed else "",
                format_p_value(change.adjusted),
                f"{change.n:,}",
                describe_unpaired(change),
            )
        )
    return Table(CHANGE_COLUMNS, tuple(rows))
