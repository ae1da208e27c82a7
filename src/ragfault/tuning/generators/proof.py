"""The proof of a gain: figures, paired differences, sampling noise, human correction and the frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from ragfault.stats import detectable_effect, mean_interval, paired_difference, ppi_paired_difference, sign_flip_test
from ragfault.stats.significance import correct_significant_effect
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


def measure_gain(
    names: tuple[str, str],
    measured: Mapping[str, Outcomes],
    groups: Sequence[str],
    selection_gain: float | None,
    limits: tuple[float, float],
    seed: int,
    people: tuple[Sequence[float], ...] | None = None,
) -> GeneratorGain:
    """Return the gain of the first of two generators over the second.

    `people` is human values of the second and of the first, NaN where there is none; the verdict rests on the corrected
    gain where it is defined.
    """
    chosen, alternative = names
    before, after = average_repetitions(measured[alternative]), average_repetitions(measured[chosen])
    difference = paired_difference(before, after, groups, bounds=limits, seed=seed)
    p = sign_flip_test(before, after, groups, seed=seed).p
    correction = None if people is None else _correct_by_people((before, after), people, groups, limits)
    mean, decisive = difference.mean, p
    if correction is not None and correction.difference is not None and correction.p is not None:
        mean, decisive = correction.difference.mean, correction.p
    shown = decisive <= GAIN_ALPHA
    verdict: GainVerdict = "no gain shown" if not shown else "gains" if mean > 0 else "loses"
    return GeneratorGain(
        chosen=chosen,
        alternative=alternative,
        difference=difference,
        p=p,
        selection_gain=difference.mean if selection_gain is None else selection_gain,
        corrected_gain=correct_significant_effect(difference.mean, difference.error, GAIN_ALPHA),
        detectable=detectable_effect(difference.deviation, difference.n, difference.cluster_size),
        human_correction=correction,
        verdict=verdict,
    )


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
