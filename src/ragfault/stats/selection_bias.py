"""Correction of an effect that is reported because it is significant."""

from __future__ import annotations

import math

from ragfault.stats.distributions import normal_cdf, normal_quantile

SEARCH_STEPS = 200


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
    density = _density(cut - mean) - _density(-cut - mean)
    return mean + density / (above + below)


def _density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
