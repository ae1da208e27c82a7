"""Metric by metric: what it comes to by the judge's verdicts, and by those of people, on the same traces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ragfault.agreement.figures import Terms
from ragfault.agreement.gathering import Labelled
from ragfault.agreement.people import said_of, worded
from ragfault.agreement.records import MetricAgreement
from ragfault.metrics import DEFAULT, Metric, parse, score
from ragfault.records import Trace, Verdicts
from ragfault.runs.labels import Key, Word
from ragfault.stats import Estimate, bootstrap, mean_interval, paired_difference
from ragfault.stats.groups import Floats

__all__ = ["scores"]

BINARY = ("context_relevance(low=0, medium=1)", "context_precision", "groundedness")
"""The metrics that do not ask how relevant a chunk is, or how a claim is unsupported."""

READ: dict[str, tuple[str, ...]] = {
    "refusal": ("refused",),
    "answer_relevance": ("relevance",),
    "completeness": ("fact",),
}
"""Metric → what people must have spoken of, where that is not all that the metric's verdicts hold."""

Words = Sequence[Mapping[Key, Word]]


def scores(
    labelled: Sequence[Labelled],
    seen: Sequence[Verdicts],
    terms: Terms,
    words: Mapping[str, Mapping[Key, Word]] | None = None,
) -> tuple[MetricAgreement, ...]:
    """Every metric of which the labels say enough, in the order of the catalogue, each on the traces that both score.

    `words` are what people said of each item, by trace; without them the labels are taken for what they say.
    """
    top = max((grade.top for one in labelled for grade in (one.grades or {}).values()), default=0)
    said = [
        words.get(one.trace.id, {}) if words is not None else said_of(one, verdicts, top)
        for one, verdicts in zip(labelled, seen, strict=True)
    ]
    people = [worded(verdicts, each) for verdicts, each in zip(seen, said, strict=True)]
    spoken = frozenset(part for _, parts in people for part in parts)
    found = []
    for metric in _metrics(spoken, words is not None, top):
        need = frozenset(_needs(metric))
        rows = [
            (at, one.trace, verdicts, theirs)
            for at, (one, verdicts, (theirs, parts)) in enumerate(zip(labelled, seen, people, strict=True))
            if need <= parts
        ]
        values = [(at, *_pair(metric, trace, ours, theirs)) for at, trace, ours, theirs in rows]
        kept = [(at, ours, theirs) for at, ours, theirs in values if ours is not None and theirs is not None]
        if kept:
            table = np.array([(ours, theirs) for _, ours, theirs in kept])
            found.append(_made(metric, table, [labelled[at].group for at, *_ in kept], terms))
    return tuple(found)


def _needs(metric: Metric) -> tuple[str, ...]:
    return READ.get(metric.name, metric.definition.verdicts)


def _metrics(spoken: frozenset[str], words: bool, top: int) -> Iterator[Metric]:
    """The metrics that the labels can speak of."""
    for text in dict.fromkeys((BINARY[0], *DEFAULT)):
        metric = parse(text)
        need = frozenset(_needs(metric))
        if not need or not need <= spoken or (text == BINARY[0] and (words or top > 1)):
            continue
        if words or text in BINARY or (need == {"chunk"} and top > 1):
            yield metric


def _pair(
    metric: Metric, trace: Trace, ours: Verdicts, theirs: Verdicts
) -> tuple[float | None, float | None]:
    return score(metric, trace, ours).value, score(metric, trace, theirs).value


def _made(metric: Metric, table: Floats, groups: Sequence[str], terms: Terms) -> MetricAgreement:
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
