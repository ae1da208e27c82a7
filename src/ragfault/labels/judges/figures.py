"""Agreement statistics of scored units, each with an interval over groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.labels.judges.measurement import AgreementCurves, AgreementFigure, ScoreBin, SpanAgreement, UnitAgreement
from ragfault.labels.judges.units import OWN_THRESHOLD, Bools, ScoredUnits, SpanOverlap
from ragfault.labels.reading.labeled_traces import hash_rank
from ragfault.stats.agreement import TwoRaterRatings
from ragfault.stats.bootstrap import FloatArray, Resampling, bootstrap_estimates, divide_or_nan
from ragfault.stats.classification import (
    RankedScores,
    assign_bins,
    calibration_bins,
    choose_threshold,
    rank_within_groups,
)
from ragfault.stats.estimates import BASE_RATES, BootstrapEstimate, predict_f1
from ragfault.stats.intervals import mean_interval

FOLDS = 5
HISTOGRAM_BINS = 20
# points of the ROC curve
ROC_POINTS = 200

Statistic = Callable[[FloatArray], FloatArray]


class PositiveCalls(NamedTuple):
    """Units classified as positive, and the threshold used."""

    positive: Bools
    threshold: float | None


def call_positive(units: ScoredUnits, groups: Sequence[str], threshold: str, seed: int) -> PositiveCalls:
    """Classify units by a threshold: of the best F1 on the other folds ("cv"), the judge's own ("own"), or a number.

    Folds consist of whole groups. If the other folds have only one class, no unit of the fold is positive; if that
    holds for every fold, there is no threshold.
    """
    if threshold == "own":
        return PositiveCalls(units.called, OWN_THRESHOLD)
    if threshold != "cv":
        return PositiveCalls(units.score >= float(threshold), float(threshold))
    folds = assign_folds(groups, seed)
    called, thresholds = np.zeros(len(groups), bool), []
    for number in np.unique(folds):
        in_fold = folds == number
        choice = choose_threshold(units.score[~in_fold], units.label[~in_fold])
        if choice is not None:
            called[in_fold] = units.score[in_fold] >= choice.threshold
            thresholds.append(choice.threshold)
    return PositiveCalls(called, float(np.mean(thresholds)) if thresholds else None)


def assign_folds(groups: Sequence[str], seed: int) -> NDArray[np.intp]:
    """Assign each unit the fold of its group, of five; the same whatever the order of the units."""
    order = sorted(set(groups), key=lambda name: hash_rank(name, seed))
    fold = {name: index % FOLDS for index, name in enumerate(order)}
    return np.array([fold[name] for name in groups], np.intp)


def compute_agreement(
    units: ScoredUnits,
    groups: Sequence[str],
    called: PositiveCalls,
    options: Resampling,
    *,
    inner: Sequence[Hashable] | None = None,
) -> UnitAgreement:
    """Compute every agreement statistic of some units; `inner` names the groups of the within-group AUROC."""
    label = units.label
    names = np.array(groups, object)
    figures = [_mean_figure("positives", label, names, "there are no units")]
    figures += _bootstrap_figures(units, groups, called.positive, inner, options)
    hits = called.positive & label
    figures += [
        _mean_figure("precision", hits[called.positive], names[called.positive], "none is called positive"),
        _mean_figure("recall", hits[label], names[label], "none is positive"),
        _mean_figure("sensitivity", units.called[label], names[label], "none is positive"),
        _mean_figure("specificity", ~units.called[~label], names[~label], "none is negative"),
        _mean_figure("brier", (units.score - label) ** 2, names, "there are no units"),
        *_certainty_figures(units, names),
    ]
    figures_by_name = {figure.name: figure for figure in figures}
    if called.threshold is None and label.any() and not label.all():
        reason = "no fold has both classes in the others"
        figures_by_name |= {name: AgreementFigure(name=name, value=None, reason=reason) for name in THRESHOLD_FIGURES}
    return UnitAgreement(
        unit=units.unit,
        n=label.size,
        groups=len(set(groups)),
        positives=int(label.sum()),
        figures=tuple(figures_by_name[name] for name in FIGURE_ORDER if name in figures_by_name),
    )


RATE_FIGURES = {f"f1_at_{100 * rate:.0f}": rate for rate in BASE_RATES}
"""Figure → the share of positives for which F1 is predicted, at the judge's own decision."""

FIGURE_ORDER = (
    *(
        "positives",
        "f1",
        *RATE_FIGURES,
        "precision",
        "recall",
        "recall_at_precision",
        "auroc",
        "average_precision",
        "auroc_within",
    ),
    *("balanced_accuracy", "best_balanced_accuracy", "balanced_accuracy_lost", "sensitivity", "specificity"),
    *("kappa", "alpha", "kappa_linear", "kappa_quadratic", "alpha_ordinal"),
    *("calibration_error", "bias", "brier", "unsure", "accuracy", "accuracy_sure", "accuracy_unsure"),
    *("verbosity", "order_flips", "order_shift"),
)
"""The order of the statistics."""


SIGNED_FIGURES = (
    *("balanced_accuracy_lost", "kappa", "alpha", "kappa_linear", "kappa_quadratic", "alpha_ordinal"),
    *("bias", "verbosity"),
)
"""Statistics that may be negative."""
# statistics at the threshold
THRESHOLD_FIGURES = ("f1", "precision", "recall")
INFLATED_FIGURES = ("best_balanced_accuracy", "balanced_accuracy_lost", "calibration_error")
"""Statistics that are biased upwards by chance."""
CALIBRATION_NOISE = "noise"
"""Calibration error due to resampling; the true error is within this distance of the estimate."""


def _mean_figure(name: str, values: NDArray[np.generic], groups: NDArray[np.object_], reason: str) -> AgreementFigure:
    """Return a mean in [0, 1] with Wilson's interval, widened for correlated groups."""
    if not values.size:
        return AgreementFigure(name=name, value=None, reason=reason)
    mean = mean_interval(values.astype(np.float64), groups, bounds=(0, 1))
    return AgreementFigure(name=name, value=mean.mean, low=mean.low, high=mean.high, n=mean.n)


def _certainty_figures(units: ScoredUnits, names: NDArray[np.object_]) -> list[AgreementFigure]:
    """Return the accuracy at the judge's own threshold, where it is sure and where it is not."""
    correct = units.called == units.label
    accuracy = _mean_figure("accuracy", correct, names, "there are no units")
    if units.unsure is None:
        return [
            AgreementFigure(name="unsure", value=None, reason="the judge does not say where it is unsure"),
            accuracy,
        ]
    certain = ~units.unsure
    return [
        _mean_figure("unsure", units.unsure, names, "there are no units"),
        accuracy,
        _mean_figure("accuracy_sure", correct[certain], names[certain], "the judge is never sure"),
        _mean_figure("accuracy_unsure", correct[~certain], names[~certain], "the judge is never unsure"),
    ]


def _bootstrap_figures(
    units: ScoredUnits, groups: Sequence[str], called: Bools, inner: Sequence[Hashable] | None, options: Resampling
) -> list[AgreementFigure]:
    """Return the statistics that are not means, with bootstrap intervals."""
    label = units.label
    reason = "none is positive" if not label.any() else "none is negative"
    if not label.size or label.all() or not label.any():
        names = ["auroc", "average_precision", "balanced_accuracy", "best_balanced_accuracy"]
        names += ["balanced_accuracy_lost", "f1", "recall_at_precision", "calibration_error", "kappa", "alpha"]
        return [AgreementFigure(name=name, value=None, reason=reason) for name in names]
    parts = [
        _ranking_statistics(units),
        _f1_statistics(units, called),
        _recall_statistics(units),
        _calibration_statistics(units),
        _rate_statistics(units),
        *_chance_statistics(units),
        *_length_statistics(units),
    ]
    within_groups = list(rank_within_groups(units.score, label, inner)) if inner is not None else []
    names = [name for statistics in parts for name in statistics.names]
    if within_groups:
        parts.append(_within_statistics(within_groups))
        names.append("auroc_within")
    estimates = bootstrap_estimates(
        lambda weights: np.hstack([statistics.statistic(weights) for statistics in parts]),
        groups,
        options,
        inflated=[index for index, name in enumerate(names) if name in INFLATED_FIGURES],
    )
    estimates_by_name = dict(zip(names, estimates, strict=True))
    noise = estimates_by_name.pop(CALIBRATION_NOISE)
    error = estimates_by_name["calibration_error"]
    if error.value is not None and error.low is not None and noise.high is not None:
        estimates_by_name["calibration_error"] = error._replace(low=min(error.low, error.value - noise.high))
    within_size = sum(members.size for members, _ in within_groups)
    figures = [
        _build_figure(name, estimate, within_size if name == "auroc_within" else label.size)
        for name, estimate in estimates_by_name.items()
    ]
    if inner is not None and not within_groups:
        figures.append(AgreementFigure(name="auroc_within", value=None, reason="no group has positives and negatives"))
    return figures


def _build_figure(name: str, estimate: BootstrapEstimate, n: int) -> AgreementFigure:
    """Clip an estimate to [0, 1], or to [-1, 1] where it is signed."""
    lowest = -1.0 if name in SIGNED_FIGURES else 0.0
    low, high = (None if end is None else min(1.0, max(lowest, end)) for end in estimate[1:])
    return AgreementFigure(name=name, value=estimate.value, low=low, high=high, n=n)


class _StatisticGroup(NamedTuple):
    """Statistics with their names."""

    names: tuple[str, ...]
    statistic: Statistic


def _ranking_statistics(units: ScoredUnits) -> _StatisticGroup:
    """Return rank statistics of the scores; the best threshold is chosen in each resample."""
    ranked = RankedScores(units.score, units.label)

    def statistic(weights: FloatArray) -> FloatArray:
        class_weights = ranked.class_weights(weights)
        best = ranked.evaluate_thresholds("balanced_accuracy", *class_weights).max(axis=1)
        actual = balanced_accuracy(weights, units.called, units.label)
        return np.stack(
            [ranked.auroc(*class_weights), ranked.average_precision(*class_weights), actual, best, best - actual],
            axis=1,
        )

    return _StatisticGroup(
        ("auroc", "average_precision", "balanced_accuracy", "best_balanced_accuracy", "balanced_accuracy_lost"),
        statistic,
    )


def balanced_accuracy(weights: FloatArray, called: Bools, label: Bools) -> FloatArray:
    """Return the mean of sensitivity and specificity."""
    counts = weights @ np.stack([label, ~label, called & label, ~called & ~label], axis=1).astype(np.float64)
    return (divide_or_nan(counts[:, 2], counts[:, 0]) + divide_or_nan(counts[:, 3], counts[:, 1])) / 2


def _f1_statistics(units: ScoredUnits, called: Bools) -> _StatisticGroup:
    columns = np.stack([2.0 * (called & units.label), called * 1.0 + units.label], axis=1)

    def statistic(weights: FloatArray) -> FloatArray:
        counts = weights @ columns
        return divide_or_nan(counts[:, 0], counts[:, 1])[:, None]

    return _StatisticGroup(("f1",), statistic)


TARGET_PRECISION = 0.8
"""The precision at which `recall_at_precision` is taken."""


def _recall_statistics(units: ScoredUnits) -> _StatisticGroup:
    """Return the largest recall at a precision of at least 0.8, over all thresholds; 0 where none reaches it."""
    ranked = RankedScores(units.score, units.label)

    def statistic(weights: FloatArray) -> FloatArray:
        positives, negatives = ranked.class_weights(weights)
        return ranked.recall_at_precision(TARGET_PRECISION, positives, negatives)[:, None]

    return _StatisticGroup(("recall_at_precision",), statistic)


def _chance_statistics(units: ScoredUnits) -> Iterator[_StatisticGroup]:
    """Yield agreement beyond chance at the judge's own threshold, and on grades."""
    own_ratings = TwoRaterRatings(units.label.tolist(), units.called.tolist(), (False, True))

    def compute_nominal(weights: FloatArray) -> FloatArray:
        tables = own_ratings.confusion_matrices(weights)
        return np.stack([own_ratings.kappa(tables), own_ratings.alpha(tables, "nominal")], axis=1)

    yield _StatisticGroup(("kappa", "alpha"), compute_nominal)
    if units.grades is None:
        return
    human, judge = units.grades.T.tolist()
    graded = TwoRaterRatings(human, judge, range(max(*human, *judge) + 1))

    def compute_ordinal(weights: FloatArray) -> FloatArray:
        tables = graded.confusion_matrices(weights)
        linear, quadratic = graded.kappa(tables, "linear"), graded.kappa(tables, "quadratic")
        return np.stack([linear, quadratic, graded.alpha(tables, "ordinal")], axis=1)

    yield _StatisticGroup(("kappa_linear", "kappa_quadratic", "alpha_ordinal"), compute_ordinal)


def _calibration_statistics(units: ScoredUnits) -> _StatisticGroup:
    """Return the calibration error over fixed bins, and the share of it due to resampling."""
    index = assign_bins(units.score)
    member = (index[:, None] == np.unique(index)[None, :]).astype(np.float64)
    gap = member * (units.score - units.label)[:, None]
    mean_gap = gap.sum(axis=0) / units.score.size

    def statistic(weights: FloatArray) -> FloatArray:
        gaps = weights @ gap / weights.sum(axis=1)[:, None]
        columns = (np.abs(gaps).sum(axis=1), gaps.sum(axis=1), np.abs(gaps - mean_gap).sum(axis=1))
        return np.stack(columns, axis=1)

    return _StatisticGroup(("calibration_error", "bias", CALIBRATION_NOISE), statistic)


def _rate_statistics(units: ScoredUnits) -> _StatisticGroup:
    """Return F1 at the judge's own decision for several shares of positives."""
    rows = np.stack([units.label, units.label & units.called, ~units.label, ~units.label & ~units.called], axis=1)

    def statistic(weights: FloatArray) -> FloatArray:
        counts = weights @ rows.astype(np.float64)
        rates = (divide_or_nan(counts[:, 1], counts[:, 0]), divide_or_nan(counts[:, 3], counts[:, 2]))
        return np.stack([predict_f1(*rates, share) for share in RATE_FIGURES.values()], axis=1)

    return _StatisticGroup(tuple(RATE_FIGURES), statistic)


def _length_statistics(units: ScoredUnits) -> Iterator[_StatisticGroup]:
    """Yield the rank correlation of length with how well a text is rated, among units with the same label."""
    if units.lengths is None:
        return
    rating = units.score if units.unit == "chunk" else -units.score
    ranks = np.stack([_rank_by_label(values, units.label) for values in (units.lengths, rating)], axis=1)
    products = np.stack([ranks[:, 0] * ranks[:, 1], *(ranks**2).T], axis=1)

    def statistic(weights: FloatArray) -> FloatArray:
        product, length, rated = (weights @ products).T
        return divide_or_nan(product, np.sqrt(length * rated))[:, None]

    yield _StatisticGroup(("verbosity",), statistic)


def _rank_by_label(values: FloatArray, label: Bools) -> FloatArray:
    """Return the rank of each value among those with the same label, from -0.5 to 0.5; ties share their mean."""
    ranks = np.zeros(values.size)
    for kind in (True, False):
        members = values[label == kind]
        _, place, counts = np.unique(members, return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - counts / 2
        ranks[label == kind] = middle[place] / max(1, members.size) - 0.5
    return ranks


def _within_statistics(groups: Sequence[tuple[NDArray[np.intp], RankedScores]]) -> _StatisticGroup:
    """Return the mean AUROC within groups, weighted by size."""

    def statistic(weights: FloatArray) -> FloatArray:
        total, size = np.zeros(len(weights)), np.zeros(len(weights))
        for members, ranked in groups:
            member_weights = weights[:, members]
            auroc = ranked.auroc(*ranked.class_weights(member_weights))
            weighted = np.where(np.isnan(auroc), 0.0, member_weights.sum(axis=1))
            total += weighted * np.nan_to_num(auroc)
            size += weighted
        return divide_or_nan(total, size)[:, None]

    return _StatisticGroup(("auroc_within",), statistic)


def compute_order_figures(
    first: ScoredUnits, second: ScoredUnits, groups: Sequence[str]
) -> tuple[AgreementFigure, ...]:
    """Compute how many decisions change, and by how much scores do, when the chunks come in a random order."""
    names = np.array(groups, object)
    reason = "no trace with two chunks was judged in another order"
    return (
        _mean_figure("order_flips", first.called != second.called, names, reason),
        _mean_figure("order_shift", np.abs(first.score - second.score), names, reason),
    )


def compute_span_agreement(
    overlaps: Sequence[SpanOverlap], groups: Sequence[str], options: Resampling
) -> SpanAgreement | None:
    """Compute the overlap of the claims judged bad with the labeled spans; None without spans."""
    flags = [flag for overlap in overlaps for flag in overlap.touched]
    if not flags:
        return None
    owners = [groups[overlap.trace] for overlap in overlaps for _ in overlap.touched]
    table = np.array([(overlap.shared, overlap.called, overlap.marked) for overlap in overlaps], np.float64)

    def statistic(weights: FloatArray) -> FloatArray:
        common, judged, marked = (weights @ table).T
        sizes = ((common, judged), (common, marked), (2 * common, judged + marked))
        return np.stack([divide_or_nan(part, size) for part, size in sizes], axis=1)

    estimates = bootstrap_estimates(statistic, [groups[overlap.trace] for overlap in overlaps], options)
    figures = [_mean_figure("found", np.array(flags), np.array(owners, object), "")]
    for name, overlap in zip(("precision", "recall", "f1"), estimates, strict=True):
        reason = None if overlap.value is not None else "no claim is called bad"
        figures.append(
            AgreementFigure(
                name=name, value=overlap.value, low=overlap.low, high=overlap.high, n=len(overlaps), reason=reason
            )
        )
    return SpanAgreement(spans=len(flags), figures=tuple(figures))


def compute_curves(units: ScoredUnits) -> AgreementCurves | None:
    """Compute the curves for the charts; None without units."""
    if not units.score.size:
        return None
    edges = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    bins = np.clip((units.score * HISTOGRAM_BINS).astype(int), 0, HISTOGRAM_BINS - 1)
    counts = [np.bincount(bins[units.label == kind], minlength=HISTOGRAM_BINS) for kind in (True, False)]
    score_bins = tuple(
        ScoreBin(low=float(edges[index]), high=float(edges[index + 1]), positive=int(good), negative=int(bad))
        for index, (good, bad) in enumerate(zip(*counts, strict=True))
    )
    return AgreementCurves(
        calibration=calibration_bins(units.score, units.label), roc=_roc_points(units), scores=score_bins
    )


def _roc_points(units: ScoredUnits) -> tuple[tuple[float, float], ...]:
    """Return false and true positive rates from the highest threshold down; empty where a class is absent."""
    ranked = RankedScores(units.score, units.label)
    weights = ranked.class_weights(np.ones((1, units.score.size)))
    sums = [np.append(0.0, np.cumsum(tally[0, ::-1])) for tally in weights]
    if not sums[0][-1] or not sums[1][-1]:
        return ()
    indices = np.unique(np.linspace(0, len(sums[0]) - 1, ROC_POINTS).astype(int))
    true_positives, false_positives = (line[indices] / line[-1] for line in sums)
    return tuple(zip(false_positives.round(5).tolist(), true_positives.round(5).tolist(), strict=True))
