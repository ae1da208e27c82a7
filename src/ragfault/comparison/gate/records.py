"""Records of a gate: the decision on each threshold and on each metric beside a baseline."""

from __future__ import annotations

from typing import Literal

from ragfault.comparison.records import MetricChange, PairMismatch
from ragfault.diagnosis.records import FindingRecord, GateOutcome, MetricAggregate
from ragfault.diagnosis.thresholds import Threshold
from ragfault.labels.records import LabelProvenance
from ragfault.model.printing import PrintedResult


class ThresholdDecision(FindingRecord, frozen=True):
    """Decision on one threshold."""

    threshold: Threshold
    result: GateOutcome
    reason: str
    """Why, in words, with the interval and the counts."""
    aggregate: MetricAggregate
    coverage: float
    """The share of traces that are scored."""
    needed: int | None = None
    """About how many scored traces (queries, of attempts) would tell at this spread and mean; None if unknown."""


class RegressionDecision(FindingRecord, frozen=True):
    """Decision on a drop of one metric: shown, ruled out, or neither.

    Where lower is better, a rise is what is looked for.
    """

    change: MetricChange
    """The metric on the paired traces, with its difference and corrected p."""
    result: GateOutcome
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
        """Return the requirement on the metric: `groundedness>=baseline-0.02`."""
        sign, way = (">=", "-") if self.change.better == "higher" else ("<=", "+")
        return f"{self.change.metric}{sign}baseline{way}{self.change.margin:.3g}"


class RegressionReport(FindingRecord, frozen=True):
    """Decisions on a drop of each metric between two runs."""

    baseline: str
    """The name of the baseline."""
    pairs: int
    paired_by: Literal["id", "query"]
    """By what the traces were paired."""
    unpaired: tuple[int, int]
    """Traces without a partner, of the baseline and of the candidate."""
    alpha: float
    power: float
    decisions: tuple[RegressionDecision, ...]
    """In the order of the candidate's metrics."""
    warnings: tuple[str, ...] = ()
    """Limits of the comparability of the runs, in words."""
    mismatches: tuple[PairMismatch, ...] = ()
    """What the runs record differently; one that blocks keeps the gate from passing."""


class GateResult(PrintedResult, FindingRecord, frozen=True):
    """Decisions on all thresholds, and beside a baseline on a drop of each metric."""

    run: str
    traces: int
    decisions: tuple[ThresholdDecision, ...]
    """In the order of the thresholds."""
    regression: RegressionReport | None = None
    """None: no baseline was given."""
    label_source: LabelProvenance | None = None
    """By whose labels the figures of the run were corrected; None where that was not asked for."""
    warnings: tuple[str, ...] = ()
    """What keeps the figures of the run from being relied on, in words."""

    @property
    def regression_decisions(self) -> tuple[RegressionDecision, ...]:
        """Return the decision on each metric beside the baseline; empty without a baseline."""
        return self.regression.decisions if self.regression is not None else ()

    @property
    def result(self) -> GateOutcome:
        """Return fail where any threshold or metric fails, else cannot tell where any or the pair cannot, else pass."""
        results = {outcomes.result for outcomes in self.decisions} | {
            outcomes.result for outcomes in self.regression_decisions
        }
        if self.regression is not None and any(mismatch.blocks for mismatch in self.regression.mismatches):
            results |= {"cannot tell"}
        return "fail" if "fail" in results else "cannot tell" if "cannot tell" in results else "pass"

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 pass, 1 fail, 3 cannot tell."""
        return {"pass": 0, "fail": 1, "cannot tell": 3}[self.result]
