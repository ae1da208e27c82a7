"""What a finding says: small frozen records, each aggregate with its counts and its interval."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.findings.bars import Bar
from ragfault.findings.changes import Change
from ragfault.findings.correcting import Correction
from ragfault.findings.rectifying import Rectification
from ragfault.records import Evidence, Layer
from ragfault.runs import Manifest
from ragfault.stats import Corrected, Interval, Rectified

__all__ = [
    "Aggregate",
    "Alert",
    "Bucket",
    "Decision",
    "Diagnosis",
    "Drop",
    "Findings",
    "Gate",
    "Guarded",
    "Health",
    "Insight",
    "Kind",
    "Pair",
    "Problem",
    "Quality",
    "Rag",
    "Reason",
    "Remedy",
    "Result",
    "Scorecard",
]

Result = Literal["pass", "fail", "cannot tell"]
"""What an interval says of a bar."""

Kind = Literal[
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
"""What can be wrong with a trace; `ragfault.findings.KINDS` says each in words, with its layer and remedies."""


class Finding(Struct, frozen=True, kw_only=True):
    """The common shape of the records of findings: immutable, by keyword."""


# --- over the traces -------------------------------------------------------------------------------


class Reason(Finding, frozen=True):
    """Why scores have no value, and how often."""

    text: str
    count: int


class Aggregate(Finding, frozen=True):
    """One metric over the traces of a run or of a segment."""

    metric: str
    """As it prints, with its parameters."""
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
    why_undefined: tuple[Reason, ...] = ()
    """The commonest reasons, commonest first."""
    why_failed: tuple[Reason, ...] = ()
    notes: tuple[Reason, ...] = ()
    """The conventions that values rest on, commonest first."""
    target: Bar | None = None
    result: Result | None = None
    """Whether the interval meets the target: pass, fail or cannot tell; None without target or interval."""
    corrected: Corrected | None = None
    """For the judge's error, on request, where the metric is a rate of one kind of verdict."""
    rectified: Rectified | None = None
    """Put right by labels of people, where they gave the metric a value; the target is then decided on it."""

    @property
    def decided(self) -> Interval | None:
        """The interval that decisions rest on: that put right by people where there is one, else that of the judge."""
        return (self.rectified and self.rectified.interval) or self.interval

    @property
    def traces(self) -> int:
        """All traces, with a value or without."""
        return self.scored + self.undefined + self.failed


class Scorecard(Finding, frozen=True):
    """Every metric of a run over all its traces, or over those of one segment."""

    traces: int
    aggregates: tuple[Aggregate, ...]
    """In the order of the run's metrics."""
    by: str | None = None
    """What the traces were divided by; None: they are all the traces of the run."""
    segment: str | None = None
    """The value that these traces share; None with `by` given: they have none."""
    correction: Correction | None = None
    """By what the metrics were corrected; None where that was not asked for."""
    rectification: Rectification | None = None
    """By whose labels they were put right; None where that was not asked for."""


class Health(Finding, frozen=True):
    """How a layer does: the mean of the means of its parts.

    Each part counts alike, however many traces it is defined on, so that the figure is the mean of
    the parts as the scorecard shows them. The interval allows for parts that move together.
    """

    name: Literal["retrieval_health", "generation_health"]
    layer: Layer
    interval: Interval | None
    """None where no part has a value; its `n` counts the traces on which some part has one."""
    parts: tuple[Aggregate, ...]
    """The parts that went in, each with its counts."""
    absent: tuple[str, ...] = ()
    """The parts that are not in the run or have no value on any trace."""


class Alert(Finding, frozen=True):
    """A figure of RAG health on the wrong side of its limit."""

    name: Literal["LOW_RELEVANCE", "LOW_USAGE", "MISSING_CONTEXT"]
    severity: Literal["high", "medium"]
    value: float
    limit: float
    certain: bool
    """Whether the whole interval lies on the wrong side."""


class Rag(Finding, frozen=True):
    """RAG health: what the chunk, use and missing verdicts say of the whole run.

    A figure is None where no trace has the verdicts for it.
    """

    relevance: Interval | None
    """Average relevance: the mean over traces of the mean relevance of their chunks."""
    usage: Interval | None
    """Context usage rate: chunks used / chunks provided, over traces with an answer; `n` counts chunks."""
    missing: Interval | None
    """Missing-context rate: the share of traces that lack some information they need."""
    ranking: Interval | None
    """Ranking efficiency: mean context_ranking, where the run has that metric."""
    optimal: Interval | None
    """Optimal context hit rate: the share of traces with 3 to 5 relevant chunks."""
    alerts: tuple[Alert, ...] = ()


class Quality(Finding, frozen=True):
    """A quality level by triad, and the traces in it."""

    name: Literal["excellent", "good", "fair", "poor"]
    low: float
    """The least triad of the level."""
    action: str
    """What to do with such an answer."""
    count: int
    share: Interval | None
    """Of the traces that have a triad; None where none has."""


class Pair(Finding, frozen=True):
    """Two metrics that are bought with each other, reported together."""

    first: Aggregate | None
    """None where the run lacks it."""
    second: Aggregate | None
    names: tuple[str, str]


class Bucket(Finding, frozen=True):
    """The chunks that share a property, such as their position."""

    label: str
    traces: int
    interval: Interval
    """Over chunks (`n` counts them), the chunks of one trace or conversation taken together."""


class Insight(Finding, frozen=True):
    """How relevance or use goes with a property of the chunk or its trace."""

    measure: Literal["relevance", "use"]
    """The mean relevance of the chunks, or the share of them that the answer used."""
    by: Literal["chunks", "position", "length", "turn", "age", "route"]
    """Number of chunks of the trace, position in it, characters, turn of the conversation, days, route."""
    buckets: tuple[Bucket, ...]
    """In natural order; those that are empty are left out."""
    unknown: int = 0
    """Chunks that have the measure but not the property."""


# --- on one trace ----------------------------------------------------------------------------------


class Problem(Finding, frozen=True):
    """One thing that is wrong with a trace."""

    kind: Kind
    layer: Layer
    text: str
    """The claim, chunk, aspect, fact or quote itself; from the trace, so not to be trusted as markup."""
    reason: str | None = None
    """What is wrong with it, in words."""
    chunk: str | None = None
    """The id of the chunk concerned."""
    start: int | None = None
    """Where the claim begins in the answer, in characters."""
    end: int | None = None
    """Where it ends, exclusive."""
    evidence: tuple[Evidence, ...] = ()
    """The stretches of chunks that the verdict rests on."""
    remedies: tuple[str, ...] = ()


class Diagnosis(Finding, frozen=True):
    """What is wrong with one trace."""

    trace: str
    query: str
    problems: tuple[Problem, ...]
    """In the order of the layers: operation, retrieval, generation, cross-cut."""
    checked: int
    """How many things were looked at: chunks, claims, aspects, facts, citations, …"""
    triad: float | None = None
    """Where the run has it."""
    quality: Literal["excellent", "good", "fair", "poor"] | None = None
    """The quality level by triad."""


class Remedy(Finding, frozen=True):
    """A kind of problem over the run, with what mends it."""

    kind: Kind
    layer: Layer
    title: str
    """The kind in words: "irrelevant chunks"."""
    steps: tuple[str, ...]
    """What to change, the cheapest first."""
    problems: int
    traces: int
    """Traces with at least one such problem."""
    share: Interval
    """Of all traces."""
    examples: tuple[str, ...]
    """Ids of traces that show it."""


# --- the whole -------------------------------------------------------------------------------------


class Findings(Finding, frozen=True):
    """All that is found in one run; what every report is made from."""

    run: str
    """The name of the run."""
    manifest: Manifest
    scorecard: Scorecard
    health: tuple[Health, ...]
    """Retrieval, then generation."""
    rag: Rag
    quality: tuple[Quality, ...]
    """From excellent to poor."""
    unrated: int
    """Traces without a triad, which have no quality level."""
    pairs: tuple[Pair, ...]
    insights: tuple[Insight, ...]
    worst: tuple[Diagnosis, ...]
    """The traces with most to show, worst first."""
    remedies: tuple[Remedy, ...]
    """Commonest first."""
    segments: tuple[Scorecard, ...] = ()
    """The scorecard by route (or by what was asked for), the largest segment first."""
    suspected: int = 0
    """Traces that hold text that looks like an order to the judge."""


# --- the gate --------------------------------------------------------------------------------------


class Decision(Finding, frozen=True):
    """What a run says of one bar."""

    bar: Bar
    result: Result
    reason: str
    """Why, in words, with the interval and the counts."""
    aggregate: Aggregate
    coverage: float
    """The share of traces that are scored."""
    needed: int | None = None
    """About how many scored traces would tell, at the present spread and mean; None where that is not the trouble."""


class Drop(Finding, frozen=True):
    """What two runs say of a drop of one metric: that there is one, that there is none, or neither.

    Where lower is better, a rise is what is looked for.
    """

    change: Change
    """The metric on the paired traces, with its difference and corrected p."""
    result: Result
    """fail: it got worse by more than its margin; pass: that is ruled out."""
    reason: str
    """Why, in words, with the interval and the counts."""
    bound: float | None
    """The worst difference that is not ruled out, one-sided at alpha; None where nothing is known."""
    coverage: float
    """The share of the pairs scored in either run that are scored in both."""
    needed: int | None = None
    """About how many pairs would tell; None where that is not the trouble, or no number is known."""

    @property
    def rule(self) -> str:
        """What is asked of the metric: `groundedness>=baseline-0.02`."""
        sign, way = (">=", "-") if self.change.better == "higher" else ("<=", "+")
        return f"{self.change.metric}{sign}baseline{way}{self.change.margin:.3g}"


class Guarded(Finding, frozen=True):
    """What two runs say of a drop of each metric."""

    baseline: str
    """The name of the baseline."""
    pairs: int
    how: Literal["id", "query"]
    """By what the traces were paired."""
    alone: tuple[int, int]
    """Traces without a partner, of the baseline and of the candidate."""
    alpha: float
    power: float
    drops: tuple[Drop, ...]
    """In the order of the candidate's metrics."""
    warnings: tuple[str, ...] = ()
    """What keeps the runs from being fully comparable, in words."""


class Gate(Finding, frozen=True):
    """What a run says of all bars, and beside its baseline of a drop of each metric."""

    run: str
    traces: int
    decisions: tuple[Decision, ...]
    """In the order of the bars."""
    guarded: Guarded | None = None
    """None: no baseline was given."""
    rectification: Rectification | None = None
    """By whose labels the figures of the run were put right; None where that was not asked for."""

    @property
    def drops(self) -> tuple[Drop, ...]:
        """What was decided of each metric beside the baseline; none where there is no baseline."""
        return self.guarded.drops if self.guarded is not None else ()

    @property
    def result(self) -> Result:
        """Fail where any bar or metric fails, else cannot tell where any cannot, else pass."""
        results = {found.result for found in self.decisions} | {found.result for found in self.drops}
        return "fail" if "fail" in results else "cannot tell" if "cannot tell" in results else "pass"

    @property
    def code(self) -> int:
        """The exit code: 0 pass, 1 fail, 3 cannot tell."""
        return {"pass": 0, "fail": 1, "cannot tell": 3}[self.result]
