"""Correction of figures: prediction-powered from human labels, and by the error on a judge card (Rogan and Gladen)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.io.runs.run import MetricInfo, Run
from ragfault.judges.cards.card import JudgeCard, require_card
from ragfault.labels.label import Subject, SubjectValue
from ragfault.labels.records import CardCorrection, LabelProvenance
from ragfault.model.errors import UnknownName
from ragfault.model.records import ChunkVerdict, FactVerdict, Verdicts
from ragfault.model.rules import get_rate_metric
from ragfault.stats.estimates import CorrectedShare, Interval, PpiDifference, PpiMean
from ragfault.stats.intervals import correct_share
from ragfault.stats.ppi import MIN_LABELS, UnlabeledSums, ppi_mean, ppi_paired_difference, ppi_unpaired_difference

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


class LabelValues(NamedTuple):
    """Human label values of one metric."""

    # NaN where there is no label
    values: Floats
    # sampling probability of each trace
    probabilities: Floats

    def select(self, rows: Codes | Mask) -> LabelValues:
        """Return the values of some traces."""
        return LabelValues(self.values[rows], self.probabilities[rows])


LabeledItems = Mapping[Subject, tuple[SubjectValue, ...]]
"""Item of a trace's verdicts → the values that its label may stand for: "bad" may be unsupported or contradicted."""
BY_LABEL = "by a human label"


class HumanLabels(Struct, frozen=True, kw_only=True):
    """Human labels, or those of a stronger judge: metric values on some of the traces of a run."""

    source: LabelProvenance
    values: Mapping[str, Mapping[str, float]]
    """Metric, by its full text → trace → value."""
    probabilities: Mapping[str, float] = {}
    """Trace → sampling probability; empty: all equal."""
    items: Mapping[str, LabeledItems] = {}
    """Trace → labels of the items of its verdicts; empty where only values of metrics are labelled."""

    def values_of(self, metric: str, ids: Sequence[str]) -> LabelValues | None:
        """Return the values of a metric on these traces, NaN where there is none; None where no trace has one."""
        known = self.values.get(metric)
        if not known:
            return None
        values = np.array([known.get(name, math.nan) for name in ids], dtype=np.float64)
        return LabelValues(values, np.array([self.probabilities.get(name, 1.0) for name in ids], dtype=np.float64))


# human labels of the baseline and of the candidate
PairedLabels = tuple[HumanLabels | None, HumanLabels | None]


def apply_labels(verdicts: Verdicts, items: LabeledItems) -> Verdicts:
    """Replace verdicts by labels, item by item; a verdict that its label may stand for stays, and what has no label.

    >>> from ragfault.model.records import ClaimVerdict
    >>> claim = ClaimVerdict(claim="Oslo is old.", start=0, end=12, support="unsupported")
    >>> items = {("claim", 0, 12): ("supported", "inferred")}
    >>> apply_labels(Verdicts(trace="1", claim=(claim,)), items).claim[0].support
    'supported'
    """
    if not items:
        return verdicts

    def differs(judged: object, *key: str | int) -> bool:
        return key in items and judged not in items[key]

    def label(record: Any, field: str, *key: str | int, **others: Any) -> Any:
        return replace(record, **{field: items[key][0]}, **others) if differs(getattr(record, field), *key) else record

    def label_chunk(item: ChunkVerdict) -> ChunkVerdict:
        grade = items.get(("chunk", item.chunk, "relevance"), (item.relevance,))[0]
        return cast(ChunkVerdict, label(item, "level", "chunk", item.chunk, "level", relevance=grade, reason=BY_LABEL))

    def label_fact(item: FactVerdict) -> FactVerdict:
        if not differs("contradicted" if item.contradicted else item.present, "fact", item.fact):
            return item
        word = items["fact", item.fact][0]
        return replace(item, present=word is True, contradicted=word == "contradicted")

    parts: dict[str, Callable[[Any], Any]] = {
        "claim": lambda item: label(
            item, "support", "claim", item.start, item.end, reason=BY_LABEL, unsure=False, unsupported_spans=()
        ),
        "chunk": label_chunk,
        "use": lambda item: label(item, "used", "use", item.chunk),
        "citation": lambda item: label(item, "supports", "citation", item.chunk, item.claim),
        "fact": label_fact,
        "recall": lambda item: label(item, "covered", "recall", item.statement),
    }
    changes = {name: tuple(map(change, getattr(verdicts, name) or ())) for name, change in parts.items()}
    changes = {name: part for name, part in changes.items() if part}
    if differs(verdicts.missing, "missing"):
        changes["missing"] = items["missing",][0]  # type: ignore[assignment]
    if verdicts.answer is not None:
        answer = label(label(verdicts.answer, "refused", "answer", "refused"), "relevance", "answer", "relevance")
        aspects = tuple(label(aspect, "answered", "aspect", aspect.text) for aspect in answer.aspects)
        changes["answer"] = replace(answer, aspects=aspects)
    return replace(verdicts, **changes)


def metric_bounds(measure: MetricInfo) -> tuple[float, float]:
    """Return the range of a metric, infinite where it has no end."""
    low, high = measure.low, measure.high
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def correct_mean(
    judged: Floats,
    labels: LabelValues,
    clusters: Codes | None,
    measure: MetricInfo,
    unlabeled: UnlabeledSums | None = None,
) -> PpiMean | None:
    """Correct the mean of the judge's scores by human labels; None where no trace is labelled.

    `unlabeled` holds further traces that the judge scored and nobody labelled, as sums.
    """
    if not bool(np.isfinite(labels.values).any()):
        return None
    return ppi_mean(
        judged,
        labels.values,
        clusters,
        sampling_probabilities=labels.probabilities,
        unlabeled=unlabeled,
        bounds=metric_bounds(measure),
    )


class LabeledScores(NamedTuple):
    """Scores of one run on the compared pairs, with the human labels of the same pairs."""

    scores: Floats
    labels: LabelValues | None


def correct_difference(
    baseline: LabeledScores, candidate: LabeledScores, clusters: Codes | None, measure: MetricInfo
) -> PpiDifference | None:
    """Correct the difference of a metric on scored pairs by human labels; None where neither run is labelled.

    Pairs labelled on both sides are used where there are enough, sampled alike; otherwise each side by itself.
    """
    old, new = baseline.labels, candidate.labels
    if old is None or new is None:
        if old is new:
            return None
        side = "baseline" if new is None else "candidate"
        return PpiDifference(None, None, 0, reason=f"only the {side} is labelled")
    left, right = (baseline.scores, old.values), (candidate.scores, new.values)
    bounds = metric_bounds(measure)
    both = np.isfinite(old.values + new.values)
    same_sampling = bool((old.probabilities[both] == new.probabilities[both]).all())
    fewest = min(int(np.isfinite(labels.values).sum()) for labels in (old, new))
    if (int(both.sum()) < MIN_LABELS or not same_sampling) and fewest >= MIN_LABELS:
        groups = None if clusters is None else (clusters, clusters)
        probabilities = old.probabilities, new.probabilities
        return ppi_unpaired_difference(left, right, groups, sampling_probabilities=probabilities, bounds=bounds)
    return ppi_paired_difference(left, right, clusters, sampling_probabilities=new.probabilities, bounds=bounds)


CardChoice = bool | str | JudgeCard
"""Correction by the card of the run's judge (True), by its figures for a shape of answers, or by a given card.
"""


def load_correction(run: Run, metrics: tuple[str, ...], choice: CardChoice) -> CardCorrection | None:
    """Load the correction of the metrics of a run; None where none was requested.

    Raises UsageError where the judge of the run has no card, or one of another version or other settings;
    UnknownName for a shape on which its error was not measured.
    """
    if choice is False:
        return None
    card = choice if isinstance(choice, JudgeCard) else require_card(run.manifest.judge)
    shape = choice if isinstance(choice, str) else None
    if shape is not None and shape not in card.shapes:
        raise UnknownName("shape of answers on the card", shape, card.shapes)
    kinds = dict.fromkeys(rate.verdict for rate in map(get_rate_metric, metrics) if rate is not None)
    figures = (card.select_entry(kind, shape) for kind in kinds)
    return CardCorrection(judge=card.judge, figures=tuple(entry for entry in figures if entry is not None))


def correct_interval(metric: str, interval: Interval | None, correction: CardCorrection) -> CorrectedShare | None:
    """Correct a mean and its interval; None without a value, and for a metric that is no rate.

    The positive class is the bad one, so a share of good units is corrected through its complement.
    """
    rate = get_rate_metric(metric)
    if rate is None or interval is None:
        return None
    entry = next((entry for entry in correction.figures if entry.corrects == rate.verdict), None)
    if entry is None or entry.sensitivity is None or entry.specificity is None:
        return CorrectedShare(None, f"the error of {rate.verdict} verdicts is not on the card")
    result = correct_share(
        _complement(interval) if rate.counts_positives else interval, entry.sensitivity, entry.specificity
    )
    if result.interval is None or not rate.counts_positives:
        return result
    return CorrectedShare(_complement(result.interval))


def _complement(interval: Interval) -> Interval:
    return Interval(1 - interval.mean, 1 - interval.high, 1 - interval.low, interval.n, interval.clusters)
