"""Metric by metric: what it comes to by the judge's verdicts, and by those of people, on the same traces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ragfault.agreement.figures import Terms
from ragfault.agreement.gathering import Labelled
from ragfault.agreement.overlay import Reading, values
from ragfault.agreement.readings import graded, marked
from ragfault.agreement.records import MetricAgreement
from ragfault.metrics import DEFAULT, Metric, parse, score
from ragfault.records import Verdicts
from ragfault.stats import Estimate, bootstrap, mean_interval, paired_difference
from ragfault.stats.groups import Floats

__all__ = ["METRICS", "compared", "scores"]

METRICS = ("context_relevance(low=0, medium=1)", *DEFAULT)
"""The metrics that are tried; the first is that of chunks that are relevant or not."""

Said = Mapping[str, Reading]


def scores(
    labelled: Sequence[Labelled], seen: Sequence[Verdicts], terms: Terms, said: Said | None = None
) -> tuple[MetricAgreement, ...]:
    """Every metric of which the labels say enough, in the order of the catalogue, each on the traces that both score.

    `said` are the words on single items, by trace; without them the labels are taken for what they may mean, and a
    metric counts where all that they may mean comes to the same.
    """
    wanted = [metric for metric in map(parse, METRICS) if metric.definition.verdicts]
    top = max((grade.top for one in labelled for grade in (one.grades or {}).values()), default=0)
    rows: dict[str, list[tuple[int, float, float]]] = {}
    vague: set[str] = set()
    for at, (one, verdicts) in enumerate(zip(labelled, seen, strict=True)):
        for name, value in values(wanted, one.trace, verdicts, _readings(one, verdicts, top, said)):
            ours = score(parse(name), one.trace, verdicts).value
            if value is None:
                vague.add(name)
            elif ours is not None:
                rows.setdefault(name, []).append((at, ours, value))
    if "context_relevance" not in vague:
        vague.add(METRICS[0])
    return tuple(
        compared(
            metric, np.array([row[1:] for row in found]), [labelled[row[0]].group for row in found], terms
        )
        for metric in wanted
        if str(metric) not in vague and (found := rows.get(str(metric)))
    )


def _readings(one: Labelled, seen: Verdicts, top: int, said: Said | None) -> list[Reading]:
    """What people said of a trace, in every way in which it can be understood."""
    if said is not None:
        return [said.get(one.trace.id, Reading({}, frozenset()))]
    return graded(one, top) if one.grades is not None else marked(one, seen)


def compared(metric: Metric, table: Floats, groups: Sequence[str], terms: Terms) -> MetricAgreement:
    """The means of both, their difference, and how they go together."""
    low, high = metric.range
    judge, people = table.T
    names = np.array(groups, object)
    together = _correlation(judge, people, groups, terms)
    return MetricAgreement(
        metric=str(metric),
        layer=metric.definition.layer,
        n=len(table),
        judge=mean_interval(judge, names, bounds=(low, high), confidence=terms.confidence),
        people=mean_interval(people, names, bounds=(low, high), confidence=terms.confidence),
        difference=paired_difference(
            people, judge, names, bounds=(low, high), confidence=terms.confidence, seed=terms.seed
        ),
        correlation=together,
    )


def _correlation(one: Floats, other: Floats, groups: Sequence[str], terms: Terms) -> Estimate:
    """Pearson's correlation with its interval over groups; None where one of them does not vary."""
    columns = np.stack([np.ones_like(one), one, other, one * one, one * other, other * other], axis=1)

    def statistic(weights: Floats) -> Floats:
        n, a, b, aa, ab, bb = (weights @ columns).T
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.sqrt(np.maximum(n * aa - a * a, 0) * np.maximum(n * bb - b * b, 0))
            return np.where(spread > 1e-9, (n * ab - a * b) / spread, math.nan)[:, None]

    found = bootstrap(
        statistic, groups, resamples=terms.resamples, seed=terms.seed, confidence=terms.confidence
    )[0]
    return Estimate(*(None if each is None else min(1.0, max(-1.0, each)) for each in found))
