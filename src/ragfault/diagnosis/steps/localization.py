"""Localisation of the first faulty step of a trace, by two rules.

Whether a step is faulty is decided by the answer: right if it states a reference or another run of the question agrees,
else wrong. Which step is faulty: the first one that visibly failed, else the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Literal

from ragfault.diagnosis.steps.agreement import Agreement, measure_agreements, states_answer
from ragfault.diagnosis.steps.evidence import FAILURES, choose_layer, explain_move
from ragfault.diagnosis.steps.moves import Moves, group_moves
from ragfault.diagnosis.steps.records import FaultyStep, StepFindings, StepStatus, StepSuspect
from ragfault.model.records import Trace
from ragfault.text.normalization import normalize_answer, split_words

Outcome = Literal["unknown", "right", "differs", "failed", "compared"]

SHOWN_EVIDENCE = 3
COMPARED_TRACES = 5000
"""Traces that are held at a time, within which runs of one question are compared."""
MAX_MOVES = 100
"""Steps that decide something, above which a trace is not judged: the work for one trace is bounded."""
MAX_SHORT_REFERENCE = 6
"""Words of a reference up to which an answer that does not state it differs from it: names, dates and amounts."""
UNKNOWN_REASON = (
    "whether the answer is right is not known: give short references or repeated runs, or say that it failed"
)
DISAGREEMENT_REASON = "the one other run of its question gives another answer: either may be wrong"
TEAM_REASON = "the run is of a team of agents, of which no rule names the first faulty step reliably"


def localize_faulty_steps(traces: Iterable[Trace], *, failed: bool = False, compared: bool = False) -> StepFindings:
    """Locate the first faulty step of each trace that records steps, without a model.

    `failed` says that every trace is known to have failed; `compared`, that findings are compared with those of another
    run of the same agent: then the first step against which anything was seen is taken. A reference decides whether
    the answer is right; where there is none, other runs of the question do: see `measure_agreements`.

    >>> from ragfault.model.records import Step
    >>> steps = (Step(id="1", kind="plan"), Step(id="2", kind="tool", parent="1", error="unknown tool"))
    >>> trace = Trace(id="a", query="When was Oslo founded?", steps=(*steps, Step(id="3", kind="generate", output="?")))
    >>> finding = localize_faulty_steps([trace, Trace(id="b", query="Who?")])
    >>> finding.without_steps, finding.traces[0].suspects[0].step, finding.traces[0].suspects[0].fault
    (1, '1', 'call_not_executed')
    """
    findings: list[FaultyStep] = []
    without = 0
    iterator = iter(traces)
    while batch := list(islice(iterator, COMPARED_TRACES)):
        agreements = [None] * len(batch) if failed or compared else measure_agreements(batch)
        for trace, agreement in zip(batch, agreements, strict=True):
            finding = localize_recorded_step(trace, failed=failed, compared=compared, agreement=agreement)
            if finding is None:
                without += 1
            else:
                findings.append(finding)
    counts = Counter(finding.best.fault for finding in findings if finding.best is not None)
    return StepFindings(traces=tuple(findings), without_steps=without, faults=dict(counts.most_common()))


def localize_recorded_step(
    trace: Trace, *, failed: bool = False, compared: bool = False, agreement: Agreement | None = None
) -> FaultyStep | None:
    """Locate the first faulty step of one trace; None where it records no step that could be judged."""
    moves = group_moves(trace)
    if not any(move.is_recorded for move in moves.moves):
        return None
    outcome: Outcome = "failed" if failed else detect_outcome(trace)
    agreement = agreement if outcome == "unknown" else None
    if agreement is not None:
        outcome = "compared"
    if len(moves.moves) > MAX_MOVES:
        return FaultyStep(
            trace=trace.id,
            status="cannot tell",
            outcome=outcome,
            step_count=len(moves.moves),
            reason=f"the trace has more than {MAX_MOVES} steps that could be faulty",
        )
    suspects = _list_suspects(moves)
    status, reason = _decide_status(outcome, agreement, suspects, compared=compared)
    best = suspects[0] if status == "fault" else None
    if compared:
        best = next((suspect for suspect in suspects if suspect.evidence), None)
    elif best is not None and best.fault not in FAILURES and is_team(moves):
        best, reason = None, TEAM_REASON
    if status != "fault":
        suspects = tuple(suspect for suspect in suspects if suspect.evidence and status == "cannot tell")
    return FaultyStep(
        trace=trace.id,
        status=status,
        outcome=outcome,
        suspects=suspects,
        best=best,
        step_count=len(moves.moves),
        reason=reason,
        same_answers=agreement.same if agreement else 0,
        other_runs=agreement.others if agreement else 0,
    )


def _list_suspects(moves: Moves) -> tuple[StepSuspect, ...]:
    """List the steps against which something was seen and the last one, what the rule names first."""
    last = len(moves.moves) - 1
    suspects = [_build_suspect(moves, number) for number in range(last + 1)]
    failed = next((number for number, suspect in enumerate(suspects) if suspect.fault in FAILURES), last)
    seen = [number for number, suspect in enumerate(suspects) if suspect.evidence]
    return tuple(suspects[number] for number in dict.fromkeys([failed, *seen, last]))


def _decide_status(
    outcome: Outcome, agreement: Agreement | None, suspects: tuple[StepSuspect, ...], *, compared: bool
) -> tuple[StepStatus, str | None]:
    """Decide whether a step is faulty, with the reason where that cannot be told."""
    if compared:
        return ("fault", None) if any(suspect.evidence for suspect in suspects) else ("no fault", None)
    if outcome == "right" or (agreement is not None and agreement.same):
        return "no fault", None
    if outcome in ("failed", "differs") or suspects[0].fault in FAILURES:
        return "fault", None
    if agreement is None:
        return "cannot tell", UNKNOWN_REASON
    return ("fault", None) if agreement.others > 1 else ("cannot tell", DISAGREEMENT_REASON)


def detect_outcome(trace: Trace) -> Outcome:
    """Detect whether the answer states a reference; unknown without a reference or an answer.

    An answer differs only from short references: what a sentence says can be said in other words.

    >>> detect_outcome(Trace(id="1", query="When was Oslo founded?", answer="In 1624.", reference="1040"))
    'differs'
    """
    references = [reference for reference in trace.references if normalize_answer(reference)]
    if not references or not trace.answer:
        return "unknown"
    if any(states_answer(trace.answer, reference, trace.query) for reference in references):
        return "right"
    is_short = all(len(split_words(reference)) <= MAX_SHORT_REFERENCE for reference in references)
    return "differs" if is_short else "unknown"


def is_team(moves: Moves) -> bool:
    """Tell whether a run is of several agents that talk to each other, none of which retrieves."""
    agents = {move.step.agent for move in moves.moves if move.step.agent}
    return len(agents) > 1 and not any(move.chunks for move in moves.moves)


def _build_suspect(moves: Moves, number: int) -> StepSuspect:
    move = moves.moves[number]
    evidence = explain_move(moves, number)
    fault = evidence[0].fault if evidence else "unexplained"
    return StepSuspect(
        step=move.step.id,
        layer=choose_layer(move, fault),
        kind=move.step.kind,
        fault=fault,
        evidence=tuple(item.text for item in evidence[:SHOWN_EVIDENCE]),
        agent=move.step.agent,
    )
