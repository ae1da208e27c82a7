"""Power, the smallest detectable effect, and the required number of pairs.

The deviation is that of one pair's difference, clusters included: `Difference.deviation` gives it as the standard error
times the root of n, which is the plain standard deviation times the root of the design effect (Kish 1965).
`cluster_size` is the number of pairs per cluster; degrees of freedom are clusters less 1. For m tests under Holm, plan
with alpha / m: that holds also where a single metric changed.

A change moves further pairs, and so spreads the differences: with `jump`, the size of these moves
(`typical_jump`), the variance of a pair grows by the change times the jump. For a
0/1 metric, whose jump is 1, that is exact. A change of the size `seen` is in the deviation already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ragfault.stats.bootstrap import Clusters, FloatArray, Values, as_matrix, tabulate_clusters
from ragfault.stats.distributions import normal_cdf, normal_quantile, t_quantile

QUADRATURE_NODES = 256
NORMAL_DF = 1e6
"""Degrees of freedom above which Student's t is the normal distribution."""
MAX_PAIRS = 10**12
FEW_MOVES = 10
"""If fewer clusters moved, larger moves may be unobserved."""
_normal_cdf = np.frompyfunc(normal_cdf, 1, 1)


def compute_power(
    effect: float, deviation: float, n: float, cluster_size: float = 1.0, *, alpha: float = 0.05
) -> float:
    """Compute the power of a paired comparison: the chance that a true difference of `effect` is significant.

    `deviation` is that of the difference of one pair, in the units of `effect`, `n` the number of pairs, `cluster_size`
    the number of them in a cluster. In [0, 1]; at least `alpha`.

    Of the two-sided paired t test, by the noncentral t distribution (Cohen 1988); the sign-flip test has about the
    same. Null hypothesis of the planned test: no difference. Assumes differences near normal in the mean. Raises
    ValueError below two clusters or where the deviation is not above 0.

    >>> round(compute_power(0.05, 0.2, 100), 4)
    0.697
    """
    df, error = _compute_plan_error(deviation, n, cluster_size)
    t, shift = t_quantile(1 - alpha / 2, df), abs(effect) / error
    spread, weights = _weigh_deviations(df)
    return _average_normal_cdf(weights, shift - t * spread) + _average_normal_cdf(weights, -shift - t * spread)


def equivalence_power(
    margin: float, deviation: float, n: float, cluster_size: float = 1.0, *, alpha: float = 0.05
) -> float:
    """Compute the power of an equivalence test: the chance to show that no difference lies within `margin`.

    Arguments as of `compute_power`; `margin` is in the units of the metric. In [0, 1]. Of two one-sided t tests at a
    true difference of 0 (Schuirmann 1987; Owen 1965). Raises ValueError as `compute_power` does.

    >>> round(equivalence_power(0.05, 0.2, 200), 4)
    0.9397
    """
    df, error = _compute_plan_error(deviation, n, cluster_size)
    t, shift = t_quantile(1 - alpha, df), margin / error
    spread, weights = _weigh_deviations(df)
    return max(0.0, 2 * _average_normal_cdf(weights, np.maximum(shift - t * spread, 0.0)) - 1)


class FurtherMoves(NamedTuple):
    """Moves by which a change spreads the differences further than they are spread already."""

    jump: float = 0.0
    """Size of a move (`typical_jump`)."""
    seen: float = 0.0
    """Size of the change that the deviation has already."""


NO_MOVES = FurtherMoves()


def detectable_effect(
    deviation: float,
    n: float,
    cluster_size: float = 1.0,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    moves: FurtherMoves = NO_MOVES,
) -> float:
    """Return the smallest detectable effect: the true difference that n pairs find with the given power.

    The inverse of `compute_power` (Bloom 1995), in the units of `deviation`, to which the change may add `moves`.
    Infinite below two clusters, or where the deviation is. Raises ValueError for a power outside (0, 1).

    >>> round(detectable_effect(0.2, 100), 4), round(detectable_effect(0.2, 100, moves=FurtherMoves(1.0)), 4)
    (0.0566, 0.1093)
    """
    if n / cluster_size < 2 or not math.isfinite(deviation):
        return math.inf
    _check_power(power)
    jump, seen = moves
    shift = _solve_shift(n / cluster_size - 1, power, alpha)
    effect = shift * deviation / math.sqrt(n)
    if not jump or effect <= seen:
        return effect
    half, unmoved = shift * shift * jump / (2 * n), deviation * deviation - seen * jump
    return half + math.sqrt(max(0.0, half * half + shift * shift * unmoved / n))


def required_pairs(
    effect: float,
    deviation: float,
    cluster_size: float = 1.0,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    moves: FurtherMoves = NO_MOVES,
) -> int | None:
    """Return the number of pairs that find a true difference of `effect` with the given power.

    The inverse of `detectable_effect`, with its arguments. None where no number is enough. Raises ValueError on an
    effect of 0 and for a power outside (0, 1).

    >>> required_pairs(0.05, 0.2), required_pairs(0.05, 0.2, moves=FurtherMoves(1.0))
    (128, 285)
    """
    _check_power(power)
    if effect == 0:
        raise ValueError("effect is 0: no number of pairs finds a difference that is not there")
    spread = math.sqrt(deviation * deviation + max(0.0, abs(effect) - moves.seen) * moves.jump)
    start = (normal_quantile(1 - alpha / 2) + normal_quantile(power)) * spread / abs(effect)
    return _search_smallest_n(
        lambda n: compute_power(effect, spread, n, cluster_size, alpha=alpha), power, spread, cluster_size, start
    )


def typical_jump(changes: Values, clusters: Clusters | None = None, reach: float = math.inf) -> float:
    """Return the size of the moves that a change may bring, for a plan, in the units of the metric.

    `changes` are the differences of the pairs of an earlier comparison, `reach` the width of the metric's range.
    Further moves of this size that add up to a mean change e add e times it to the variance of a pair. It is that of
    the moves seen, their squares over their sizes, summed by cluster; but at least half the `reach` of the metric, for
    a fault may cost an answer more than chance does, and the whole reach where fewer than ten clusters moved.

    >>> typical_jump([0, 0.8, -0.8, 0.8] * 4, reach=1.0), typical_jump([0, 0, 0], reach=1.0)
    (0.8..., 1.0)
    """
    table = tabulate_clusters(as_matrix(changes), clusters, None)
    sizes = np.abs(table.sums[:, 0])
    total = float(sizes.sum())
    seen = float((sizes**2).sum()) / total if total > 0 else 0.0
    if math.isinf(reach):
        return seen
    return max(seen, reach if np.count_nonzero(sizes) < FEW_MOVES else reach / 2)


def required_equivalence_pairs(
    margin: float, deviation: float, cluster_size: float = 1.0, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """Return the number of pairs that show equivalence within `margin` with the given power, if it holds.

    The inverse of `equivalence_power`, with its arguments. None where no number is enough. Raises ValueError where the
    margin is not above 0 and for a power outside (0, 1).

    >>> required_equivalence_pairs(0.05, 0.2)
    139
    """
    _check_power(power)
    if not margin > 0:
        raise ValueError(f"margin is {margin}: give the smallest change that matters, above 0")
    start = (normal_quantile(1 - alpha) + normal_quantile((1 + power) / 2)) * deviation / margin
    return _search_smallest_n(
        lambda n: equivalence_power(margin, deviation, n, cluster_size, alpha=alpha),
        power,
        deviation,
        cluster_size,
        start,
    )


@lru_cache(maxsize=1024)
def _solve_shift(df: float, power: float, alpha: float) -> float:
    """Return the effect over its standard error that is found with the given power."""
    t = t_quantile(1 - alpha / 2, df)
    spread, weights = _weigh_deviations(df)

    def lacking(shift: float) -> float:
        return (
            _average_normal_cdf(weights, shift - t * spread) + _average_normal_cdf(weights, -shift - t * spread) - power
        )

    low, high = 0.0, t + max(0.0, normal_quantile(power)) + 1.0
    while lacking(high) < 0:
        low, high = high, 2 * high
    at_low, at_high, last = lacking(low), lacking(high), 0
    # regula falsi, halved at the end that stays (Illinois)
    while high - low > 1e-13 * high and at_high > 0:
        middle = high - at_high * (high - low) / (at_high - at_low)
        middle = middle if low < middle < high else (low + high) / 2
        value = lacking(middle)
        if abs(value) < 1e-12:
            return middle
        if value > 0:
            high, at_high, at_low, last = middle, value, at_low / 2 if last > 0 else at_low, 1
        else:
            low, at_low, at_high, last = middle, value, at_high / 2 if last < 0 else at_high, -1
    return high


def _check_power(power: float) -> None:
    if not 0 < power < 1:
        raise ValueError(f"power is {power}: give a share between 0 and 1")


def _compute_plan_error(deviation: float, n: float, cluster_size: float) -> tuple[float, float]:
    """Return the degrees of freedom and the standard error of a plan."""
    if n / cluster_size < 2:
        raise ValueError(f"{n} pairs in clusters of {cluster_size:g}: a plan needs two clusters")
    if not deviation > 0:
        raise ValueError(f"deviation is {deviation}: it must be above 0")
    return n / cluster_size - 1, deviation / math.sqrt(n)


def _search_smallest_n(
    power_at: Callable[[int], float], power: float, deviation: float, cluster_size: float, root: float
) -> int | None:
    """Search for the smallest n that reaches the power, which grows with n, from the n of the normal distribution."""
    if not math.isfinite(deviation):
        return None
    if root > math.sqrt(MAX_PAIRS):
        return None
    least = max(2, math.ceil(2 * cluster_size))
    low, high = least - 1, max(least, math.ceil(root * root))
    step = max(2, math.ceil(2 * cluster_size))
    while power_at(high) < power - 1e-9:
        low, high, step = high, high + step, 2 * step
        if high > MAX_PAIRS:
            return None
    step = max(2, math.ceil(2 * cluster_size))
    while high - step > low and power_at(high - step) >= power - 1e-9:
        high, step = high - step, 2 * step
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_at(middle) >= power - 1e-9 else (middle, high)
    return high


def _average_normal_cdf(weights: FloatArray, z: FloatArray) -> float:
    return float(weights @ np.asarray(_normal_cdf(z), dtype=np.float64))


@lru_cache(maxsize=512)
def _weigh_deviations(df: float) -> tuple[FloatArray, FloatArray]:
    """Return ratios of sample to true deviation with their weights, at even steps of the logarithm.

    The density vanishes at both ends, so that equal weights integrate it as exactly as any rule.
    """
    if df > NORMAL_DF:
        return np.ones(1), np.ones(1)
    reach = 9 / math.sqrt(2 * df)
    low, high = -reach - 26 / df, math.log1p(reach)
    log = np.linspace(low, high, QUADRATURE_NODES)
    spread = np.exp(log)
    height = df * (log - (spread**2 - 1) / 2)
    weights = np.exp(height - height.max())
    return spread, weights / weights.sum()
