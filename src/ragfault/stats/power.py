"""Power, the smallest detectable effect, and the required number of pairs.

The deviation is that of one pair's difference, clusters included: `Difference.deviation` gives it as the standard error
times the root of n, which is the plain standard deviation times the root of the design effect (Kish 1965). `size` is
the number of pairs per cluster; degrees of freedom are clusters less 1. For m tests under Holm, plan with alpha / m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.distributions import normal_cdf, t_quantile

QUADRATURE_NODES = 200
NORMAL_DF = 1e6
"""Degrees of freedom above which Student's t is the normal distribution."""
MAX_PAIRS = 10**12
_normal_cdf = np.frompyfunc(normal_cdf, 1, 1)


def compute_power(
    effect: float, deviation: float, n: float, cluster_size: float = 1.0, *, alpha: float = 0.05
) -> float:
    """Compute the power of a paired comparison: the chance that a true difference of `effect` is significant.

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

    Of two one-sided t tests at a true difference of 0 (Schuirmann 1987; Owen 1965).

    >>> round(equivalence_power(0.05, 0.2, 200), 4)
    0.9397
    """
    df, error = _compute_plan_error(deviation, n, cluster_size)
    t, shift = t_quantile(1 - alpha, df), margin / error
    spread, weights = _weigh_deviations(df)
    return max(0.0, 2 * _average_normal_cdf(weights, np.maximum(shift - t * spread, 0.0)) - 1)


def detectable_effect(
    deviation: float, n: float, cluster_size: float = 1.0, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the smallest detectable effect: the true difference that n pairs find with the given power.

    The inverse of `compute_power` (Bloom 1995). Infinite below two clusters, or where the deviation is.

    >>> round(detectable_effect(0.2, 100), 4)
    0.0566
    """
    if n / cluster_size < 2 or not math.isfinite(deviation):
        return math.inf
    _check_power(power)
    low, high = 0.0, deviation
    while _compute_power_at(high, deviation, n, cluster_size, alpha) < power:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _compute_power_at(middle, deviation, n, cluster_size, alpha) < power else (low, middle)
        )
    return high


def required_pairs(
    effect: float, deviation: float, cluster_size: float = 1.0, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """Return the number of pairs that find a true difference of `effect` with the given power.

    The inverse of `detectable_effect`. None where no number is enough. Raises ValueError on an effect of 0.

    >>> required_pairs(0.05, 0.2)
    128
    """
    _check_power(power)
    if effect == 0:
        raise ValueError("effect is 0: no number of pairs finds a difference that is not there")
    return _search_smallest_n(
        lambda n: _compute_power_at(effect, deviation, n, cluster_size, alpha), power, deviation, cluster_size
    )


def required_equivalence_pairs(
    margin: float, deviation: float, cluster_size: float = 1.0, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """Return the number of pairs that show equivalence within `margin` with the given power, if it holds.

    None where no number is enough. Raises ValueError where the margin is not above 0.

    >>> required_equivalence_pairs(0.05, 0.2)
    139
    """
    _check_power(power)
    if not margin > 0:
        raise ValueError(f"margin is {margin}: give the smallest change that matters, above 0")
    return _search_smallest_n(
        lambda n: equivalence_power(margin, deviation, n, cluster_size, alpha=alpha), power, deviation, cluster_size
    )


def _compute_power_at(effect: float, deviation: float, n: float, cluster_size: float, alpha: float) -> float:
    return compute_power(effect, deviation, n, cluster_size, alpha=alpha)


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
    power_at: Callable[[int], float], power: float, deviation: float, cluster_size: float
) -> int | None:
    """Search for the smallest n that reaches the power, which grows with n."""
    if not math.isfinite(deviation):
        return None
    low = high = max(2, math.ceil(2 * cluster_size))
    while power_at(high) < power - 1e-9:
        low, high = high, 2 * high
        if high > MAX_PAIRS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_at(middle) >= power - 1e-9 else (middle, high)
    return low if power_at(low) >= power - 1e-9 else high


def _average_normal_cdf(weights: FloatArray, z: FloatArray) -> float:
    return float(weights @ np.asarray(_normal_cdf(z), dtype=np.float64))


@lru_cache(maxsize=512)
def _weigh_deviations(df: float) -> tuple[FloatArray, FloatArray]:
    """Return ratios of sample to true deviation with their weights (Gauss-Legendre over the logarithm)."""
    if df > NORMAL_DF:
        return np.ones(1), np.ones(1)
    reach = 9 / math.sqrt(2 * df)
    low, high = -reach - 26 / df, math.log1p(reach)
    nodes, weights = _legendre_nodes()
    log = low + (high - low) * (nodes + 1) / 2
    spread = np.exp(log)
    height = df * (log - (spread**2 - 1) / 2)
    weights = weights * np.exp(height - height.max())
    return spread, weights / weights.sum()


@lru_cache(maxsize=1)
def _legendre_nodes() -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    return nodes, weights
