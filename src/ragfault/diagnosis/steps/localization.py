"""Localisation of the first faulty step of a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from msgspec.structs import replace

from ragfault.diagnosis.steps.agreement import Agreement, measure_agreements, states_answer
from ragfault.diagnosis.steps.evidence import choose_layer, explain_move
from ragfault.diagnosis.steps.features import Array, compute_features
from ragfault.diagnosis.steps.model import OUTCOMES, Outcome, RunKind, load_step_model, select_members
from ragfault.diagnosis.steps.moves import Moves, group_moves
from ragfault.diagnosis.steps.records import FaultyStep, StepFindings, StepStatus, StepSuspect
from ragfault.model.records import Trace
from ragfault.text.normalization import normalize_answer

SHOWN_EVIDENCE = 3
UNSEEN_KINDS = ("rewrite", "route", "cite")
"""Kinds of steps that no labelled run has: the models often call correct rewrites faulty."""
FAILURES = ("call_not_executed", "tool_failed", "step_failed")
"""Faults that are facts, whatever a model was trained on."""
COMPARED_TRACES = 5000
"""Traces that are held at a time, within which runs of one question are compared."""
MAX_MOVES = 100
"""Steps that decide something, above which a trace is not judged: the work for one trace is bounded."""


def localize_faulty_steps(traces: Iterable[Trace], *, failed: bool = False, compared: bool = False) -> StepFindings:
    """Locate the first faulty step of each trace that records steps, without a model.

    `failed` says that every trace is known to have failed; `compared`, that findings are compared with those of another
    run of the same agent, on which kinds of steps that the models have not seen weigh alike. Where a trace has a
    reference, an answer that states it speaks against a faulty step, and one that differs from it for one. Where it has
    none, other runs of its question take that place: see `measure_agreements`.

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
    outcome = "failed" if failed else detect_outcome(trace)
    kinds = sorted({str(move.step.kind) for move in moves.moves if move.step.kind in UNSEEN_KINDS})
    if compared or not kinds:
        return localize_faulty_step(moves, outcome, agreement)
    judged = tuple(move for move in moves.moves if move.step.kind not in UNSEEN_KINDS or move.errors)
    undecided = FaultyStep(
        trace=trace.id,
        status="cannot tell",
        outcome=outcome,
        none_probability=None,
        step_count=len(moves.moves),
        reason=f"of {' and '.join(kinds)} steps, which no labelled run has, it is not known whether they are faulty",
    )
    if not judged:
        return undecided
    finding = localize_faulty_step(Moves(trace, judged), outcome, agreement)
    if finding.status == "fault" and finding.suspects[0].fault in FAILURES:
        return finding
    return replace(undecided, suspects=finding.suspects)


def localize_faulty_step(moves: Moves, outcome: Outcome, agreement: Agreement | None = None) -> FaultyStep:
    """Locate the first faulty step of one trace, given what is known of its answer."""
    if len(moves.moves) > MAX_MOVES:
        return FaultyStep(
            trace=moves.trace.id,
            status="cannot tell",
            outcome=outcome,
            none_probability=None,
            step_count=len(moves.moves),
            reason=f"the trace has more than {MAX_MOVES} steps that could be faulty",
        )
    kind = detect_run_kind(moves)
    # the model of teams was trained on failed runs alone
    known: Outcome = "failed" if kind == "team" else outcome
    agreement = agreement if known == "unknown" else None
    if agreement is not None:
        known = outcome = "compared"
    model, features = load_step_model(kind), compute_features(moves)
    posterior = model.predict_first_fault(features, known, agreement)
    members = select_members(posterior, float(model.thresholds[OUTCOMES.index(known)]))
    order = [number for number in (-posterior[:-1]).argsort(kind="stable").tolist() if members[number]]
    suspects = tuple(_build_suspect(moves, number, features, posterior) for number in order)
    allows_none = bool(members[-1]) or (kind == "team" and outcome not in ("differs", "failed"))
    best = int(posterior.argmax())
    if kind == "team" and outcome not in ("differs", "failed"):
        reason = "whether the run failed is not known: give references, or say that it failed"
    else:
        reason = "the steps that were seen leave it open whether one is faulty"
    status: StepStatus = "cannot tell" if suspects and allows_none else "fault" if suspects else "no fault"
    return FaultyStep(
        trace=moves.trace.id,
        status=status,
        outcome=outcome,
        suspects=suspects,
        best=_build_suspect(moves, best, features, posterior) if best < len(moves.moves) else None,
        none_probability=round(float(posterior[-1]), 4),
        step_count=len(moves.moves),
        reason=reason if status == "cannot tell" else None,
        same_answers=agreement.same if agreement else 0,
        other_runs=agreement.others if agreement else 0,
    )


def detect_outcome(trace: Trace) -> Outcome:
    """Detect whether the answer states a reference; unknown without references or an answer.

    An answer that differs from the references may still be right in other words.
    """
    references = [reference for reference in trace.references if normalize_answer(reference)]
    if not references or not trace.answer:
        return "unknown"
    return (
        "right" if any(states_answer(trace.answer, reference, trace.query) for reference in references) else "differs"
    )


def detect_run_kind(moves: Moves) -> RunKind:
    """Detect a team: several agents that talk to each other, none of which retrieves."""
    agents = {move.step.agent for move in moves.moves if move.step.agent}
    return "team" if len(agents) > 1 and not any(move.chunks for move in moves.moves) else "search"


def _build_suspect(moves: Moves, number: int, features: Array, posterior: Array) -> StepSuspect:
    move = moves.moves[number]
    evidence = explain_move(moves, number, features)
    fault = evidence[0].fault if evidence else "unexplained"
    return StepSuspect(
        step=move.step.id,
        probability=round(float(posterior[number]), 4),
        layer=choose_layer(move, fault),
        kind=move.step.kind,
        fault=fault,
        evidence=tuple(item.text for item in evidence[:SHOWN_EVIDENCE]),
        agent=move.step.agent,
    )
