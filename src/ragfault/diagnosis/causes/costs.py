"""What is wrong beside a right answer: a cost, which makes no answer bad and is counted apart."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.diagnosis.causes.rating import RIGHT_UP_TO
from ragfault.diagnosis.causes.records import AnswerCause, AnswerRating, CostCount, CostName
from ragfault.diagnosis.records import Diagnosis
from ragfault.model.gold_evidence import repeats_words
from ragfault.model.records import Trace, Verdicts
from ragfault.model.rules import BAD_SUPPORT

COST_TITLES: dict[CostName, str] = {
    "invented_beside": "also say what no passage says",
    "wrong_citation": "cite wrongly",
}
"""Every cost in words, after the number of right answers that have it."""
MAX_EXAMPLES = 5
"""Traces that a cost names."""


def find_costs(trace: Trace, verdicts: Verdicts, diagnosis: Diagnosis, rating: AnswerRating) -> tuple[CostName, ...]:
    """Find what is wrong beside a right answer; nothing for another one, whose cause says it.

    >>> from ragfault.diagnosis.diagnosis import diagnose_trace
    >>> from ragfault.model.records import ClaimVerdict
    >>> trace = Trace(id="1", query="When?", answer="At noon. A band plays.", reference="At noon.")
    >>> claim = ClaimVerdict(claim="A band plays.", start=9, end=22, support="unsupported", p=0.1)
    >>> verdicts = Verdicts(trace="1", claim=(claim,))
    >>> rating = AnswerRating(outcome="right", probability=0.01, source="answer key")
    >>> find_costs(trace, verdicts, diagnose_trace(trace, verdicts), rating)
    ('invented_beside',)
    """
    if rating.outcome != "right":
        return ()
    costs: list[CostName] = []
    refused = verdicts.answer is not None and verdicts.answer.refused
    if not refused and any(_is_invented(trace, verdicts, number) for number in range(len(verdicts.claim or ()))):
        costs.append("invented_beside")
    if any(problem.kind in ("bad_quote", "bad_citation") for problem in diagnosis.problems):
        costs.append("wrong_citation")
    return tuple(costs)


def _is_invented(trace: Trace, verdicts: Verdicts, number: int) -> bool:
    """Return whether neither the chunks nor the answer key support a claim."""
    claim, truths = (verdicts.claim or ())[number], verdicts.truth or ()
    if claim.support not in BAD_SUPPORT or (claim.p is not None and claim.p > RIGHT_UP_TO):
        return False
    if number < len(truths) and truths[number].status == "supported":
        return False
    return not any(repeats_words(trace.query, text, claim.claim) for text in (*trace.references, *(trace.facts or ())))


def count_costs(causes: Sequence[AnswerCause]) -> tuple[CostCount, ...]:
    """Count the right answers with each cost, most answers first.

    >>> count_costs([])
    ()
    """
    traces = {name: [cause.trace for cause in causes if name in cause.costs] for name in COST_TITLES}
    counts = [
        CostCount(cost=name, title=COST_TITLES[name], answers=len(own), examples=tuple(own[:MAX_EXAMPLES]))
        for name, own in traces.items()
        if own
    ]
    return tuple(sorted(counts, key=lambda count: -count.answers))
