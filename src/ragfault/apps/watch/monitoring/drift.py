"""Drift of live traffic from the evaluation set, in scores and in topics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.apps.watch.monitoring.rollups import (
    Observation,
    Rollup,
    add_derived,
    merge_by_key,
    observe_trace,
    roll_up,
)
from ragfault.apps.watch.monitoring.windows import MetricSeries, SeriesKey, build_series, window_difference
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.model.errors import UsageError
from ragfault.stats.distributions import compare_histograms
from ragfault.stats.estimates import Difference
from ragfault.stats.significance import holm_adjust
from ragfault.text.normalization import split_content_words

# of so many queries of a side at most topics are compared; of more, a random draw
MAX_QUERIES = 4000
RESAMPLES = 499
MAX_STEMS = 8
# stems in fewer queries than this say nothing of a topic
MIN_QUERIES = 3
# traces of the evaluation set that are in memory at once
BATCH_TRACES = 256


class ScoreDrift(Struct, frozen=True, kw_only=True):
    """Drift of one metric: the evaluation set against live traffic."""

    metric: str
    # live less evaluated
    difference: Difference
    distance: float
    """The largest gap between the two distribution functions, at the edges of the bins (Kolmogorov-Smirnov)."""
    # that both are draws of one distribution; somewhat large for values in few bins
    p: float
    # corrected by Holm for all metrics
    adjusted: float


class TopicDrift(Struct, frozen=True, kw_only=True):
    """Drift of the topics of the queries."""

    distance: float
    """The Jensen-Shannon distance between the two distributions of stems, from 0 (alike) to 1 (none in common)."""
    # 95 % interval of the distance under random divisions of the same queries
    low: float
    high: float
    p: float
    # of the evaluation set, and live
    queries: tuple[int, int]
    # stems more frequent in live traffic, the most significant first
    risen_stems: tuple[str, ...]
    fallen_stems: tuple[str, ...]


class TrafficDrift(Struct, frozen=True, kw_only=True):
    """Drift of live traffic from the evaluation set."""

    run: str
    scores: tuple[ScoreDrift, ...]
    # none where one side has no query with a word
    topics: TopicDrift | None


def build_evaluation_series(run: Run) -> dict[SeriesKey, MetricSeries]:
    """Build series from the scores of evaluation runs; their times are ignored."""
    size, scores = len(run.manifest.metrics), run.scores()
    measures = add_derived(run.manifest.metrics)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    observations: list[Rollup] = []
    part: list[Observation] = []
    for trace in run.traces():
        there = [next(scores) for _ in range(size)]
        part += list(observe_trace(replace(trace, time=start, route=None), None, there))
        if len(part) > BATCH_TRACES * size:
            observations += roll_up(part, measures)
            part = []
    return build_series(merge_by_key([*observations, *roll_up(part, measures)]))


def measure_drift(
    run: Run,
    live: Mapping[SeriesKey, MetricSeries],
    measures: Mapping[str, MetricInfo],
    queries: Iterable[str],
    seed: int = 0,
) -> TrafficDrift:
    """Measure the drift of live traffic from an evaluation set: metric by metric over all routes, and in topics.

    Raises UsageError where the two share no metric.
    """
    scores = measure_score_drift(build_evaluation_series(run), live, measures)
    if not scores:
        raise UsageError(
            f"{run.path} and the live traces share no metric with a value. Evaluate both with the same metrics."
        )
    asked = [text for text in run.to_arrow("traces", ["query"])["query"].to_pylist() if text]
    return TrafficDrift(run=run.path.name, scores=scores, topics=measure_topic_drift(asked, list(queries), seed))


def measure_score_drift(
    before: Mapping[SeriesKey, MetricSeries], live: Mapping[SeriesKey, MetricSeries], measures: Mapping[str, MetricInfo]
) -> tuple[ScoreDrift, ...]:
    """Compare each metric of an evaluation set with live traffic over all routes, from their roll-ups.

    The difference of the means with Welch's interval, which allows for minutes that move together, and the two-sample
    Kolmogorov-Smirnov distance of the histograms with its limiting p (Smirnov 1948), corrected by Holm, which does not:
    traffic that varies within the day differs from an evaluation set by p alone more often.
    """
    drifts = []
    for (metric, route, cohort), series in before.items():
        parts = [part for key, part in live.items() if key[0] == metric and key[2] is None]
        if route is not None or cohort is not None or metric not in measures or not parts:
            continue
        two = _concatenate(parts)
        gap = window_difference(series, two, measures[metric])
        if gap is not None:
            drifts.append((metric, gap, *compare_histograms(series.bins.sum(axis=0), two.bins.sum(axis=0))))
    adjusted = holm_adjust([p for *_, p in drifts]) if drifts else []
    return tuple(
        ScoreDrift(metric=metric, difference=gap, distance=far, p=p, adjusted=q)
        for (metric, gap, far, p), q in zip(drifts, adjusted, strict=True)
    )


def _concatenate(parts: Sequence[MetricSeries]) -> MetricSeries:
    return MetricSeries(
        np.concatenate([part.minutes for part in parts]),
        np.concatenate([part.n for part in parts]),
        np.concatenate([part.sum for part in parts]),
        np.concatenate([part.squares for part in parts]),
        np.concatenate([part.bins for part in parts]),
        np.concatenate([part.unscored for part in parts]),
        tuple(traces for part in parts for traces in part.worst),
    )


def measure_topic_drift(before: Sequence[str], live: Sequence[str], seed: int = 0) -> TopicDrift | None:
    """Measure how far the words of live queries have moved from those of the evaluation set.

    The Jensen-Shannon distance (Lin 1991) between how often each stem occurs that is in three queries or more, counted
    once a query, beside its permutation distribution: the same queries divided at random into two sides as large.
    None where a side has no word of content, or no stem is in three queries.

    >>> old, new = ["When does the ferry leave?", "What is the fare?"] * 40, ["Where can a boat be moored?"] * 60
    >>> found = measure_topic_drift(old, new)
    >>> found.p, found.risen_stems[0], measure_topic_drift(old, old).p > 0.5
    (0.002, 'boat', True)
    """
    rng = np.random.default_rng(seed)
    sides = [_sample_queries([set(split_content_words(text)) for text in texts], rng) for texts in (before, live)]
    if not all(any(side) for side in sides):
        return None
    counts = Counter(word for side in sides for words in side for word in words)
    names = sorted(word for word, count in counts.items() if count >= MIN_QUERIES)
    if not names:
        return None
    place = {name: at for at, name in enumerate(names)}
    rows = [sorted(place[name] for name in words if name in place) for side in sides for words in side]
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    stems = np.fromiter((at for row in rows for at in row), dtype=np.int64)
    mine = np.arange(len(rows)) < len(sides[0])
    seen = _jensen_shannon(stems, mine[owner], len(names))
    chance = [_jensen_shannon(stems, rng.permutation(mine)[owner], len(names)) for _ in range(RESAMPLES)]
    low, high = np.quantile(chance, [0.025, 0.975]).tolist()
    more, less = _distinctive_stems(stems, mine[owner], names, (len(sides[0]), len(sides[1])))
    return TopicDrift(
        distance=seen,
        low=low,
        high=high,
        p=(sum(distance >= seen * (1 - 1e-12) for distance in chance) + 1) / (RESAMPLES + 1),
        queries=(len(before), len(live)),
        risen_stems=more,
        fallen_stems=less,
    )


def _sample_queries(words: list[set[str]], rng: np.random.Generator) -> list[set[str]]:
    if len(words) <= MAX_QUERIES:
        return words
    return [words[at] for at in sorted(rng.choice(len(words), MAX_QUERIES, replace=False).tolist())]


def _jensen_shannon(stems: NDArray[np.int64], in_baseline: NDArray[np.bool_], size: int) -> float:
    """Compute the Jensen-Shannon distance of the stems of the two sides."""
    counts = [np.bincount(stems[side], minlength=size).astype(float) for side in (in_baseline, ~in_baseline)]
    if not counts[0].sum() or not counts[1].sum():
        return 0.0
    p, q = (count / count.sum() for count in counts)
    middle = (p + q) / 2
    parts = [np.sum(side[side > 0] * np.log2(side[side > 0] / middle[side > 0])) for side in (p, q)]
    return math.sqrt(max(0.0, float(sum(parts)) / 2))


def _distinctive_stems(
    stems: NDArray[np.int64], in_baseline: NDArray[np.bool_], names: Sequence[str], sizes: tuple[int, int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the stems whose share of queries rose and fell most, in standard errors."""
    old, new = (np.bincount(stems[side], minlength=len(names)) for side in (in_baseline, ~in_baseline))
    both = (old + new) / sum(sizes)
    error = np.sqrt(np.maximum(both * (1 - both), 1e-9) * (1 / sizes[0] + 1 / sizes[1]))
    score = (new / sizes[1] - old / sizes[0]) / error
    order = np.argsort(-score, kind="stable")
    more = tuple(names[at] for at in order[:MAX_STEMS] if score[at] > 2)
    return more, tuple(names[at] for at in order[::-1][:MAX_STEMS] if score[at] < -2)
