"""Sequences of values: the change point of a mean, and confidence sequences that stay valid at every look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from ragfault.stats.bootstrap import Clusters, FloatArray, Values
from ragfault.stats.significance import RELATIVE_TOLERANCE, sign_flip_test

RESAMPLES = 1999
# of the interval of one shift among several
SHIFT_RESAMPLES = 499
MAX_BATCHES = 2000
"""More rows are summed in batches, which are as exchangeable as the rows."""


class MeanShift(Struct, frozen=True):
    """A step of a sequence at which its mean changed."""

    step: int
    """First step after the change, counted from 0."""
    low: int
    """Earliest step of the 95 % confidence interval."""
    high: int


def locate_change_point(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> MeanShift:
    """Locate the single change of the mean of a sequence by the largest standardized CUSUM (Hinkley 1970).

    At each cut the difference of the means before and after is weighed with the root of k (n - k) / n, and the largest
    of them is the statistic. The interval of the step comes from resampled residuals on either side of the change
    (Hušková & Kirch 2008).

    Assumes that there is one change, which it doesn't test, and independent values.
    Raises ValueError on fewer than two steps, or a value that is not finite.

    >>> found = locate_change_point([0.9, 0.8, 0.9, 0.9, 0.8, 0.9, 0.5, 0.6, 0.5, 0.4, 0.5])
    >>> found.step, found.low, found.high
    (6, 6, 6)
    """
    path = np.asarray(values, dtype=np.float64)
    if path.ndim != 1 or path.size < 2:
        raise ValueError(f"values have the shape {path.shape}: a change needs a sequence of two steps")
    if not np.isfinite(path).all():
        raise ValueError("a value is not finite")
    step = int(_compute_cusum(path).argmax()) + 1
    return _locate_shift(path[None, :], step, resamples, seed)


def _sum_batches(sums: FloatArray, size: int = MAX_BATCHES) -> FloatArray:
    """Sum neighboring rows, so that at most so many remain."""
    if len(sums) <= size:
        return sums
    sums_by_batch: FloatArray = np.add.reduceat(sums, np.linspace(0, len(sums), size, endpoint=False, dtype=np.intp))
    return sums_by_batch


def _compute_cusum(path: FloatArray) -> FloatArray:
    """Return the height of the standardized CUSUM at each cut of a path."""
    n = path.size
    cuts = np.arange(1, n)
    heights: FloatArray = np.abs(np.cumsum(path - path.mean())[:-1]) / np.sqrt(cuts * (n - cuts) / n)
    return heights


def _locate_shift(table: FloatArray, step: int, resamples: int, seed: int) -> MeanShift:
    """Return a shift with the interval of the steps found in resampled rows, or in resamples of a single row."""
    rows, n = table.shape
    rng = np.random.default_rng(seed)
    steps = np.empty(resamples)
    for number in range(resamples):
        if rows > 1:
            path = table[rng.integers(0, rows, size=rows)].mean(axis=0)
        else:
            front = rng.integers(0, step, size=step)
            path = table[0][np.concatenate([front, rng.integers(step, n, size=n - step)])]
        steps[number] = int(_compute_cusum(path).argmax()) + 1
    low, high = np.quantile(steps, [0.025, 0.975], method="inverted_cdf").tolist()
    return MeanShift(step, min(int(low), step), max(int(high), step))


MAX_SHIFT_BATCHES = 500
"""More clusters are summed in batches of neighbours where many metrics are permuted together."""
MAX_PERMUTED_CELLS = 400_000_000


class MeanShifts(Struct, frozen=True):
    """The shifts of the mean of one sequence, in order; none where no change is shown."""

    p: float
    """p value of the null hypothesis of no change, corrected for all sequences tested together."""
    shifts: tuple[MeanShift, ...]


def detect_mean_shifts(
    tables: Sequence[ArrayLike], clusters: Clusters | None = None, *, alpha: float = 0.05, seed: int = 0
) -> list[MeanShifts]:
    """Detect any number of changes of the mean of several sequences over the same steps.

    Each of `tables` is the same traces scored at each step, one row per trace; a row with a value that is not finite is
    left out of that table. The statistic of a table is the largest standardized difference between the mean inside and
    outside any run of neighbouring steps (circular binary segmentation, Olshen et al. 2004), so that one bad step
    between good ones counts as much as a lasting change. Values are permuted within the rows, alike in all tables;
    p is that of the largest statistic over the tables (Westfall & Young 1993, single step), which bounds the chance
    of any false change by `alpha` where nothing changed. Where a change is shown, both sides of it are searched again,
    and a shift is kept only where a sign-flip test shows the levels beside it to differ.

    Assumes that the values of a row are exchangeable where nothing changed, and independent clusters.
    Raises ValueError where the tables differ in shape or have fewer than two steps.

    >>> rows = [[0.9, 0.8, 0.2, 0.8, 0.9], [0.7, 0.9, 0.4, 0.9, 0.8], [1.0, 0.8, 0.3, 0.9, 0.9]] * 10
    >>> [shift.step for shift in detect_mean_shifts([rows])[0].shifts]
    [2, 3]
    """
    values = [np.asarray(table, dtype=np.float64) for table in tables]
    if not values:
        return []
    if any(table.shape != values[0].shape for table in values) or values[0].ndim != 2 or values[0].shape[1] < 2:
        raise ValueError("the tables differ in shape, or have fewer than two steps")
    groups = np.arange(len(values[0])) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    p_values = _permute_together(values, groups, seed)
    rejected = sum(p <= alpha for p in p_values)
    results = []
    for table, p in zip(values, p_values, strict=True):
        complete = np.isfinite(table).all(axis=1)
        shifts = _split_steps(table[complete], groups[complete], alpha / rejected, seed) if p <= alpha else ()
        results.append(MeanShifts(p, shifts))
    return results


def _permute_together(values: Sequence[FloatArray], groups: NDArray[np.int64], seed: int) -> list[float]:
    """Return the p value of each table by permutations within the rows, corrected by the largest statistic."""
    steps = values[0].shape[1]
    count = int(groups.max()) + 1 if len(groups) else 0
    sums = np.zeros((count, steps, len(values)))
    for index, table in enumerate(values):
        complete = np.isfinite(table).all(axis=1)
        rows = table[complete] - table[complete].mean(axis=1, keepdims=True)
        np.add.at(sums[:, :, index], groups[complete], rows)
    sums = _sum_batches(sums, MAX_SHIFT_BATCHES)
    scale = np.sqrt((sums**2).sum(axis=(0, 1)) / max(1, steps - 1))
    sums = sums / np.where(scale > RELATIVE_TOLERANCE * max(1.0, float(scale.max(initial=0.0))), scale, math.inf)
    observed = _compute_arcs(sums.sum(axis=0)).max(axis=0)
    rng = np.random.default_rng(seed)
    draws = RESAMPLES if sums.size * RESAMPLES <= MAX_PERMUTED_CELLS else RESAMPLES // 2
    as_large = np.zeros(len(values), dtype=np.int64)
    for _ in range(draws):
        order = rng.random(sums.shape[:2]).argsort(axis=1)
        largest = _compute_arcs(np.take_along_axis(sums, order[:, :, None], axis=1).sum(axis=0)).max()
        as_large += largest >= observed * (1 - RELATIVE_TOLERANCE)
    return [float(p) for p in (as_large + 1) / (draws + 1)]


def _compute_arcs(paths: FloatArray) -> FloatArray:
    """Return the height of every run of neighbouring steps, arcs × tables, of centred paths, steps × tables."""
    n = len(paths)
    total = np.concatenate([np.zeros((1, paths.shape[1])), np.cumsum(paths, axis=0)])
    starts, ends = _list_arcs(n)
    length = (ends - starts)[:, None]
    heights: FloatArray = np.abs(total[ends] - total[starts]) / np.sqrt(length * (n - length) / n)
    return heights


@cache
def _list_arcs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    starts, ends = np.triu_indices(n + 1, k=1)
    inner = ends - starts < n
    return starts[inner], ends[inner]


def _split_steps(table: FloatArray, groups: NDArray[np.int64], alpha: float, seed: int) -> tuple[MeanShift, ...]:
    """Return the shifts of a table in which a change is shown."""
    steps = table.shape[1]
    cuts: list[int] = []
    waiting = [(0, steps)]
    while waiting:
        low, high = waiting.pop()
        window = table[:, low:high]
        if high - low < 2 or ((low, high) != (0, steps) and _permute_together([window], groups, seed)[0] > alpha):
            continue
        centred = window.mean(axis=0) - window.mean()
        starts, ends = _list_arcs(high - low)
        best = int(_compute_arcs(centred[:, None])[:, 0].argmax())
        inner = [low + int(cut) for cut in (starts[best], ends[best]) if 0 < cut < high - low]
        cuts += inner
        edges = [low, *inner, high]
        waiting += list(pairwise(edges))
    cuts = _drop_unshown(table, groups, sorted(cuts), alpha, seed)
    edges = [0, *cuts, steps]
    shifts = []
    for index, cut in enumerate(cuts, 1):
        low, high = edges[index - 1], edges[index + 1]
        codes, rows = np.unique(groups, return_inverse=True)
        sums = np.zeros((len(codes), high - low))
        np.add.at(sums, rows, table[:, low:high] - table[:, low:high].mean(axis=1, keepdims=True))
        shift = _locate_shift(_sum_batches(sums), cut - low, SHIFT_RESAMPLES, seed)
        shifts.append(MeanShift(cut, low + shift.low, low + shift.high))
    return tuple(shifts)


def _drop_unshown(table: FloatArray, groups: NDArray[np.int64], cuts: list[int], alpha: float, seed: int) -> list[int]:
    """Return the cuts whose levels on both sides are shown to differ; the least shown is dropped first."""
    while cuts:
        edges = [0, *cuts, table.shape[1]]
        p_values = [
            sign_flip_test(
                table[:, low:cut].mean(axis=1), table[:, cut:high].mean(axis=1), groups, resamples=RESAMPLES, seed=seed
            ).p
            for low, cut, high in zip(edges, cuts, edges[2:], strict=False)
        ]
        worst = int(np.argmax(p_values))
        if p_values[worst] <= alpha:
            return cuts
        cuts = [*cuts[:worst], *cuts[worst + 1 :]]
    return cuts


MEAN_CANDIDATES = 1000
BATCH_CELLS = 1 << 21
BET_ALPHA = 0.05
"""Level for which the bets of a test are made; the test is valid at every level."""
MAX_BETTING_VALUES = 20_000
"""Number of values up to which bets are placed on a grid; beyond, the closed form is used."""


class ConfidenceSequence(Struct, frozen=True, eq=False):
    """A running mean with its confidence sequence; the last entry is the current state."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def n(self) -> int:
        """Values seen."""
        return self.mean.size


def confidence_sequence(
    values: Values, bounds: tuple[float, float] = (0.0, 1.0), *, confidence: float = 0.95
) -> ConfidenceSequence:
    """Compute the confidence sequence of a mean of bounded values (Waudby-Smith & Ramdas 2024).

    With the stated confidence the true mean lies within the band at every n at once, so that one may look after every
    trace and stop when one likes. Up to 20,000 values it is the paper's hedged capital process (bets capped at half,
    means tried on a grid of 1,000 and rounded outwards); longer sequences go on with its predictable plug-in empirical
    Bernstein band (theorem 2), each of the two at half of 1 - confidence. Bands are intersected with all earlier ones.

    Assumes that each value has the same mean given those before it (independent values do); neither a
    distribution nor a variance. For clustered values give one mean per cluster. Raises ValueError on no values, on
    values outside the bounds, and on bounds that are not finite.

    >>> band = confidence_sequence([1, 1, 0, 1] * 50)
    >>> round(float(band.low[-1]), 2), round(float(band.high[-1]), 2)
    (0.65, 0.85)
    """
    low, high = float(bounds[0]), float(bounds[1])
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError("no values: a mean of nothing is undefined")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"bounds are {bounds}: give two finite ends")
    if not ((sample >= low) & (sample <= high)).all():
        raise ValueError(f"a value lies outside the bounds {bounds}")
    unit = (sample - low) / (high - low)
    alpha = 1 - confidence
    if unit.size <= MAX_BETTING_VALUES:
        floor, roof = _compute_betting_band(unit, alpha)
    else:
        floor, roof = _compute_bernstein_band(unit, alpha / 2)
        betting_band = _compute_betting_band(unit[:MAX_BETTING_VALUES], alpha / 2)
        floor[:MAX_BETTING_VALUES] = np.maximum(floor[:MAX_BETTING_VALUES], betting_band[0])
        roof[:MAX_BETTING_VALUES] = np.minimum(roof[:MAX_BETTING_VALUES], betting_band[1])
    roof = np.minimum.accumulate(roof)
    floor = np.minimum(np.maximum.accumulate(floor), roof)
    mean = np.cumsum(sample) / np.arange(1, sample.size + 1)
    return ConfidenceSequence(mean, low + (high - low) * floor, low + (high - low) * roof)


def bounded_mean_test(values: Values, mean: float, bounds: tuple[float, float] = (0.0, 1.0)) -> float:
    """Test that the true mean of bounded values is at most `mean`, by a bet against it (Waudby-Smith & Ramdas 2024).

    The p value is 1 over the greatest wealth of the bettor; it is valid for every distribution within the bounds and
    every number of values, in (0, 1]. Assumes independent values; for clustered ones give one mean per cluster.

    >>> round(bounded_mean_test([1, 1, 0, 1] * 15, 0.5), 4) < 0.01, bounded_mean_test([0, 1] * 30, 0.5) > 0.1
    (True, True)
    """
    low, high = bounds
    unit = (np.asarray(values, dtype=np.float64) - low) / (high - low)
    level = (mean - low) / (high - low)
    bets = np.minimum(_compute_bets(unit, 2 * BET_ALPHA)[0], 0.5 / max(level, 1e-9))
    wealth = np.cumsum(np.log1p(np.maximum(bets * (unit - level), -1 + 1e-12)))
    return float(np.exp(-max(0.0, wealth.max())))


def _compute_bets(unit: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the uncapped predictable bets, and the running means before each."""
    t = np.arange(1, unit.size + 1)
    means = (0.5 + np.cumsum(unit)) / (t + 1)
    variances = (0.25 + np.cumsum((unit - means) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    bets: FloatArray = np.sqrt(2 * math.log(2 / alpha) / (before * t * np.log(t + 1)))
    return bets, np.concatenate([[0.5], means[:-1]])


def _compute_bernstein_band(unit: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the empirical Bernstein band."""
    bets, means = _compute_bets(unit, alpha)
    bets = np.minimum(bets, 0.5)
    total = np.cumsum(bets)
    center = np.cumsum(bets * unit) / total
    cost = (unit - means) ** 2 * (-np.log1p(-bets) - bets)
    half = (math.log(2 / alpha) + np.cumsum(cost)) / total
    return np.maximum(center - half, 0.0), np.minimum(center + half, 1.0)


def _compute_betting_band(unit: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the hedged capital band: the means against which neither bettor has won enough to reject."""
    bets = _compute_bets(unit, alpha)[0]
    means = np.linspace(0.0, 1.0, MEAN_CANDIDATES + 1)
    inner = means[1:-1]
    up, down = np.zeros(inner.size), np.zeros(inner.size)
    floor, roof = np.empty(unit.size), np.empty(unit.size)
    threshold = math.log(2 / alpha)
    step = max(1, BATCH_CELLS // MEAN_CANDIDATES)
    for start in range(0, unit.size, step):
        block = slice(start, start + step)
        gain, bet = unit[block, None] - inner, bets[block, None]
        ups = up + np.cumsum(np.log1p(np.minimum(bet, 0.5 / inner) * gain), axis=0)
        downs = down + np.cumsum(np.log1p(-np.minimum(bet, 0.5 / (1 - inner)) * gain), axis=0)
        up, down = ups[-1], downs[-1]
        in_band = np.maximum(ups, downs) < threshold
        first, last = in_band.argmax(axis=1), in_band.shape[1] - 1 - in_band[:, ::-1].argmax(axis=1)
        is_empty = ~in_band.any(axis=1)
        first[is_empty], last[is_empty] = inner.size - 1, 0
        floor[block], roof[block] = means[first], means[last + 2]
    return floor, roof
