"""From units to figures, each with an interval over the groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.agreement.gathering import rank
from ragfault.agreement.records import Agreement, Bar, Curves, Figure, Marked
from ragfault.agreement.units import BAR, Bools, Stretch, Units
from ragfault.stats import Estimate, best_cut, bootstrap, calibration_bins, mean_interval
from ragfault.stats.agreement import Crossed
from ragfault.stats.calibration import masses
from ragfault.stats.discrimination import Ranked, cells
from ragfault.stats.groups import Floats

__all__ = ["Call", "Terms", "agreement", "call", "curves", "marked"]

FOLDS = 5
BARS = 20
POINTS = 200
"""Points of the ROC curve that are kept."""

Statistic = Callable[[Floats], Floats]


class Terms(NamedTuple):
    """How intervals are taken."""

    resamples: int = 1000
    seed: int = 0
    confidence: float = 0.95


class Call(NamedTuple):
    """Which units are called positive, and from which score on."""

    positive: Bools
    cut: float | None


# --- the threshold ---------------------------------------------------------------------------------


def call(units: Units, groups: Sequence[str], threshold: str, seed: int) -> Call:
    """Call units positive: by the best F1 of the other folds, by the judge's own word, or from a number on.

    Folds are made of whole groups. Where the other folds have one class alone, none is called positive; where that
    is so of every fold, there is no threshold.
    """
    if threshold == "own":
        return Call(units.own, BAR)
    if threshold != "cv":
        return Call(units.score >= float(threshold), float(threshold))
    order = sorted(set(groups), key=lambda name: rank(name, seed))
    fold = {name: place % FOLDS for place, name in enumerate(order)}
    mine = np.array([fold[name] for name in groups], int)
    called, cuts = np.zeros(len(groups), bool), []
    for number in np.unique(mine):
        here = mine == number
        found = best_cut(units.score[~here], units.label[~here])
        if found is not None:
            called[here] = units.score[here] >= found.cut
            cuts.append(found.cut)
    return Call(called, float(np.mean(cuts)) if cuts else None)


# --- figures ---------------------------------------------------------------------------------------


def agreement(
    units: Units,
    groups: Sequence[str],
    called: Call,
    terms: Terms,
    *,
    inner: Sequence[Hashable] | None = None,
    value: str | None = None,
) -> Agreement:
    """Every figure on some units; `inner` names the groups within which AUROC is taken as well."""
    label = units.label
    names = np.array(groups, object)
    made = [_mean("positives", label, names, "there are no units")]
    made += _areas(units, groups, called.positive, inner, terms)
    hits = called.positive & label
    made += [
        _mean("precision", hits[called.positive], names[called.positive], "none is called positive"),
        _mean("recall", hits[label], names[label], "none is positive"),
        _mean("sensitivity", units.own[label], names[label], "none is positive"),
        _mean("specificity", ~units.own[~label], names[~label], "none is negative"),
        _mean("brier", (units.score - label) ** 2, names, "there are no units"),
        *_doubts(units, names),
    ]
    found = {figure.name: figure for figure in made}
    if called.cut is None and label.any() and not label.all():
        reason = "no fold has both classes in the others"
        found |= {name: Figure(name=name, value=None, reason=reason) for name in CALLED}
    return Agreement(
        unit=units.unit,
        value=value,
        n=label.size,
        groups=len(set(groups)),
        positives=int(label.sum()),
        figures=tuple(found[name] for name in ORDER if name in found),
    )


ORDER = (
    *("positives", "f1", "precision", "recall", "auroc", "average_precision", "auroc_within"),
    *("balanced_accuracy", "best_balanced_accuracy", "balanced_accuracy_lost", "sensitivity", "specificity"),
    *("kappa", "alpha", "kappa_linear", "kappa_quadratic", "alpha_ordinal"),
    *("calibration_error", "brier", "unsure", "accuracy", "accuracy_sure", "accuracy_unsure"),
)
"""The order of the figures."""


SIGNED = ("balanced_accuracy_lost", "kappa", "alpha", "kappa_linear", "kappa_quadratic", "alpha_ordinal")
"""The figures that may be below 0."""
CALLED = ("f1", "precision", "recall")
"""The figures that are taken at the threshold."""
INFLATED = ("best_balanced_accuracy", "balanced_accuracy_lost", "calibration_error")
"""The figures that chance makes larger."""
NOISE = "noise"
"""The calibration error that the resampling makes; the true one is no further from the error found."""


def _mean(name: str, values: NDArray[np.generic], groups: NDArray[np.object_], reason: str) -> Figure:
    """A share or a mean in [0, 1]; Wilson's interval, widened where values of one group move together."""
    if not values.size:
        return Figure(name=name, value=None, reason=reason)
    found = mean_interval(values.astype(np.float64), groups, bounds=(0, 1))
    return Figure(name=name, value=found.mean, low=found.low, high=found.high, n=found.n)


def _doubts(units: Units, names: NDArray[np.object_]) -> list[Figure]:
    """How often the judge is right at its own word, where it is sure and where it is not."""
    right = units.own == units.label
    whole = _mean("accuracy", right, names, "there are no units")
    if units.unsure is None:
        return [Figure(name="unsure", value=None, reason="the judge does not say where it is unsure"), whole]
    sure = ~units.unsure
    return [
        _mean("unsure", units.unsure, names, "there are no units"),
        whole,
        _mean("accuracy_sure", right[sure], names[sure], "the judge is never sure"),
        _mean("accuracy_unsure", right[~sure], names[~sure], "the judge is never unsure"),
    ]


def _areas(
    units: Units, groups: Sequence[str], called: Bools, inner: Sequence[Hashable] | None, terms: Terms
) -> list[Figure]:
    """The figures that are no means, with their bootstrap intervals."""
    label = units.label
    one_class = "none is positive" if not label.any() else "none is negative"
    if not label.size or label.all() or not label.any():
        names = ["auroc", "average_precision", "balanced_accuracy", "best_balanced_accuracy"]
        names += ["balanced_accuracy_lost", "f1", "calibration_error", "kappa", "alpha"]
        return [Figure(name=name, value=None, reason=one_class) for name in names]
    parts = [_ranking(units), _matches(units, called), _calibration(units), *_chance(units)]
    found = list(cells(units.score, label, inner)) if inner is not None else []
    names = [name for part in parts for name in part.names]
    if found:
        parts.append(_within(found))
        names.append("auroc_within")
    estimates = bootstrap(
        lambda weights: np.hstack([part.statistic(weights) for part in parts]),
        groups,
        resamples=terms.resamples,
        seed=terms.seed,
        confidence=terms.confidence,
        inflated=[at for at, name in enumerate(names) if name in INFLATED],
    )
    told = dict(zip(names, estimates, strict=True))
    noise = told.pop(NOISE)
    error = told["calibration_error"]
    if error.value is not None and error.low is not None and noise.high is not None:
        told["calibration_error"] = error._replace(low=min(error.low, error.value - noise.high))
    inside = sum(place.size for place, _ in found)
    made = [
        _figure(name, one, inside if name == "auroc_within" else label.size) for name, one in told.items()
    ]
    if inner is not None and not found:
        made.append(Figure(name="auroc_within", value=None, reason="no group has positives and negatives"))
    return made


def _figure(name: str, found: Estimate, n: int) -> Figure:
    """An estimate as a figure in [0, 1], or from -1 where it may be below 0."""
    least = -1.0 if name in SIGNED else 0.0
    low, high = (None if end is None else min(1.0, max(least, end)) for end in found[1:])
    return Figure(name=name, value=found.value, low=low, high=high, n=n)


class _Part(NamedTuple):
    """Some statistics and their names."""

    names: tuple[str, ...]
    statistic: Statistic


def _ranking(units: Units) -> _Part:
    """What is read off the order of the scores; the best threshold is sought anew in each resample."""
    ranked = Ranked(units.score, units.label)

    def statistic(weights: Floats) -> Floats:
        tallies = ranked.tallies(weights)
        best = ranked.at("balanced_accuracy", *tallies).max(axis=1)
        own = _balanced(weights, units.own, units.label)
        return np.stack(
            [ranked.auroc(*tallies), ranked.average_precision(*tallies), own, best, best - own], axis=1
        )

    return _Part(
        (
            "auroc",
            "average_precision",
            "balanced_accuracy",
            "best_balanced_accuracy",
            "balanced_accuracy_lost",
        ),
        statistic,
    )


def _ratio(part: Floats, whole: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = np.where(whole > 0, part / whole, math.nan)
    return ratio


def _balanced(weights: Floats, called: Bools, label: Bools) -> Floats:
    """The mean of the shares of positives and of negatives that are called so."""
    counts = weights @ np.stack([label, ~label, called & label, ~called & ~label], axis=1).astype(np.float64)
    return (_ratio(counts[:, 2], counts[:, 0]) + _ratio(counts[:, 3], counts[:, 1])) / 2


def _matches(units: Units, called: Bools) -> _Part:
    """F1 of what is called positive."""
    columns = np.stack([2.0 * (called & units.label), called * 1.0 + units.label], axis=1)

    def statistic(weights: Floats) -> Floats:
        counts = weights @ columns
        return _ratio(counts[:, 0], counts[:, 1])[:, None]

    return _Part(("f1",), statistic)


def _chance(units: Units) -> Iterator[_Part]:
    """Agreement beyond chance at the judge's own word, and on the grades where there are more than two."""
    own = Crossed(units.label.tolist(), units.own.tolist(), (False, True))

    def word(weights: Floats) -> Floats:
        tables = own.tables(weights)
        return np.stack([own.kappa(tables), own.alpha(tables, "nominal")], axis=1)

    yield _Part(("kappa", "alpha"), word)
    if units.grades is None:
        return
    people, judge = units.grades.T.tolist()
    graded = Crossed(people, judge, range(max(*people, *judge) + 1))

    def grade(weights: Floats) -> Floats:
        tables = graded.tables(weights)
        linear, quadratic = graded.kappa(tables, "linear"), graded.kappa(tables, "quadratic")
        return np.stack([linear, quadratic, graded.alpha(tables, "ordinal")], axis=1)

    yield _Part(("kappa_linear", "kappa_quadratic", "alpha_ordinal"), grade)


def _calibration(units: Units) -> _Part:
    """The calibration error over bins that stay as they are, and how much of it resampling alone makes."""
    index = masses(units.score)
    member = (index[:, None] == np.unique(index)[None, :]).astype(np.float64)
    gap = member * (units.score - units.label)[:, None]
    whole = gap.sum(axis=0) / units.score.size

    def statistic(weights: Floats) -> Floats:
        gaps = weights @ gap / weights.sum(axis=1)[:, None]
        return np.stack([np.abs(gaps).sum(axis=1), np.abs(gaps - whole).sum(axis=1)], axis=1)

    return _Part(("calibration_error", NOISE), statistic)


def _within(found: Sequence[tuple[NDArray[np.intp], Ranked]]) -> _Part:
    """The mean AUROC within groups, weighted by their size."""

    def statistic(weights: Floats) -> Floats:
        total, size = np.zeros(len(weights)), np.zeros(len(weights))
        for place, ranked in found:
            mine = weights[:, place]
            area = ranked.auroc(*ranked.tallies(mine))
            here = np.where(np.isnan(area), 0.0, mine.sum(axis=1))
            total += here * np.nan_to_num(area)
            size += here
        return _ratio(total, size)[:, None]

    return _Part(("auroc_within",), statistic)


# --- marked stretches and curves -------------------------------------------------------------------


def marked(found: Sequence[Stretch], groups: Sequence[str], terms: Terms) -> Marked | None:
    """How the judge's bad claims lie over the marked stretches; None where nothing is marked."""
    flags = [flag for one in found for flag in one.found]
    if not flags:
        return None
    owners = [groups[one.trace] for one in found for _ in one.found]
    table = np.array([(one.both, one.called, one.marked) for one in found], np.float64)

    def statistic(weights: Floats) -> Floats:
        both, called, there = (weights @ table).T
        return np.stack([_ratio(both, called), _ratio(both, there), _ratio(2 * both, called + there)], axis=1)

    estimates = bootstrap(
        statistic,
        [groups[one.trace] for one in found],
        resamples=terms.resamples,
        seed=terms.seed,
        confidence=terms.confidence,
    )
    figures = [_mean("found", np.array(flags), np.array(owners, object), "")]
    for name, one in zip(("precision", "recall", "f1"), estimates, strict=True):
        reason = None if one.value is not None else "no claim is called bad"
        figures.append(
            Figure(name=name, value=one.value, low=one.low, high=one.high, n=len(found), reason=reason)
        )
    return Marked(spans=len(flags), figures=tuple(figures))


def curves(units: Units) -> Curves | None:
    """What the charts draw; None without units."""
    if not units.score.size:
        return None
    edges = np.linspace(0, 1, BARS + 1)
    place = np.clip((units.score * BARS).astype(int), 0, BARS - 1)
    counts = [np.bincount(place[units.label == kind], minlength=BARS) for kind in (True, False)]
    bars = tuple(
        Bar(low=float(edges[at]), high=float(edges[at + 1]), positive=int(good), negative=int(bad))
        for at, (good, bad) in enumerate(zip(*counts, strict=True))
    )
    return Curves(calibration=calibration_bins(units.score, units.label), roc=_roc(units), scores=bars)


def _roc(units: Units) -> tuple[tuple[float, float], ...]:
    """False alarms and hits from the highest threshold to the lowest; empty where a class is absent."""
    ranked = Ranked(units.score, units.label)
    tallies = ranked.tallies(np.ones((1, units.score.size)))
    sums = [np.append(0.0, np.cumsum(tally[0, ::-1])) for tally in tallies]
    if not sums[0][-1] or not sums[1][-1]:
        return ()
    kept = np.unique(np.linspace(0, len(sums[0]) - 1, POINTS).astype(int))
    hits, alarms = (line[kept] / line[-1] for line in sums)
    return tuple(zip(alarms.round(5).tolist(), hits.round(5).tolist(), strict=True))
