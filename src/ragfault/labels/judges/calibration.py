"""Calibration of a judge to labels: a line for claims and one for answers, measured on held-out folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.io.files import describe_input
from ragfault.io.runs.run import Run
from ragfault.judges.calibration import CalibrationFigures, CalibrationLine, JudgeCalibration, calibrate_probability
from ragfault.judges.pooling import PoolWeights, compute_log_odds, pool_verdicts
from ragfault.labels.judges.figures import assign_folds
from ragfault.labels.judges.measuring import JudgedLabels, JudgedSource, judge_labels
from ragfault.labels.judges.units import (
    OWN_THRESHOLD,
    Bools,
    ScoredUnits,
    build_answer_units,
    build_units,
    iterate_claims,
)
from ragfault.labels.label import Label
from ragfault.labels.reading.labeled_traces import GivenLabels, LabeledSource
from ragfault.labels.settings import LabelSettings
from ragfault.model.errors import JudgeError, UsageError
from ragfault.model.records import Trace, Verdicts
from ragfault.model.settings import accept_fields
from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.classification import auroc, calibration_error
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval
from ragfault.text.number_format import format_count, format_number

RIDGE = np.array([10.0, 4.0])
"""Weight of a slope other than 1 and of an intercept other than 0: prior deviations of about 0.3 and 0.5."""
MIN_SLOPE = 0.1
"""Labels that run against the judge flatten its probabilities at the most this far; they never turn them round."""
NEWTON_STEPS = 50


class FittedLine(NamedTuple):
    """Line on the log-odds that a unit is bad, and the threshold of the calibrated probability."""

    slope: float = 1.0
    intercept: float = 0.0
    threshold: float | None = None
    weights: tuple[float, ...] = ()
    """Weight of each judge of a jury; they sum to 1. Empty: the scores are not pooled again."""


class RatedUnits(NamedTuple):
    """Labelled units, and by each judge of a jury the log-odds that they are bad."""

    units: ScoredUnits
    votes: FloatArray
    """Units by judges; no columns unless a jury judged."""


class UnitScores(NamedTuple):
    """Probability that each unit is bad, and whether it is called so."""

    p_bad: FloatArray
    called: Bools


@accept_fields(LabelSettings)
def calibrate_judge(source: LabeledSource | Iterable[Trace], settings: LabelSettings) -> JudgeCalibration:
    """Calibrate the probabilities of a judge to human labels of claims and answers, read as by `judge_labels`.

    For each of both a slope and an intercept of the log-odds are fitted, drawn towards 1 and 0, so that few labels
    change little; of a jury first the weight of each judge, drawn towards equal ones; for claims also the threshold at
    which as many are called bad as people mark. Each line holds its figures on five held-out folds of whole groups,
    before and after, and `helps`: whether the labels show that it helps. `source` may also be a run that a stronger
    judge made of the same traces: its verdicts on claims are the labels. `load_judge(..., calibration=…)` applies the
    result.

    Raises what `measure_judge` raises; UsageError for labels of chunks, and for a judge that gives no probabilities.

    >>> from ragfault import Chunk, Trace
    >>> chunk = Chunk(id="a", text="The office opens at 7:30 on weekdays.")
    >>> traces = [
    ...     Trace(id=answer, query="When?", chunks=(chunk,), answer=answer, metadata={"label": label})
    ...     for answer, label in {"It opens at 7:30.": 0, "It opens at 9:00.": 1}.items()
    ... ]
    >>> [(line.unit, line.n, line.helps) for line in calibrate_judge(traces, group="id").lines]
    [('claim', 2, False), ('answer', 2, False)]
    """
    labeled_source: LabeledSource | Iterable[Trace] | GivenLabels = source
    if isinstance(source, str | Path) and settings.run is None and (Path(source) / "manifest.json").is_file():
        labeled_source = _read_reference(Run.open(source))
    judged = judge_labels(labeled_source, settings)
    if judged.labeled.task == "relevance":
        raise UsageError("these are labels of chunks; claims and answers are calibrated. Name the labels with --task.")
    if any(claim.p is None for verdicts in judged.judged.verdicts for claim in verdicts.claim or ()):
        raise UsageError(f'the judge "{judged.judge}" gives no probabilities of claims: nothing can be calibrated.')
    lines = tuple(
        _build_line(rated, judged.judged.groups(rated.units), settings.seed)
        for rated in _rate_units(judged)
        if rated.units.score.size
    )
    if not lines:
        raise JudgeError(f'the judge "{judged.judge}" has no probability of any labelled claim or answer.')
    today = datetime.now(UTC).date().isoformat()
    return JudgeCalibration(judge=judged.judge, date=today, source=describe_input(source), lines=lines)


def _read_reference(run: Run) -> GivenLabels:
    """Return the traces of a run with its verdicts on claims as labels."""
    labels = {
        verdicts.trace: [
            Label(trace=verdicts.trace, subject=("claim", claim.start, claim.end), value=claim.support)
            for claim in verdicts.claim or ()
        ]
        for verdicts in run.verdicts()
    }
    return GivenLabels(list(run.traces()), labels, "support")


def _rate_units(judged: JudgedSource) -> Iterator[RatedUnits]:
    """Yield the units of the judge, with the votes of the judges of a jury on them."""
    labels = judged.judged
    lists = (labels.verdicts, labels.claim_verdicts)
    names = {tuple(item.judge for item in verdicts.members) for verdicts in labels.verdicts if verdicts.chance is None}
    count = len(next(iter(names))) if len(names) == 1 else 0
    sides = []
    for number in range(count):
        only = tuple(float(judge == number) for judge in range(count))
        heard = [[_hear(verdicts, PoolWeights(only, only)) for verdicts in listed] for listed in lists]
        sides.append(list(_collect_units(labels._replace(verdicts=heard[0], claim_verdicts=heard[1]))))
    for number, units in enumerate(_collect_units(labels)):
        scores = [side[number].score.tolist() for side in sides]
        votes = np.array([[compute_log_odds(score) for score in column] for column in scores], np.float64).T
        yield RatedUnits(units, votes.reshape(units.score.size, count))


def _hear(verdicts: Verdicts, weights: PoolWeights) -> Verdicts:
    """Return the verdicts of a jury in which only the judges with a weight decide."""
    pooled = pool_verdicts(verdicts.members, weights)
    return replace(verdicts, claim=pooled["claim"], answer=pooled["answer"])


def _collect_units(labels: JudgedLabels) -> Iterator[ScoredUnits]:
    """Yield the claims, then the answers, that have a label and a probability; answers without claims have none.

    The label of an answer of several claims does not say which of them is bad.
    """
    claim_labels = [
        item._replace(positive=None)
        if item.claims is None and item.spans is None and len(verdicts.claim or ()) > 1
        else item
        for item, verdicts in zip(labels.labeled, labels.verdicts, strict=True)
    ]
    yield build_units("claim", list(iterate_claims(claim_labels, labels.verdicts, labels.claim_verdicts)))
    rated = [
        verdicts
        if verdicts.claim and verdicts.answer is not None and verdicts.answer.grounded is not None
        else Verdicts(trace=verdicts.trace)
        for verdicts in labels.verdicts
    ]
    yield build_answer_units(labels.labeled, rated)


def _build_line(rated: RatedUnits, groups: Sequence[str], seed: int) -> CalibrationLine:
    """Fit the line of one kind of unit, and measure it on held-out folds."""
    units = rated.units
    before = UnitScores(units.score, units.called)
    fitted = _fit_unit(rated, np.ones(units.score.size, bool))
    after, after_own = _cross_predict(rated, assign_folds(groups, seed))
    figures = _measure(units, groups, before)
    if units.unit == "claim" and abs(_measure(units, groups, after).bias) > abs(
        _measure(units, groups, after_own).bias
    ):
        fitted, after = fitted._replace(threshold=None), after_own
    calibrated = _measure(units, groups, after)
    helps, reason = _decide(units, groups, (before, after), (figures, calibrated))
    if helps and fitted.slope <= MIN_SLOPE:
        ranking = f"AUROC {format_number(auroc(units.score, units.label))}"
        helps, reason = False, f"the judge does not rank as these labels do ({ranking}): check which label is bad"
    return CalibrationLine(
        unit="answer" if units.unit == "answer" else "claim",
        n=units.score.size,
        groups=len(set(groups)),
        base_rate=float(units.label.mean()),
        slope=fitted.slope,
        intercept=fitted.intercept,
        weights=fitted.weights,
        threshold=fitted.threshold,
        before=figures,
        after=calibrated,
        helps=helps,
        reason=reason,
    )


def _fit_unit(rated: RatedUnits, fitted: Any) -> FittedLine:
    """Fit the line of the chosen units, and for claims the threshold; where all are alike nothing can be fitted."""
    label = rated.units.label[fitted]
    if not label.size or label.all() or not label.any():
        return FittedLine()
    weights = _fit_weights(rated.votes[fitted], label)
    odds = _pool_odds(rated, weights)[fitted]
    slope, intercept = fit_log_odds_line(odds, label)
    line = FittedLine(slope, intercept, None, weights)
    if rated.units.unit != "claim":
        return line
    return line._replace(threshold=match_share(_apply(line, rated)[fitted], label))


def _pool_odds(rated: RatedUnits, weights: Sequence[float]) -> FloatArray:
    """Return the log-odds that each unit is bad, of a jury pooled with these weights."""
    if weights:
        return np.asarray(rated.votes @ np.array(weights), np.float64)
    return np.array([compute_log_odds(score) for score in rated.units.score.tolist()])


def _fit_weights(votes: FloatArray, label: Any) -> tuple[float, ...]:
    """Return the weights of the judges of a jury: those of the candidates that rank these labels best.

    Candidates are the weights of a logistic regression, drawn towards equal ones, all weight on one judge, and equal
    weights. The regression weighs how sure judges are, and so can rank worse than its best judge.
    """
    judges = votes.shape[1]
    if not judges:
        return ()
    candidates = [_regress_weights(votes, label), *np.eye(judges), np.full(judges, 1 / judges)]
    best = max(candidates, key=lambda weights: auroc(votes @ weights, label) or 0.0)
    return tuple(best.tolist())


def _regress_weights(votes: FloatArray, label: Any) -> FloatArray:
    """Return weights by a logistic regression, drawn towards equal ones.

    A judge that would count against the others gets no weight, and the rest is fitted again.
    """
    judges = votes.shape[1]
    design = np.column_stack([votes, np.ones(len(votes))])
    prior = np.array([1 / judges] * judges + [0.0])
    ridge = np.array([RIDGE[0]] * judges + [RIDGE[1]])
    free, start = np.ones(judges + 1, bool), prior
    while True:
        fitted = _climb(design, np.asarray(label, np.float64), _Prior(prior, ridge), start, free)
        negative = free & (fitted < 0)
        negative[-1] = False
        if not negative.any():
            break
        free = free & ~negative
        start = np.where(free, prior, 0.0)
    total = fitted[:-1].sum()
    return np.asarray(fitted[:-1] / total if total > 0 else np.full(judges, 1 / judges))


class _Prior(NamedTuple):
    """Center of the parameters of a regression, and how strongly they are drawn to it."""

    center: FloatArray
    ridge: FloatArray


def fit_log_odds_line(log_odds: Sequence[float] | FloatArray, labels: Any) -> tuple[float, float]:
    """Fit slope and intercept of a logistic regression of labels on log-odds, drawn towards 1 and 0 by a ridge.

    The slope is at least `MIN_SLOPE`.

    >>> fit_log_odds_line([], [])
    (1.0, 0.0)
    """
    design = np.stack([np.asarray(log_odds, np.float64), np.ones(len(log_odds))], axis=1)
    label, prior = np.asarray(labels, np.float64), _Prior(np.array([1.0, 0.0]), RIDGE)
    line = _climb(design, label, prior, prior.center, np.array([True, True]))
    if line[0] < MIN_SLOPE:
        line = _climb(design, label, prior, np.array([MIN_SLOPE, line[1]]), np.array([False, True]))
    return float(line[0]), float(line[1])


def _climb(design: FloatArray, label: FloatArray, prior: _Prior, start: FloatArray, free: Any) -> FloatArray:
    """Return the line of the greatest penalized likelihood, by Newton's method; only the free parts move."""

    def loss(line: FloatArray) -> float:
        odds = design @ line
        penalty = (prior.ridge * (line - prior.center) ** 2).sum() / 2
        return float((np.logaddexp(0.0, odds) - label * odds).sum() + penalty)

    line, value = start, loss(start)
    for _ in range(NEWTON_STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ line, -30, 30)))
        gradient = design.T @ (p - label) + prior.ridge * (line - prior.center)
        curvature = (design * (p * (1 - p))[:, None]).T @ design + np.diag(prior.ridge)
        step = np.zeros(line.size)
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        while step @ step > 1e-18 and loss(line - step) > value:
            step = step / 2
        line, value = line - step, loss(line - step)
        if step @ step <= 1e-18:
            break
    return line


def match_share(p_bad: FloatArray, labels: Any) -> float:
    """Return the threshold from which as many are called bad as are; of equally near ones that which calls fewer.

    >>> match_share(np.array([0.1, 0.2, 0.6, 0.9]), np.array([True, False, False, True]))
    0.4
    """
    values, counts = np.unique(-np.asarray(p_bad), return_counts=True)
    values, called = -values, np.concatenate([[0], np.cumsum(counts)])
    cut = int(np.argmin(np.abs(called - int(np.sum(labels)))))
    above, below = (1.0, *values.tolist())[cut], (*values.tolist(), 0.0)[cut]
    return round(float(above + below) / 2, 9)


def _apply(line: FittedLine, rated: RatedUnits) -> FloatArray:
    """Return the calibrated probability that each unit is bad."""
    p_bad = 1 / (1 + np.exp(-_pool_odds(rated, line.weights))) if line.weights else rated.units.score
    return np.array([1 - calibrate_probability(1 - p, line) for p in p_bad.tolist()])


def _cross_predict(rated: RatedUnits, folds: Any) -> tuple[UnitScores, UnitScores]:
    """Predict each fold by the line of the others: with its threshold, and with the judge's own decision."""
    units = rated.units
    p_bad, called = units.score.copy(), units.called.copy()
    for fold in np.unique(folds):
        in_fold = folds == fold
        line = _fit_unit(rated, ~in_fold)
        p_bad[in_fold] = _apply(line, rated)[in_fold]
        if line.threshold is not None:
            called[in_fold] = p_bad[in_fold] >= line.threshold
    if units.unit == "answer":
        called = p_bad > OWN_THRESHOLD
    return UnitScores(p_bad, called), UnitScores(p_bad, units.called if units.unit == "claim" else called)


def _measure(units: ScoredUnits, groups: Sequence[str], scores: UnitScores) -> CalibrationFigures:
    """Measure agreement: of claims the bias of the mean over answers of the share supported, as groundedness is."""
    predicted = scores.called if units.unit == "claim" else scores.p_bad
    bias = _average_by_trace(units, groups, units.label.astype(np.float64) - predicted)
    hits = int((scores.called & units.label).sum())
    counted = int(scores.called.sum() + units.label.sum())
    return CalibrationFigures(
        calibration_error=calibration_error(scores.p_bad, units.label) or 0.0,
        bias=bias.mean,
        bias_low=bias.low,
        bias_high=bias.high,
        f1=2 * hits / counted if counted else None,
    )


def _average_by_trace(units: ScoredUnits, groups: Sequence[str], values: FloatArray) -> Interval:
    """Average values in [−1, 1] within each trace, then over traces, with an interval over groups."""
    _, first_units, index = np.unique(units.trace, return_index=True, return_inverse=True)
    means = np.bincount(index, values) / np.bincount(index)
    return mean_interval(means, [groups[at] for at in first_units.tolist()], bounds=(-1.0, 1.0))


def _decide(
    units: ScoredUnits,
    groups: Sequence[str],
    scores: tuple[UnitScores, UnitScores],
    figures: tuple[CalibrationFigures, CalibrationFigures],
) -> tuple[bool, str]:
    """Decide whether the labels show that a line helps, and say why."""
    before, after = figures
    if units.label.all() or not units.label.any():
        return False, f"the labels call {'all' if units.label.all() else 'none'} of them bad"
    errors = [(score.p_bad - units.label) ** 2 for score in scores]
    gain = _average_by_trace(units, groups, errors[1] - errors[0])
    if gain.high < 0:
        return True, "held-out probabilities are nearer to the labels"
    has_bias = before.bias_low > 0 or before.bias_high < 0
    if has_bias and abs(after.bias) < abs(before.bias) and gain.low <= 0:
        return True, "the bias is shown, and smaller on held-out folds"
    count = f"{format_count(units.score.size, 'label')} in {format_count(len(set(groups)), 'group')}"
    return False, f"{count} do not show that it helps"
