"""Permutation tests: how often chance alone gives a difference as large as the one seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from ragfault.stats.distributions import binomial_below, normal_below
from ragfault.stats.groups import Clusters, Floats, Table, Values, matrix, pairs, tabulate

__all__ = ["Significance", "label_permutation", "label_permutations", "mcnemar", "sign_flip", "sign_flips"]

RESAMPLES = 9999
LARGE = 20_000
"""Above so many clusters permutation distributions are normal for every purpose."""
CELLS = 1 << 20
SLACK = 1e-12
"""Relative difference below which two statistics count as equal."""


class Significance(Struct, frozen=True):
    """A two-sided test of no difference."""

    p: float
    statistic: float
    """Candidate less baseline."""
    n: int
    """Pairs; where unpaired, values on both sides."""
    clusters: int
    method: Literal["exact", "permutation", "normal"]
    """All permutations, random ones, or the normal limit."""


def mcnemar(improved: int, regressed: int) -> float:
    """The p value of McNemar's exact test: of the pairs that changed, did as many rise as fell? (McNemar 1947)

    Null hypothesis: a pair of 0/1 values that differs is as likely to rise as to fall. The p value is the
    two-sided binomial one, valid at every count; neither the mid-p nor the chi-squared approximation is
    used. Without a changed pair it is 1. Assumes independent pairs: for clusters use `sign_flip`, which
    without them gives this same p value for 0/1 metrics.

    Raises ValueError on negative counts.

    >>> mcnemar(12, 2)
    0.0129394531...
    """
    if improved < 0 or regressed < 0:
        raise ValueError(f"counts are {improved} and {regressed}: give how many pairs rose and fell")
    return min(1.0, 2 * binomial_below(min(improved, regressed), improved + regressed))


def sign_flip(
    baseline: Values,
    candidate: Values,
    clusters: Clusters | None = None,
    *,
    resamples: int | None = None,
    seed: int = 0,
) -> Significance:
    """The sign-flip test of one metric: would the differences be as large had baseline and candidate been swapped?

    One metric of `sign_flips`, which see. Raises ValueError on no pairs.

    >>> sign_flip([0.1, 0.3, 0.4, 0.2, 0.6, 0.7, 0.3, 0.2], [0.6, 0.7, 0.9, 0.8, 0.7, 0.9, 0.6, 0.4]).p
    0.0078125
    """
    found = sign_flips(baseline, candidate, clusters, resamples=resamples, seed=seed)[0]
    if found is None:
        raise ValueError("no pairs: a test of nothing is undefined")
    return found


def sign_flips(
    baseline: ArrayLike,
    candidate: ArrayLike,
    clusters: Clusters | None = None,
    *,
    defined: ArrayLike | None = None,
    resamples: int | None = None,
    seed: int = 0,
) -> tuple[Significance | None, ...]:
    """The sign-flip tests of many metrics over the same paired traces (Fisher 1935; Pitman 1937).

    Null hypothesis: baseline and candidate are exchangeable within each cluster (else pair), so that the
    sum of its differences is symmetric about 0. The statistic is the mean difference. All sign patterns
    are counted where there are at most `resamples` + 1 of them, or where all sums that are not 0 have the
    same size (0/1 metrics without clusters: McNemar's exact test); else random ones, the same for all
    metrics, with p = (as large + 1) / (resamples + 1) (Phipson & Smyth 2010). Above 20,000 clusters,
    unless `resamples` is given, p is that of the normal limit. None stands for a metric without a
    pair; a metric without any difference has p = 1.

    Assumes independent clusters. Raises ValueError where shapes differ or a value that exists is not finite.

    >>> [test.p for test in sign_flips([[1, 0.5], [1, 0.5], [0, 0.1]], [[0, 0.5], [0, 0.6], [0, 0.3]])]
    [0.5, 0.5]
    """
    table = tabulate(pairs(baseline, candidate, defined), clusters, defined)
    draws = RESAMPLES if resamples is None else resamples
    found = [_signs(table, metric, draws, resamples is None) for metric in range(table.sums.shape[1])]
    open_ = [metric for metric, test in enumerate(found) if test is not None and math.isnan(test.p)]
    if open_:
        observed = np.abs(table.sums[:, open_].sum(axis=0))
        bar = observed - SLACK * np.abs(table.sums[:, open_]).sum(axis=0)
        as_large = np.zeros(len(open_))
        for flipped in _flipped(table.sums[:, open_], draws, np.random.default_rng(seed)):
            as_large += (np.abs(flipped) >= bar).sum(axis=0)
        for metric, count in zip(open_, as_large.tolist(), strict=True):
            found[metric] = _settled(found[metric], (count + 1) / (draws + 1))
    return tuple(found)


def _settled(test: Significance | None, p: float) -> Significance | None:
    return test and Significance(p, test.statistic, test.n, test.clusters, "permutation")


def _signs(table: Table, metric: int, resamples: int, free: bool) -> Significance | None:
    """The test of one metric where no random signs are needed; with p = NaN where they are."""
    n, clusters = int(table.n[metric]), int(table.clusters[metric])
    if n == 0:
        return None
    sums = table.sums[:, metric]
    sums = sums[sums != 0]
    sizes, total = np.abs(sums), float(sums.sum())
    mean = total / n
    if sums.size == 0 or float(sizes.max() - sizes.min()) <= SLACK * float(sizes.max()):
        rose = int(np.count_nonzero(sums > 0))
        return Significance(mcnemar(rose, sums.size - rose), mean, n, clusters, "exact")
    if sums.size < 30 and 2**sums.size <= resamples + 1:
        patterns = np.arange(2**sums.size)[:, None] >> np.arange(sums.size) & 1
        bar = abs(total) - SLACK * float(sizes.sum())
        share = float((np.abs((2 * patterns - 1) @ sums) >= bar).mean())
        return Significance(share, mean, n, clusters, "exact")
    if free and clusters > LARGE:
        p = 2 * normal_below(-abs(total) / math.sqrt(float((sums**2).sum())))
        return Significance(p, mean, n, clusters, "normal")
    return Significance(math.nan, mean, n, clusters, "permutation")


def _flipped(sums: Floats, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Totals under random signs, some resamples at a time."""
    g = len(sums)
    width = min(g, 4096)
    step = max(1, CELLS // width)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        kept = np.zeros((rows, sums.shape[1]))
        for column in range(0, g, width):
            part = sums[column : column + width]
            bits = np.frombuffer(rng.bytes(rows * -(-len(part) // 8)), dtype=np.uint8).reshape(rows, -1)
            kept += np.unpackbits(bits, axis=1, count=len(part)).astype(np.float64) @ part
        yield 2 * kept - sums.sum(axis=0)


def label_permutation(
    baseline: Values,
    candidate: Values,
    clusters: tuple[Clusters, Clusters] | None = None,
    *,
    resamples: int | None = None,
    seed: int = 0,
) -> Significance:
    """The label permutation test of one metric: would the means differ as much had the runs been mixed?

    One metric of `label_permutations`, which see. Raises ValueError where a side has no value.

    >>> label_permutation([0.9, 0.8, 0.9, 0.7], [0.2, 0.1, 0.4, 0.3]).p
    0.0285714...
    """
    found = label_permutations(baseline, candidate, clusters, resamples=resamples, seed=seed)[0]
    if found is None:
        raise ValueError("no values on one side: a test against nothing is undefined")
    return found


def label_permutations(
    baseline: ArrayLike,
    candidate: ArrayLike,
    clusters: tuple[Clusters, Clusters] | None = None,
    *,
    defined: tuple[ArrayLike, ArrayLike] | None = None,
    resamples: int | None = None,
    seed: int = 0,
) -> tuple[Significance | None, ...]:
    """The label permutation tests of many metrics between two samples that share no traces.

    Null hypothesis: the clusters (else values) of both sides come from one distribution. Which side a cluster
    belongs to is permuted; the statistic compared is Welch's t with clustered errors, which keeps the level
    for equal means of unequal spread as the sample grows (Janssen 1997; Chung & Romano 2013). All
    assignments are counted where there are at most `resamples` + 1; else random ones with the +1 of
    Phipson & Smyth (2010). Above 20,000 clusters, unless `resamples` is given, the normal limit. None stands
    for a metric that has no value on one side. With one cluster on a side the plain difference is compared.

    Assumes independent clusters. Raises ValueError where a value that exists is not finite.

    >>> [round(test.p, 3) for test in label_permutations([[0], [1], [2], [3]], [[7], [8], [9], [4]])]
    [0.029]
    """
    before, after = matrix(baseline), matrix(candidate)
    if before.shape[1] != after.shape[1]:
        raise ValueError(f"baseline has {before.shape[1]} metrics, candidate {after.shape[1]}")
    groups, exist = clusters or (None, None), defined or (None, None)
    one, two = tabulate(after, groups[1], exist[1]), tabulate(before, groups[0], exist[0])
    return tuple(
        _labels(
            Table(one.sums[:, [m]], one.counts[:, [m]]),
            Table(two.sums[:, [m]], two.counts[:, [m]]),
            resamples,
            seed,
        )
        for m in range(before.shape[1])
    )


def _labels(one: Table, two: Table, resamples: int | None, seed: int) -> Significance | None:
    """The label permutation test of one metric."""
    n_one, n_two = int(one.n[0]), int(two.n[0])
    if n_one == 0 or n_two == 0:
        return None
    mean = float(one.means()[0] - two.means()[0])
    sums, counts = (
        np.concatenate([one.sums, two.sums]).ravel(),
        np.concatenate([one.counts, two.counts]).ravel(),
    )
    present = counts > 0
    mine = int(one.clusters[0])
    sums, counts = sums[present], counts[present]
    moments = _moments(sums - sums.sum() / counts.sum() * counts, counts)
    labels = (np.arange(sums.size) < mine)[None, :].astype(np.float64)
    observed = float(_welch(labels, moments, mine)[0])
    draws = RESAMPLES if resamples is None else resamples
    method: Literal["exact", "permutation", "normal"] = "permutation"
    if math.comb(sums.size, mine) <= draws + 1:
        found = [_welch(part, moments, mine) for part in _assignments(sums.size, mine)]
        p, method = float((np.concatenate(found) >= observed * (1 - SLACK)).mean()), "exact"
    elif resamples is None and sums.size > LARGE:
        p, method = 2 * normal_below(-observed), "normal"
    else:
        count = 0
        for part in _shuffled(sums.size, mine, draws, np.random.default_rng(seed)):
            count += int((_welch(part, moments, mine) >= observed * (1 - SLACK)).sum())
        p = (count + 1) / (draws + 1)
    return Significance(p, mean, n_one + n_two, sums.size, method)


def _moments(sums: Floats, counts: Floats) -> Floats:
    """What the sums, counts, squares and products of a choice of clusters are made of."""
    return np.stack([sums, counts, sums * sums, sums * counts, counts * counts], axis=1)


def _welch(labels: Floats, moments: Floats, mine: int) -> Floats:
    """|t| of each row of labels; the plain |difference| where a side is a single cluster."""
    total, g = moments.sum(axis=0), len(moments)
    chosen: Floats = labels @ moments
    means, squares = [], []
    for part, size in ((chosen, mine), (total - chosen, g - mine)):
        mean = part[:, 0] / part[:, 1]
        spread = np.maximum(part[:, 2] - 2 * mean * part[:, 3] + mean * mean * part[:, 4], 0.0)
        means.append(mean)
        squares.append(spread * size / max(1, size - 1) / part[:, 1] ** 2)
    gap: Floats = np.abs(means[0] - means[1])
    if min(mine, g - mine) < 2:
        return gap
    error = np.sqrt(squares[0] + squares[1])
    tiny = SLACK * math.sqrt(float(total[2]) + 1e-300) / float(total[1])
    return np.where(error > tiny, gap / np.maximum(error, tiny), np.where(gap > tiny, math.inf, 0.0))


def _assignments(g: int, mine: int) -> Iterator[Floats]:
    """Every choice of `mine` of g clusters, as rows of labels."""
    rows = math.comb(g, mine)
    chosen = np.fromiter(chain.from_iterable(combinations(range(g), mine)), dtype=np.intp, count=rows * mine)
    labels = np.zeros((rows, g))
    labels[np.arange(rows)[:, None], chosen.reshape(rows, mine)] = 1.0
    yield labels


def _shuffled(g: int, mine: int, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Random choices of `mine` of g clusters, some rows of labels at a time."""
    step = max(1, CELLS // g)
    for start in range(0, resamples, step):
        labels = np.zeros((min(step, resamples - start), g), dtype=np.uint8)
        labels[:, :mine] = 1
        yield rng.permuted(labels, axis=1, out=labels).astype(np.float64)
