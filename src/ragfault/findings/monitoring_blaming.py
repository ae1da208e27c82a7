"""Blame: the layer that the decision tree names between two windows of live traffic."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ragfault.findings.changes import Change, Fault, Ruling, State
from ragfault.findings.comparing import ALPHA
from ragfault.findings.comparing import MARGIN as MATTERS
from ragfault.findings.grid import bare
from ragfault.findings.monitoring_windows import Key, Series, difference
from ragfault.findings.tree import DEPTH, TREE, Walk
from ragfault.runs import Measure
from ragfault.stats import Difference, equivalence, holm
from ragfault.stats.distributions import t_below

__all__ = ["Blame", "blame"]


class Blame(Struct, frozen=True, kw_only=True):
    """What the decision tree says of two windows of one route."""

    fault: Fault | None
    """None where no branch matches."""
    rulings: tuple[Ruling, ...]
    changes: tuple[Change, ...]
    """The metrics of the tree on the two windows, corrected among themselves."""


class _Windows(Struct, frozen=True, kw_only=True):
    """Two windows as a comparison that shares no traces."""

    changes: tuple[Change, ...]
    pairs: int
    same_chunks: int = 0


def blame(
    all_: Mapping[Key, Series],
    measures: Mapping[str, Measure],
    route: str | None,
    before: tuple[int, int],
    after: tuple[int, int],
    *,
    alpha: float = ALPHA,
    margin: float = MATTERS,
) -> Blame:
    """Walk the decision tree on two windows of a route, each from a minute to before another.

    The windows share no traces: changes are tested by Welch's t, corrected by Holm, and "steady" is shown by an
    equivalence test within the margin. Relevance at equal depth is that of the first three chunks; where nobody
    recorded it, context_relevance stands for it, as if the number of chunks had not moved.
    """
    found: list[tuple[Measure, Difference, tuple[Series, Series]]] = []
    for name in _names(all_, measures, route):
        whole = all_[name, route, None]
        parts = whole.between(*before), whole.between(*after)
        gap = difference(*parts, measures[name])
        if gap is not None:
            found.append((measures[name], gap, parts))
    p = [_p(gap) for _, gap, _ in found]
    adjusted = holm(p) if p else []
    changes = [
        _change(measure, gap, parts, (one, two), alpha, margin)
        for (measure, gap, parts), one, two in zip(found, p, adjusted, strict=True)
    ]
    if not any(change.metric == DEPTH for change in changes):
        stand = [replace(c, metric=DEPTH) for c in changes if bare(c.metric) == "context_relevance"]
        changes += stand[:1]
    walk = Walk(_Windows(changes=tuple(changes), pairs=max((change.n for change in changes), default=1)), ())
    return Blame(
        fault=walk.faults[0] if walk.faults else None, rulings=tuple(walk.rulings), changes=tuple(changes)
    )


def _names(all_: Mapping[Key, Series], measures: Mapping[str, Measure], route: str | None) -> list[str]:
    """The metrics of the tree that are watched on a route, one of each name."""
    chosen: dict[str, str] = {}
    for name in measures:
        key = name if name == DEPTH else bare(name)
        if (name, route, None) in all_ and (key == DEPTH or key in TREE):
            chosen.setdefault(key, name)
    return list(chosen.values())


def _p(gap: Difference) -> float:
    """Of Welch's test of no difference."""
    return 2 * t_below(-abs(gap.centre) / gap.error, gap.df) if 0 < gap.error < float("inf") else 1.0


def _change(
    measure: Measure,
    gap: Difference,
    parts: tuple[Series, Series],
    p: tuple[float, float],
    alpha: float,
    margin: float,
) -> Change:
    width = (measure.high or 1.0) - (measure.low or 0.0)
    steadiness = equivalence(gap, margin * width, alpha).p
    state: State = "cannot tell"
    if steadiness <= alpha:
        state = "steady"
    elif p[1] <= alpha and not gap.low <= 0 <= gap.high:
        state = "rose" if gap.mean > 0 else "dropped"
    return Change(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        state=state,
        baseline=parts[0].mean,
        candidate=parts[1].mean,
        difference=gap,
        p=p[0],
        adjusted=p[1],
        steadiness=steadiness,
        margin=margin * width,
        detectable=None,
        needed=None,
        n=min(part.traces for part in parts),
    )
