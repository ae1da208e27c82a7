"""Comparison: did a metric move between two runs, by how much, and is it real?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.errors import UsageError
from ragfault.findings.changes import Change, Comparison, Mover, State
from ragfault.findings.flaking import widened
from ragfault.findings.framing import Frame, frame
from ragfault.findings.grid import FAILED, SCORED, bare, labels
from ragfault.findings.rectifying import bounds, rectified_change
from ragfault.runs import Measure, Run
from ragfault.stats import (
    Difference,
    RectifiedDifference,
    Significance,
    detectable,
    equivalence,
    holm,
    paired_differences,
    required,
    required_steady,
    sign_flips,
)

__all__ = ["ALPHA", "MARGIN", "POWER", "compare", "divided", "segmented"]

ALPHA, POWER = 0.05, 0.8

MARGIN = 0.02
"""The smallest change that matters for a metric with a range from 0 to 1."""

RELATIVE = 0.05
"""The same for a metric without end, as a share of the baseline's mean."""

SHOWN = 5
"""How many of the traces that moved most a change names."""

Mask = NDArray[np.bool_]

RETRIEVAL_ONLY = frozenset(
    {
        "context_relevance",
        "context_precision",
        "context_ranking",
        "ranking_penalty",
        "context_recall",
        "context_entity_recall",
        "missing_context",
        "redundancy",
        "empty_retrieval",
        "recall",
        "precision",
        "f1",
        "hit",
        "reciprocal_rank",
        "average_precision",
        "ndcg",
        "r_precision",
        "span_recall",
        "span_precision",
        "span_iou",
    }
)
"""Metrics that read the query, the chunks and the answer key, never the answer."""


def compare(  # noqa: PLR0913 - the terms of one verb
    baseline: Run | Frame,
    candidate: Run | None = None,
    *,
    metrics: Sequence[str] | None = None,
    margin: float = MARGIN,
    margins: Mapping[str, float] | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
    anyway: bool = False,
    seed: int = 0,
    keep: Mask | None = None,
) -> Comparison:
    """Compare two runs on the traces they share, metric by metric.

    A metric is *steady* where an equivalence test (two one-sided, at `alpha`) shows the change to be
    smaller than its margin, else *dropped* or *rose* where the sign-flip test, corrected by Holm over all
    metrics compared, finds a change at `alpha` and the interval leaves 0 out; otherwise the data *cannot
    tell*, with about how many pairs would at `power`. The margin is `margin` times the width of the
    metric's range, 5 % of the baseline's mean where the range has no end, or what `margins` gives for a
    metric by its text or its bare name. Pairs of one conversation, or of one query, are taken together.

    `metrics` (texts as they print) leaves the others out of the correction; `keep` is a mask over the
    pairs. Raises RunError where the judges differ (unless `anyway`), the metrics have other parameters, or
    nothing pairs; UsageError for impossible settings.
    """
    if not (0 < alpha < 1 and 0 < power < 1 and 0 < margin < 1):
        raise UsageError(
            f"alpha, power and the margin are shares between 0 and 1, got {alpha:g}, {power:g} and {margin:g}. "
            "Write 5 % as 0.05."
        )
    side = frame(baseline, candidate, anyway=anyway)
    measures = [m for m in side.shared() if metrics is None or m.name in metrics]
    chosen = np.ones(len(side.pairing), dtype=bool) if keep is None else keep
    found = _changes(side, measures, chosen, _Terms(margin, margins or {}, alpha, power, seed))
    pairing = side.pairing
    return Comparison(
        baseline=side.runs[0].path.name,
        candidate=side.runs[1].path.name,
        manifests=(side.runs[0].manifest, side.runs[1].manifest),
        how=pairing.how,
        pairs=int(chosen.sum()),
        alone=pairing.alone,
        same_chunks=int(pairing.chunks[chosen].sum()),
        same_answers=int(pairing.answers[chosen].sum()),
        alpha=alpha,
        power=power,
        changes=tuple(found),
        warnings=side.warnings,
        rectification=side.rectification,
    )


def divided(side: Frame, by: str, alpha: float) -> tuple[list[tuple[str, Mask]], float]:
    """The segments of the pairs by a field of the baseline, the largest first, and the alpha for each of them.

    `alpha` is divided by their number, so that the chance of any false alarm stays what was asked for.
    """
    codes, names = labels(side.runs[0], by)
    mine = codes[side.pairing.baseline]
    parts = [(name, mine == at) for at, name in enumerate(names) if bool((mine == at).any())]
    parts.sort(key=lambda part: -int(part[1].sum()))
    return parts, alpha / max(1, len(parts))


def segmented(side: Frame, by: str, *, alpha: float = ALPHA, **options: Any) -> list[Comparison]:
    """The comparison of each segment of the pairs by a field of the baseline, corrected for their number."""
    parts, each = divided(side, by, alpha)
    return [
        replace(compare(side, keep=keep, alpha=each, **options), by=by, segment=name) for name, keep in parts
    ]


def _sensible(measure: Measure, margin: float) -> float:
    """A margin of a metric's own, if it lies within the metric's range."""
    low, high = measure.low, measure.high
    if not margin > 0 or (low is not None and high is not None and margin >= high - low):
        raise UsageError(
            f"the margin {margin:g} of {measure.name} is not above 0 and below the width of its range. "
            "Write a share as 0.05."
        )
    return margin


class _Terms:
    """On what terms changes are told apart."""

    def __init__(
        self, margin: float, margins: Mapping[str, float], alpha: float, power: float, seed: int
    ) -> None:
        self.margin, self.margins = margin, margins
        self.alpha, self.power, self.seed = alpha, power, seed

    def of(self, measure: Measure, mean: float) -> float:
        """The margin of a metric, in its units."""
        for name in (measure.name, bare(measure.name)):
            if name in self.margins:
                return _sensible(measure, self.margins[name])
        if measure.low is not None and measure.high is not None:
            return self.margin * (measure.high - measure.low)
        return max(RELATIVE * abs(mean), 1e-9)


def _changes(side: Frame, measures: Sequence[Measure], keep: Mask, terms: _Terms) -> list[Change]:
    if not measures:
        return []
    left = np.stack([side.values(m.name, 0)[keep] for m in measures], axis=1)
    right = np.stack([side.values(m.name, 1)[keep] for m in measures], axis=1)
    defined = np.isfinite(left) & np.isfinite(right)
    left, right = np.where(defined, left, 0.0), np.where(defined, right, 0.0)
    clusters = None if side.pairing.clusters is None else side.pairing.clusters[keep]
    ends = [bounds(measure) for measure in measures]
    found = paired_differences(left, right, clusters, defined=defined, bounds=ends, seed=terms.seed)
    differences = widened(found, measures, side.flakiness)
    tests = sign_flips(left, right, clusters, defined=defined, seed=terms.seed)
    fixed = _fixed(side, measures, keep, (left == right).all(axis=0))
    columns = [(left[:, at], right[:, at], defined[:, at]) for at in range(len(measures))]
    put = [
        None if fixed[at] else _rectified(side, measure, keep, columns[at], clusters)
        for at, measure in enumerate(measures)
    ]
    p = [_p(test, each) for test, each in zip(tests, put, strict=True)]
    tested = {at: each for at, each in enumerate(p) if each is not None and not fixed[at]}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [
        _change(
            side,
            measure,
            np.flatnonzero(keep),
            columns[at],
            (differences[at], put[at]),
            (p[at], adjusted.get(at)),
            fixed[at],
            terms,
        )
        for at, measure in enumerate(measures)
    ]


def _p(test: Significance | None, put: RectifiedDifference | None) -> float | None:
    """The p of a metric: of the rectified difference where there is one, else of the sign-flip test."""
    if put is not None and put.difference is not None:
        return put.p
    return None if test is None else test.p


def _fixed(side: Frame, measures: Sequence[Measure], keep: Mask, alike: Mask) -> list[bool]:
    """Of each metric whether its values are alike because all that it reads is the very same in both runs."""
    same = bool(side.pairing.chunks[keep].all())
    whole = same and bool(side.pairing.answers[keep].all())
    return [
        bool(alike[at]) and (whole or (same and _retrieval_only(m.name))) for at, m in enumerate(measures)
    ]


def _change(
    side: Frame,
    measure: Measure,
    places: NDArray[np.int64],
    columns: tuple[NDArray[np.float64], NDArray[np.float64], Mask],
    found: tuple[Difference | None, RectifiedDifference | None],
    p: tuple[float | None, float | None],
    same: bool,
    terms: _Terms,
) -> Change:
    left, right, pairs = columns
    judged, put = found
    difference = (put and put.difference) or judged
    n = int(pairs.sum())
    means = (float(left[pairs].mean()), float(right[pairs].mean())) if n else (None, None)
    margin = terms.of(measure, means[0] or 0.0)
    steadiness = None if difference is None else equivalence(difference, margin, terms.alpha).p
    state, needed, least = _state(difference, p[1], steadiness, margin, same, terms)
    return Change(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        state=state,
        baseline=means[0],
        candidate=means[1],
        difference=difference,
        p=p[0],
        adjusted=p[1],
        steadiness=steadiness,
        margin=margin,
        detectable=least,
        needed=needed,
        n=n,
        same=same,
        rectified=put,
        judged=judged if difference is not judged else None,
        **_lost(*(side.states(measure.name, at)[places] for at in (0, 1))),
        **_moved(side, places, columns),
    )


def _lost(old: NDArray[np.int64], new: NDArray[np.int64]) -> dict[str, Any]:
    """On how many pairs a metric has a value on one side only, and how many failed."""
    before, after = old == SCORED, new == SCORED
    return {
        "lost": (int((before & ~after).sum()), int((after & ~before).sum())),
        "failed": (int((old == FAILED).sum()), int((new == FAILED).sum())),
    }


def _rectified(
    side: Frame,
    measure: Measure,
    keep: Mask,
    columns: tuple[NDArray[np.float64], NDArray[np.float64], Mask],
    clusters: NDArray[np.int64] | None,
) -> RectifiedDifference | None:
    """The difference of a metric put right by people."""
    left, right, pairs = columns
    said = [side.said(measure.name, at) for at in (0, 1)]
    people = [None if each is None else each.of(keep).of(pairs) for each in said]
    groups = None if clusters is None else clusters[pairs]
    return rectified_change((left[pairs], right[pairs]), (people[0], people[1]), groups, measure)


def _moved(
    side: Frame,
    places: NDArray[np.int64],
    columns: tuple[NDArray[np.float64], NDArray[np.float64], Mask],
) -> dict[str, Any]:
    """On how many traces a metric rose and fell, and on which most."""
    left, right, pairs = columns
    moved = np.where(pairs, right - left, 0.0)
    return {
        "rose": int((moved > 0).sum()),
        "fell": int((moved < 0).sum()),
        "gains": _movers(side, places, left, right, np.argsort(-moved, kind="stable"), moved > 0),
        "drops": _movers(side, places, left, right, np.argsort(moved, kind="stable"), moved < 0),
    }


def _retrieval_only(metric: str) -> bool:
    """Whether a metric reads nothing but the query, the chunks and the answer key."""
    return metric.startswith("context_relevance") or bare(metric) in RETRIEVAL_ONLY


def _state(
    difference: Difference | None,
    adjusted: float | None,
    steadiness: float | None,
    margin: float,
    same: bool,
    terms: _Terms,
) -> tuple[State, int | None, float | None]:
    """The state of a metric, the number of pairs that would tell, and the smallest change these pairs would find."""
    if same:
        return "steady", None, None
    if difference is None or adjusted is None or steadiness is None:
        return "cannot tell", None, None
    spread = difference.deviation
    least = None
    if math.isfinite(spread) and spread > 0 and difference.clusters > 1:
        least = detectable(spread, difference.n, difference.size, power=terms.power, alpha=terms.alpha)
    if steadiness <= terms.alpha:
        return "steady", None, least
    if adjusted <= terms.alpha and not difference.low <= 0 <= difference.high:
        return ("rose" if difference.mean > 0 else "dropped"), None, least
    return "cannot tell", _needed(difference, spread, margin, terms), least


def _needed(difference: Difference, spread: float, margin: float, terms: _Terms) -> int | None:
    """About how many pairs would tell a change of the margin from none, at the present spread."""
    if not math.isfinite(spread) or spread <= 0:
        return None
    enough = [
        required(margin, spread, difference.size, power=terms.power, alpha=terms.alpha),
        required_steady(margin, spread, difference.size, power=terms.power, alpha=terms.alpha),
    ]
    known = [n for n in enough if n is not None]
    return max(known) if known else None


def _movers(
    side: Frame,
    places: NDArray[np.int64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    order: NDArray[np.int64],
    wanted: Mask,
) -> tuple[Mover, ...]:
    ids, queries = side.names()
    found = []
    for at in order[: min(SHOWN, int(wanted.sum()))]:
        row = int(side.pairing.candidate[places[at]])
        found.append(Mover(ids[row], queries[row], float(left[at]), float(right[at])))
    return tuple(found)
