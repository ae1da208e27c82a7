"""Comparison of two runs metric by metric: size of the change, paired test, equivalence test and state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.analysis.comparison.judge_flakiness import widen_intervals
from ragfault.analysis.comparison.paired_runs import PairedRuns, pair_runs
from ragfault.analysis.comparison.records import ChangeState, Comparison, MetricChange, MovedTrace
from ragfault.analysis.ppi import correct_difference, metric_bounds
from ragfault.analysis.score_matrix import FAILED, SCORED, metric_name, segment_codes
from ragfault.errors import UsageError
from ragfault.io.runs import MetricInfo, Run
from ragfault.stats import (
    Difference,
    PpiDifference,
    SignificanceTest,
    detectable_effect,
    equivalence_test,
    holm_adjust,
    paired_differences,
    required_equivalence_pairs,
    required_pairs,
    sign_flip_tests,
)

ALPHA, POWER = 0.05, 0.8

MARGIN = 0.02
"""The smallest change that matters for a metric with a range from 0 to 1."""

RELATIVE_MARGIN = 0.05
"""The same for a metric without end, as a share of the baseline's mean."""

MAX_MOVED = 5
"""How many of the traces that moved most a change names."""

Mask = NDArray[np.bool_]

RETRIEVAL_ONLY_METRICS = frozenset(
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
    baseline: Run | PairedRuns,
    candidate: Run | None = None,
    *,
    metrics: Sequence[str] | None = None,
    margin: float = MARGIN,
    margins: Mapping[str, float] | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
    anyway: bool = False,
    seed: int = 0,
    pair_mask: Mask | None = None,
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
    side = pair_runs(baseline, candidate, anyway=anyway)
    measures = [m for m in side.shared_metrics() if metrics is None or m.name in metrics]
    chosen = np.ones(len(side.pairing), dtype=bool) if pair_mask is None else pair_mask
    found = _test_changes(
        side, measures, chosen, _ComparisonOptions(margin, margins or {}, alpha, power, seed)
    )
    pairing = side.pairing
    return Comparison(
        baseline=side.runs[0].path.name,
        candidate=side.runs[1].path.name,
        manifests=(side.runs[0].manifest, side.runs[1].manifest),
        paired_by=pairing.paired_by,
        pairs=int(chosen.sum()),
        unpaired=pairing.unpaired,
        same_chunks=int(pairing.same_chunks[chosen].sum()),
        same_answers=int(pairing.same_answers[chosen].sum()),
        alpha=alpha,
        power=power,
        changes=tuple(found),
        warnings=side.warnings,
        label_sources=side.label_sources,
    )


def split_segments(paired: PairedRuns, by: str, alpha: float) -> tuple[list[tuple[str, Mask]], float]:
    """The segments of the pairs by a field of the baseline, the largest first, and the alpha for each of them.

    `alpha` is divided by their number, so that the chance of any false alarm stays what was asked for.
    """
    codes, names = segment_codes(paired.runs[0], by)
    mine = codes[paired.pairing.baseline]
    parts = [(name, mine == at) for at, name in enumerate(names) if bool((mine == at).any())]
    parts.sort(key=lambda part: -int(part[1].sum()))
    return parts, alpha / max(1, len(parts))


def compare_segments(
    paired: PairedRuns, by: str, *, alpha: float = ALPHA, **options: Any
) -> list[Comparison]:
    """The comparison of each segment of the pairs by a field of the baseline, corrected for their number."""
    parts, each = split_segments(paired, by, alpha)
    return [
        replace(compare(paired, pair_mask=keep, alpha=each, **options), by=by, segment=name)
        for name, keep in parts
    ]


def _check_margin(measure: MetricInfo, margin: float) -> float:
    """A margin of a metric's own, if it lies within the metric's range."""
    low, high = measure.low, measure.high
    if not margin > 0 or (low is not None and high is not None and margin >= high - low):
        raise UsageError(
            f"the margin {margin:g} of {measure.name} is not above 0 and below the width of its range. "
            "Write a share as 0.05."
        )
    return margin


class _ComparisonOptions:
    """On what terms changes are told apart."""

    def __init__(
        self, margin: float, margins: Mapping[str, float], alpha: float, power: float, seed: int
    ) -> None:
        self.margin, self.margins = margin, margins
        self.alpha, self.power, self.seed = alpha, power, seed

    def margin_for(self, measure: MetricInfo, mean: float) -> float:
        """The margin of a metric, in its units."""
        for name in (measure.name, metric_name(measure.name)):
            if name in self.margins:
                return _check_margin(measure, self.margins[name])
        if measure.low is not None and measure.high is not None:
            return self.margin * (measure.high - measure.low)
        return max(RELATIVE_MARGIN * abs(mean), 1e-9)


def _test_changes(
    paired: PairedRuns, measures: Sequence[MetricInfo], pair_mask: Mask, options: _ComparisonOptions
) -> list[MetricChange]:
    if not measures:
        return []
    left = np.stack([paired.values(m.name, 0)[pair_mask] for m in measures], axis=1)
    right = np.stack([paired.values(m.name, 1)[pair_mask] for m in measures], axis=1)
    defined = np.isfinite(left) & np.isfinite(right)
    left, right = np.where(defined, left, 0.0), np.where(defined, right, 0.0)
    clusters = None if paired.pairing.clusters is None else paired.pairing.clusters[pair_mask]
    ends = [metric_bounds(measure) for measure in measures]
    found = paired_differences(left, right, clusters, defined=defined, bounds=ends, seed=options.seed)
    differences = widen_intervals(found, measures, paired.judge_flakiness)
    tests = sign_flip_tests(left, right, clusters, defined=defined, seed=options.seed)
    fixed = _identical_metrics(paired, measures, pair_mask, (left == right).all(axis=0))
    columns = [(left[:, at], right[:, at], defined[:, at]) for at in range(len(measures))]
    put = [
        None if fixed[at] else _correct_by_labels(paired, measure, pair_mask, columns[at], clusters)
        for at, measure in enumerate(measures)
    ]
    p = [_select_p(test, each) for test, each in zip(tests, put, strict=True)]
    tested = {at: each for at, each in enumerate(p) if each is not None and not fixed[at]}
    adjusted = dict(zip(tested, holm_adjust(list(tested.values())), strict=True))
    return [
        _build_change(
            paired,
            measure,
            np.flatnonzero(pair_mask),
            columns[at],
            (differences[at], put[at]),
            (p[at], adjusted.get(at)),
            fixed[at],
            options,
        )
        for at, measure in enumerate(measures)
    ]


def _select_p(test: SignificanceTest | None, corrected: PpiDifference | None) -> float | None:
    """The p of a metric: of the rectified difference where there is one, else of the sign-flip test."""
    if corrected is not None and corrected.difference is not None:
        return corrected.p
    return None if test is None else test.p


def _identical_metrics(
    paired: PairedRuns, measures: Sequence[MetricInfo], pair_mask: Mask, equal_values: Mask
) -> list[bool]:
    """Of each metric whether its values are alike because all that it reads is the very same in both runs."""
    same = bool(paired.pairing.same_chunks[pair_mask].all())
    whole = same and bool(paired.pairing.same_answers[pair_mask].all())
    return [
        bool(equal_values[at]) and (whole or (same and _reads_retrieval_only(m.name)))
        for at, m in enumerate(measures)
    ]


def _build_change(
    paired: PairedRuns,
    measure: MetricInfo,
    pair_rows: NDArray[np.int64],
    columns: tuple[NDArray[np.float64], NDArray[np.float64], Mask],
    differences: tuple[Difference | None, PpiDifference | None],
    p: tuple[float | None, float | None],
    identical: bool,
    options: _ComparisonOptions,
) -> MetricChange:
    left, right, pairs = columns
    judged, put = differences
    difference = (put and put.difference) or judged
    n = int(pairs.sum())
    means = (float(left[pairs].mean()), float(right[pairs].mean())) if n else (None, None)
    margin = options.margin_for(measure, means[0] or 0.0)
    steadiness = None if difference is None else equivalence_test(difference, margin, options.alpha).p
    state, needed, least = _classify_change(difference, p[1], steadiness, margin, identical, options)
    return MetricChange(
        metric=measure.name,
        layer=measure.layer,
        better=measure.better,
        state=state,
        baseline=means[0],
        candidate=means[1],
        difference=difference,
        p=p[0],
        adjusted=p[1],
        equivalence_p=steadiness,
        margin=margin,
        detectable=least,
        needed=needed,
        n=n,
        identical=identical,
        ppi=put,
        judge_difference=judged if difference is not judged else None,
        **_count_unpaired(*(paired.statuses(measure.name, at)[pair_rows] for at in (0, 1))),
        **_count_moved(paired, pair_rows, columns),
    )


def _count_unpaired(old: NDArray[np.int64], new: NDArray[np.int64]) -> dict[str, Any]:
    """On how many pairs a metric has a value on one side only, and how many failed."""
    before, after = old == SCORED, new == SCORED
    return {
        "lost": (int((before & ~after).sum()), int((after & ~before).sum())),
        "failed": (int((old == FAILED).sum()), int((new == FAILED).sum())),
    }


def _correct_by_labels(
    paired: PairedRuns,
    measure: MetricInfo,
    pair_mask: Mask,
    columns: tuple[NDArray[np.float64], NDArray[np.float64], Mask],
    clusters: NDArray[np.int64] | None,
) -> PpiDifference | None:
    """The difference of a metric put right by people."""
    left, right, pairs = columns
    said = [paired.label_values(measure.name, at) for at in (0, 1)]
    people = [None if each is None else each.select(pair_mask).select(pairs) for each in said]
    groups = None if clusters is None else clusters[pairs]
    return correct_difference((left[pairs], right[pairs]), (people[0], people[1]), groups, measure)


def _count_moved(
    paired: PairedRuns,
    pair_rows: NDArray[np.int64],
    columns: tuple[NDArray[np.float64], NDArray[np.float64], Mask],
) -> dict[str, Any]:
    """On how many traces a metric rose and fell, and on which most."""
    left, right, pairs = columns
    moved = np.where(pairs, right - left, 0.0)
    return {
        "rose": int((moved > 0).sum()),
        "fell": int((moved < 0).sum()),
        "gains": _list_moved(paired, pair_rows, left, right, np.argsort(-moved, kind="stable"), moved > 0),
        "drops": _list_moved(paired, pair_rows, left, right, np.argsort(moved, kind="stable"), moved < 0),
    }


def _reads_retrieval_only(metric: str) -> bool:
    """Whether a metric reads nothing but the query, the chunks and the answer key."""
    return metric.startswith("context_relevance") or metric_name(metric) in RETRIEVAL_ONLY_METRICS


def _classify_change(
    difference: Difference | None,
    adjusted: float | None,
    equivalence_p: float | None,
    margin: float,
    identical: bool,
    options: _ComparisonOptions,
) -> tuple[ChangeState, int | None, float | None]:
    """The state of a metric, the number of pairs that would tell, and the smallest change these pairs would find."""
    if identical:
        return "steady", None, None
    if difference is None or adjusted is None or equivalence_p is None:
        return "cannot tell", None, None
    spread = difference.deviation
    least = None
    if math.isfinite(spread) and spread > 0 and difference.clusters > 1:
        least = detectable_effect(
            spread, difference.n, difference.cluster_size, power=options.power, alpha=options.alpha
        )
    if equivalence_p <= options.alpha:
        return "steady", None, least
    if adjusted <= options.alpha and not difference.low <= 0 <= difference.high:
        return ("rose" if difference.mean > 0 else "dropped"), None, least
    return "cannot tell", _needed_pairs(difference, spread, margin, options), least


def _needed_pairs(
    difference: Difference, spread: float, margin: float, options: _ComparisonOptions
) -> int | None:
    """About how many pairs would tell a change of the margin from none, at the present spread."""
    if not math.isfinite(spread) or spread <= 0:
        return None
    enough = [
        required_pairs(margin, spread, difference.cluster_size, power=options.power, alpha=options.alpha),
        required_equivalence_pairs(
            margin, spread, difference.cluster_size, power=options.power, alpha=options.alpha
        ),
    ]
    known = [n for n in enough if n is not None]
    return max(known) if known else None


def _list_moved(
    paired: PairedRuns,
    pair_rows: NDArray[np.int64],
    baseline: NDArray[np.float64],
    candidate: NDArray[np.float64],
    order: NDArray[np.int64],
    moved: Mask,
) -> tuple[MovedTrace, ...]:
    ids, queries = paired.ids_and_queries()
    found = []
    for at in order[: min(MAX_MOVED, int(moved.sum()))]:
        row = int(paired.pairing.candidate[pair_rows[at]])
        found.append(MovedTrace(ids[row], queries[row], float(baseline[at]), float(candidate[at])))
    return tuple(found)
