"""Records of an ablation: configurations, effects of parts with their tests, and attributions by metric."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.analysis.comparison.records import ChangeState
from ragfault.records import Layer
from ragfault.stats import Difference


class SystemConfiguration(Struct, frozen=True, kw_only=True):
    """System of parts from the baseline and the candidate, and how it ran."""

    name: str
    """"baseline", "candidate", or the parts taken from the candidate joined by "+"."""
    parts: tuple[str, ...]
    """The parts taken from the candidate; the others are the baseline's."""
    errors: int = 0
    """Queries on which a part failed."""
    error: str | None = None
    """The first of these errors."""
    reused: bool = False
    """Whether it was found finished in the folder and not run again."""
    run: str | None = None
    """Where its run lies; None where no folder was given."""


class PartEffect(Struct, frozen=True, kw_only=True):
    """Effect of some parts on a metric, over the queries that are scored in every configuration."""

    parts: tuple[str, ...]
    """One part: its share of the change. Two: their interaction. None: the whole change."""
    difference: Difference
    """The effect with its interval."""
    p: float
    """Of the sign-flip test that there is no effect."""
    adjusted: float
    """The same, corrected by Holm: the whole changes over the metrics, all other effects over metrics and effects."""
    equivalence_p: float
    """The p of the equivalence test: that the true effect is at least the margin."""
    state: ChangeState
    identical: bool = False
    """Steady for certain: swapping changed nothing that the metric reads."""
    needed: int | None = None
    """Where it cannot be told: about how many scored queries would tell; None where no number is known."""

    @property
    def moved(self) -> bool:
        """Return whether the effect is shown to be a rise or a drop."""
        return self.state in ("dropped", "rose")


class MetricAttribution(Struct, frozen=True, kw_only=True):
    """Change of one metric from baseline to candidate, divided among the parts."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    means: tuple[float, ...]
    """Its mean in each configuration, in the order of the configurations; empty where no query counts."""
    n: int
    """Queries scored in every configuration; only these count, so that the shares add up."""
    lost: int
    """Queries scored in some configuration but not in every one."""
    margin: float
    """The smallest effect that matters, in the metric's units."""
    total: PartEffect | None
    """The whole change, candidate less baseline; None where no query counts."""
    shares: tuple[PartEffect, ...] = ()
    """Each part's Shapley share of it, in the order of the parts; they sum to the whole change."""
    interactions: tuple[PartEffect, ...] = ()
    """Each pair of parts: how far the effect of one depends on the other. Empty where not every swap was run."""
    verdict: str = ""
    """Which part made the change, in words."""

    @property
    def moving_parts(self) -> tuple[str, ...]:
        """Return the parts that are shown to have moved the metric."""
        return tuple(share.parts[0] for share in self.shares if share.moved)

    @property
    def result(self) -> ChangeState:
        """Return the state of the whole change: dropped, rose, steady or cannot tell."""
        return "cannot tell" if self.total is None else self.total.state

    def share_of(self, part: str) -> PartEffect | None:
        """Return the share of a part; None where no query counts or there is no such part."""
        return next((shares for shares in self.shares if shares.parts == (part,)), None)


class Ablation(Struct, frozen=True, kw_only=True):
    """Change between two systems, every metric divided among the parts."""

    parts: tuple[str, ...]
    """In the order in which they run."""
    queries: int
    configurations: tuple[SystemConfiguration, ...]
    """The systems that were run, the baseline first and the candidate last."""
    attributions: tuple[MetricAttribution, ...]
    """In the order of the metrics."""
    judge: str
    """The judge's fingerprint."""
    permutations: int | None
    """How many orders of swapping the shares are a mean of; None: all of them, exactly."""
    confidence: float
    seed: int
    warnings: tuple[str, ...] = ()
    """What keeps the experiment from being fully trusted, in words."""

    @property
    def worsened_by(self) -> dict[str, tuple[str, ...]]:
        """Return for each part the metrics that it is shown to have worsened."""
        return {part: tuple(self._worsened_metrics(part)) for part in self.parts}

    def _worsened_metrics(self, part: str) -> list[str]:
        bad = {"higher": "dropped", "lower": "rose"}
        return [
            names.metric
            for names in self.attributions
            if (share := names.share_of(part)) is not None and share.state == bad[names.better]
        ]

    def attribution_of(self, metric: str) -> MetricAttribution | None:
        """Return the attribution of the metric of that text; None where it was not asked for."""
        return next((matches for matches in self.attributions if matches.metric == metric), None)
