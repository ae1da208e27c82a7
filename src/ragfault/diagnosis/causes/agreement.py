"""How far ragfault agrees with people on whether an answer is bad, at which stage and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ragfault.diagnosis.causes.records import AnswerCause, CauseAgreement, CauseAgreementCount
from ragfault.diagnosis.causes.storage import CAUSE_SUBJECT
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.labels.correction import LabeledItems
from ragfault.model.grouping import group_by
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval


def measure_cause_agreement(
    computed: Sequence[AnswerCause], items: Mapping[str, LabeledItems]
) -> CauseAgreement | None:
    """Measure how often the causes that ragfault computes are those that people name; None without such a label.

    An answer that ragfault is unsure of, or calls right while people call it bad, agrees in neither stage nor cause.

    >>> measure_cause_agreement([], {}) is None
    True
    """
    labels = {name: str(own[CAUSE_SUBJECT][0]) for name, own in items.items() if CAUSE_SUBJECT in own}
    pairs = [(cause, labels[cause.trace]) for cause in computed if cause.trace in labels]
    if not pairs:
        return None
    outcomes = [cause.rating.outcome == ("right" if label == "right" else "bad") for cause, label in pairs]
    bad = group_by([pair for pair in pairs if pair[1] != "right"], lambda pair: pair[1])
    counts = [
        CauseAgreementCount(
            cause=name,
            stage=CAUSES[name].stage,
            answers=len(bad[name]),
            same_stage=sum(cause.stage == CAUSES[name].stage for cause, _ in bad[name]),
            same_cause=sum(cause.cause == name for cause, _ in bad[name]),
        )
        for name in CAUSES
        if name in bad
    ]
    total = sum(count.answers for count in counts)
    outcome = _estimate_share(sum(outcomes), len(outcomes))
    assert outcome is not None
    return CauseAgreement(
        answers=len(pairs),
        outcome=outcome,
        stage=_estimate_share(sum(count.same_stage for count in counts), total),
        cause=_estimate_share(sum(count.same_cause for count in counts), total),
        causes=tuple(sorted(counts, key=lambda count: -count.answers)),
    )


def _estimate_share(part: int, total: int) -> Interval | None:
    return mean_interval(np.repeat([1.0, 0.0], [part, total - part]), bounds=(0.0, 1.0)) if total else None
