"""Significance tests: permutations, McNemar, equivalence, Holm's adjustment, and the bias of significant effects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import ArrayLike

from ragfault.stats.bootstrap import Clusters, ClusterTable, FloatArray, Values, subtract_pairs, tabulate_clusters
from ragfault.stats.distributions import binomial_cdf, normal_cdf, normal_quantile, t_cdf, t_quantile
from ragfault.stats.estimates import Difference

RESAMPLES = 9999
MAX_PERMUTATION_CLUSTERS = 20_000
"""With more clusters permutation distributions are practically normal."""
BATCH_CELLS = 1 << 20
RELATIVE_TOLERANCE = 1e-12
"""Relative difference below which two statistics count as equal."""
SEARCH_STEPS = 200
"""Bisections of the search for a corrected effect."""


class SignificanceTest(Struct, frozen=True):
    """A two-sided test of no difference."""

    p: float
    statistic: float
    """Candidate less baseline."""
    n: int
    """Number of pairs; if unpaired, of values on both sides."""
    clusters: int
    method: Literal["exact", "permutation", "normal"]
    """All permutations, random ones, or the normal limit."""


def mcnemar_test(improved: int, regressed: int) -> float:
    """Return the p value of McNemar's exact test: whether as many pairs rose as fell (McNemar 1947).

    Null hypothesis: a pair of 0/1 values that differs is as likely to rise as to fall. The p value is the
    two-sided binomial one, valid at every count; neither the mid-p nor the chi-squared approximation is
    used. Without a changed pair it is 1. Assumes independent pairs: for clusters use `sign_flip_test`, which
    without them gives this same p value for 0/1 metrics.

    Raises ValueError on negative counts.

    >>> mcnemar_test(12, 2)
    0.0129394531...
    """
    if improved < 0 or regressed < 0:
        raise ValueError(f"counts are {improved} and {regressed}: give how many pairs rose and fell")
    return min(1.0, 2 * binomial_cdf(min(improved, regressed), improved + regressed))


def sign_flip_test(
    baseline: Values,
    candidate: Values,
    clusters: Clusters | None = None,
    *,
    resamples: int | None = None,
    seed: int = 0,
) -> SignificanceTest:
    """Test the paired differences of one metric against random swaps of baseline and candidate.

    One metric of `sign_flip_tests`. Raises ValueError on no pairs.

    >>> sign_flip_test([0.1, 0.3, 0.4, 0.2, 0.6, 0.7, 0.3, 0.2], [0.6, 0.7, 0.9, 0.8, 0.7, 0.9, 0.6, 0.4]).p
    0.0078125
    """
    test = sign_flip_tests(baseline, candidate, clusters, resamples=resamples, seed=seed)[0]
    if test is None:
        raise ValueError("no pairs: a test of nothing is undefined")
    return test


def sign_flip_tests(
    baseline: ArrayLike,
    candidate: ArrayLike,
    clusters: Clusters | None = None,
    *,
    defined: ArrayLike | None = None,
    resamples: int | None = None,
    seed: int = 0,
) -> tuple[SignificanceTest | None, ...]:
    """Test many metrics over the same paired traces by sign flips (Fisher 1935; Pitman 1937).

    Null hypothesis: baseline and candidate are exchangeable within each cluster (else pair), so that the sum of its
    differences is symmetric about 0. The statistic is the mean difference. All sign patterns are counted where there
    are at most `resamples` + 1 of them, or where all sums that are not 0 have the same size (0/1 metrics without
    clusters: McNemar's exact test); else random ones, the same for all metrics, with p = (as large + 1) / (resamples +
    1) (Phipson & Smyth 2010). Above 20,000 clusters, unless `resamples` is given, p is that of the normal limit. None
    stands for a metric without a pair; a metric without any difference has p = 1.

    Assumes independent clusters. Raises ValueError where shapes differ or a value that exists is not finite.

    >>> [test.p for test in sign_flip_tests([[1, 0.5], [1, 0.5], [0, 0.1]], [[0, 0.5], [0, 0.6], [0, 0.3]])]
    [0.5, 0.5]
    """
    table = tabulate_clusters(subtract_pairs(baseline, candidate, defined), clusters, defined)
    draws = RESAMPLES if resamples is None else resamples
    tests = [_test_signs(table, metric, draws, resamples is None) for metric in range(table.sums.shape[1])]
    pending = [metric for metric, test in enumerate(tests) if test is not None and math.isnan(test.p)]
    if pending:
        observed = np.abs(table.sums[:, pending].sum(axis=0))
        thresholds = observed - RELATIVE_TOLERANCE * np.abs(table.sums[:, pending]).sum(axis=0)
        as_large = np.zeros(len(pending))
        for flipped in flip_signs(table.sums[:, pending], draws, np.random.default_rng(seed)):
            as_large += (np.abs(flipped) >= thresholds).sum(axis=0)
        for metric, count in zip(pending, as_large.tolist(), strict=True):
            if (test := tests[metric]) is not None:
                tests[metric] = replace(test, p=(count + 1) / (draws + 1), method="permutation")
    return tuple(tests)


def count_flips(tests: int, clusters: int, alpha: float) -> int | None:
    """Count the random sign patterns that let the smallest p survive a correction for so many tests at alpha.

    2 · tests / alpha, for by Holm's correction the smallest p counts `tests` times. None where the default number of
    resamples is enough, or where p is that of the normal limit, above 20,000 clusters.

    >>> count_flips(12, 300, 0.05), count_flips(400, 300, 0.05)
    (None, 16000)
    """
    least = math.ceil(2 * tests / alpha)
    return None if least <= RESAMPLES or clusters > MAX_PERMUTATION_CLUSTERS else least


def _test_signs(table: ClusterTable, metric: int, resamples: int, allow_normal: bool) -> SignificanceTest | None:
    """Test one metric if no random signs are needed; p is NaN if they are."""
    n, clusters = int(table.n[metric]), int(table.clusters[metric])
    if n == 0:
        return None
    sums = table.sums[:, metric]
    sums = sums[sums != 0]
    sizes, total = np.abs(sums), float(sums.sum())
    mean = total / n
    if sums.size == 0 or float(sizes.max() - sizes.min()) <= RELATIVE_TOLERANCE * float(sizes.max()):
        rose = int(np.count_nonzero(sums > 0))
        return SignificanceTest(mcnemar_test(rose, sums.size - rose), mean, n, clusters, "exact")
    if sums.size < 30 and 2**sums.size <= resamples + 1:
        patterns = np.arange(2**sums.size)[:, None] >> np.arange(sums.size) & 1
        threshold = abs(total) - RELATIVE_TOLERANCE * float(sizes.sum())
        share = float((np.abs((2 * patterns - 1) @ sums) >= threshold).mean())
        return SignificanceTest(share, mean, n, clusters, "exact")
    if allow_normal and clusters > MAX_PERMUTATION_CLUSTERS:
        p = 2 * normal_cdf(-abs(total) / math.sqrt(float((sums**2).sum())))
        return SignificanceTest(p, mean, n, clusters, "normal")
    return SignificanceTest(math.nan, mean, n, clusters, "permutation")


def flip_signs(sums: FloatArray, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield the totals under random signs, in batches of resamples."""
    g = len(sums)
    width = min(g, 4096)
    step = max(1, BATCH_CELLS // width)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        positives = np.zeros((rows, sums.shape[1]))
        for column in range(0, g, width):
            block = sums[column : column + width]
            bits = np.frombuffer(rng.bytes(rows * -(-len(block) // 8)), dtype=np.uint8).reshape(rows, -1)
            positives += np.unpackbits(bits, axis=1, count=len(block)).astype(np.float64) @ block
        yield 2 * positives - sums.sum(axis=0)


class EquivalenceTest(Struct, frozen=True):
    """Two one-sided tests of a difference against a margin."""

    p: float
    """Small if the difference is shown to lie within the margin (the larger of the two)."""
    p_drop: float
    """Small if a drop of the margin or more is ruled out. Its complement tests a drop beyond the margin."""
    p_rise: float
    """Small if a rise of the margin or more is ruled out."""
    low: float
    """Lower end of the interval of confidence 1 - 2 alpha, which lies within the margin exactly if p < alpha."""
    high: float
    margin: float


def equivalence_test(difference: Difference, margin: float, alpha: float = 0.05) -> EquivalenceTest:
    """Test whether a difference is shown to be smaller than a margin (Schuirmann 1987).

    Null hypothesis: the true difference is at least `margin` away from 0. Two one-sided tests by
    Student's t with the (clustered) standard error of the difference; p is the larger of the two. Where the
    data say nothing about spread, p is 1. Assumes what the difference assumes and a mean that is near
    normal, which rare large differences break; bounds given to the difference guard against the worst of it.

    Raises ValueError where the margin is not above 0.

    >>> from ragfault.stats.differences import paired_difference
    >>> same = paired_difference([0.50, 0.61, 0.70, 0.82], [0.51, 0.60, 0.71, 0.81])
    >>> round(equivalence_test(same, 0.05).p, 4), equivalence_test(same, 0.001).p > 0.05
    (0.0016, True)
    """
    if not margin > 0:
        raise ValueError(f"margin is {margin}: give the smallest change that matters, above 0")
    center, error, df = difference.center, difference.error, difference.df
    if not math.isfinite(error):
        return EquivalenceTest(1.0, 1.0, 1.0, -math.inf, math.inf, margin)
    p_drop = t_cdf(-(center + margin) / error, df)
    p_rise = t_cdf((center - margin) / error, df)
    half = t_quantile(1 - alpha, df) * error
    return EquivalenceTest(max(p_drop, p_rise), p_drop, p_rise, center - half, center + half, margin)


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Adjust the p values of several tests by Holm's step-down method (Holm 1979).

    Rejecting each null whose adjusted p is at most alpha keeps the chance of any false rejection at most
    alpha, however the tests depend on each other. Raises ValueError on a p value outside 0 to 1.

    >>> holm_adjust([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a p value lies outside 0 to 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    values: list[float] = adjusted.tolist()
    return values


def correct_significant_effect(effect: float, error: float, alpha: float = 0.05) -> float:
    """Return the conditional maximum likelihood estimate of an effect, given that |effect / error| was significant.

    An estimate that is looked at only where a two-sided test at `alpha` rejects is too far from 0 on average. The
    result is the mean m at which a normal variable with that `error`, truncated to the significant values, has the
    mean `effect` (Zhong & Prentice 2008). An effect that is not significant, or without a finite error above 0, is
    returned unchanged.

    >>> round(correct_significant_effect(0.05, 0.02), 3), correct_significant_effect(0.01, 0.02)
    (0.023, 0.01)
    >>> round(correct_significant_effect(0.2, 0.02), 3)
    0.2
    """
    if not (math.isfinite(error) and error > 0):
        return effect
    z, cut = abs(effect) / error, normal_quantile(1 - alpha / 2)
    if z <= cut:
        return effect
    low, high = 0.0, z
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        if _truncated_mean(middle, cut) < z:
            low = middle
        else:
            high = middle
    return math.copysign(error * (low + high) / 2, effect)


def _truncated_mean(mean: float, cut: float) -> float:
    """Return the mean of a normal variable of unit variance, given that its absolute value is above `cut`."""
    above, below = 1 - normal_cdf(cut - mean), normal_cdf(-cut - mean)
    density = _normal_density(cut - mean) - _normal_density(-cut - mean)
    return mean + density / (above + below)


def _normal_density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
