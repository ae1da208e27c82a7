"""The reports on steps and turns: the first faulty step of each trace, repaired steps, and faulty turns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.report.document import (
    Block,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    join_text,
)
from ragfault.report.safe_text import clean_text
from ragfault.report.wording import describe_sample_size, format_step_suspect
from ragfault.text.number_format import format_count, format_interval, format_p_value, format_percent, format_signed

if TYPE_CHECKING:
    from ragfault.comparison.ablation.step_repair import StepRepair, StepRepairs
    from ragfault.diagnosis.conversations import ConversationOutcome
    from ragfault.diagnosis.steps.records import FaultyStep, StepFindings
    from ragfault.stats.estimates import Difference

OUTCOME_WORDS = {
    "unknown": "",
    "right": ", its answer states the reference",
    "differs": ", its answer states no reference",
    "failed": ", it failed",
    "compared": ", {same} of {others} other runs give its answer",
}

REPAIR_COLUMNS = (
    TableColumn("Repaired"),
    TableColumn("Gain"),
    TableColumn("Share of the loss", numeric=True),
    TableColumn("p", numeric=True),
    TableColumn(""),
)

REASONS_SHOWN = 3


def build_steps(findings: StepFindings, worst: int = 10) -> ReportDocument:
    """Build the report of faulty steps: counts, kinds of fault, and the `worst` traces, faults first."""
    title = summarize_steps(findings)
    lead: list[Block] = [Heading(title, 1)]
    if findings.population:
        size = len(findings.traces) + findings.without_steps
        lead.append(Paragraph(describe_sample_size(size, findings.population), "note"))
    reasons = Counter(finding.reason for finding in findings.traces if finding.reason is not None)
    lead += [
        Paragraph(f"{format_count(count, 'trace')}: {reason}") for reason, count in reasons.most_common(REASONS_SHOWN)
    ]
    if findings.faults:
        kinds = ", ".join(f"{fault.replace('_', ' ')} {count}" for fault, count in findings.faults.items())
        lead.append(Paragraph(f"kinds of fault: {kinds}"))
    ranked = sorted(
        (finding for finding in findings.traces if finding.suspects),
        key=lambda finding: (finding.status != "fault", finding.best is None),
    )
    items: list[Text | Listing] = []
    for finding in ranked[:worst]:
        items += [_describe_trace(finding), Listing(tuple(map(format_step_suspect, finding.suspects)))]
    body: list[Block] = [Listing(tuple(items))] if items else []
    if len(ranked) > worst:
        body.append(Paragraph(f"{len(ranked) - worst} more traces with a suspected step: --worst", "note"))
    return ReportDocument(title, tuple(lead), tuple(body))


def summarize_steps(findings: StepFindings) -> str:
    """Summarize how many traces have a faulty step, none, or cannot be told."""
    counts = Counter(finding.status for finding in findings.traces)
    without = f"; {findings.without_steps} record no step that can be judged" if findings.without_steps else ""
    if not findings.traces:
        return f"No trace records steps that can be judged{without}: see docs/steps.md"
    return (
        f"{format_count(len(findings.traces), 'trace')} with steps: a faulty step in {counts['fault']}, "
        f"none in {counts['no fault']}, cannot tell {counts['cannot tell']}{without}"
    )


def _describe_trace(finding: FaultyStep) -> Text:
    """Describe what is known of a trace: its verdict, its steps and its answer."""
    answered = OUTCOME_WORDS[finding.outcome].format(same=finding.same_answers, others=finding.other_runs)
    known = f"{format_count(finding.step_count, 'step')} that could be faulty{answered}"
    return (StyledText(finding.trace, "strong"), "  ", VerdictMark(finding.status), f"  {known}")


def build_repairs(repairs: StepRepairs) -> ReportDocument:
    """Build the report of an agent run with repaired steps: the kind that broke, and what each repair recovers."""
    sentence = clean_text(repairs.sentence)
    title = f"{sentence[0].upper()}{sentence[1:]}."
    failed: list[Block] = [
        Paragraph(f"{count} of {repairs.questions} questions failed {_name_repair(kind)}")
        for kind, count in repairs.errors.items()
    ]
    if repairs.blank:
        failed.append(Paragraph(f"{repairs.blank} of {repairs.questions} questions have no answer without a repair"))
    body: list[Block] = []
    for metric, loss in repairs.losses.items():
        rows = [repair for repair in repairs.repairs if repair.metric == metric]
        if any(row.share is not None for row in rows):
            lost = f": lost {_format_effect(loss)} on {loss.n} questions"
            body += [Heading((StyledText(metric, "code"), lost)), Table(REPAIR_COLUMNS, _list_repairs(rows, repairs))]
        else:
            body.append(Paragraph(f"{metric}: no loss is shown ({_format_effect(loss)})", "note"))
    return ReportDocument("repaired steps", (Heading(title, 1, VerdictMark(repairs.status)), *failed), tuple(body))


def _name_repair(kind: str) -> str:
    return "without a repair" if kind == "none" else f"with the repair of {kind} steps"


def _list_repairs(rows: Sequence[StepRepair], repairs: StepRepairs) -> tuple[tuple[Text, ...], ...]:
    return tuple(
        (
            StyledText(row.kind, "strong") if row.kind == repairs.faulty_kind else row.kind,
            _format_effect(row.difference),
            format_percent(row.share) if row.share is not None else "",
            format_p_value(row.adjusted),
            VerdictMark("recovered") if row.is_recovered else "",
        )
        for row in rows
    )


def _format_effect(difference: Difference) -> str:
    if not math.isfinite(difference.low):
        # equal on every question, or too few to tell the spread
        return format_signed(difference.mean)
    return format_interval(difference, signed=True)


def build_conversations(outcomes: Sequence[ConversationOutcome]) -> ReportDocument:
    """Build the report of conversations: at which turn each went wrong, with the problems of that turn."""
    if not outcomes:
        return ReportDocument("conversations", (Heading("No trace belongs to a conversation", 1),))
    turns = Counter(outcome.faulty_turn.turn for outcome in outcomes if outcome.faulty_turn is not None)
    places = ", ".join(f"turn {turn}: {count}" for turn, count in sorted(turns.items()))
    right = sum(all(turn.state == "right" for turn in outcome.turns) for outcome in outcomes)
    counts = f"{len(outcomes)} conversations: {right} right throughout, {turns.total()} first wrong at a known turn"
    title = counts + (f" ({places})" if places else "")
    return ReportDocument(title, (Heading(title, 1),), (Listing(tuple(map(_describe_outcome, outcomes))),))


def _describe_outcome(outcome: ConversationOutcome) -> Text:
    wrong = outcome.faulty_turn
    seen = f": {wrong.trace}, {', '.join(wrong.problems).replace('_', ' ')}" if wrong is not None else ""
    return join_text(StyledText(outcome.conversation, "strong"), f"  {outcome.sentence}{seen}")
