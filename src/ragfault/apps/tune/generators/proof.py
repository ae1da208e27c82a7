"""The proof of a gain: figures, paired differences, sampling noise, human correction and the frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ragfault.apps.tune.generators.race import GeneratorRace, average_repetitions
from ragfault.apps.tune.generators.records import (
    AnswerOutcome,
    GeneratorFigures,
    GeneratorGain,
    HumanCorrection,
    SamplingNoise,
)
from ragfault.apps.tune.holdout import select_undominated
from ragfault.apps.tune.results import Bound, GainVerdict
from ragfault.stats.differences import paired_difference
from ragfault.stats.distributions import normal_cdf, normal_quantile
from ragfault.stats.estimates import Difference
from ragfault.stats.intervals import mean_interval
from ragfault.stats.power import detectable_effect
from ragfault.stats.ppi import ppi_paired_difference
from ragfault.stats.sequences import bounded_mean_test
from ragfault.stats.significance import correct_significant_effect, flip_signs, sign_flip_test

GAIN_ALPHA = 0.05
REPLAYS = 2_000
"""Races that are replayed where nothing differs."""
MAX_CELLS = 1 << 21
"""Values that are shuffled at once."""
MIN_SQUARE = 1e-18
TOLERANCE = 1e-9
"""Difference below which two statistics count as equal."""

Outcomes = Sequence[Sequence[AnswerOutcome]]


def list_figures(outcomes: Outcomes, name: str) -> list[float]:
    """Return the known values of a figure over all answers."""
    return [value for answers in outcomes for answer in answers if (value := getattr(answer, name)) is not None]


def summarize_figure(name: str, outcomes: Outcomes) -> float | None:
    """Return a figure over all answers: the mean, of latency the median or, as `latency_p95`, the 95th percentile.

    None where no answer has it. The median, for the first calls of a model may load it.
    """
    values = list_figures(outcomes, name.removesuffix("_p95"))
    if not values:
        return None
    if name.startswith("latency"):
        return float(np.quantile(values, 0.95 if name.endswith("_p95") else 0.5))
    return fmean(values)


def compute_figures(
    name: str, outcomes: Outcomes, groups: Sequence[str], limits: tuple[float, float]
) -> GeneratorFigures:
    """Return the figures of a generator on questions, with the interval of its mean by group."""
    interval = mean_interval(average_repetitions(outcomes), groups, bounds=limits)
    latency = list_figures(outcomes, "latency")
    return GeneratorFigures(
        name=name,
        n=len(outcomes),
        value=interval.mean,
        low=interval.low,
        high=interval.high,
        undefined=sum(not answer.defined for answers in outcomes for answer in answers),
        cost=summarize_figure("cost", outcomes),
        latency=fmean(latency) if latency else None,
        latency_p50=summarize_figure("latency", outcomes),
        latency_p95=summarize_figure("latency_p95", outcomes),
        tokens=summarize_figure("tokens", outcomes),
    )


def paired_gap(before: Outcomes, after: Outcomes) -> Any:
    """Return the differences on the questions that both answered, in their common order.

    >>> paired_gap([[AnswerOutcome(0.5)], [AnswerOutcome(0.25)]], [[AnswerOutcome(0.75)]]).tolist()
    [0.25]
    """
    common = min(len(before), len(after))
    return average_repetitions(after[:common]) - average_repetitions(before[:common])


class RaceEvidence(NamedTuple):
    """Race of which the questions count in the test of its winner's gain."""

    race: GeneratorRace
    groups: Sequence[str]
    """Group of each question of the race, in its order."""


def measure_gain(
    measured: Mapping[str, Outcomes],
    groups: Sequence[str],
    evidence: RaceEvidence | None,
    limits: tuple[float, float],
    seed: int,
    people: tuple[Sequence[float], ...] | None = None,
) -> GeneratorGain:
    """Return the gain of the first of two measured generators over the second.

    The difference is that of `measured` alone. The test of a gain is one-sided and counts the questions of the race,
    too; its p value is corrected for the race having chosen. Where the alternative has the same value on every
    question, the measured ones alone are tested, also exactly against that value. `people` is human values of the
    second and of the first, NaN where there is none; the verdict rests on the corrected gain where it is defined.
    """
    winner, alternative = measured
    before, after = average_repetitions(measured[alternative]), average_repetitions(measured[winner])
    difference = paired_difference(before, after, groups, bounds=limits, seed=seed)
    two_sided = sign_flip_test(before, after, groups, seed=seed)
    # one-sided, of a mean above 0
    p = two_sided.p / 2 if two_sided.statistic > 0 else 1 - two_sided.p / 2
    n, level = difference.n, GAIN_ALPHA
    alike = {*before, *(() if evidence is None else average_repetitions(evidence.race.outcomes[alternative]))}
    if len(alike) == 1:
        # shuffled names would lend the others a spread that the present one does not have
        codes = np.unique(np.asarray(groups), return_inverse=True)[1]
        by_group = np.bincount(codes, weights=after) / np.bincount(codes)
        p = max(p, bounded_mean_test(by_group, alike.pop(), limits))
    elif evidence is not None:
        outcomes = evidence.race.outcomes
        common = min(len(outcomes[name]) for name in measured)
        raced = [average_repetitions(outcomes[name][:common]) for name in (alternative, winner)]
        gaps = np.concatenate([raced[1] - raced[0], after - before])
        statistic = float(gaps.sum() / max(float((gaps**2).sum()), MIN_SQUARE) ** 0.5)
        statistics = replay_race(evidence, alternative, after - before, groups, seed)
        n, p = n + common, estimate_p_value(int(np.sum(statistics >= statistic - TOLERANCE)))
        level = 1 - normal_cdf(float(np.quantile(statistics, 1 - GAIN_ALPHA)))
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
        chosen=winner,
        alternative=alternative,
        difference=difference,
        p=p,
        questions=n,
        selection_gain=difference.mean,
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


def replay_race(evidence: RaceEvidence, present: str, gaps: Any, groups: Sequence[str], seed: int) -> Any:
    """Replay a race where nothing differs, and return the statistics of its winners against the present generator.

    The names of the generators that answered a question are shuffled, the same for each group. After as many questions
    as in the race itself as many remain, those with the highest sums. The winner's further differences are `gaps`
    with random signs, one for each of `groups`.

    Where a round dropped more generators than its plan, which is rare where nothing differs, all of them answer all
    questions of the replayed race, those that all answered as often as needed.

    >>> from ragfault.apps.tune.generators.race import race_generators
    >>> race = race_generators("abc", 99, lambda name, at: [[AnswerOutcome((i * ord(name)) % 7)] for i in at])
    >>> evidence = RaceEvidence(race, list(map(str, range(99))))
    >>> statistics = replay_race(evidence, "a", np.resize([1.0, -1.0], 99), list(map(str, range(99))), 0)
    >>> 1.7 < float(np.quantile(statistics, 0.95)) < 2.0
    True
    """
    race, rng = evidence.race, np.random.default_rng(seed)
    values = {name: average_repetitions(outcomes) for name, outcomes in race.outcomes.items()}
    stages = [(stage.generators, stage.questions, len(stage.dropped)) for stage in race.rounds]
    questions = stages[-1][1]
    groups_of_race = list(evidence.groups[:questions])
    if race.early:
        common = min(map(len, values.values()))
        values = {name: np.resize(row[:common], questions) for name, row in values.items()}
        groups_of_race = [f"{evidence.groups[i % common]} {i // common}" for i in range(questions)]
        stages = [(tuple(values), questions, 0)]
    sums = squares = np.zeros((REPLAYS, len(values) - 1))
    answered = 0
    for names, until, dropped in stages:
        rivals = [name for name in names if name != present]
        table = np.array([values[name][answered:until] for name in (present, *rivals)])
        added = _shuffle_names(table, groups_of_race[answered:until], rng)
        sums, squares = sums + added[0], squares + added[1]
        remaining = max(1, len(rivals) - dropped)
        remaining_rows = np.argpartition(-sums, remaining - 1, axis=1)[:, :remaining]
        sums, squares = (np.take_along_axis(part, remaining_rows, axis=1) for part in (sums, squares))
        answered = until
    winner = sums.argmax(axis=1)[:, None]
    lead, square = (np.take_along_axis(table, winner, axis=1)[:, 0] for table in (sums, squares))
    totals: Any = np.bincount(np.unique(np.asarray([*groups, ""]), return_inverse=True)[1], weights=[*gaps, 0.0])
    further = np.concatenate([*flip_signs(totals[:, None], REPLAYS, rng)])[:, 0]
    spread = np.sqrt(np.maximum(square + (gaps**2).sum(), MIN_SQUARE))
    return (lead + further) / spread


def estimate_p_value(as_far: int) -> float:
    """Estimate a p value from the number of replays whose winner is as far ahead: their share plus a standard error.

    So chance in the replays rarely lets the test exceed its level.

    >>> round(estimate_p_value(90), 3), estimate_p_value(REPLAYS)
    (0.05, 1.0)
    """
    share = (as_far + 1) / (REPLAYS + 1)
    return min(1.0, share + math.sqrt(share * (1 - share) / REPLAYS))


def _shuffle_names(values: Any, groups: Sequence[str], rng: np.random.Generator) -> tuple[Any, Any]:
    """Return the sums and sums of squares of the differences from the first row, with the rows shuffled by group.

    One row of the results for each replay.
    """
    codes = np.unique(np.asarray(groups), return_inverse=True)[1]
    size = max(1, MAX_CELLS // (REPLAYS * len(values)))
    sums = squares = np.zeros((REPLAYS, len(values) - 1))
    for start in range(0, codes.max() + 1, size):
        inside = (codes >= start) & (codes < start + size)
        order = rng.random((REPLAYS, min(size, codes.max() + 1 - start), len(values))).argsort(axis=2)
        shuffled = np.take_along_axis(values.T[inside][None], order[:, codes[inside] - start], axis=2)
        gaps = shuffled[:, :, 1:] - shuffled[:, :, :1]
        sums, squares = sums + gaps.sum(axis=1), squares + (gaps**2).sum(axis=1)
    return sums, squares


def _correct_by_people(
    judge: tuple[Any, Any], people: tuple[Sequence[float], ...], groups: Sequence[str], limits: tuple[float, float]
) -> HumanCorrection:
    before, after = people
    result = ppi_paired_difference((judge[0], before), (judge[1], after), groups, bounds=limits)
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
        figure = summarize_figure(bound.name, outcomes)
        if figure is None:
            continue
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
        figures = [summarize_figure(figure, outcomes[name]) for name in names]
        if None not in figures:
            columns.append([-(value or 0.0) for value in figures])
    return tuple(names[i] for i in select_undominated(list(zip(*columns, strict=True))))
