"""Estimates: frozen records of means, quantiles, ratios and differences with their intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rates = TypeVar("Rates", float, "NDArray[np.float64]")


class Interval(Struct, frozen=True):
    """A mean with the confidence interval of the true mean."""

    mean: float
    low: float
    high: float
    n: int
    """Number of values."""
    clusters: int
    """Number of independent groups; equal to n without clusters."""


class CorrectedShare(Struct, frozen=True):
    """A share corrected for the error of the judge that measured it, or the reason why it is undefined."""

    interval: Interval | None
    """The corrected share with its interval, in [0, 1]; None if undefined."""
    reason: str | None = None


class Difference(Struct, frozen=True):
    """Candidate less baseline, with the confidence interval of the true difference."""

    mean: float
    low: float
    high: float
    error: float
    """Standard error, by cluster; infinite where the data say nothing about spread."""
    df: float
    """Degrees of freedom of the error."""
    center: float
    """Center of tests on this difference: the mean, or the shrunken mean of a sparse difference."""
    n: int
    """Number of pairs; if unpaired, of values on both sides."""
    clusters: int
    """Number of independent groups among them."""
    method: Literal["bca", "t", "sparse", "none", "ppi"]
    """Method of the interval; "none" if the data say nothing about spread; "ppi": corrected by human labels."""

    @property
    def deviation(self) -> float:
        """The standard deviation of a single pair that gives this error, clusters included."""
        return self.error * math.sqrt(self.n)

    @property
    def cluster_size(self) -> float:
        """Pairs per cluster."""
        return self.n / self.clusters


class QuantileInterval(Struct, frozen=True):
    """A quantile of a sample with the confidence interval of the true quantile."""

    quantile: float
    """The share of values that do not exceed it, such as 0.95."""
    value: float
    """The smallest value that at least this share of the sample does not exceed."""
    low: float | None
    """None where the sample is too small to have this end."""
    high: float | None
    n: int
    """Number of values."""
    clusters: int
    """Number of independent groups; equal to n without clusters."""
    reason: str | None = None
    """Why an end is undefined."""


class QuantileChange(Struct, frozen=True):
    """Change of a quantile on paired values: candidate less baseline."""

    quantile: float
    baseline: QuantileInterval
    candidate: QuantileInterval
    value: float
    """The difference of the two."""
    low: float | None
    """None where the sample is too small for an interval."""
    high: float | None
    p: float
    """Of the test that as many values of both sides lie above the quantile of both together."""
    adjusted: float | None = None
    """The same, corrected by Holm for all quantiles of a comparison; None outside one."""
    reason: str | None = None
    """Why there is no interval."""


class RatioInterval(Struct, frozen=True):
    """A ratio of two sums with its confidence interval."""

    value: float | None
    """None where a sum is 0."""
    low: float | None
    high: float | None
    n: int
    """Number of values, or of pairs."""
    clusters: int
    p: float | None = None
    """Of the test of swapped sides; None for the ratio of one sample."""
    reason: str | None = None
    """Why the value or its interval is undefined."""


class PpiMean(Struct, frozen=True):
    """A judge's mean corrected by human labels, or the reason why it is undefined."""

    interval: Interval | None
    """Over all traces with a value of the judge; None if undefined."""
    labelled: int
    """Number of traces with a value of the judge and a human one."""
    judge_weight: float | None = None
    """Weight of the judge (λ), from 0, labels alone, to 1; None if undefined."""
    width_ratio: float | None = None
    """Width of the interval over that of the labels alone; below 1 if the judge helps."""
    random_sample_p: float | None = None
    """p value of the null hypothesis that the labeled traces are a random sample, by the judge's values."""
    reason: str | None = None


class PpiDifference(Struct, frozen=True):
    """A difference by the judge corrected by human labels, or the reason why it is undefined."""

    difference: Difference | None
    """Candidate less baseline; its n is the number of labels. None if undefined."""
    p: float | None
    """p value of the null hypothesis of no difference in human values, by Student's t."""
    labelled: int
    """Number of pairs labeled on both sides; unpaired, labels of both sides together."""
    width_ratio: float | None = None
    """Width of the interval over that of the labels alone."""
    paired: bool = True
    reason: str | None = None


class VarianceSplit(Struct, frozen=True):
    """Variance of the value of one attempt, by where it comes from."""

    queries: float
    """Variance of the true means of the queries."""
    system: float
    """Variance of the attempts of one query beyond that of the judge; with it if that is not known."""
    judge: float | None
    """Variance of the judge on one attempt; None: not measured."""
    noise: Interval
    """Share of system and judge together in the whole variance."""

    def tell_judge(self, variance: float) -> VarianceSplit:
        """Return the split with this variance of the judge, at most that of system and judge together.

        >>> VarianceSplit(0.06, 0.04, None, Interval(0.4, 0.3, 0.5, 60, 20)).tell_judge(0.01).shares
        (0.6, 0.3, 0.1)
        """
        noise = self.system + (self.judge or 0.0)
        judge = min(variance, noise)
        return VarianceSplit(self.queries, noise - judge, judge, self.noise)

    @property
    def shares(self) -> tuple[float, float, float | None]:
        """The shares of queries, system and judge in the whole variance."""
        total = self.queries + self.system + (self.judge or 0.0)
        return self.queries / total, self.system / total, None if self.judge is None else self.judge / total


class BootstrapEstimate(NamedTuple):
    """A statistic and the range that holds its true value at the stated confidence."""

    value: float | None
    """None where the sample does not define it."""
    low: float | None
    """None where the resamples tell nothing of its spread."""
    high: float | None


class CalibrationBin(NamedTuple):
    """Values of like probability."""

    mean: float
    """The mean probability."""
    share: float
    """The share of positives among them."""
    n: int


BASE_RATES = (0.05, 0.1, 0.2, 0.4)
"""Shares of positives for which F1 is predicted."""


def predict_f1(sensitivity: Rates, specificity: Rates, base_rate: float) -> Rates:
    """Predict F1 where this share of the units is positive, from rates that do not depend on the share.

    In [0, 1], a number or an array as the rates are; 0 where nothing positive is detected, NaN where a rate is.

    >>> round(predict_f1(0.8, 0.9, 0.5), 3), round(predict_f1(0.8, 0.9, 0.05), 3)
    (0.842, 0.432)
    """
    detected = base_rate * sensitivity
    return 2 * detected / (detected + base_rate + (1 - base_rate) * (1 - specificity))
