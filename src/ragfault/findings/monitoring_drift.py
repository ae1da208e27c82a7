"""Drift: how far live traffic has moved from the set that a system was evaluated on, in scores and in topics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.errors import UsageError
from ragfault.findings.monitoring_observing import DERIVED, observations
from ragfault.findings.monitoring_rollups import Observation, Rollup, merged, roll
from ragfault.findings.monitoring_windows import Key, Series, difference, series
from ragfault.runs import Measure, Run
from ragfault.stats import Difference, holm
from ragfault.text import content

__all__ = ["Drift", "Moved", "Topics", "drift", "evaluated", "score_drift", "topic_drift"]

QUERIES = 4000
"""Of so many queries of a side at most topics are compared; of more, a random draw."""

RESAMPLES = 499
SHOWN = 8
RARE = 3
"""Stems in fewer queries than this say nothing of a topic."""
PART = 256
"""Traces of the evaluation set that are in memory at once."""


class Moved(Struct, frozen=True, kw_only=True):
    """One metric of the evaluation set beside live traffic."""

    metric: str
    difference: Difference
    """Live less evaluated."""
    distance: float
    """The largest gap between the two distribution functions, at the edges of the bins (Kolmogorov-Smirnov)."""
    p: float
    """That both are draws of one distribution; somewhat large for values in few bins."""
    adjusted: float
    """Corrected by Holm for all metrics."""


class Topics(Struct, frozen=True, kw_only=True):
    """How far the words of the queries have moved."""

    distance: float
    """The Jensen-Shannon distance between the two distributions of stems, from 0 (alike) to 1 (none in common)."""
    low: float
    """Between these it lies in 95 % of random divisions of the same queries: what chance alone gives."""
    high: float
    p: float
    queries: tuple[int, int]
    """Of the evaluation set, and live."""
    more: tuple[str, ...]
    """The stems that live traffic has more of, the most telling first."""
    less: tuple[str, ...]


class Drift(Struct, frozen=True, kw_only=True):
    """Live traffic beside the set that a system was evaluated on."""

    run: str
    scores: tuple[Moved, ...]
    topics: Topics | None
    """None where one side has no query with a word."""


def evaluated(run: Run) -> dict[Key, Series]:
    """The scores of an evaluation set as series; its times, if it has any, do not matter."""
    size, scores = len(run.manifest.metrics), run.scores()
    measures = (*run.manifest.metrics, *DERIVED)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    found: list[Rollup] = []
    part: list[Observation] = []
    for trace in run.traces():
        there = [next(scores) for _ in range(size)]
        part += list(observations(replace(trace, time=start, route=None), None, there))
        if len(part) > PART * size:
            found += roll(part, measures)
            part = []
    return series(merged([*found, *roll(part, measures)]))


def drift(
    run: Run,
    live: Mapping[Key, Series],
    measures: Mapping[str, Measure],
    queries: Iterable[str],
    seed: int = 0,
) -> Drift:
    """How far live traffic has moved from an evaluation set: metric by metric over all routes, and in topics.

    Raises UsageError where the two share no metric.
    """
    scores = score_drift(evaluated(run), live, measures)
    if not scores:
        raise UsageError(
            f"{run.path} and the live traces share no metric with a value. Evaluate both with the same metrics."
        )
    asked = [text for text in run.to_arrow("traces", ["query"])["query"].to_pylist() if text]
    return Drift(run=run.path.name, scores=scores, topics=topic_drift(asked, list(queries), seed))


def score_drift(
    before: Mapping[Key, Series], live: Mapping[Key, Series], measures: Mapping[str, Measure]
) -> tuple[Moved, ...]:
    """Each metric of an evaluation set beside live traffic over all routes, from their roll-ups.

    The difference of the means with Welch's interval, and the two-sample Kolmogorov-Smirnov distance of the
    histograms with its limiting p (Smirnov 1948), corrected by Holm.
    """
    found = []
    for (metric, route, cohort), one in before.items():
        parts = [part for key, part in live.items() if key[0] == metric and key[2] is None]
        if route is not None or cohort is not None or metric not in measures or not parts:
            continue
        two = _joined(parts)
        gap = difference(one, two, measures[metric])
        if gap is not None:
            found.append((metric, gap, *_smirnov(one.bins.sum(axis=0), two.bins.sum(axis=0))))
    adjusted = holm([p for *_, p in found]) if found else []
    return tuple(
        Moved(metric=metric, difference=gap, distance=far, p=p, adjusted=q)
        for (metric, gap, far, p), q in zip(found, adjusted, strict=True)
    )


def _joined(parts: Sequence[Series]) -> Series:
    """Series one after the other; the minutes of all."""
    return Series(
        np.concatenate([part.minutes for part in parts]),
        np.concatenate([part.n for part in parts]),
        np.concatenate([part.sum for part in parts]),
        np.concatenate([part.squares for part in parts]),
        np.concatenate([part.bins for part in parts]),
        np.concatenate([part.lost for part in parts]),
        tuple(each for part in parts for each in part.worst),
    )


def _smirnov(one: NDArray[np.int64], two: NDArray[np.int64]) -> tuple[float, float]:
    """The distance of two histograms' distribution functions and its p."""
    n, m = int(one.sum()), int(two.sum())
    far = float(np.abs(np.cumsum(one) / n - np.cumsum(two) / m).max())
    scale = math.sqrt(n * m / (n + m)) * far
    if scale < 0.2:
        return far, 1.0
    terms = [(-1) ** (k - 1) * math.exp(-2 * k * k * scale * scale) for k in range(1, 101)]
    return far, min(1.0, max(0.0, 2 * sum(terms)))


def topic_drift(before: Sequence[str], live: Sequence[str], seed: int = 0) -> Topics | None:
    """How far the words of live queries have moved from those of the evaluation set.

    The Jensen-Shannon distance (Lin 1991) between how often each stem occurs that is in three queries or more, counted
    once a query, beside its permutation distribution: the same queries divided at random into two sides as large.
    None where a side has no word of content, or no stem is in three queries.

    >>> old, new = ["When does the ferry leave?", "What is the fare?"] * 40, ["Where can a boat be moored?"] * 60
    >>> found = topic_drift(old, new)
    >>> found.p, found.more[0], topic_drift(old, old).p > 0.5
    (0.002, 'boat', True)
    """
    rng = np.random.default_rng(seed)
    sides = [_drawn([set(content(text)) for text in texts], rng) for texts in (before, live)]
    if not all(any(side) for side in sides):
        return None
    counts = Counter(word for side in sides for words in side for word in words)
    names = sorted(word for word, count in counts.items() if count >= RARE)
    if not names:
        return None
    place = {name: at for at, name in enumerate(names)}
    rows = [sorted(place[name] for name in words if name in place) for side in sides for words in side]
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    stems = np.fromiter((at for row in rows for at in row), dtype=np.int64)
    mine = np.arange(len(rows)) < len(sides[0])
    seen = _apart(stems, mine[owner], len(names))
    chance = [_apart(stems, rng.permutation(mine)[owner], len(names)) for _ in range(RESAMPLES)]
    low, high = np.quantile(chance, [0.025, 0.975]).tolist()
    more, less = _telling(stems, mine[owner], names, (len(sides[0]), len(sides[1])))
    return Topics(
        distance=seen,
        low=low,
        high=high,
        p=(sum(each >= seen * (1 - 1e-12) for each in chance) + 1) / (RESAMPLES + 1),
        queries=(len(before), len(live)),
        more=more,
        less=less,
    )


def _drawn(words: list[set[str]], rng: np.random.Generator) -> list[set[str]]:
    if len(words) <= QUERIES:
        return words
    return [words[at] for at in sorted(rng.choice(len(words), QUERIES, replace=False).tolist())]


def _apart(stems: NDArray[np.int64], mine: NDArray[np.bool_], size: int) -> float:
    """The Jensen-Shannon distance of the stems of one side and the other."""
    counts = [np.bincount(stems[side], minlength=size).astype(float) for side in (mine, ~mine)]
    if not counts[0].sum() or not counts[1].sum():
        return 0.0
    p, q = (count / count.sum() for count in counts)
    middle = (p + q) / 2
    parts = [np.sum(side[side > 0] * np.log2(side[side > 0] / middle[side > 0])) for side in (p, q)]
    return math.sqrt(max(0.0, float(sum(parts)) / 2))


def _telling(
    stems: NDArray[np.int64], mine: NDArray[np.bool_], names: Sequence[str], sizes: tuple[int, int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stems whose share of queries rose and fell most, by their standard errors."""
    old, new = (np.bincount(stems[side], minlength=len(names)) for side in (mine, ~mine))
    both = (old + new) / sum(sizes)
    error = np.sqrt(np.maximum(both * (1 - both), 1e-9) * (1 / sizes[0] + 1 / sizes[1]))
    score = (new / sizes[1] - old / sizes[0]) / error
    order = np.argsort(-score, kind="stable")
    more = tuple(names[at] for at in order[:SHOWN] if score[at] > 2)
    return more, tuple(names[at] for at in order[::-1][:SHOWN] if score[at] < -2)
