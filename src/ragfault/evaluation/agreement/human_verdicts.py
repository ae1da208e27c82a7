"""Human labels in place of a judge's verdicts, and the metrics computed from both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from msgspec import Struct

from ragfault.errors import UsageError
from ragfault.evaluation.agreement.figures import IntervalOptions
from ragfault.evaluation.agreement.human_labels import VerdictKey, VerdictValue
from ragfault.evaluation.agreement.labeled_traces import LabeledTrace
from ragfault.evaluation.agreement.measurement import MetricAgreement
from ragfault.io.runs import Run
from ragfault.judges.assembly import grade_relevance
from ragfault.metrics import DEFAULT_METRICS, Metric, compute_score, parse_metric
from ragfault.protocols import VERDICT_KINDS
from ragfault.records import Trace, Verdicts
from ragfault.stats import BootstrapEstimate, bootstrap_estimates, mean_interval, paired_difference
from ragfault.stats.clusters import FloatArray

VerdictValues = Mapping[VerdictKey, VerdictValue]


class LabelReading(Struct, frozen=True):
    """One way in which to understand what was said of a trace."""

    values: VerdictValues
    reviewed_parts: frozenset[str]
    """The parts that were looked at."""


class _PartialRecord:
    """A record of which only what was said can be read; whoever reads more fails."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update({name: value for name, value in fields.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"nobody said {name}")


def list_metrics(run: Run) -> list[Metric]:
    """The metrics of a run that rest on verdicts, save those that are not defined here."""
    found = []
    for measure in run.manifest.metrics:
        try:
            metric = parse_metric(measure.name)
        except UsageError:
            continue
        if metric.definition.verdicts:
            found.append(metric)
    return found


def compute_values(
    metrics: Iterable[Metric], trace: Trace, verdicts: Verdicts, readings: Sequence[LabelReading]
) -> Iterator[tuple[str, float | None]]:
    """What people make of each metric on a trace, where they said all that it reads.

    Whether a metric has a value here depends on what was looked at, and never on what was seen there: else traces
    would be labelled by their outcome. None stands where the `readings` do not come to the same: what was said does
    not determine the metric, on this trace or on others.
    """
    seen: list[Any] = [overlay_labels(verdicts, each) for each in readings]
    looked = readings[0].reviewed_parts
    for metric in metrics:
        if looked.isdisjoint(metric.definition.verdicts):
            continue
        rows = [compute_score(metric, trace, each) for each in seen]
        if all(row.value is not None for row in rows):
            same = all(row.value == rows[0].value for row in rows)
            yield str(metric), rows[0].value if same else None


def overlay_labels(verdicts: Verdicts, reading: LabelReading) -> Any:
    """The verdicts with the words of people in the place of the judge's; a part can be read where all of it was said.

    So can one in which there is nothing to judge.

    >>> from ragfault.records import AnswerVerdict
    >>> words = {("answer", "refused"): True}
    >>> seen = overlay_labels(Verdicts(trace="1", answer=AnswerVerdict(relevance=0.4)), LabelReading(words, frozenset(["answer"])))
    >>> seen.answer.refused, hasattr(seen.answer, "relevance")
    (True, False)
    """
    lost = set(VERDICT_KINDS) if "*" in verdicts.failures else set(verdicts.failures)
    found = _PartialRecord(trace=verdicts.trace, judge=verdicts.judge, failures={})
    for part in VERDICT_KINDS:
        judged = getattr(verdicts, part)
        if part in lost:
            continue
        if judged is None or (part in ITEM_OVERLAYS and not judged):
            setattr(found, part, judged)
        elif (
            part in reading.reviewed_parts
            and (said := _overlay_part(part, judged, reading.values)) is not None
        ):
            setattr(found, part, said)
    return found


def _overlay_part(part: str, judged: Any, labels: VerdictValues) -> Any:
    """A part as people gave it; None where not all of it was said."""
    if part == "missing":
        return labels.get(("missing",))
    if part == "answer":
        return _overlay_answer(judged, labels)
    items = [ITEM_OVERLAYS[part](item, labels) for item in judged]
    return None if None in items else tuple(items)


def _overlay_chunk(verdict: Any, labels: VerdictValues) -> _PartialRecord | None:
    word, relevance = (labels.get(("chunk", verdict.chunk, name)) for name in ("level", "relevance"))
    if word is None and relevance is None:
        return None
    return _PartialRecord(
        chunk=verdict.chunk, relevance=relevance, level=word or grade_relevance(float(str(relevance)))
    )


def _overlay_use(verdict: Any, labels: VerdictValues) -> _PartialRecord | None:
    word = labels.get(("use", verdict.chunk))
    return None if word is None else _PartialRecord(chunk=verdict.chunk, used=word)


def _overlay_claim(verdict: Any, labels: VerdictValues) -> _PartialRecord | None:
    word = labels.get(("claim", verdict.start, verdict.end))
    if word is None:
        return None
    return _PartialRecord(claim=verdict.claim, start=verdict.start, end=verdict.end, support=word)


def _overlay_citation(verdict: Any, labels: VerdictValues) -> _PartialRecord | None:
    word = labels.get(("citation", verdict.chunk, verdict.claim))
    return None if word is None else _PartialRecord(chunk=verdict.chunk, claim=verdict.claim, supports=word)


def _overlay_fact(verdict: Any, labels: VerdictValues) -> _PartialRecord | None:
    word = labels.get(("fact", verdict.fact))
    if word is None:
        return None
    return _PartialRecord(fact=verdict.fact, present=word is True, contradicted=word == "contradicted")


def _overlay_recall(verdict: Any, labels: VerdictValues) -> _PartialRecord | None:
    word = labels.get(("recall", verdict.statement))
    return None if word is None else _PartialRecord(statement=verdict.statement, covered=word)


def _overlay_answer(verdict: Any, labels: VerdictValues) -> _PartialRecord:
    """The answer as a whole, field by field: these are said one by one."""
    aspects = [labels.get(("aspect", aspect.text)) for aspect in verdict.aspects]
    said = [
        _PartialRecord(text=a.text, answered=word) for a, word in zip(verdict.aspects, aspects, strict=True)
    ]
    return _PartialRecord(
        relevance=labels.get(("answer", "relevance")),
        refused=labels.get(("answer", "refused")),
        aspects=None if None in aspects else tuple(said),
    )


ITEM_OVERLAYS: dict[str, Callable[[Any, VerdictValues], _PartialRecord | None]] = {
    "chunk": _overlay_chunk,
    "use": _overlay_use,
    "claim": _overlay_claim,
    "citation": _overlay_citation,
    "fact": _overlay_fact,
    "recall": _overlay_recall,
}
"""Part → how one item of it is laid over."""


CLAIM_MEANINGS: dict[bool, tuple[str, str]] = {
    True: ("unsupported", "contradicted"),
    False: ("supported", "inferred"),
}
"""Whether people call a claim bad → what they may have meant by it."""

CHUNK_MEANINGS: dict[bool, tuple[tuple[str, float], ...]] = {
    True: (("high", 1.0), ("medium", 0.5)),
    False: (("none", 0.0), ("low", 0.25)),
}
"""Whether people call a chunk relevant → what they may have meant by it."""


def read_grades(labeled: LabeledTrace, max_grade: int = 1) -> list[LabelReading]:
    """Chunks that people call relevant or not: highly or just so, and not at all or a little, in every combination.

    With a highest grade above 1 their grades say which, as shares of it.
    """
    found = []
    for good, bad in product(*(CHUNK_MEANINGS[relevant] for relevant in (True, False))):
        words: dict[VerdictKey, VerdictValue] = {}
        for chunk, grade in (labeled.grades or {}).items():
            word, relevance = good if grade.relevant else bad
            if max_grade > 1 and grade.grade is not None:
                relevance = grade.grade / max_grade
                word = grade_relevance(relevance)
            words["chunk", chunk, "level"], words["chunk", chunk, "relevance"] = word, relevance
        found.append(LabelReading(words, frozenset(["chunk"])))
    return found


def read_marks(labeled: LabeledTrace, verdicts: Verdicts) -> list[LabelReading]:
    """The judge's claims by whether they touch what people marked: bad by any bad one."""
    marks = [(claim.start, claim.end, claim.positive) for claim in labeled.claims or () if claim.start >= 0]
    whole = (
        labeled.claims is None and labeled.spans is not None and (bool(labeled.spans) or not labeled.positive)
    )
    marks += [(start, end, True) for start, end in labeled.spans or ()]
    if not marks and not whole:
        return [LabelReading({}, frozenset())]
    found: list[dict[VerdictKey, VerdictValue]] = [{}, {}]
    for claim in verdicts.claim or ():
        touching = [bad for start, end, bad in marks if start < claim.end and claim.start < end]
        if touching or whole:
            for words, word in zip(found, CLAIM_MEANINGS[any(touching)], strict=True):
                words["claim", claim.start, claim.end] = word
    return [LabelReading(words, frozenset(["claim"])) for words in found]


COMPARED_METRICS = ("context_relevance(low=0, medium=1)", *DEFAULT_METRICS)
"""The metrics that are tried; the first is that of chunks that are relevant or not."""

TraceReadings = Mapping[str, LabelReading]


def compare_metrics(
    labeled: Sequence[LabeledTrace],
    verdicts_by_trace: Sequence[Verdicts],
    options: IntervalOptions,
    readings: TraceReadings | None = None,
) -> tuple[MetricAgreement, ...]:
    """Every metric of which the labels say enough, in the order of the catalogue, each on the traces that both score.

    `said` are the words on single items, by trace; without them the labels are taken for what they may mean, and a
    metric counts where all that they may mean comes to the same.
    """
    wanted = [metric for metric in map(parse_metric, COMPARED_METRICS) if metric.definition.verdicts]
    top = max((grade.max_grade for one in labeled for grade in (one.grades or {}).values()), default=0)
    rows: dict[str, list[tuple[int, float, float]]] = {}
    vague: set[str] = set()
    for at, (one, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        for name, value in compute_values(
            wanted, one.trace, verdicts, _list_readings(one, verdicts, top, readings)
        ):
            ours = compute_score(parse_metric(name), one.trace, verdicts).value
            if value is None:
                vague.add(name)
            elif ours is not None:
                rows.setdefault(name, []).append((at, ours, value))
    if "context_relevance" not in vague:
        vague.add(COMPARED_METRICS[0])
    return tuple(
        compare_metric(
            metric, np.array([row[1:] for row in found]), [labeled[row[0]].group for row in found], options
        )
        for metric in wanted
        if str(metric) not in vague and (found := rows.get(str(metric)))
    )


def _list_readings(
    labeled: LabeledTrace, verdicts: Verdicts, max_grade: int, readings: TraceReadings | None
) -> list[LabelReading]:
    """What people said of a trace, in every way in which it can be understood."""
    if readings is not None:
        return [readings.get(labeled.trace.id, LabelReading({}, frozenset()))]
    return read_grades(labeled, max_grade) if labeled.grades is not None else read_marks(labeled, verdicts)


def compare_metric(
    metric: Metric, table: FloatArray, groups: Sequence[str], options: IntervalOptions
) -> MetricAgreement:
    """The means of both, their difference, and how they go together."""
    low, high = metric.range
    judge, people = table.T
    names = np.array(groups, object)
    together = _compute_correlation(judge, people, groups, options)
    return MetricAgreement(
        metric=str(metric),
        layer=metric.definition.layer,
        n=len(table),
        judge=mean_interval(judge, names, bounds=(low, high), confidence=options.confidence),
        human=mean_interval(people, names, bounds=(low, high), confidence=options.confidence),
        difference=paired_difference(
            people, judge, names, bounds=(low, high), confidence=options.confidence, seed=options.seed
        ),
        correlation=together,
    )


def _compute_correlation(
    first: FloatArray, second: FloatArray, groups: Sequence[str], options: IntervalOptions
) -> BootstrapEstimate:
    """Pearson's correlation with its interval over groups; None where one of them does not vary."""
    columns = np.stack(
        [np.ones_like(first), first, second, first * first, first * second, second * second], axis=1
    )

    def statistic(weights: FloatArray) -> FloatArray:
        n, a, b, aa, ab, bb = (weights @ columns).T
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.sqrt(np.maximum(n * aa - a * a, 0) * np.maximum(n * bb - b * b, 0))
            return np.where(spread > 1e-9, (n * ab - a * b) / spread, math.nan)[:, None]

    found = bootstrap_estimates(
        statistic, groups, resamples=options.resamples, seed=options.seed, confidence=options.confidence
    )[0]
    return BootstrapEstimate(*(None if each is None else min(1.0, max(-1.0, each)) for each in found))
