"""Agreement of raters, people or judges, on the same items, with intervals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragfault.stats.agreement import MultiRaterRatings, TwoRaterRatings
from ragfault.stats.bootstrap import RESAMPLING, FloatArray, Resampling, bootstrap_estimates
from ragfault.stats.estimates import BootstrapEstimate


class RaterAgreement(NamedTuple):
    """Agreement of raters, each figure with its interval."""

    equal: BootstrapEstimate
    """Share of the items on which all say the same."""
    alpha: BootstrapEstimate
    """Krippendorff's alpha."""
    kappa: BootstrapEstimate | None
    """Cohen's kappa; None unless there are two raters."""


def estimate_agreement(
    ratings: Sequence[Sequence[Any]],
    order: Sequence[Hashable],
    groups: Sequence[str],
    *,
    ranked: bool = False,
    resampling: Resampling = RESAMPLING,
) -> RaterAgreement:
    """Estimate the agreement of raters, with intervals over groups of items.

    `ratings` are items by raters, None where one said nothing. If the values are `ranked`, a miss by several places of
    `order` counts for more than a miss by one.

    >>> pairs = list(zip([0, 1, 1, 0] * 9, [0, 1, 1, 1] * 9))
    >>> found = estimate_agreement(pairs, [0, 1], [str(number) for number in range(36)])
    >>> found.equal.value, found.kappa.value
    (0.75, 0.5)
    """
    equal = np.array([float(len({value for value in item if value is not None}) == 1) for item in ratings])
    rated = MultiRaterRatings(ratings, order)
    pair = None
    if len(ratings[0]) == 2:
        pair = TwoRaterRatings([item[0] for item in ratings], [item[1] for item in ratings], order)

    def statistic(weights: FloatArray) -> FloatArray:
        columns = [
            weights @ equal / weights.sum(axis=1),
            rated.alpha(rated.coincidences(weights), "ordinal" if ranked else "nominal"),
        ]
        if pair is not None:
            columns.append(pair.kappa(pair.confusion_matrices(weights), "linear" if ranked else "none"))
        return np.stack(columns, axis=1)

    estimates = bootstrap_estimates(statistic, groups, resampling)
    return RaterAgreement(estimates[0], estimates[1], estimates[2] if pair is not None else None)
