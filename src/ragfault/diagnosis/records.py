"""Records of the analysis of one run: aggregates, scorecards, diagnoses, remedies and gate results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from ragfault.diagnosis.attempts.records import AttemptReport
from ragfault.diagnosis.causes.records import (
    AnswerCause,
    AnswerCounts,
    CauseAgreement,
    OutcomeSource,
    PassageSource,
    RetrievalSummary,
)
from ragfault.diagnosis.steps.records import FaultyStep
from ragfault.diagnosis.thresholds import Threshold
from ragfault.io.runs.run import Manifest
from ragfault.labels.records import CardCorrection, LabelProvenance
from ragfault.model.printing import PrintedResult
from ragfault.model.records import Evidence, Layer
from ragfault.stats.estimates import CorrectedShare, Interval, PpiMean, QuantileInterval

KeyOutcome = Literal["right answer", "wrong answer", "right refusal", "wrong refusal", "missed refusal", "cannot tell"]
"""What the answer key says of an answer."""

GateOutcome = Literal["pass", "fail", "cannot tell"]
"""Result of a threshold test on an interval."""

ProblemKind = Literal[
    "pipeline_error",
    "nothing_retrieved",
    "nothing_relevant",
    "irrelevant_chunk",
    "missing_context",
    "uncovered_statement",
    "empty_answer",
    "unsupported_claim",
    "contradicted_claim",
    "false_claim",
    "outdated_source",
    "unanswered_aspect",
    "irrelevant_answer",
    "absent_fact",
    "contradicted_fact",
    "bad_quote",
    "bad_citation",
    "wrong_refusal",
    "missed_refusal",
    "all_low",
]
"""Kinds of problem of a trace; `diagnosis.diagnosis.PROBLEM_KINDS` describes each, with its layer and remedies."""


class FindingRecord(Struct, frozen=True, kw_only=True):
    """Base of the records of an analysis: immutable, keyword-only."""


class ReasonCount(FindingRecord, frozen=True):
    """Reason for a missing value, and its count."""

    text: str
    count: int


class MetricAggregate(FindingRecord, frozen=True):
    """One metric over the traces of a run or of a segment."""

    metric: str
    """Name of the metric with its parameters."""
    layer: Layer
    better: Literal["higher", "lower"]
    low: float | None
    """The least value the metric can have; None: there is none."""
    high: float | None
    """The greatest; None: there is none."""
    interval: Interval | None
    """The mean with its 95 % interval; None where no trace is scored."""
    scored: int
    undefined: int
    failed: int
    why_undefined: tuple[ReasonCount, ...] = ()
    """The commonest reasons, commonest first."""
    why_failed: tuple[ReasonCount, ...] = ()
    notes: tuple[ReasonCount, ...] = ()
    """The conventions that values rest on, commonest first."""
    target: Threshold | None = None
    result: GateOutcome | None = None
    """Result of the target: pass, fail or cannot tell; None without target or interval."""
    corrected: CorrectedShare | None = None
    """For the judge's error, on request, where the metric is a rate of one kind of verdict."""
    ppi: PpiMean | None = None
    """Corrected by human labels, where they gave the metric a value; the target is then decided on it."""
    quantiles: tuple[QuantileInterval, ...] = ()
    """p50, p95 and, where its interval has both ends, p99 of latency, tokens, cost and other amounts without end."""

    @property
    def decision_interval(self) -> Interval | None:
        """Return the interval that decisions use: the label-corrected one where there is one, else the judge's."""
        return (self.ppi and self.ppi.interval) or self.interval

    @property
    def traces(self) -> int:
        """Return the number of traces, with a value or without."""
        return self.scored + self.undefined + self.failed


class Scorecard(FindingRecord, frozen=True):
    """Every metric of a run over all its traces, or over those of one segment."""

    traces: int
    aggregates: tuple[MetricAggregate, ...]
    """In the order of the run's metrics."""
    by: str | None = None
    """Field that the traces were divided by; None: all traces of the run."""
    segment: str | None = None
    """The value that these traces share; None with `by` given: they have none."""
    correction: CardCorrection | None = None
    """By what the metrics were corrected; None where that was not asked for."""
    label_source: LabelProvenance | None = None
    """By whose labels they were corrected; None where that was not asked for."""


class LayerHealth(FindingRecord, frozen=True):
    """Health of a layer: the share of traces on which it did its part.

    Retrieval: the mean share of what a query asks for that the shown chunks hold. Generation: the share of right
    answers among those that are right or bad for a cause that is not of an earlier stage.
    """

    name: Literal["retrieval_health", "generation_health"]
    layer: Layer
    interval: Interval | None
    """None where nothing is known of the layer."""
    source: PassageSource | Literal["causes"] | None
    """The evidence it rests on."""


HEALTH_ALERTS = (
    ("LOW_RELEVANCE", "high", "context_relevance", 0.6),
    ("LOW_USAGE", "medium", "chunk_utilization", 0.4),
    ("MISSING_CONTEXT", "high", "missing_context_rate", 0.3),
)
"""Name, severity, figure and limit; missing context above its limit, the others below."""


class HealthAlert(FindingRecord, frozen=True):
    """RAG health figure beyond its limit."""

    name: Literal["LOW_RELEVANCE", "LOW_USAGE", "MISSING_CONTEXT"]
    severity: Literal["high", "medium"]
    value: float
    limit: float
    certain: bool
    """True if the whole interval lies on the wrong side."""


class RagHealth(FindingRecord, frozen=True):
    """RAG health: figures of the scorecard, and alerts on them.

    A figure is None where the run lacks the metric, or no trace has a value.
    """

    context_relevance: Interval | None
    """Mean of the metric."""
    chunk_utilization: Interval | None
    """Mean of the metric."""
    context_ranking: Interval | None
    """Mean of the metric."""
    missing_context_rate: Interval | None
    """Share of traces on which the metric missing_context is above 0."""
    optimal_context_rate: Interval | None
    """Share of traces with 3 to 5 relevant chunks."""
    alerts: tuple[HealthAlert, ...] = ()

    @property
    def figures(self) -> dict[str, Interval]:
        """Return the figures that are there, by name."""
        named = {name: getattr(self, name) for name in self.__struct_fields__ if name != "alerts"}
        return {name: interval for name, interval in named.items() if interval is not None}


class QualityCount(FindingRecord, frozen=True):
    """Quality level by triad, and its number of traces."""

    name: Literal["excellent", "good", "fair", "poor"]
    low: float
    """The least triad of the level."""
    action: str
    """Recommended handling of such an answer."""
    count: int
    share: Interval | None
    """Share of the traces that have a triad; None if none has."""


class TradeoffPair(FindingRecord, frozen=True):
    """Two metrics that trade off against each other, reported together."""

    first: MetricAggregate | None
    """None where the run lacks it."""
    second: MetricAggregate | None
    names: tuple[str, str]


class ChunkBucket(FindingRecord, frozen=True):
    """Chunks that share a property, such as their position."""

    label: str
    traces: int
    interval: Interval
    """Over chunks (`n` counts them), the chunks of one trace or conversation taken together."""


class ChunkInsight(FindingRecord, frozen=True):
    """Relevance or use by a property of the chunk or its trace."""

    measure: Literal["relevance", "use"]
    """The mean relevance of the chunks, or the share of them that the answer used."""
    by: Literal["chunks", "position", "length", "turn", "age", "route"]
    """Number of chunks of the trace, position in it, characters, turn of the conversation, days, route."""
    buckets: tuple[ChunkBucket, ...]
    """In natural order; those that are empty are left out."""
    unknown: int = 0
    """Chunks that have the measure but not the property."""


class TraceProblem(FindingRecord, frozen=True):
    """Problem of one trace."""

    kind: ProblemKind
    layer: Layer
    text: str
    """The claim, chunk, aspect, fact or quote itself; from the trace, so not to be trusted as markup."""
    reason: str | None = None
    """Description of the problem."""
    chunk: str | None = None
    """The id of the chunk concerned."""
    start: int | None = None
    """Start of the claim in the answer, in characters."""
    end: int | None = None
    """End of the claim, exclusive."""
    evidence: tuple[Evidence, ...] = ()
    """The stretches of chunks that the verdict rests on."""
    remedies: tuple[str, ...] = ()


class Assessment(FindingRecord, frozen=True):
    """The rating of an answer in words."""

    outcome: Literal["right", "wrong", "cannot tell"]
    source: OutcomeSource
    """The evidence that the rating of the answer rests on."""
    sentence: str
    """The outcome and its reason in words."""


class Diagnosis(PrintedResult, FindingRecord, frozen=True):
    """Problems of one trace."""

    trace: str
    query: str
    problems: tuple[TraceProblem, ...]
    """In the order of the layers: operation, retrieval, generation, cross-cut."""
    checked: int
    """Number of checked items: chunks, claims, aspects, facts, citations, …"""
    triad: float | None = None
    """The triad, if the run has it."""
    quality: Literal["excellent", "good", "fair", "poor"] | None = None
    """The quality level by triad."""
    key_outcome: KeyOutcome | None = None
    """What the answer key says of the answer; None without a key or an answer."""
    key_agreement: float | None = None
    """The share of the answer key that the answer states, in [0, 1]; None where that is not known."""
    faulty_step: FaultyStep | None = None
    """The first faulty step, where the trace records steps and single traces are diagnosed; else None."""
    assessment: Assessment | None = None
    """Right, wrong or cannot tell, with the reason; None in diagnoses of an older version."""
    cause: AnswerCause | None = None
    """Whether the answer is bad, and its one cause; None in diagnoses of an older version."""


class ProblemExample(FindingRecord, frozen=True):
    """Trace that shows a kind of problem, with the first such problem on it."""

    trace: str
    query: str
    text: str
    """The passage, claim or fact that the problem is about."""
    reason: str | None


class Remedy(FindingRecord, frozen=True):
    """Kind of problem over the run, with its remedies."""

    kind: ProblemKind
    layer: Layer
    title: str
    """The kind in words: "irrelevant chunks"."""
    steps: tuple[str, ...]
    """Changes to make, the cheapest first."""
    problems: int
    traces: int
    """Traces with at least one such problem."""
    share: Interval
    """Share of all traces."""
    examples: tuple[str, ...]
    """Ids of traces that show it."""
    example: ProblemExample | None = None
    """The first of them."""
    false_positive_rate: float | None = None
    """The share of good traces on which such a judge sees the problem, at most; None where that is not known."""

    @property
    def may_be_false_positives(self) -> bool:
        """True where the share is not shown to be above that of false positives."""
        return self.false_positive_rate is not None and self.share.low <= self.false_positive_rate


class GoldAgreement(FindingRecord, frozen=True):
    """Agreement of one kind of the judge's verdicts with gold, on the traces of the run where gold tells."""

    verdict: Literal["chunk relevance", "missing context", "groundedness", "completeness"]
    statistic: Literal["AUROC", "precision", "recall"]
    """AUROC: the chance that a gold chunk (a right answer) is rated above another chunk (a wrong answer), 0.5 is
    guessing; precision and recall of the traces with missing context."""
    value: float | None
    """None where one of the two classes is absent."""
    interval: tuple[float, float] | None
    """The 95 % interval of a precision or recall."""
    positives: int
    """Gold chunks, or right answers; of a precision or recall the right cases."""
    negatives: int
    """Other chunks, or wrong answers; of a precision or recall the other cases."""
    usable: bool | None
    """True if high enough to act on; None: too few cases to tell."""


class Findings(PrintedResult, FindingRecord, frozen=True):
    """All results of the analysis of one run; the data of every report."""

    run: str
    """The name of the run."""
    manifest: Manifest
    scorecard: Scorecard
    health: tuple[LayerHealth, ...]
    """Retrieval, then generation."""
    rag: RagHealth
    quality: tuple[QualityCount, ...]
    """From excellent to poor."""
    unrated: int
    """Traces without a triad, which have no quality level."""
    pairs: tuple[TradeoffPair, ...]
    insights: tuple[ChunkInsight, ...]
    worst: tuple[Diagnosis, ...]
    """The traces with most to show, worst first."""
    remedies: tuple[Remedy, ...]
    """Commonest first."""
    segments: tuple[Scorecard, ...] = ()
    """The scorecard by route (or by what was asked for), the largest segment first."""
    gold_agreement: tuple[GoldAgreement, ...] = ()
    """Agreement of the judge's own verdicts with the gold of the run; empty where it has none."""
    cause_agreement: CauseAgreement | None = None
    """How far ragfault agrees with people on causes; None without labels of causes."""
    answers: AnswerCounts | None = None
    """How many answers are right, bad or unsure, and why the bad ones are bad."""
    attempts: AttemptReport | None = None
    """Reliability over the attempts of each query; None if each query has one attempt."""
    retrieval: RetrievalSummary | None = None
    """How well retrieval does; None where that is not known of any trace."""
    key_outcomes: Mapping[KeyOutcome, int] = {}
    """What the answer key says of the answers → traces; empty where no trace has one."""
    suspected_injections: int = 0
    """Traces that hold text that looks like an instruction to the judge."""
    languages: Mapping[str, int] = {}
    """The traces whose answer or query is in another language than English, by the code of that language."""
    markup_answers: int = 0
    """Traces whose answer is JSON, or holds tags, code, reasoning or the like."""
    unmatched_gold: int = 0
    """Traces with chunks and chunk ids in gold, where no trace retrieved a chunk under any of these ids; else 0."""
