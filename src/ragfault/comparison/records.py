"""Records of a comparison of two runs: metric changes, run differences, layer faults and bisections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from ragfault.diagnosis.causes.records import Stage
from ragfault.io.runs.run import Manifest
from ragfault.labels.records import LabelProvenance
from ragfault.model.causes import CauseName
from ragfault.model.printing import PrintedResult
from ragfault.model.records import Layer, StepKind
from ragfault.stats.estimates import Difference, Interval, PpiDifference, QuantileChange, RatioInterval

MOSTLY_INDEPENDENT = 0.8
"""Share of independent traces or pairs from which the others go without saying."""

ChangeState = Literal["dropped", "rose", "steady", "cannot tell"]
BranchOutcome = Literal["fault", "ruled out", "cannot tell", "not reached", "not measured"]
"""State of a metric: dropped or rose by a corrected test, steady by an equivalence test."""


MismatchKind = Literal["queries", "labels", "ids", "texts", "fields", "judges"]
"""Kind of a mismatch: other queries, edited labels, renamed ids, texts that are clipped, in other markup
or not those that were read, a field one side does not record, or scores of other judges or uses of gold."""

MAX_NEEDED = 1_000_000
"""Larger numbers of needed traces are not reported."""


class PairMismatch(Struct, frozen=True, kw_only=True):
    """Difference between two runs in what they record, which is no fault of a layer."""

    kind: MismatchKind
    pairs: int
    """The pairs concerned."""
    share: float
    """The same as a share of the compared pairs."""
    sentence: str
    left_out: tuple[str, ...] = ()
    """The metrics that are left out on these pairs."""
    blocks: bool = True
    """Whether "no fault" and a passing gate are excluded; not where gold could be re-anchored."""


class MovedTrace(Struct, frozen=True):
    """Trace whose score moved."""

    trace: str
    query: str
    baseline: float
    candidate: float


class MetricChange(Struct, frozen=True, kw_only=True):
    """Change of one metric on the paired traces of two runs."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    state: ChangeState
    baseline: float | None
    """Its mean over the pairs that are scored on both sides; None where no pair is."""
    candidate: float | None
    difference: Difference | None
    """Candidate less baseline, with its 95 % interval; corrected by human labels where there are enough."""
    p: float | None
    """Of the sign-flip test that nothing moved; of Student's t where the difference is corrected by labels."""
    adjusted: float | None
    """The same, corrected by Holm for all metrics of the comparison."""
    equivalence_p: float | None
    """p of the equivalence test, whose null hypothesis is a change of at least the margin."""
    margin: float
    """The smallest change that matters, in the metric's units."""
    detectable: float | None
    """Smallest true change that these pairs would show with the stated power, under the correction that is applied;
    None where they would show none of any size, and of amounts such as latency."""
    needed: int | None
    """Where the data cannot tell: about how many pairs would; None where no number is known, as of amounts."""
    n: int
    """Pairs scored on both sides."""
    lost: tuple[int, int] = (0, 0)
    """Pairs scored on the baseline's side only, and on the candidate's only."""
    failed: tuple[int, int] = (0, 0)
    """Pairs whose score was lost to a failure, on each side."""
    identical: bool = False
    """Steady because all inputs of the metric are the same in both runs."""
    rose: int = 0
    """Traces on which it rose."""
    fell: int = 0
    gains: tuple[MovedTrace, ...] = ()
    """The traces that rose most, the most first."""
    drops: tuple[MovedTrace, ...] = ()
    ppi: PpiDifference | None = None
    """Correction by labels, or the reason why there is none; None where the metric has no label."""
    judge_difference: Difference | None = None
    """Difference by the judge's scores, where `difference` is corrected."""
    quantiles: tuple[QuantileChange, ...] = ()
    """Changes of p50, p95 and, where its interval is defined, p99 of latency, tokens, cost and other amounts."""
    ratio: RatioInterval | None = None
    """Candidate's mean over the baseline's, for the same metrics; None for others."""

    @property
    def rises(self) -> bool:
        """Return whether its mean is higher in the candidate, shown or not."""
        return self.difference is not None and self.difference.mean > 0

    @property
    def evidence_count(self) -> tuple[int, str]:
        """Return the number and unit of the evidence: pairs, or labels where the difference is corrected by them."""
        if self.judge_difference is None or self.difference is None or self.ppi is None:
            return self.n, "pairs"
        return self.difference.n, "labelled pairs" if self.ppi.paired else "labels"

    @property
    def verdict(self) -> Literal["worse", "better", "steady", "cannot tell"]:
        """Return the state in the sense of the metric: a latency that rose is worse."""
        if self.state in ("steady", "cannot tell"):
            return self.state
        return "better" if (self.state == "rose") == (self.better == "higher") else "worse"


def describe_dependence(count: int, intervals: Iterable[Interval | Difference | None]) -> str:
    """Describe how many traces or pairs are independent; empty where nearly all are, or no interval is of all."""
    groups = max((item.clusters for item in intervals if item is not None and item.n == count), default=count)
    if groups >= MOSTLY_INDEPENDENT * count:
        return ""
    why = "attempts of one query, turns of one conversation and repeated queries count as one"
    return f"only {groups:,} independent{', so no interval is known' if groups == 1 else ''}: {why}"


class CauseChange(Struct, frozen=True, kw_only=True):
    """One cause of bad answers on the paired traces of two runs."""

    cause: CauseName
    stage: Stage
    title: str
    """The cause in words: "the passage was not retrieved"."""
    became_bad: int
    """Answers that were right in the baseline and are bad for this cause in the candidate."""
    bad: tuple[int, int]
    """Answers that are bad for this cause in the baseline, and in the candidate."""
    examples: tuple[str, ...]
    """Ids of traces that became bad for it, those that show it most surely first."""


class AnswerChanges(Struct, frozen=True, kw_only=True):
    """How many answers became bad or right between two runs, and for which cause."""

    pairs: int
    """Pairs whose answer is rated right or bad on both sides; the other counts are of these."""
    unsure: int
    """Pairs that are left out: unsure on a side."""
    bad: tuple[int, int]
    """Bad answers of the baseline, and of the candidate."""
    became_bad: int
    became_right: int
    unchanged: int
    """Answers that became bad and are the same word for word: their chunks differ, or what the judge made of them."""
    difference: Difference
    """The share of bad answers, candidate less baseline."""
    causes: tuple[CauseChange, ...]
    """Those for which most answers became bad first, undecided last."""


class Comparison(PrintedResult, Struct, frozen=True, kw_only=True):
    """Comparison of two runs, metric by metric."""

    baseline: str
    candidate: str
    manifests: tuple[Manifest, Manifest]
    paired_by: Literal["id", "query"]
    pairs: int
    unpaired: tuple[int, int]
    """Traces without a partner, of the baseline and of the candidate."""
    same_chunks: int
    """Pairs on which both runs retrieved the same chunks."""
    same_answers: int
    alpha: float
    power: float
    changes: tuple[MetricChange, ...]
    by: str | None = None
    segment: str | None = None
    warnings: tuple[str, ...] = ()
    """Reasons why the runs are not fully comparable."""
    mismatches: tuple[PairMismatch, ...] = ()
    """What the runs record differently."""
    label_sources: tuple[LabelProvenance | None, LabelProvenance | None] = (None, None)
    """Provenance of the human labels of the baseline and of the candidate."""
    answers: AnswerChanges | None = None
    """What happened to the answers; None if none is rated on both sides."""

    @property
    def dependence(self) -> str:
        """Number of independent pairs, in words; empty where nearly all are."""
        return describe_dependence(self.pairs, [item.judge_difference or item.difference for item in self.changes])


class RunDifference(Struct, frozen=True, kw_only=True):
    """Difference between the runs, and the suspects it points to."""

    name: str
    baseline: float | None
    candidate: float | None
    text: str
    """In words: "chunks are 5.1 times shorter (612 → 119 characters)"."""
    suspects: tuple[str, ...] = ()


class StageEvidence(Struct, frozen=True, kw_only=True):
    """Observation on the pairs that speaks for a stage of the pipeline."""

    name: str
    """What was observed; with the stage it is the key of a weight."""
    stage: str
    strength: float
    """In [0, 1]: how clearly it shows."""
    text: str


class Suspect(Struct, frozen=True, kw_only=True):
    """Stage of the pipeline that may have caused a fault."""

    stage: str
    probability: float
    """In [0, 1], among the stages that the fault may lie in; calibrated on the fault bench."""
    evidence: str
    """The observation that speaks most for it, in words."""


class ExampleTrace(Struct, frozen=True, kw_only=True):
    """Trace that shows a fault, before and after."""

    trace: str
    query: str
    metric: str
    baseline: float
    candidate: float
    before: str | None = None
    """Good chunk or claim of the baseline."""
    after: str | None = None
    """Bad chunk or claim of the candidate."""


class BranchDecision(Struct, frozen=True, kw_only=True):
    """Outcome of one branch of the decision tree."""

    branch: str
    layer: str
    outcome: BranchOutcome
    why: str


FaultLayer = Literal["pipeline", "retrieval", "generation", "source data"]
"""Layer at fault; "pipeline" where traces end in an error."""


class LayerFault(Struct, frozen=True, kw_only=True):
    """Layer at fault, with its evidence."""

    layer: FaultLayer
    branch: str
    title: str
    evidence: tuple[MetricChange, ...]
    suspects: tuple[Suspect, ...]
    """At most three stages to check, the likeliest first."""
    remedies: tuple[str, ...]
    differences: tuple[RunDifference, ...] = ()
    examples: tuple[ExampleTrace, ...] = ()
    step: StepKind | None = None
    """The kind of step at which it begins, where traces record steps and the pairs tell."""
    step_evidence: str | None = None
    """How that shows, in words."""
    became_bad: int = 0
    """Answers that became bad for a cause that this layer explains."""


class BrokenSegment(Struct, frozen=True, kw_only=True):
    """Segment of the pairs in which a metric got worse, and more so than elsewhere."""

    by: str
    segment: str
    metric: str
    pairs: int
    share: float
    """Of all pairs."""
    difference: Difference
    """On its pairs, candidate less baseline."""
    elsewhere: Difference
    """On the other pairs."""
    adjusted: float
    """Corrected for all segments and metrics searched."""
    confined: bool
    """Whether no drop is shown elsewhere, and at most a quarter of it is estimated there."""
    text: str
    """In words: "The drop of groundedness is confined to route=billing (12 % of the pairs): …"."""


class SettingDifference(Struct, frozen=True, kw_only=True):
    """Setting that differs between the configurations of two runs."""

    setting: str
    """Its path: "retriever.top_k"."""
    baseline: str
    """Its value as it is shown: masked where it may be a secret, by its length where it is long."""
    candidate: str
    stage: str | None
    """The stage that it belongs to by its name; None where none is known."""
    outcome: Literal["supported", "possible", "not supported", "excluded", "unknown"]
    """Whether the evidence supports that it caused the fault."""
    why: str
    text: str
    """In words: "retriever.top_k: 5 → 20"."""


class Bisection(PrintedResult, Struct, frozen=True, kw_only=True):
    """Layer that broke between two runs, or that the data cannot tell."""

    verdict: Literal["fault", "no fault", "cannot tell"]
    sentence: str
    """The verdict in one sentence."""
    faults: tuple[LayerFault, ...]
    """By the answers that each made bad, then in order of evidence; start with the first."""
    tree: tuple[BranchDecision, ...]
    """Every branch in order, with its outcome and reason."""
    comparison: Comparison
    """The metrics of the tree, corrected among themselves."""
    differences: tuple[RunDifference, ...] = ()
    needed: int | None = None
    """Where the data cannot tell: about how many pairs would."""
    settings: tuple[SettingDifference, ...] = ()
    """Settings that differ between the configurations of the runs, where these were given."""
    segments: tuple[BrokenSegment, ...] = ()
    """Segments that a drop is confined to, or largest in; found by a search over every field, the clearest first."""
