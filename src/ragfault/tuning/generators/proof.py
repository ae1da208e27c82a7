"""The proof of a gain: figures, paired differences, sampling noise, human correction and the frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ragfault.stats import (
    Difference,
    detectable_effect,
    mean_interval,
    paired_difference,
    ppi_paired_difference,
    sign_flip_test,
)
from ragfault.stats.distributions import normal_cdf, normal_quantile
from ragfault.stats.significance import SignificanceTest, correct_significant_effect
from ragfault.tuning.generators.race import average_repetitions
from ragfault.tuning.generators.records import (
    AnswerOutcome,
    GeneratorFigures,
    GeneratorGain,
    HumanCorrection,
    SamplingNoise,
)
from ragfault.tuning.holdout import select_undominated
from ragfault.tuning.results import Bound, GainVerdict

GAIN_ALPHA = 0.05
DRAWS = 20_000
"""Draws of the largest statistic."""

Outcomes = Sequence[Sequence[AnswerOutcome]]


def list_figures(outcomes: Outcomes, name: str) -> list[float]:
    """Return the known values of a figure over all answers."""
    return [value for answers in outcomes for answer in answers if (value := getattr(answer, name)) is not None]


def compute_figures(
    name: str, outcomes: Outcomes, groups: Sequence[str], limits: tuple[float, float]
) -> GeneratorFigures:
    """Return the figures of a generator on questions, with the interval of its mean by group."""
    interval = mean_interval(average_repetitions(outcomes), groups, bounds=limits)
    cost, latency, tokens = (list_figures(outcomes, figure) for figure in ("cost", "latency", "tokens"))
    return GeneratorFigures(
        name=name,
        n=len(outcomes),
        value=interval.mean,
        low=interval.low,
        high=interval.high,
        undefined=sum(not answer.defined for answers in outcomes for answer in answers),
        cost=fmean(cost) if cost else None,
        latency=fmean(latency) if latency else None,
        latency_p50=float(np.quantile(latency, 0.5)) if latency else None,
        latency_p95=float(np.quantile(latency, 0.95)) if latency else None,
        tokens=fmean(tokens) if tokens else None,
    )


def paired_gap(before: Outcomes, after: Outcomes) -> Any:
    """Return the differences on the questions that both answered, in their common order.

    >>> paired_gap([[AnswerOutcome(0.5)], [AnswerOutcome(0.25)]], [[AnswerOutcome(0.75)]]).tolist()
    [0.25]
    """
    common = min(len(before), len(after))
    return average_repetitions(after[:common]) - average_repetitions(before[:common])


class RaceEvidence(NamedTuple):
    """Outcomes of a race that count in the test of its winner's gain."""

    outcomes: Mapping[str, Outcomes]
    groups: Sequence[str]
    """Group of each question of the race, in its order."""


def measure_gain(
    names: tuple[str, str],
    measured: Mapping[str, Outcomes],
    groups: Sequence[str],
    race: RaceEvidence | None,
    limits: tuple[float, float],
    seed: int,
    people: tuple[Sequence[float], ...] | None = None,
    selection_gain: float | None = None,
) -> GeneratorGain:
    """Return the gain of the first of two generators over the second.

    The difference is that of `measured` alone. The test of a gain is one-sided and counts the questions of the `race`,
    too; its p value is corrected for the best of so many having been chosen (`correct_for_choice`). `people` is human
    values of the second and of the first, NaN where there is none; the verdict rests on the corrected gain where it is
    defined.
    """
    chosen, alternative = names
    before, after = average_repetitions(measured[alternative]), average_repetitions(measured[chosen])
    difference = paired_difference(before, after, groups, bounds=limits, seed=seed)
    two_sided = sign_flip_test(before, after, groups, seed=seed)
    n, p, level = difference.n, _halve(two_sided), GAIN_ALPHA
    if race is not None:
        common = min(len(race.outcomes[name]) for name in names)
        raced = [average_repetitions(race.outcomes[name][:common]) for name in (alternative, chosen)]
        joined_before, joined_after = (np.concatenate(parts) for parts in zip(raced, (before, after), strict=True))
        joint = sign_flip_test(joined_before, joined_after, [*race.groups[:common], *groups], seed=seed)
        largest = draw_largest(race.outcomes, alternative, seed)
        n, p = n + common, correct_for_choice(_halve(joint), largest, len(race.outcomes) - 1)
        level = 1 - normal_cdf(float(np.quantile(largest, 1 - GAIN_ALPHA)))
    correction = None if people is None else _correct_by_people((before, after), people, groups, limits)
    if correction is not None and correction.difference is not None and correction.p is not None:
        gains = correction.p <= GAIN_ALPHA and correction.difference.mean > 0
        loses = correction.p <= GAIN_ALPHA and correction.difference.mean < 0
    else:
        gains = p <= GAIN_ALPHA and difference.mean > 0
        loses = two_sided.p <= GAIN_ALPHA and difference.mean < 0
    verdict: GainVerdict = "gains" if gains else "loses" if loses else "no gain shown"
    corrected = correct_significant_effect(difference.mean, difference.error, GAIN_ALPHA)
    if gains:
        corrected = _correct_gain(difference, n, level)
    return GeneratorGain(
        chosen=chosen,
        alternative=alternative,
        difference=difference,
        p=p,
        questions=n,
        selection_gain=difference.mean if selection_gain is None else selection_gain,
        corrected_gain=corrected,
        detectable=detectable_effect(difference.deviation, n, difference.cluster_size, alpha=2 * level),
        human_correction=correction,
        verdict=verdict,
    )


def _correct_gain(difference: Difference, n: int, level: float) -> float:
    """Return the gain corrected for being reported where the one-sided test on n questions, these among them, shows it.

    The excess of a part's mean over the truth, given that the statistic of all is above its threshold, is that of
    the mean of all.
    """
    error = difference.error * (difference.n / n) ** 0.5
    if difference.mean <= normal_quantile(1 - level) * error:
        return 0.0
    return correct_significant_effect(difference.mean, error, 2 * level)


def _halve(test: SignificanceTest) -> float:
    """Return the one-sided p value of a mean above 0, from the two-sided one."""
    return test.p / 2 if test.statistic > 0 else 1 - test.p / 2


def draw_largest(outcomes: Mapping[str, Outcomes], present: str, seed: int) -> Any:
    """Draw the largest of the normal statistics of all generators against the present one where none is better.

    Their correlations are those of the differences on the questions that all answered, shrunk towards 0 by one over
    their number: independent statistics have the largest maximum.

    >>> rows = {name: [[AnswerOutcome(0.5)]] * 9 for name in "abc"}
    >>> round(float(np.quantile(draw_largest(rows, "a", 0), 0.95)), 1)
    2.0
    """
    gaps = [paired_gap(outcomes[present], rows) for name, rows in outcomes.items() if name != present]
    common = min(map(len, gaps))
    table = np.array([gap[:common] - gap[:common].mean() for gap in gaps])
    norms = np.sqrt((table**2).sum(axis=1))
    table /= np.where(norms > 0, norms, 1.0)[:, None]
    correlations = (1 - 1 / common) * (table @ table.T)
    np.fill_diagonal(correlations, 1.0)
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((DRAWS, len(gaps))) @ np.linalg.cholesky(correlations).T).max(axis=1)


def correct_for_choice(p: float, largest: Any, tried: int) -> float:
    """Return the chance that the best of all that were tried has so small a one-sided p value where none is better.

    Whatever rule chose it, its statistic is at most the largest of all (Dunnett 1955); where too few draws are as
    large, the p value is multiplied by the number tried (Bonferroni).

    >>> correct_for_choice(1e-7, np.zeros(20_000), 5)
    5e-07
    """
    if not 0 < p < 1:
        return p
    share = float((np.sum(largest >= normal_quantile(1 - p)) + 1) / (len(largest) + 1))
    return max(p, min(share, tried * p))


def _correct_by_people(
    judged: tuple[Any, Any], people: tuple[Sequence[float], ...], groups: Sequence[str], limits: tuple[float, float]
) -> HumanCorrection:
    before, after = people
    result = ppi_paired_difference((judged[0], before), (judged[1], after), groups, bounds=limits)
    return HumanCorrection(difference=result.difference, p=result.p, labelled=result.labelled, reason=result.reason)


def estimate_noise(name: str, outcomes: Outcomes) -> SamplingNoise | None:
    """Estimate the spread of repeated answers to one question; None without repetitions.

    One-way analysis of variance: the mean square within questions estimates the variance of the answers, and that of
    the question means holds a share of it.

    >>> rows = [[AnswerOutcome(0.5 + at / 10), AnswerOutcome(0.7 + at / 10)] for at in range(4)]
    >>> noise = estimate_noise("m", rows)
    >>> round(noise.within, 3), round(noise.between, 3), round(noise.share, 2)
    (0.141, 0.082, 0.6)
    """
    sizes = {len(answers) for answers in outcomes}
    if min(sizes) < 2 or len(outcomes) < 2:
        return None
    within = fmean(float(np.var([answer.value for answer in answers], ddof=1)) for answers in outcomes)
    means = average_repetitions(outcomes)
    repetitions = min(sizes)
    total = float(means.var(ddof=1))
    between = max(0.0, total - within / repetitions)
    share = min(1.0, within / repetitions / total) if total > 0 else 0.0
    return SamplingNoise(name=name, repetitions=repetitions, within=within**0.5, between=between**0.5, share=share)


def find_violation(bounds: Sequence[Bound], outcomes: Outcomes) -> Bound | None:
    """Return the first bound that outcomes break; what is not recorded breaks none.

    >>> bounds = [Bound("latency", "<=", 100.0)]
    >>> str(find_violation(bounds, [[AnswerOutcome(1.0, latency=150.0)]])), find_violation(bounds, [[AnswerOutcome(1)]])
    ('latency<=100', None)
    """
    for bound in bounds:
        values = list_figures(outcomes, bound.name.removesuffix("_p95"))
        if not values:
            continue
        figure = float(np.quantile(values, 0.95)) if bound.name.endswith("_p95") else fmean(values)
        if figure > bound.value if bound.sign == "<=" else figure < bound.value:
            return bound
    return None


def list_undominated(outcomes: Mapping[str, Outcomes]) -> tuple[str, ...]:
    """Return the generators that no other is at least as good as, as cheap and as fast, and better in one of these.

    A figure that some generator lacks is left out of the comparison.

    >>> list_undominated({"a": [[AnswerOutcome(0.9, cost=2.0)]], "b": [[AnswerOutcome(0.8, cost=1.0)]],
    ...                   "c": [[AnswerOutcome(0.7, cost=3.0)]]})
    ('a', 'b')
    """
    names = [name for name, rows in outcomes.items() if rows]
    columns = [[float(average_repetitions(outcomes[name]).mean()) for name in names]]
    for figure in ("cost", "latency"):
        known = [list_figures(outcomes[name], figure) for name in names]
        if all(known):
            columns.append([-fmean(values) for values in known])
    return tuple(names[at] for at in select_undominated(list(zip(*columns, strict=True))))
