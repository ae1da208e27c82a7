"""Agreement figures from scored units, each with an interval over groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.evaluation.agreement.labeled_traces import rank_randomly
from ragfault.evaluation.agreement.measurement import (
    AgreementCurves,
    AgreementFigure,
    ScoreBin,
    SpanAgreement,
    UnitAgreement,
)
from ragfault.evaluation.agreement.units import OWN_THRESHOLD, Bools, ScoredUnits, SpanOverlap
from ragfault.stats import (
    BootstrapEstimate,
    bootstrap_estimates,
    calibration_bins,
    choose_threshold,
    mean_interval,
)
from ragfault.stats.agreement import TwoRaterRatings
from ragfault.stats.classification import RankedScores, assign_bins, rank_within_groups
from ragfault.stats.clusters import FloatArray

FOLDS = 5
HISTOGRAM_BINS = 20
ROC_POINTS = 200
"""Points of the ROC curve that are kept."""

Statistic = Callable[[FloatArray], FloatArray]


class IntervalOptions(NamedTuple):
    """How intervals are taken."""

    resamples: int = 1000
    seed: int = 0
    confidence: float = 0.95


class PositiveCalls(NamedTuple):
    """Which units are called positive, and from which score on."""

    positive: Bools
    threshold: float | None


# --- the threshold ---------------------------------------------------------------------------------


def call_positive(units: ScoredUnits, groups: Sequence[str], threshold: str, seed: int) -> PositiveCalls:
    """Call units positive: by the best F1 of the other folds, by the judge's own word, or from a number on.

    Folds are made of whole groups. Where the other folds have one class alone, none is called positive; where that
    is so of every fold, there is no threshold.
    """
    if threshold == "own":
        return PositiveCalls(units.called, OWN_THRESHOLD)
    if threshold != "cv":
        return PositiveCalls(units.score >= float(threshold), float(threshold))
    order = sorted(set(groups), key=lambda name: rank_randomly(name, seed))
    fold = {name: place % FOLDS for place, name in enumerate(order)}
    mine = np.array([fold[name] for name in groups], int)
    called, cuts = np.zeros(len(groups), bool), []
    for number in np.unique(mine):
        here = mine == number
        found = choose_threshold(units.score[~here], units.label[~here])
        if found is not None:
            called[here] = units.score[here] >= found.threshold
            cuts.append(found.threshold)
    return PositiveCalls(called, float(np.mean(cuts)) if cuts else None)


# --- figures ---------------------------------------------------------------------------------------


def compute_agreement(
    units: ScoredUnits,
    groups: Sequence[str],
    called: PositiveCalls,
    options: IntervalOptions,
    *,
    inner: Sequence[Hashable] | None = None,
    value: str | None = None,
) -> UnitAgreement:
    """Every figure on some units; `inner` names the groups within which AUROC is taken as well."""
    label = units.label
    names = np.array(groups, object)
    made = [_mean_figure("positives", label, names, "there are no units")]
    made += _bootstrap_figures(units, groups, called.positive, inner, options)
    hits = called.positive & label
    made += [
        _mean_figure("precision", hits[called.positive], names[called.positive], "none is called positive"),
        _mean_figure("recall", hits[label], names[label], "none is positive"),
        _mean_figure("sensitivity", units.called[label], names[label], "none is positive"),
        _mean_figure("specificity", ~units.called[~label], names[~label], "none is negative"),
        _mean_figure("brier", (units.score - label) ** 2, names, "there are no units"),
        *_certainty_figures(units, names),
    ]
    found = {figure.name: figure for figure in made}
    if called.threshold is None and label.any() and not label.all():
        reason = "no fold has both classes in the others"
        found |= {name: AgreementFigure(name=name, value=None, reason=reason) for name in THRESHOLD_FIGURES}
    return UnitAgreement(
        unit=units.unit,
        value=value,
        n=label.size,
        groups=len(set(groups)),
        positives=int(label.sum()),
        figures=tuple(found[name] for name in FIGURE_ORDER if name in found),
    )


FIGURE_ORDER = (
    *("positives", "f1", "precision", "recall", "auroc", "average_precision", "auroc_within"),
    *("balanced_accuracy", "best_balanced_accuracy", "balanced_accuracy_lost", "sensitivity", "specificity"),
    *("kappa", "alpha", "kappa_linear", "kappa_quadratic", "alpha_ordinal"),
    *("calibration_error", "brier", "unsure", "accuracy", "accuracy_sure", "accuracy_unsure"),
)
"""The order of the figures."""


SIGNED_FIGURES = (
    "balanced_accuracy_lost",
    "kappa",
    "alpha",
    "kappa_linear",
    "kappa_quadratic",
    "alpha_ordinal",
)
"""The figures that may be below 0."""
THRESHOLD_FIGURES = ("f1", "precision", "recall")
"""The figures that are taken at the threshold."""
INFLATED_FIGURES = ("best_balanced_accuracy", "balanced_accuracy_lost", "calibration_error")
"""The figures that chance makes larger."""
CALIBRATION_NOISE = "noise"
"""The calibration error that the resampling makes; the true one is no further from the error found."""


def _mean_figure(
    name: str, values: NDArray[np.generic], groups: NDArray[np.object_], reason: str
) -> AgreementFigure:
    """A share or a mean in [0, 1]; Wilson's interval, widened where values of one group move together."""
    if not values.size:
        return AgreementFigure(name=name, value=None, reason=reason)
    found = mean_interval(values.astype(np.float64), groups, bounds=(0, 1))
    return AgreementFigure(name=name, value=found.mean, low=found.low, high=found.high, n=found.n)


def _certainty_figures(units: ScoredUnits, names: NDArray[np.object_]) -> list[AgreementFigure]:
    """How often the judge is right at its own word, where it is sure and where it is not."""
    right = units.called == units.label
    whole = _mean_figure("accuracy", right, names, "there are no units")
    if units.unsure is None:
        return [
            AgreementFigure(name="unsure", value=None, reason="the judge does not say where it is unsure"),
            whole,
        ]
    sure = ~units.unsure
    return [
        _mean_figure("unsure", units.unsure, names, "there are no units"),
        whole,
        _mean_figure("accuracy_sure", right[sure], names[sure], "the judge is never sure"),
        _mean_figure("accuracy_unsure", right[~sure], names[~sure], "the judge is never unsure"),
    ]


def _bootstrap_figures(
    units: ScoredUnits,
    groups: Sequence[str],
    called: Bools,
    inner: Sequence[Hashable] | None,
    options: IntervalOptions,
) -> list[AgreementFigure]:
    """The figures that are no means, with their bootstrap intervals."""
    label = units.label
    one_class = "none is positive" if not label.any() else "none is negative"
    if not label.size or label.all() or not label.any():
        names = ["auroc", "average_precision", "balanced_accuracy", "best_balanced_accuracy"]
        names += ["balanced_accuracy_lost", "f1", "calibration_error", "kappa", "alpha"]
        return [AgreementFigure(name=name, value=None, reason=one_class) for name in names]
    parts = [
        _ranking_statistics(units),
        _f1_statistics(units, called),
        _calibration_statistics(units),
        *_chance_statistics(units),
    ]
    found = list(rank_within_groups(units.score, label, inner)) if inner is not None else []
    names = [name for part in parts for name in part.names]
    if found:
        parts.append(_within_statistics(found))
        names.append("auroc_within")
    estimates = bootstrap_estimates(
        lambda weights: np.hstack([part.statistic(weights) for part in parts]),
        groups,
        resamples=options.resamples,
        seed=options.seed,
        confidence=options.confidence,
        inflated=[at for at, name in enumerate(names) if name in INFLATED_FIGURES],
    )
    told = dict(zip(names, estimates, strict=True))
    noise = told.pop(CALIBRATION_NOISE)
    error = told["calibration_error"]
    if error.value is not None and error.low is not None and noise.high is not None:
        told["calibration_error"] = error._replace(low=min(error.low, error.value - noise.high))
    inside = sum(place.size for place, _ in found)
    made = [
        _build_figure(name, one, inside if name == "auroc_within" else label.size)
        for name, one in told.items()
    ]
    if inner is not None and not found:
        made.append(
            AgreementFigure(name="auroc_within", value=None, reason="no group has positives and negatives")
        )
    return made


def _build_figure(name: str, estimate: BootstrapEstimate, n: int) -> AgreementFigure:
    """An estimate as a figure in [0, 1], or from -1 where it may be below 0."""
    least = -1.0 if name in SIGNED_FIGURES else 0.0
    low, high = (None if end is None else min(1.0, max(least, end)) for end in estimate[1:])
    return AgreementFigure(name=name, value=estimate.value, low=low, high=high, n=n)


class _StatisticGroup(NamedTuple):
    """Some statistics and their names."""

    names: tuple[str, ...]
    statistic: Statistic


def _ranking_statistics(units: ScoredUnits) -> _StatisticGroup:
    """What is read off the order of the scores; the best threshold is sought anew in each resample."""
    ranked = RankedScores(units.score, units.label)

    def statistic(weights: FloatArray) -> FloatArray:
        tallies = ranked.class_weights(weights)
        best = ranked.evaluate_thresholds("balanced_accuracy", *tallies).max(axis=1)
        own = _balanced_accuracy(weights, units.called, units.label)
        return np.stack(
            [ranked.auroc(*tallies), ranked.average_precision(*tallies), own, best, best - own], axis=1
        )

    return _StatisticGroup(
        (
            "auroc",
            "average_precision",
            "balanced_accuracy",
            "best_balanced_accuracy",
            "balanced_accuracy_lost",
        ),
        statistic,
    )


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: FloatArray = np.where(denominator > 0, numerator / denominator, math.nan)
    return ratio


def _balanced_accuracy(weights: FloatArray, called: Bools, label: Bools) -> FloatArray:
    """The mean of the shares of positives and of negatives that are called so."""
    counts = weights @ np.stack([label, ~label, called & label, ~called & ~label], axis=1).astype(np.float64)
    return (_divide(counts[:, 2], counts[:, 0]) + _divide(counts[:, 3], counts[:, 1])) / 2


def _f1_statistics(units: ScoredUnits, called: Bools) -> _StatisticGroup:
    """F1 of what is called positive."""
    columns = np.stack([2.0 * (called & units.label), called * 1.0 + units.label], axis=1)

    def statistic(weights: FloatArray) -> FloatArray:
        counts = weights @ columns
        return _divide(counts[:, 0], counts[:, 1])[:, None]

    return _StatisticGroup(("f1",), statistic)


def _chance_statistics(units: ScoredUnits) -> Iterator[_StatisticGroup]:
    """Agreement beyond chance at the judge's own word, and on the grades where there are more than two."""
    own = TwoRaterRatings(units.label.tolist(), units.called.tolist(), (False, True))

    def word(weights: FloatArray) -> FloatArray:
        tables = own.confusion_matrices(weights)
        return np.stack([own.kappa(tables), own.alpha(tables, "nominal")], axis=1)

    yield _StatisticGroup(("kappa", "alpha"), word)
    if units.grades is None:
        return
    people, judge = units.grades.T.tolist()
    graded = TwoRaterRatings(people, judge, range(max(*people, *judge) + 1))

    def grade(weights: FloatArray) -> FloatArray:
        tables = graded.confusion_matrices(weights)
        linear, quadratic = graded.kappa(tables, "linear"), graded.kappa(tables, "quadratic")
        return np.stack([linear, quadratic, graded.alpha(tables, "ordinal")], axis=1)

    yield _StatisticGroup(("kappa_linear", "kappa_quadratic", "alpha_ordinal"), grade)


def _calibration_statistics(units: ScoredUnits) -> _StatisticGroup:
    """The calibration error over bins that stay as they are, and how much of it resampling alone makes."""
    index = assign_bins(units.score)
    member = (index[:, None] == np.unique(index)[None, :]).astype(np.float64)
    gap = member * (units.score - units.label)[:, None]
    whole = gap.sum(axis=0) / units.score.size

    def statistic(weights: FloatArray) -> FloatArray:
        gaps = weights @ gap / weights.sum(axis=1)[:, None]
        return np.stack([np.abs(gaps).sum(axis=1), np.abs(gaps - whole).sum(axis=1)], axis=1)

    return _StatisticGroup(("calibration_error", CALIBRATION_NOISE), statistic)


def _within_statistics(groups: Sequence[tuple[NDArray[np.intp], RankedScores]]) -> _StatisticGroup:
    """The mean AUROC within groups, weighted by their size."""

    def statistic(weights: FloatArray) -> FloatArray:
        total, size = np.zeros(len(weights)), np.zeros(len(weights))
        for place, ranked in groups:
            mine = weights[:, place]
            area = ranked.auroc(*ranked.class_weights(mine))
            here = np.where(np.isnan(area), 0.0, mine.sum(axis=1))
            total += here * np.nan_to_num(area)
            size += here
        return _divide(total, size)[:, None]

    return _StatisticGroup(("auroc_within",), statistic)


# --- marked stretches and curves -------------------------------------------------------------------


def compute_span_agreement(
    overlaps: Sequence[SpanOverlap], groups: Sequence[str], options: IntervalOptions
) -> SpanAgreement | None:
    """How the judge's bad claims lie over the marked stretches; None where nothing is marked."""
    flags = [flag for one in overlaps for flag in one.touched]
    if not flags:
        return None
    owners = [groups[one.trace] for one in overlaps for _ in one.touched]
    table = np.array([(one.shared, one.called, one.marked) for one in overlaps], np.float64)

    def statistic(weights: FloatArray) -> FloatArray:
        both, called, there = (weights @ table).T
        return np.stack(
            [_divide(both, called), _divide(both, there), _divide(2 * both, called + there)], axis=1
        )

    estimates = bootstrap_estimates(
        statistic,
        [groups[one.trace] for one in overlaps],
        resamples=options.resamples,
        seed=options.seed,
        confidence=options.confidence,
    )
    figures = [_mean_figure("found", np.array(flags), np.array(owners, object), "")]
    for name, one in zip(("precision", "recall", "f1"), estimates, strict=True):
        reason = None if one.value is not None else "no claim is called bad"
        figures.append(
            AgreementFigure(
                name=name, value=one.value, low=one.low, high=one.high, n=len(overlaps), reason=reason
            )
        )
    return SpanAgreement(spans=len(flags), figures=tuple(figures))


def compute_curves(units: ScoredUnits) -> AgreementCurves | None:
    """What the charts draw; None without units."""
    if not units.score.size:
        return None
    edges = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    place = np.clip((units.score * HISTOGRAM_BINS).astype(int), 0, HISTOGRAM_BINS - 1)
    counts = [np.bincount(place[units.label == kind], minlength=HISTOGRAM_BINS) for kind in (True, False)]
    bars = tuple(
        ScoreBin(low=float(edges[at]), high=float(edges[at + 1]), positive=int(good), negative=int(bad))
        for at, (good, bad) in enumerate(zip(*counts, strict=True))
    )
    return AgreementCurves(
        calibration=calibration_bins(units.score, units.label), roc=_roc_points(units), scores=bars
    )


def _roc_points(units: ScoredUnits) -> tuple[tuple[float, float], ...]:
    """False alarms and hits from the highest threshold to the lowest; empty where a class is absent."""
    ranked = RankedScores(units.score, units.label)
    tallies = ranked.class_weights(np.ones((1, units.score.size)))
    sums = [np.append(0.0, np.cumsum(tally[0, ::-1])) for tally in tallies]
    if not sums[0][-1] or not sums[1][-1]:
        return ()
    kept = np.unique(np.linspace(0, len(sums[0]) - 1, ROC_POINTS).astype(int))
    hits, alarms = (line[kept] / line[-1] for line in sums)
    return tuple(zip(alarms.round(5).tolist(), hits.round(5).tolist(), strict=True))
