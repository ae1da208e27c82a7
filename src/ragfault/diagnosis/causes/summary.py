"""The causes of a run: how many answers are right, bad or unsure, and how many are bad for which cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from ragfault.diagnosis.causes.costs import count_costs
from ragfault.diagnosis.causes.records import AnswerCause, AnswerCounts, CauseCount, FixCount, RetrievalSummary
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.records import LayerHealth
from ragfault.diagnosis.score_matrix import estimate_mean
from ragfault.labels.correction import Codes
from ragfault.model.causes import CauseName
from ragfault.model.grouping import group_by

MAX_EXAMPLES = 5
"""Traces that a cause names."""


def count_causes(causes: Sequence[AnswerCause], clusters: Codes | None = None) -> AnswerCounts:
    """Count the answers of a run by outcome, and the bad ones by cause; `clusters` holds a code for each trace.

    The examples of a cause are those that show it most surely.

    >>> counts = count_causes([])
    >>> counts.bad, counts.share
    (0, None)
    """
    outcomes = Counter(cause.rating.outcome for cause in causes)
    decided = np.array([cause.rating.outcome != "unsure" for cause in causes], dtype=bool)
    bad = np.array([cause.rating.outcome == "bad" for cause in causes], dtype=bool)
    sources = Counter(cause.rating.source for cause in causes if cause.rating.source != "none")
    counts = _count_each(causes)
    return AnswerCounts(
        right=outcomes["right"],
        bad=outcomes["bad"],
        unsure=outcomes["unsure"],
        refusals=sum(cause.rating.refused for cause in causes),
        share=estimate_mean(bad[decided], None if clusters is None else clusters[decided]) if decided.any() else None,
        sources=dict(sources.most_common()),
        causes=tuple(counts),
        fixes=tuple(_rank_fixes(counts)),
        costs=count_costs(causes),
    )


def assess_health(
    causes: Sequence[AnswerCause], retrieval: RetrievalSummary | None, clusters: Codes | None = None
) -> tuple[LayerHealth, ...]:
    """Assess the health of retrieval and of generation; there is no global figure.

    >>> [health.interval for health in assess_health([], None)]
    [None, None]
    """
    reached = np.array([_reached_generator(cause) for cause in causes], dtype=bool)
    right = np.array([cause.rating.outcome == "right" for cause in causes], dtype=bool)[reached]
    generation = estimate_mean(right, None if clusters is None else clusters[reached])
    return (
        LayerHealth(
            name="retrieval_health",
            layer="retrieval",
            interval=None if retrieval is None else retrieval.recall,
            source=None if retrieval is None else retrieval.source,
        ),
        LayerHealth(
            name="generation_health",
            layer="generation",
            interval=generation,
            source=None if generation is None else "causes",
        ),
    )


def _reached_generator(cause: AnswerCause) -> bool:
    """Return whether an answer is right, or bad for no cause of an earlier stage."""
    return cause.rating.outcome == "right" or cause.stage in ("generation", "undecided")


def _count_each(causes: Iterable[AnswerCause]) -> list[CauseCount]:
    by_name: defaultdict[CauseName, list[AnswerCause]] = defaultdict(list)
    for cause in causes:
        if cause.cause is not None:
            by_name[cause.cause].append(cause)
    counts = [
        CauseCount(
            cause=name,
            stage=CAUSES[name].stage,
            title=CAUSES[name].title,
            fix=CAUSES[name].fix,
            answers=len(own),
            examples=tuple(item.trace for item in sorted(own, key=rank_example)[:MAX_EXAMPLES]),
        )
        for name, own in by_name.items()
    ]
    return sorted(
        counts, key=lambda count: (count.cause == "undecided", -count.answers, list(CAUSES).index(count.cause))
    )


def _rank_fixes(counts: Iterable[CauseCount]) -> list[FixCount]:
    """Rank what to change by the bad answers that it reaches: causes with the same fix go together."""
    groups = group_by((count for count in counts if count.cause != "undecided"), lambda count: count.fix)
    fixes = [
        FixCount(fix=fix, answers=sum(count.answers for count in own), causes=tuple(count.cause for count in own))
        for fix, own in groups.items()
    ]
    return sorted(fixes, key=lambda fix: -fix.answers)


def rank_example(cause: AnswerCause) -> tuple[float, float]:
    """Return the rank of a bad answer among those of its cause: lower where it shows the cause more surely."""
    return -(cause.probability or 0.0), -cause.rating.probability
