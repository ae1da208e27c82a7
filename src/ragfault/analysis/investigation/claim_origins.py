"""The share of a run's unsupported claims that come from retrieval."""

from __future__ import annotations

from msgspec import Struct

from ragfault.analysis.run_analysis import diagnose_run
from ragfault.io.runs import AnyRun, open_run
from ragfault.stats import Interval, mean_interval

UNSUPPORTED_KINDS = ("unsupported_claim", "contradicted_claim")
RETRIEVAL_KINDS = ("nothing_retrieved", "nothing_relevant", "missing_context", "uncovered_statement")
"""Problems that say that the chunks did not hold what was asked for; a single irrelevant chunk does not."""


class ClaimOrigins(Struct, frozen=True, kw_only=True):
    """Origin of the unsupported and contradicted claims of a run."""

    claims: int
    traces: int
    """Traces with at least one such claim."""
    from_retrieval: Interval
    """Share of these claims on traces whose chunks did not hold what was asked for, resampled by trace."""
    without_fault: float | None
    """The same share among the traces without such a claim; None where there is none. What both have is no cause."""


def measure_claim_origins(run: AnyRun) -> ClaimOrigins | None:
    """Return the share of the unsupported claims of a run that stand where retrieval had failed before.

    An association by trace, by the verdicts of the judge (gold where there is some): the answer would have needed
    chunks that were not there. None where the run has no unsupported or contradicted claim.
    """
    values: list[float] = []
    traces: list[str] = []
    others: list[float] = []
    for diagnosis in diagnose_run(open_run(run)):
        kinds = [problem.kind for problem in diagnosis.problems]
        failed = float(any(kind in RETRIEVAL_KINDS for kind in kinds))
        count = sum(kind in UNSUPPORTED_KINDS for kind in kinds)
        values += [failed] * count
        traces += [diagnosis.trace] * count
        if not count:
            others.append(failed)
    if not values:
        return None
    return ClaimOrigins(
        claims=len(values),
        traces=len(set(traces)),
        from_retrieval=mean_interval(values, traces, bounds=(0.0, 1.0)),
        without_fault=sum(others) / len(others) if others else None,
    )
