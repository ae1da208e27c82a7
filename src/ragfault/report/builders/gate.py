"""The report of a gate: its result, then every threshold and metric with the reason, the failed ones first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from ragfault.comparison.records import describe_dependence
from ragfault.report.comparison_wording import format_change, format_means, format_movers, split_movers
from ragfault.report.document import (
    PAGE_ONLY,
    Block,
    Heading,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_warnings,
)
from ragfault.report.format import describe_label_source
from ragfault.text.number_format import format_interval, format_p_value, format_percent

if TYPE_CHECKING:
    from ragfault.comparison.gate.records import GateResult, RegressionDecision, ThresholdDecision

RESULT_ORDER = ("fail", "cannot tell", "pass")
"""The results, what needs action first."""

THRESHOLD_COLUMNS = (
    TableColumn("Result"),
    TableColumn("Threshold"),
    TableColumn("Mean", room=PAGE_ONLY),
    TableColumn("Scored", numeric=True, room=PAGE_ONLY),
    TableColumn("Why", prose=True),
)
METRIC_COLUMNS = (
    TableColumn("Result"),
    TableColumn("Metric"),
    TableColumn("Baseline → candidate", room=PAGE_ONLY),
    TableColumn("Difference", room=PAGE_ONLY),
    TableColumn("Corrected p", numeric=True, room=PAGE_ONLY),
    TableColumn("Pairs", numeric=True, room=PAGE_ONLY),
    TableColumn("Needed", numeric=True, room=PAGE_ONLY),
    TableColumn("Why", prose=True),
)


def build_gate(gate: GateResult, *, title_level: Literal[1, 2] = 1) -> ReportDocument:
    """Build the report of a gate; within another report its title is of level 2."""
    title = Heading(summarize_gate(gate), title_level, VerdictMark(gate.result))
    tables: list[Block] = []
    if gate.decisions:
        tables.append(Table(THRESHOLD_COLUMNS, tuple(_build_threshold_rows(gate.decisions))))
    if gate.regression_decisions:
        tables.append(Table(METRIC_COLUMNS, tuple(_build_metric_rows(gate.regression_decisions))))
    facts = [Paragraph(fact, "note") for fact in describe_gate_terms(gate)]
    return ReportDocument(gate.run, (title, *build_warnings(list_gate_warnings(gate))), (*tables, *facts))


def summarize_gate(gate: GateResult) -> str:
    """Summarize the decisions in a line: how many there are of each."""
    results = [result for result, _, _ in list_decisions(gate)]
    counts = [f"{results.count(kind)} {kind}" for kind in ("pass", "fail", "cannot tell") if kind in results]
    kinds = ((len(gate.decisions), "threshold"), (len(gate.regression_decisions), "metric"))
    what = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in kinds if number]
    return f"{gate.run}, {gate.traces:,} traces, {', '.join(counts)} of {' and '.join(what)}"


def list_decisions(gate: GateResult) -> list[tuple[str, str, str]]:
    """List result, rule and reason of every threshold and metric, in order."""
    thresholds = [(row.result, str(row.threshold), row.reason) for row in gate.decisions]
    return [*thresholds, *((row.result, row.rule, explain_drop(row)) for row in gate.regression_decisions)]


def explain_drop(drop: RegressionDecision) -> str:
    """Explain the reason, and where a metric fails the traces that got worse most."""
    (_, movers), _ = split_movers(drop.change)
    return f"{drop.reason}; most on {format_movers(movers)}" if drop.result == "fail" and movers else drop.reason


def describe_gate_terms(gate: GateResult) -> list[str]:
    """Describe by which labels figures were corrected, and the comparison with the baseline."""
    regression = gate.regression
    corrected = [] if gate.label_source is None else [f"corrected by {describe_label_source(gate.label_source)}"]
    if regression is None:
        return corrected
    names = (regression.baseline, gate.run)
    alone = [f"{count:,} only in {name}" for count, name in zip(regression.unpaired, names, strict=True) if count]
    dependence = describe_dependence(
        regression.pairs, [item.change.judge_difference or item.change.difference for item in regression.decisions]
    )
    counts = [f"{regression.pairs:,} pairs of traces by {regression.paired_by}", *filter(None, [dependence]), *alone]
    terms = f"alpha {regression.alpha:g}, power {regression.power:g}, p corrected by Holm"
    return [*corrected, f"baseline {regression.baseline}: {', '.join(counts)}; {terms}"]


def list_gate_warnings(gate: GateResult) -> list[str]:
    """List the warnings on the run, then those on the comparison with its baseline, each once."""
    if gate.regression is None:
        return list(gate.warnings)
    mismatches = [
        f"not comparable: {mismatch.sentence}" if mismatch.blocks else mismatch.sentence
        for mismatch in gate.regression.mismatches
    ]
    return list(dict.fromkeys([*gate.warnings, *mismatches, *gate.regression.warnings]))


def _rank_result(row: ThresholdDecision | RegressionDecision) -> int:
    return RESULT_ORDER.index(row.result)


def _build_threshold_rows(decisions: Sequence[ThresholdDecision]) -> Iterable[tuple[Text, ...]]:
    for row in sorted(decisions, key=_rank_result):
        yield (
            VerdictMark(row.result),
            StyledText(str(row.threshold), "code"),
            format_interval(row.aggregate.decision_interval),
            f"{row.aggregate.scored:,}/{row.aggregate.traces:,} ({format_percent(row.coverage)})",
            row.reason,
        )


def _build_metric_rows(drops: Sequence[RegressionDecision]) -> Iterable[tuple[Text, ...]]:
    for row in sorted(drops, key=_rank_result):
        yield (
            VerdictMark(row.result),
            StyledText(row.rule, "code"),
            format_means(row.change),
            format_change(row.change),
            format_p_value(row.change.adjusted),
            f"{row.change.n:,}",
            f"≈ {row.needed:,}" if row.needed else "",
            explain_drop(row),
        )
