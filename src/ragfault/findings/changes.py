"""What a comparison says: small frozen records, each change with its evidence."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.findings.rectifying import Rectification
from ragfault.records import Layer
from ragfault.runs import Manifest
from ragfault.stats import Difference, RectifiedDifference

__all__ = ["Bisection", "Change", "Clue", "Comparison", "Fault", "Mover", "Ruling", "State", "Telling"]

State = Literal["dropped", "rose", "steady", "cannot tell"]
"""Whether a metric moved: a corrected test says dropped or rose, an equivalence test says steady."""


class Mover(Struct, frozen=True):
    """A trace whose score moved."""

    trace: str
    query: str
    baseline: float
    candidate: float


class Change(Struct, frozen=True, kw_only=True):
    """One metric on the paired traces of two runs."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    state: State
    baseline: float | None
    """Its mean over the pairs that are scored on both sides; None where no pair is."""
    candidate: float | None
    difference: Difference | None
    """Candidate less baseline, with its 95 % interval; put right by people where they labelled enough."""
    p: float | None
    """Of the sign-flip test that nothing moved; of Student's t where the difference is put right by people."""
    adjusted: float | None
    """The same, corrected by Holm for all metrics of the comparison."""
    steadiness: float | None
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
    same: bool = False
    """Steady because all that the metric reads is the very same in both runs."""
    rose: int = 0
    """Traces on which it rose."""
    fell: int = 0
    gains: tuple[Mover, ...] = ()
    """The traces that rose most, the most first."""
    drops: tuple[Mover, ...] = ()
    rectified: RectifiedDifference | None = None
    """How the difference was put right by labels, or why it was not; None where nobody gave the metric a value."""
    judged: Difference | None = None
    """The difference as the judge has it, where `difference` is put right."""

    @property
    def weighed(self) -> tuple[int, str]:
        """How many of what the difference rests on: pairs, or where it is put right, labels."""
        if self.judged is None or self.difference is None or self.rectified is None:
            return self.n, "pairs"
        return self.difference.n, "labelled pairs" if self.rectified.paired else "labels"

    @property
    def verdict(self) -> Literal["worse", "better", "steady", "cannot tell"]:
        """The state in the sense of the metric: a latency that rose is worse."""
        if self.state in ("steady", "cannot tell"):
            return self.state
        return "better" if (self.state == "rose") == (self.better == "higher") else "worse"


class Comparison(Struct, frozen=True, kw_only=True):
    """Two runs, metric by metric."""

    baseline: str
    candidate: str
    manifests: tuple[Manifest, Manifest]
    how: Literal["id", "query"]
    pairs: int
    alone: tuple[int, int]
    """Traces without a partner, of the baseline and of the candidate."""
    same_chunks: int
    """Pairs on which both runs retrieved the very same chunks."""
    same_answers: int
    alpha: float
    power: float
    changes: tuple[Change, ...]
    by: str | None = None
    segment: str | None = None
    warnings: tuple[str, ...] = ()
    """What keeps the runs from being fully comparable, in words."""
    rectification: tuple[Rectification | None, Rectification | None] = (None, None)
    """By whose labels the baseline and the candidate were put right."""


class Clue(Struct, frozen=True, kw_only=True):
    """A circumstance in which the runs differ, and what it points to."""

    name: str
    baseline: float | None
    candidate: float | None
    text: str
    """In words: "chunks are 5.1 times shorter (612 → 119 characters)"."""
    suspects: tuple[str, ...] = ()


class Telling(Struct, frozen=True, kw_only=True):
    """A trace that shows a fault: what changed in it."""

    trace: str
    query: str
    metric: str
    baseline: float
    candidate: float
    before: str | None = None
    """The chunk or claim that was good in the baseline."""
    after: str | None = None
    """The chunk or claim that is bad in the candidate."""


class Ruling(Struct, frozen=True, kw_only=True):
    """One branch of the decision tree, as it was walked."""

    branch: str
    layer: str
    outcome: Literal["fault", "ruled out", "cannot tell", "not reached", "not measured"]
    why: str


class Fault(Struct, frozen=True, kw_only=True):
    """A layer at fault, with the evidence for it."""

    layer: Literal["retrieval", "generation", "source data"]
    branch: str
    title: str
    evidence: tuple[Change, ...]
    suspects: tuple[str, ...]
    """The parts to look at, the likeliest first."""
    remedies: tuple[str, ...]
    clues: tuple[Clue, ...] = ()
    telling: tuple[Telling, ...] = ()
    certain: bool = True
    """False where it shows only on the traces whose retrieval did not get worse."""


class Bisection(Struct, frozen=True, kw_only=True):
    """Which layer broke between two runs, or that the data cannot tell."""

    verdict: Literal["fault", "no fault", "cannot tell"]
    sentence: str
    """The verdict in one sentence."""
    faults: tuple[Fault, ...]
    """The first is where to begin."""
    tree: tuple[Ruling, ...]
    """Every branch in order, with what was ruled out and why."""
    comparison: Comparison
    """The metrics of the tree, corrected among themselves."""
    clues: tuple[Clue, ...] = ()
    needed: int | None = None
    """Where it cannot be told: about how many pairs would tell."""
