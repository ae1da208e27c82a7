"""Human labels in place of a judge's verdicts, and the metrics computed from both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from msgspec import Struct

from ragfault.io.runs.run import Run
from ragfault.judges.assembly import grade_relevance
from ragfault.labels.correction import LabeledItems
from ragfault.labels.judges.measurement import MetricAgreement
from ragfault.labels.label import Subject, SubjectValue
from ragfault.labels.reading.labeled_traces import LabeledTrace
from ragfault.metrics.catalog import Metric, compute_score, parse_metric
from ragfault.metrics.selection import DEFAULT_METRICS
from ragfault.model.errors import UsageError
from ragfault.model.protocols import VERDICT_KINDS
from ragfault.model.records import Trace, Verdicts
from ragfault.model.rules import BAD_SUPPORT
from ragfault.stats.bootstrap import FloatArray, Resampling, bootstrap_estimates
from ragfault.stats.differences import paired_difference
from ragfault.stats.estimates import BootstrapEstimate
from ragfault.stats.intervals import mean_interval

SubjectValues = Mapping[Subject, SubjectValue]


class LabelReading(Struct, frozen=True):
    """Possible interpretation of the labels of a trace."""

    values: SubjectValues
    # parts of the verdicts that were reviewed
    reviewed_parts: frozenset[str]


class _PartialRecord:
    """Record of the labeled fields only; reading any other field fails."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update({name: value for name, value in fields.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no label has {name}")


def list_metrics(run: Run) -> list[Metric]:
    """List the metrics of a run that depend on verdicts and are defined here."""
    metrics = []
    for measure in run.manifest.metrics:
        try:
            metric = parse_metric(measure.name)
        except UsageError:
            continue
        if metric.definition.verdicts:
            metrics.append(metric)
    return metrics


def compute_values(
    metrics: Iterable[Metric], trace: Trace, verdicts: Verdicts, readings: Sequence[LabelReading]
) -> Iterator[tuple[str, float | None]]:
    """Compute each metric from the labels of a trace, where everything it reads was labeled.

    That depends on the reviewed parts, never on the labels: otherwise traces would be selected by their outcome. The
    value is None where the `readings` disagree.
    """
    overlays: list[Any] = [overlay_labels(verdicts, overlay) for overlay in readings]
    reviewed = readings[0].reviewed_parts
    for metric in metrics:
        if reviewed.isdisjoint(metric.definition.verdicts):
            continue
        scores = [compute_score(metric, trace, overlay) for overlay in overlays]
        if all(row.value is not None for row in scores):
            equal = all(row.value == scores[0].value for row in scores)
            yield str(metric), scores[0].value if equal else None


def overlay_labels(verdicts: Verdicts, reading: LabelReading) -> Any:
    """Replace the judge's verdicts by labels; a part is readable where all of it was labeled, or it is empty.

    >>> from ragfault.model.records import AnswerVerdict
    >>> reading = LabelReading({("answer", "refused"): True}, frozenset(["answer"]))
    >>> overlay = overlay_labels(Verdicts(trace="1", answer=AnswerVerdict(relevance=0.4)), reading)
    >>> overlay.answer.refused, hasattr(overlay.answer, "relevance")
    (True, False)
    """
    failed = set(VERDICT_KINDS) if "*" in verdicts.failures else set(verdicts.failures)
    overlay = _PartialRecord(trace=verdicts.trace, judge=verdicts.judge, failures={})
    for kind in VERDICT_KINDS:
        judged = getattr(verdicts, kind)
        if kind in failed:
            continue
        if judged is None or (kind in ITEM_OVERLAYS and not judged):
            setattr(overlay, kind, judged)
        elif kind in reading.reviewed_parts and (labeled := _overlay_part(kind, judged, reading.values)) is not None:
            setattr(overlay, kind, labeled)
    return overlay


def _overlay_part(kind: str, judged: Any, labels: SubjectValues) -> Any:
    """Return a part from labels; None where not all of it was labeled."""
    if kind == "missing":
        return labels.get(("missing",))
    if kind == "answer":
        return _overlay_answer(judged, labels)
    items = [ITEM_OVERLAYS[kind](item, labels) for item in judged]
    return None if None in items else tuple(items)


def _overlay_chunk(verdict: Any, labels: SubjectValues) -> _PartialRecord | None:
    word, relevance = (labels.get(("chunk", verdict.chunk, name)) for name in ("level", "relevance"))
    if word is None and relevance is None:
        return None
    return _PartialRecord(
        chunk=verdict.chunk, relevance=relevance, level=word or grade_relevance(float(str(relevance)))
    )


def _overlay_use(verdict: Any, labels: SubjectValues) -> _PartialRecord | None:
    word = labels.get(("use", verdict.chunk))
    return None if word is None else _PartialRecord(chunk=verdict.chunk, used=word)


def _overlay_claim(verdict: Any, labels: SubjectValues) -> _PartialRecord | None:
    word = labels.get(("claim", verdict.start, verdict.end))
    if word is None:
        return None
    return _PartialRecord(claim=verdict.claim, start=verdict.start, end=verdict.end, support=word)


def _overlay_citation(verdict: Any, labels: SubjectValues) -> _PartialRecord | None:
    word = labels.get(("citation", verdict.chunk, verdict.claim))
    return None if word is None else _PartialRecord(chunk=verdict.chunk, claim=verdict.claim, supports=word)


def _overlay_fact(verdict: Any, labels: SubjectValues) -> _PartialRecord | None:
    word = labels.get(("fact", verdict.fact))
    if word is None:
        return None
    return _PartialRecord(fact=verdict.fact, present=word is True, contradicted=word == "contradicted")


def _overlay_recall(verdict: Any, labels: SubjectValues) -> _PartialRecord | None:
    word = labels.get(("recall", verdict.statement))
    return None if word is None else _PartialRecord(statement=verdict.statement, covered=word)


def _overlay_answer(verdict: Any, labels: SubjectValues) -> _PartialRecord:
    """Return the answer field by field: its labels are independent."""
    aspects = [labels.get(("aspect", aspect.text)) for aspect in verdict.aspects]
    labeled = [_PartialRecord(text=a.text, answered=word) for a, word in zip(verdict.aspects, aspects, strict=True)]
    return _PartialRecord(
        relevance=labels.get(("answer", "relevance")),
        refused=labels.get(("answer", "refused")),
        aspects=None if None in aspects else tuple(labeled),
    )


ITEM_OVERLAYS: dict[str, Callable[[Any, SubjectValues], _PartialRecord | None]] = {
    "chunk": _overlay_chunk,
    "use": _overlay_use,
    "claim": _overlay_claim,
    "citation": _overlay_citation,
    "fact": _overlay_fact,
    "recall": _overlay_recall,
}
"""Part → overlay of one item."""


CLAIM_MEANINGS: dict[bool, tuple[str, str]] = {True: BAD_SUPPORT, False: ("supported", "inferred")}
"""A claim is labeled bad → verdicts this may stand for."""

CHUNK_MEANINGS: dict[bool, tuple[tuple[str, float], ...]] = {
    True: (("high", 1.0), ("medium", 0.5)),
    False: (("none", 0.0), ("low", 0.25)),
}
"""A chunk is labeled relevant → verdicts this may stand for."""


def read_grades(labeled: LabeledTrace, max_grade: int = 1) -> list[LabelReading]:
    """Return every reading of the labels of chunks: relevant ones as high or medium, others as none or low.

    With a highest grade above 1 the grades themselves count, as shares of it.
    """
    readings = []
    for positive, negative in product(*(CHUNK_MEANINGS[relevant] for relevant in (True, False))):
        values: dict[Subject, SubjectValue] = {}
        for chunk, grade in (labeled.grades or {}).items():
            level, relevance = positive if grade.relevant else negative
            if max_grade > 1 and grade.grade is not None:
                relevance = grade.grade / max_grade
                level = grade_relevance(relevance)
            values["chunk", chunk, "level"], values["chunk", chunk, "relevance"] = level, relevance
        readings.append(LabelReading(values, frozenset(["chunk"])))
    return readings


def read_marks(labeled: LabeledTrace, verdicts: Verdicts) -> list[LabelReading]:
    """Return the readings of labeled claims and spans for the judge's claims: bad where any bad one overlaps."""
    marks = [(claim.start, claim.end, claim.positive) for claim in labeled.claims or () if claim.start >= 0]
    complete = labeled.claims is None and labeled.spans is not None and (bool(labeled.spans) or not labeled.positive)
    marks += [(start, end, True) for start, end in labeled.spans or ()]
    if not marks and not complete:
        return [LabelReading({}, frozenset())]
    readings: list[dict[Subject, SubjectValue]] = [{}, {}]
    for claim in verdicts.claim or ():
        overlapping = [is_bad for start, end, is_bad in marks if start < claim.end and claim.start < end]
        if overlapping or complete:
            for values, support in zip(readings, CLAIM_MEANINGS[any(overlapping)], strict=True):
                values["claim", claim.start, claim.end] = support
    return [LabelReading(values, frozenset(["claim"])) for values in readings]


def list_labeled_items(readings: Sequence[LabelReading]) -> LabeledItems:
    """List the items of reviewed parts with the values that their labels may stand for, in the order of the readings.

    A chunk that is labelled by its relevance alone gets the level of that relevance.

    >>> list_labeled_items([LabelReading({("fact", "a"): word}, frozenset(["fact"])) for word in (True, False)])
    {('fact', 'a'): (True, False)}
    """
    items: dict[Subject, dict[SubjectValue, None]] = {}
    for reading in readings:
        for key, value in reading.values.items():
            if key[0] in reading.reviewed_parts or (key[0] == "aspect" and "answer" in reading.reviewed_parts):
                items.setdefault(key, {})[value] = None
    for key in [key for key in items if key[0] == "chunk" and key[-1] == "relevance"]:
        items.setdefault(
            (*key[:-1], "level"), dict.fromkeys(grade_relevance(float(str(value))) for value in items[key])
        )
    return {key: tuple(values) for key, values in items.items()}


COMPARED_METRICS = ("context_relevance(low=0, medium=1)", *DEFAULT_METRICS)
"""Metrics to compare; the first is for chunks that are relevant or not."""

TraceReadings = Mapping[str, LabelReading]


def compare_metrics(
    labeled: Sequence[LabeledTrace],
    verdicts_by_trace: Sequence[Verdicts],
    options: Resampling,
    readings: TraceReadings | None = None,
) -> tuple[MetricAgreement, ...]:
    """Compare every metric that the labels determine, on the traces that both score.

    `readings` are labels of single items by trace; without them the labels are taken for all that they may
    mean, and a metric counts where all meanings agree.
    """
    metrics = [metric for metric in map(parse_metric, COMPARED_METRICS) if metric.definition.verdicts]
    max_grade = max((grade.max_grade for item in labeled for grade in (item.grades or {}).values()), default=0)
    rows: dict[str, list[tuple[int, float, float]]] = {}
    undetermined: set[str] = set()
    for index, (item, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        for name, value in compute_values(
            metrics, item.trace, verdicts, _list_readings(item, verdicts, max_grade, readings)
        ):
            judge_value = compute_score(parse_metric(name), item.trace, verdicts).value
            if value is None:
                undetermined.add(name)
            elif judge_value is not None:
                rows.setdefault(name, []).append((index, judge_value, value))
    if "context_relevance" not in undetermined:
        undetermined.add(COMPARED_METRICS[0])
    return tuple(
        compare_metric(metric, np.array([row[1:] for row in table]), [labeled[row[0]].group for row in table], options)
        for metric in metrics
        if str(metric) not in undetermined and (table := rows.get(str(metric)))
    )


def _list_readings(
    labeled: LabeledTrace, verdicts: Verdicts, max_grade: int, readings: TraceReadings | None
) -> list[LabelReading]:
    """List the readings of the labels of a trace."""
    if readings is not None:
        return [readings.get(labeled.trace.id, LabelReading({}, frozenset()))]
    return read_grades(labeled, max_grade) if labeled.grades is not None else read_marks(labeled, verdicts)


def compare_metric(metric: Metric, table: FloatArray, groups: Sequence[str], options: Resampling) -> MetricAgreement:
    """Compare the means of both, with their difference and correlation."""
    low, high = metric.range
    judge, human = table.T
    names = np.array(groups, object)
    correlation = _compute_correlation(judge, human, groups, options)
    return MetricAgreement(
        metric=str(metric),
        layer=metric.definition.layer,
        n=len(table),
        judge=mean_interval(judge, names, bounds=(low, high), confidence=options.confidence),
        human=mean_interval(human, names, bounds=(low, high), confidence=options.confidence),
        difference=paired_difference(
            human, judge, names, bounds=(low, high), confidence=options.confidence, seed=options.seed
        ),
        correlation=correlation,
    )


def _compute_correlation(
    first: FloatArray, second: FloatArray, groups: Sequence[str], options: Resampling
) -> BootstrapEstimate:
    """Return Pearson's correlation with its interval over groups; None without variance."""
    columns = np.stack([np.ones_like(first), first, second, first * first, first * second, second * second], axis=1)

    def statistic(weights: FloatArray) -> FloatArray:
        n, a, b, aa, ab, bb = (weights @ columns).T
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.sqrt(np.maximum(n * aa - a * a, 0) * np.maximum(n * bb - b * b, 0))
            return np.where(spread > 1e-9, (n * ab - a * b) / spread, math.nan)[:, None]

    estimate = bootstrap_estimates(statistic, groups, options)[0]
    return BootstrapEstimate(*(None if value is None else min(1.0, max(-1.0, value)) for value in estimate))
