"""Agreement of a run with other runs of its question: runs of several agents, or repeated runs of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ragfault.diagnosis.steps.short_answers import extract_marked_answer, extract_short_answer, gives_up
from ragfault.judges.checks.answers import contains_fact
from ragfault.model.records import Trace
from ragfault.text.normalization import normalize_answer

MAX_OTHERS = 4
"""Other runs that a run is compared with: bounded work, and as many as the rule was measured with."""


class Agreement(NamedTuple):
    """Number of other runs of a question that give the answer of this run."""

    same: int
    others: int
    """Other runs that were compared, 1 to `MAX_OTHERS`."""


def measure_agreements(traces: Sequence[Trace]) -> Iterator[Agreement | None]:
    """Measure the agreement of each trace with other runs of its question; None where there is none to compare with.

    A turn of a conversation is not compared, since its question may mean another thing in another conversation; nor a
    run that did and answered exactly the same, which tells nothing new. A refusal agrees with no answer.

    >>> traces = [Trace(id=id, query="When was Oslo founded?", answer=answer) for id, answer in
    ...           (("a", "In 1040."), ("b", "Oslo was founded in 1040."), ("c", "It was 1040"), ("d", "In 1624."))]
    >>> [(agreement.same, agreement.others) for agreement in measure_agreements(traces)]
    [(2, 3), (2, 3), (2, 3), (0, 3)]
    """
    runs: dict[str, dict[tuple[object, ...], Trace]] = {}
    for trace in traces:
        if _is_comparable(trace):
            runs.setdefault(trace.query, {}).setdefault(_collect_content(trace), trace)
    for trace in traces:
        others = _pick_others(trace, runs.get(trace.query, {}) if _is_comparable(trace) else {})
        same = sum(agree(trace, other) for other in others)
        yield Agreement(same, len(others)) if others else None


def agree(trace: Trace, other: Trace) -> bool:
    """Return whether one of two answers to a question states the other; never where one refuses."""
    left, right = (extract_short_answer(run.answer or "") for run in (trace, other))
    if gives_up(left) or gives_up(right):
        return False
    return states_answer(left, right, trace.query) or states_answer(right, left, trace.query)


def states_answer(answer: str, expected: str, query: str) -> bool:
    """Return whether an answer states an expected one; "yes" and "no" have to be its first word.

    >>> states_answer("Yes, both are plants.", "yes", "Are both plants?"), states_answer("No.", "yes", "Is it?")
    (True, False)
    """
    if normalize_answer(expected) in ("yes", "no"):
        return normalize_answer(extract_marked_answer(answer)).split()[:1] == [normalize_answer(expected)]
    return contains_fact(expected, extract_marked_answer(answer), query)


def _is_comparable(trace: Trace) -> bool:
    return bool(trace.answer) and not trace.history and trace.conversation is None


def _collect_content(trace: Trace) -> tuple[object, ...]:
    return trace.answer, *((step.kind, step.input, step.output, step.chunks) for step in trace.steps or ())


def _pick_others(trace: Trace, runs: dict[tuple[object, ...], Trace]) -> list[Trace]:
    """Return the first runs of the question whose content is another."""
    own, others = _collect_content(trace) if runs else (), list[Trace]()
    for content, other in runs.items():
        if content != own:
            others.append(other)
        if len(others) == MAX_OTHERS:
            break
    return others
