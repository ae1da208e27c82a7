"""Records of a comparison of two runs: metric changes, run differences, layer faults and bisections."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.analysis.ppi import LabelProvenance
from ragfault.io.runs import Manifest
from ragfault.records import Layer
from ragfault.stats import Difference, PpiDifference

ChangeState = Literal["dropped", "rose", "steady", "cannot tell"]
"""Whether a metric moved: a corrected test says dropped or rose, an equivalence test says steady."""


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
    """Candidate less baseline, with its 95 % interval; put right by people where they labelled enough."""
    p: float | None
    """Of the sign-flip test that nothing moved; of Student's t where the difference is put right by people."""
    adjusted: float | None
    """The same, corrected by Holm for all metrics of the comparison."""
    equivalence_p: float | None
    """The p of the equivalence test: that the true change is at least the margin."""
    margin: float
    """The smallest change that matters, in the metric's units."""
    detectable: float | None
    """The smallest true change that this many pairs would find, with the stated power."""
    needed: int | None
    """Where it cannot be told: about how many pairs would tell; None where no number is known."""
    n: int
    """Pairs scored on both sides."""
    lost: tuple[int, int] = (0, 0)
    """Pairs scored on the baseline's side only, and on the candidate's only."""
    failed: tuple[int, int] = (0, 0)
    """Pairs whose score was lost to a failure, on each side."""
    identical: bool = False
    """Steady because all that the metric reads is the very same in both runs."""
    rose: int = 0
    """Traces on which it rose."""
    fell: int = 0
    gains: tuple[MovedTrace, ...] = ()
    """The traces that rose most, the most first."""
    drops: tuple[MovedTrace, ...] = ()
    ppi: PpiDifference | None = None
    """How the difference was put right by labels, or why it was not; None where nobody gave the metric a value."""
    judge_difference: Difference | None = None
    """The difference as the judge has it, where `difference` is put right."""

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


class Comparison(Struct, frozen=True, kw_only=True):
    """Comparison of two runs, metric by metric."""

    baseline: str
    candidate: str
    manifests: tuple[Manifest, Manifest]
    paired_by: Literal["id", "query"]
    pairs: int
    unpaired: tuple[int, int]
    """Traces without a partner, of the baseline and of the candidate."""
    same_chunks: int
    """Pairs on which both runs retrieved the very same chunks."""
    same_answers: int
    alpha: float
    power: float
    changes: tuple[MetricChange, ...]
    by: str | None = None
    segment: str | None = None
    warnings: tuple[str, ...] = ()
    """What keeps the runs from being fully comparable, in words."""
    label_sources: tuple[LabelProvenance | None, LabelProvenance | None] = (None, None)
    """By whose labels the baseline and the candidate were put right."""


class RunDifference(Struct, frozen=True, kw_only=True):
    """Difference between the runs, and the suspects it points to."""

    name: str
    baseline: float | None
    candidate: float | None
    text: str
    """In words: "chunks are 5.1 times shorter (612 → 119 characters)"."""
    suspects: tuple[str, ...] = ()


class ExampleTrace(Struct, frozen=True, kw_only=True):
    """Trace that shows a fault, before and after."""

    trace: str
    query: str
    metric: str
    baseline: float
    candidate: float
    before: str | None = None
    """The chunk or claim that was good in the baseline."""
    after: str | None = None
    """The chunk or claim that is bad in the candidate."""


class BranchDecision(Struct, frozen=True, kw_only=True):
    """Outcome of one branch of the decision tree."""

    branch: str
    layer: str
    outcome: Literal["fault", "ruled out", "cannot tell", "not reached", "not measured"]
    why: str


class LayerFault(Struct, frozen=True, kw_only=True):
    """Layer at fault, with its evidence."""

    layer: Literal["retrieval", "generation", "source data"]
    branch: str
    title: str
    evidence: tuple[MetricChange, ...]
    suspects: tuple[str, ...]
    """The parts to look at, the likeliest first."""
    remedies: tuple[str, ...]
    differences: tuple[RunDifference, ...] = ()
    examples: tuple[ExampleTrace, ...] = ()
    certain: bool = True
    """False where it shows only on the traces whose retrieval did not get worse."""


class Bisection(Struct, frozen=True, kw_only=True):
    """Layer that broke between two runs, or that the data cannot tell."""

    verdict: Literal["fault", "no fault", "cannot tell"]
    sentence: str
    """The verdict in one sentence."""
    faults: tuple[LayerFault, ...]
    """The first is where to begin."""
    tree: tuple[BranchDecision, ...]
    """Every branch in order, with what was ruled out and why."""
    comparison: Comparison
    """The metrics of the tree, corrected among themselves."""
    differences: tuple[RunDifference, ...] = ()
    needed: int | None = None
    """Where it cannot be told: about how many pairs would tell."""
