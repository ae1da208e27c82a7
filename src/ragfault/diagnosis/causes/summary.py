"""The causes of a run: how many answers are right, bad or unsure, and how many are bad for which cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from ragfault.diagnosis.causes.records import AnswerCause, AnswerCounts, CauseCount, CauseName
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.score_matrix import estimate_mean
from ragfault.labels.correction import Codes

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
    return AnswerCounts(
        right=outcomes["right"],
        bad=outcomes["bad"],
        unsure=outcomes["unsure"],
        share=estimate_mean(bad[decided], None if clusters is None else clusters[decided]) if decided.any() else None,
        sources=dict(sources.most_common()),
        causes=tuple(_count_each(cause for cause in causes if cause.cause is not None)),
    )


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
            examples=tuple(item.trace for item in sorted(own, key=_rank_example)[:MAX_EXAMPLES]),
        )
        for name, own in by_name.items()
    ]
    return sorted(
        counts, key=lambda count: (count.cause == "undecided", -count.answers, list(CAUSES).index(count.cause))
    )


def _rank_example(cause: AnswerCause) -> tuple[float, float]:
    return -(cause.probability or 0.0), -cause.rating.probability
