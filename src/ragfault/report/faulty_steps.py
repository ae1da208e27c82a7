"""Faulty steps and turns for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from ragfault.comparison.ablation.step_repair import StepRepairs
from ragfault.diagnosis.conversations import ConversationOutcome
from ragfault.diagnosis.steps.records import FaultyStep, StepFindings
from ragfault.report.format import clean_text
from ragfault.report.terminal.layout import build_line, indent_line, render_rich
from ragfault.report.wording import describe_sample_size, format_step_suspect
from ragfault.stats.estimates import Difference
from ragfault.text.number_format import format_count, format_interval, format_p_value, format_percent, format_signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

VERDICT_STYLES = {"fault": "red", "no fault": "green", "cannot tell": "yellow"}

OUTCOME_WORDS = {
    "unknown": "",
    "right": ", its answer states the reference",
    "differs": ", its answer states no reference",
    "failed": ", it failed",
    "compared": ", {same} of {others} other runs give its answer",
}


def render_steps_terminal(findings: StepFindings, *, worst: int, color: bool = False) -> str:
    """Render the counts, the kinds of fault, and the traces whose faulty step is the surest."""
    parts: list[RenderableType] = [build_line((summarize_steps(findings), "bold"))]
    if findings.population:
        size = len(findings.traces) + findings.without_steps
        parts.append(build_line((describe_sample_size(size, findings.population), "dim")))
    reasons = Counter(finding.reason for finding in findings.traces if finding.reason is not None)
    parts += [build_line(f"{format_count(count, 'trace')}: {clean_text(why)}") for why, count in reasons.most_common(3)]
    if findings.faults:
        kinds = ", ".join(f"{fault.replace('_', ' ')} {count}" for fault, count in findings.faults.items())
        parts.append(build_line("most probable faults: ", kinds))
    ranked = sorted(
        (finding for finding in findings.traces if finding.suspects),
        key=lambda finding: (finding.status != "fault", finding.none_probability or 0.0),
    )
    for finding in ranked[:worst]:
        parts += [build_line(""), *_describe_trace(finding)]
    if len(ranked) > worst:
        parts += [
            build_line(""),
            build_line((f"{len(ranked) - worst} more traces with a suspected step: --worst", "dim")),
        ]
    return render_rich(parts, color=color)


def render_repairs_terminal(repairs: StepRepairs, *, color: bool = False) -> str:
    """Render the kind of step that broke, and for each metric that lost what the repair of each kind recovers."""
    style, sentence = "red" if repairs.faulty_kind else "yellow", clean_text(repairs.sentence)
    parts: list[RenderableType] = [build_line((f"{sentence[0].upper()}{sentence[1:]}.", f"bold {style}"))]
    for kind, count in repairs.errors.items():
        how = "without a repair" if kind == "none" else f"with the repair of {kind} steps"
        parts.append(build_line(f"{count} of {repairs.questions} questions failed {how}"))
    if repairs.blank:
        parts.append(build_line(f"{repairs.blank} of {repairs.questions} questions have no answer without a repair"))
    for metric, loss in repairs.losses.items():
        rows = [repair for repair in repairs.repairs if repair.metric == metric]
        if not any(row.share is not None for row in rows):
            parts.append(build_line((f"{metric}: no loss is shown ({_format_effect(loss)})", "dim")))
            continue
        parts += [build_line(""), build_line((metric, "bold"), f"  lost {_format_effect(loss)} on {loss.n} questions")]
        for row in rows:
            mark = "  recovered" if row.is_recovered else ""
            share = format_percent(row.share) if row.share is not None else ""
            p = format_p_value(row.adjusted)
            text = f"{row.kind:<9} {_format_effect(row.difference)}  {share:>5} of it  p {p}{mark}"
            parts.append(indent_line(2, (text, "red" if row.kind == repairs.faulty_kind else "")))
    return render_rich(parts, color=color)


def _format_effect(difference: Difference) -> str:
    if not math.isfinite(difference.low):
        return format_signed(difference.mean)  # equal on every question, or too few to tell the spread
    return format_interval(difference, signed=True)


def summarize_steps(findings: StepFindings) -> str:
    """Summarize how many traces have a faulty step, none, or cannot be told."""
    counts = Counter(finding.status for finding in findings.traces)
    without = f"; {findings.without_steps} record no step that can be judged" if findings.without_steps else ""
    return (
        f"{format_count(len(findings.traces), 'trace')} with steps: a faulty step in {counts['fault']}, "
        f"none in {counts['no fault']}, cannot tell {counts['cannot tell']}{without}"
    )


def _describe_trace(finding: FaultyStep) -> list[RenderableType]:
    """Describe the suspected steps of one trace, the most probable first."""
    answered = OUTCOME_WORDS[finding.outcome].format(same=finding.same_answers, others=finding.other_runs)
    known = f"{format_count(finding.step_count, 'step')} that could be faulty{answered}"
    none = "" if finding.none_probability is None else f"; no faulty step: {format_percent(finding.none_probability)}"
    lines: list[RenderableType] = [
        build_line(
            (clean_text(finding.trace), "bold"),
            "  ",
            (finding.status, VERDICT_STYLES[finding.status]),
            f"  {known}{none if finding.reason is None else ''}",
        )
    ]
    return [*lines, *(indent_line(2, format_step_suspect(suspect)) for suspect in finding.suspects)]


def render_conversations_terminal(outcomes: Sequence[ConversationOutcome], *, color: bool = False) -> str:
    """Render how many conversations went wrong at which turn, and each of them with the problems of that turn."""
    if not outcomes:
        return render_rich([build_line("no trace belongs to a conversation")], color=color)
    turns = Counter(outcome.faulty_turn.turn for outcome in outcomes if outcome.faulty_turn is not None)
    places = ", ".join(f"turn {turn}: {count}" for turn, count in sorted(turns.items()))
    right = sum(all(turn.state == "right" for turn in outcome.turns) for outcome in outcomes)
    counts = f"{len(outcomes)} conversations: {right} right throughout, {turns.total()} first wrong at a known turn"
    parts: list[RenderableType] = [build_line((counts + (f" ({places})" if places else ""), "bold"))]
    for outcome in outcomes:
        wrong = outcome.faulty_turn
        seen = (
            f": {clean_text(wrong.trace)}, {', '.join(wrong.problems).replace('_', ' ')}" if wrong is not None else ""
        )
        line = indent_line(2, (clean_text(outcome.conversation), "bold"), f"  {outcome.sentence}{seen}")
        parts.append(line)
    return render_rich(parts, color=color)
