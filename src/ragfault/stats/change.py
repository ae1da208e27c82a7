"""One change of the mean in a sequence: whether, where, and from what to what."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from ragfault.stats.groups import Clusters, Floats, tabulate

__all__ = ["Change", "change_point"]

RESAMPLES = 1999
BATCHES = 2000
"""Rows beyond so many are summed in batches, whose sums are as exchangeable as the rows."""


class Change(Struct, frozen=True):
    """The likeliest place at which the mean of a sequence changed once."""

    step: int
    """The first step after the change, counted from 0."""
    p: float
    """Of the null hypothesis that nothing changed."""
    low: int
    """The earliest and the latest step that resampling gives at the stated confidence."""
    high: int
    before: float
    after: float
    steps: int
    rows: int
    """Sequences: traces followed through all steps, or 1."""


def change_point(
    values: ArrayLike,
    clusters: Clusters | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Change:
    """The single change of the mean in a sequence, by the largest standardised CUSUM (Hinkley 1970; Hawkins 1977).

    `values` is one sequence, or a table of traces by steps: the same traces scored at each step, each compared
    with itself; `clusters` names what traces move together. At each cut the difference of the means before and
    after is weighed with the root of k (n - k) / n, and the largest of them is the statistic.

    Null hypothesis: the values of a sequence (of each row) are exchangeable. p is that of random permutations
    within the rows, (as large + 1) / (resamples + 1); n steps of one sequence can thus show a change only if n is
    about 8 or more, while few steps of many traces can. The interval of the step comes from resampled rows, or
    for a single sequence from resampled residuals on either side of the change (Hušková & Kirch 2008).

    Assumes one change and independent values; a trend or a slow wander also makes p small.
    Raises ValueError on fewer than two steps, no row, or a value that is not finite.

    >>> found = change_point([0.9, 0.8, 0.9, 0.9, 0.8, 0.9, 0.5, 0.6, 0.5, 0.4, 0.5])
    >>> found.step, found.p < 0.01, round(found.before, 2), round(found.after, 2)
    (6, True, 0.87, 0.5)
    """
    table = np.asarray(values, dtype=np.float64)
    table = table[None, :] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] < 2:
        raise ValueError(f"values have the shape {table.shape}: a change needs two steps and a row")
    if not np.isfinite(table).all():
        raise ValueError("a value is not finite: leave out the rows that lack a step")
    rng = np.random.default_rng(seed)
    path = table.mean(axis=0)
    sums = _batched(tabulate(table, clusters, None).sums if len(table) > 1 else table)
    heights = _cusum(path[None, :])[0]
    step = int(heights.argmax()) + 1
    bar = float(heights.max()) * (1 - 1e-12)
    as_large = 0
    for _ in range(resamples):
        shuffled = rng.permuted(sums, axis=1).sum(axis=0)[None, :] / len(table)
        as_large += bool(_cusum(shuffled).max() >= bar)
    steps = _steps(sums, step, resamples, rng)
    low, high = np.quantile(
        steps, [(1 - confidence) / 2, (1 + confidence) / 2], method="inverted_cdf"
    ).tolist()
    return Change(
        step=step,
        p=(as_large + 1) / (resamples + 1),
        low=min(int(low), step),
        high=max(int(high), step),
        before=float(path[:step].mean()),
        after=float(path[step:].mean()),
        steps=path.size,
        rows=len(table),
    )


def _batched(sums: Floats) -> Floats:
    """Neighbouring rows added up, so that no more than BATCHES are left."""
    if len(sums) <= BATCHES:
        return sums
    added: Floats = np.add.reduceat(sums, np.linspace(0, len(sums), BATCHES, endpoint=False, dtype=np.intp))
    return added


def _cusum(paths: Floats) -> Floats:
    """The height of the standardised CUSUM at each cut of each path."""
    n = paths.shape[1]
    cuts = np.arange(1, n)
    sums = np.cumsum(paths - paths.mean(axis=1, keepdims=True), axis=1)[:, :-1]
    heights: Floats = np.abs(sums) / np.sqrt(cuts * (n - cuts) / n)
    return heights


def _steps(table: Floats, step: int, resamples: int, rng: np.random.Generator) -> Floats:
    """The step found in each resample."""
    rows, n = table.shape
    found = np.empty(resamples)
    for number in range(resamples):
        if rows > 1:
            path = table[rng.integers(0, rows, size=rows)].mean(axis=0)
        else:
            front = rng.integers(0, step, size=step)
            path = table[0][np.concatenate([front, rng.integers(step, n, size=n - step)])]
        found[number] = int(_cusum(path[None, :])[0].argmax()) + 1
    return found
