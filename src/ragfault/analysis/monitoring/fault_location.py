"""Location of a fault in live traffic: the layer that the decision tree names between two windows."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ragfault.analysis.comparison.compare import ALPHA, MARGIN, classify_difference
from ragfault.analysis.comparison.decision_tree import EQUAL_DEPTH, TREE_METRICS, TreeWalk
from ragfault.analysis.comparison.records import BranchDecision, LayerFault, MetricChange
from ragfault.analysis.monitoring.windows import MetricSeries, SeriesKey, window_difference
from ragfault.analysis.score_matrix import metric_name
from ragfault.io.runs import MetricInfo
from ragfault.stats import Difference, equivalence_test, holm_adjust
from ragfault.stats.distributions import t_cdf


class FaultLocation(Struct, frozen=True, kw_only=True):
    """Result of the decision tree on two windows of one route."""

    fault: LayerFault | None
    """None where no branch matches."""
    decisions: tuple[BranchDecision, ...]
    changes: tuple[MetricChange, ...]
    """The metrics of the tree on the two windows, corrected among themselves."""


class _WindowComparison(Struct, frozen=True, kw_only=True):
    """Two windows as a comparison without shared traces."""

    changes: tuple[MetricChange, ...]
    pairs: int
    same_chunks: int = 0


def locate_fault(
    series_by_key: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    route: str | None,
    before: tuple[int, int],
    after: tuple[int, int],
    *,
    alpha: float = ALPHA,
    margin: float = MARGIN,
) -> FaultLocation:
    """Walk the decision tree on two windows of a route.

    The windows share no traces: changes are tested by Welch's t, corrected by Holm, and "steady" is shown by an
    equivalence test within the margin. Relevance at equal depth is that of the first three chunks; where nobody
    recorded it, context_relevance stands for it, as if the number of chunks had not moved.
    """
    compared: list[tuple[MetricInfo, Difference, tuple[MetricSeries, MetricSeries]]] = []
    for name in _tree_metrics(series_by_key, measures, route):
        series = series_by_key[name, route, None]
        parts = series.between(*before), series.between(*after)
        gap = window_difference(*parts, measures[name])
        if gap is not None:
            compared.append((measures[name], gap, parts))
    p = [_welch_p(gap) for _, gap, _ in compared]
    adjusted = holm_adjust(p) if p else []
    changes = [
        _build_change(measure, gap, parts, (p_value, two), alpha, margin)
        for (measure, gap, parts), p_value, two in zip(compared, p, adjusted, strict=True)
    ]
    if not any(change.metric == EQUAL_DEPTH for change in changes):
        stand = [
            replace(c, metric=EQUAL_DEPTH) for c in changes if metric_name(c.metric) == "context_relevance"
        ]
        changes += stand[:1]
    walk = TreeWalk(
        _WindowComparison(changes=tuple(changes), pairs=max((change.n for change in changes), default=1)), ()
    )
    return FaultLocation(
        fault=walk.faults[0] if walk.faults else None, decisions=tuple(walk.decisions), changes=tuple(changes)
    )


def _tree_metrics(
    series_by_key: Mapping[SeriesKey, MetricSeries], measures: Mapping[str, MetricInfo], route: str | None
) -> list[str]:
    """Select the tree's metrics with values on a route, one of each name."""
    chosen: dict[str, str] = {}
    for name in measures:
        key = name if name == EQUAL_DEPTH else metric_name(name)
        if (name, route, None) in series_by_key and (key == EQUAL_DEPTH or key in TREE_METRICS):
            chosen.setdefault(key, name)
    return list(chosen.values())


def _welch_p(gap: Difference) -> float:
    return 2 * t_cdf(-abs(gap.center) / gap.error, gap.df) if 0 < gap.error < float("inf") else 1.0


def _build_change(
    measure: MetricInfo,
    gap: Difference,
    parts: tuple[MetricSeries, MetricSeries],
    p: tuple[float, float],
    alpha: float,
    margin: float,
) -> MetricChange:
    width = (measure.high or 1.0) - (measure.low or 0.0)
    equivalence_p = equivalence_test(gap, margin * width, alpha).p
    return MetricChange(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        state=classify_difference(gap, p[1], equivalence_p, alpha),
        baseline=parts[0].mean,
        candidate=parts[1].mean,
        difference=gap,
        p=p[0],
        adjusted=p[1],
        equivalence_p=equivalence_p,
        margin=margin * width,
        detectable=None,
        needed=None,
        n=min(part.value_count for part in parts),
    )
