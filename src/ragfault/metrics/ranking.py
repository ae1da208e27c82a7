"""Formulas of ranked retrieval (recall, nDCG, …) as in trec_eval, for one trace or for many queries at once.

A `Ranking` holds where judged chunks were found, and the grades of a perfect ranking. Each formula returns
the values and a mask of where they are defined. The formulas are those of trec_eval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.model.errors import InputError, UnknownName, UsageError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
QueryValues = tuple[FloatArray, NDArray[np.bool_]]
"""A value for each query, and whether it is defined; where it is not, the value is 0.0 and means nothing."""


class GradedHits(NamedTuple):
    """Chunks with a grade, ordered by query and within it by rank; three arrays of one length."""

    query: IntArray
    """The place of the query in `Ranking.queries`."""
    rank: IntArray
    """From 1."""
    grade: FloatArray
    """0 or more; as in trec_eval a chunk of negative grade counts as not judged."""


class Ranking(NamedTuple):
    """Relevance of the retrieved and of the relevant chunks of each query."""

    queries: Sequence[str]
    """The ids: those of the run first, then those that only the gold names."""
    judged: NDArray[np.bool_]
    """True where the query has gold; without, every metric is undefined."""
    retrieved_counts: IntArray
    """Number of different chunks that were retrieved."""
    retrieved: GradedHits
    """The judged chunks that were retrieved, at their rank."""
    ideal: GradedHits
    """All judged chunks, as a perfect ranking would show them: the highest grade first."""


def recall(ranking: Ranking, k: int | None = None, relevant: float = 1) -> QueryValues:
    """Recall is the share of the relevant chunks that stand among the first k.

    In [0, 1]. Undefined for a query without a gold chunk of grade `relevant` or more; 0.0 where there is
    one and nothing was retrieved. As trec_eval's `recall` and, without k, `set_recall`.

    >>> recall(ranking_from_lists(["a", "x", "b"], {"a": 1, "b": 1, "c": 2}), k=2)[0].tolist()
    [0.3333333333333333]
    """
    hits, total = _count_hits(ranking, k, relevant)
    return hits / np.maximum(total, 1), total > 0


def precision(ranking: Ranking, k: int | None = None, relevant: float = 1, over: str = "places") -> QueryValues:
    """Compute the share of the first k places that hold a relevant chunk.

    In [0, 1]. Divides by k, also where fewer were retrieved; without k, or with `over="retrieved"`, by the number
    retrieved among the first k. Undefined as `recall`. As trec_eval's `P` and `set_P`; over the retrieved, as mlflow's
    `precision_at_k`. Raises `UnknownName` for another `over`.

    >>> ranking = ranking_from_lists(["a", "x", "b"], {"a": 1, "b": 1, "c": 2})
    >>> precision(ranking, k=10)[0].tolist(), precision(ranking, k=10, over="retrieved")[0].round(4).tolist()
    ([0.2], [0.6667])
    """
    if over not in PRECISION_DIVISORS:
        raise UnknownName("divisor of precision", over, PRECISION_DIVISORS)
    hits, total = _count_hits(ranking, k, relevant)
    retrieved = np.maximum(ranking.retrieved_counts, 1)
    if k is None:
        return hits / retrieved, total > 0
    return hits / (np.minimum(retrieved, k) if over == "retrieved" else k), total > 0


def f1(ranking: Ranking, k: int | None = None, relevant: float = 1) -> QueryValues:
    """Compute the harmonic mean of precision and recall at the same k.

    In [0, 1]; 0.0 where both are. Undefined as `recall`. Without k as trec_eval's `set_F`.

    >>> f1(ranking_from_lists(["a", "x", "b"], {"a": 1, "b": 1, "c": 2}))[0].tolist()
    [0.6666666666666666]
    """
    hits, total = _count_hits(ranking, k, relevant)
    return 2 * hits / np.maximum(total + (ranking.retrieved_counts if k is None else k), 1), total > 0


def hit(ranking: Ranking, k: int | None = None, relevant: float = 1) -> QueryValues:
    """Return 1 if a relevant chunk is among the first k, else 0. Undefined as `recall`. As trec_eval's `success`.

    >>> hit(ranking_from_lists(["x", "a"], {"a": 1}), k=1)[0].tolist()
    [0.0]
    """
    hits, total = _count_hits(ranking, k, relevant)
    return (hits > 0).astype(np.float64), total > 0


def reciprocal_rank(ranking: Ranking, k: int | None = None, relevant: float = 1) -> QueryValues:
    """Compute 1 / the rank of the first relevant chunk, 0 if none is among the first k.

    In [0, 1]. Undefined as `recall`. As trec_eval's `recip_rank` (Voorhees 1999).

    >>> reciprocal_rank(ranking_from_lists(["x", "a"], {"a": 1}))[0].tolist()
    [0.5]
    """
    query, rank = _select_relevant(ranking.retrieved, k, relevant)
    values = np.zeros(len(ranking.queries))
    # Of several values for one place the last one written stays: backwards, that is the first rank.
    values[query[::-1]] = 1 / rank[::-1]
    return values, _count_relevant(ranking, relevant) > 0


def average_precision(ranking: Ranking, k: int | None = None, relevant: float = 1) -> QueryValues:
    """Average precision is the mean, over all relevant chunks, of the precision at the rank of each.

    In [0, 1]. A relevant chunk that is not among the first k counts 0: the sum is divided by all relevant
    chunks and never by those retrieved. Undefined as `recall`. As trec_eval's `map` and `map_cut`.

    >>> average_precision(ranking_from_lists(["a", "x", "b"], {"a": 1, "b": 1}))[0].tolist()
    [0.8333333333333333]
    """
    query, rank = _select_relevant(ranking.retrieved, k, relevant)
    hits = np.bincount(query, minlength=len(ranking.queries))
    order = np.arange(1, len(query) + 1) - (hits.cumsum() - hits)[query]
    total = _count_relevant(ranking, relevant)
    return np.bincount(query, order / rank, len(hits)) / np.maximum(total, 1), total > 0


def ndcg(ranking: Ranking, k: int | None = None, relevant: float = 1, gain: str = "linear") -> QueryValues:
    """Compute the discounted cumulative gain of the first k over that of a perfect ranking.

    In [0, 1]. The gain at rank r is divided by log2(r + 1); the perfect ranking is cut at k as well. `gain="linear"`
    takes the grade (Järvelin & Kekäläinen 2002, trec_eval), `"exponential"` 2^grade − 1 (Burges et al. 2005), and
    `"binary"` 1 for every grade above 0. `relevant` changes nothing. Undefined for a query without a positive grade.

    >>> ndcg(ranking_from_lists(["b", "a"], {"a": 2, "b": 1}))[0].round(4).tolist()
    [0.8597]
    """
    _check_arguments(k, relevant)
    if gain not in GAIN_FUNCTIONS:
        raise UnknownName("gain", gain, GAIN_FUNCTIONS)
    size = len(ranking.queries)
    got, best = _compute_dcg(ranking.retrieved, k, gain, size), _compute_dcg(ranking.ideal, k, gain, size)
    defined = best > 0
    return np.minimum(got / np.where(defined, best, 1), 1), defined


def r_precision(ranking: Ranking, k: int | None = None, relevant: float = 1) -> QueryValues:
    """Compute the precision at R, the number of relevant chunks of the query.

    In [0, 1]. It sets its own cut; k, if given, cuts further. Undefined as `recall`. As trec_eval's `Rprec`.

    >>> r_precision(ranking_from_lists(["a", "x", "b"], {"a": 1, "b": 1}))[0].tolist()
    [0.5]
    """
    query, rank = _select_relevant(ranking.retrieved, k, relevant)
    total = _count_relevant(ranking, relevant)
    return np.bincount(query[rank <= total[query]], minlength=len(total)) / np.maximum(total, 1), total > 0


def rbp(
    ranking: Ranking, k: int | None = None, relevant: float = 1, p: float = 0.8, gain: str = "binary"
) -> QueryValues:
    """Compute rank-biased precision: the gain of a reader who goes on to the next chunk with probability p.

    The sum over ranks r of (1 − p) · p^(r − 1) · gain (Moffat & Zobel 2008). `gain="binary"` is 1 for a relevant chunk:
    in [0, 1], as ir_measures' `RBP(p=…, rel=…)`. `gain="linear"` is the grade, unscaled: in [0, highest grade], as
    ir_measures' `RBP` without rel. Undefined as `recall`. Raises `UsageError` for a p outside (0, 1).

    >>> rbp(ranking_from_lists(["a", "x", "b"], {"a": 1, "b": 2}), p=0.5)[0].tolist()
    [0.625]
    """
    if not 0 < p < 1:
        raise UsageError(f"p is {p}; it must lie between 0 and 1.")
    if gain not in RBP_GAINS:
        raise UnknownName("gain", gain, RBP_GAINS)
    _check_arguments(k, relevant)
    query, rank, grade = ranking.retrieved
    keep = grade >= relevant if gain == "binary" else grade > 0
    if k is not None:
        keep &= rank <= k
    weight = (1 - p) * p ** (rank[keep] - 1.0) * (1.0 if gain == "binary" else grade[keep])
    total = _count_relevant(ranking, relevant)
    return np.where(total > 0, np.bincount(query[keep], weight, len(total)), 0.0), total > 0


def bpref(ranking: Ranking, k: int | None = None, relevant: float = 1) -> QueryValues:
    """Compute the share of judged pairs that are in the right order: a relevant chunk before one that is not.

    The mean over the R relevant chunks of 1 − min(n, R) / min(N, R), where n counts the judged chunks that are not
    relevant (a grade from 0 to below `relevant`) retrieved before it and N all of them; 0 for one that was not
    retrieved among the first k. Chunks that nobody judged change nothing (Buckley & Voorhees 2004). In [0, 1]. Where N
    is 0 it is `recall`. Undefined as `recall`. As trec_eval's `bpref`.

    >>> bpref(ranking_from_lists(["a", "no", "?", "b"], {"a": 1, "b": 1, "no": 0}))[0].tolist()
    [0.5]
    """
    _check_arguments(k, relevant)
    query, rank, grade = ranking.retrieved
    size = len(ranking.queries)
    total = _count_relevant(ranking, relevant)
    rejected = np.bincount(ranking.ideal.query, minlength=size) - total
    good = grade >= relevant
    # Hits are ordered by query and rank: what was rejected before each, less what other queries rejected.
    before = (~good).cumsum()
    earlier = np.concatenate([[0], np.bincount(query[~good], minlength=size).cumsum()])
    keep = good if k is None else good & (rank <= k)
    at = query[keep]
    worse = before[keep] - earlier[at]
    credit = 1 - np.minimum(worse, total[at]) / np.maximum(np.minimum(rejected, total)[at], 1)
    return np.bincount(at, credit, size) / np.maximum(total, 1), total > 0


RANK_METRICS: dict[str, Callable[..., QueryValues]] = {
    "average_precision": average_precision,
    "bpref": bpref,
    "f1": f1,
    "hit": hit,
    "ndcg": ndcg,
    "precision": precision,
    "r_precision": r_precision,
    "rbp": rbp,
    "recall": recall,
    "reciprocal_rank": reciprocal_rank,
}
"""Formulas by their name in the catalog."""


def _exponential_gain(grade: FloatArray) -> FloatArray:
    if grade.size and grade.max() > 1000:
        raise InputError(f'a grade of {grade.max()} is too high for gain="exponential"; take gain="linear".')
    return np.exp2(grade) - 1


GAIN_FUNCTIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "linear": lambda grade: grade,
    "exponential": _exponential_gain,
    "binary": lambda grade: (grade > 0).astype(np.float64),
}
"""Gain of a grade in `ndcg`."""
RBP_GAINS = ("binary", "linear")
"""Gains of a chunk in `rbp`."""
PRECISION_DIVISORS = ("places", "retrieved")
"""Divisor of `precision` at k."""


def compute_rank_metric(name: str, ranking: Ranking, k: int | None = None, **parameters: Any) -> QueryValues:
    """Compute a ranking metric by name.

    `parameters` are `relevant`, for ndcg and rbp `gain`, for rbp `p`, for precision `over`. Raises `UnknownName` for
    another name, and `UsageError` for k or `relevant` that are not above 0.

    >>> compute_rank_metric("recall", ranking_from_lists(["a"], {"a": 1, "b": 3}), relevant=2)[0].tolist()
    [0.0]
    """
    if name not in RANK_METRICS:
        raise UnknownName("metric", name, RANK_METRICS, hint="List them with: ragfault metrics")
    return RANK_METRICS[name](ranking, k, **parameters)


def _check_arguments(k: int | None, relevant: float) -> None:
    if k is not None and k < 1:
        raise UsageError(f"k is {k}; it must be at least 1.")
    if not relevant > 0:
        raise UsageError(f"relevant is {relevant}; it must be above 0, for a chunk nobody judged has grade 0.")


def _select_relevant(hits: GradedHits, k: int | None, relevant: float) -> tuple[IntArray, IntArray]:
    """Return the query and the rank of the relevant hits among the first k."""
    _check_arguments(k, relevant)
    keep = hits.grade >= relevant
    if k is not None:
        keep &= hits.rank <= k
    return hits.query[keep], hits.rank[keep]


def _count_relevant(ranking: Ranking, relevant: float) -> IntArray:
    """Count the relevant chunks of each query."""
    relevance = ranking.ideal.grade >= relevant
    return np.bincount(ranking.ideal.query, relevance, len(ranking.queries)).astype(np.int64)


def _count_hits(ranking: Ranking, k: int | None, relevant: float) -> tuple[IntArray, IntArray]:
    """Count the relevant chunks among the first k, and all relevant ones."""
    _check_arguments(k, relevant)
    query, rank, grade = ranking.retrieved
    counted = grade >= relevant
    if k is not None:
        counted &= rank <= k
    hits = np.bincount(query, counted, len(ranking.queries)).astype(np.int64)
    return hits, _count_relevant(ranking, relevant)


def _compute_dcg(hits: GradedHits, k: int | None, gain: str, size: int) -> FloatArray:
    query, rank, grade = hits
    if k is not None:
        keep = rank <= k
        query, rank, grade = query[keep], rank[keep], grade[keep]
    # A logarithm for each rank, not for each hit.
    discount = np.log2(np.arange(1, rank.max(initial=0) + 2))
    return np.bincount(query, GAIN_FUNCTIONS[gain](grade) / discount[rank], size).astype(np.float64, copy=False)


def ranking_from_lists(ids: Iterable[str], gold: Mapping[str, float], query: str = "") -> Ranking:
    """Judge the chunks of one trace, in the order in which they were retrieved.

    A chunk retrieved again counts once, at its first place. An empty `gold` leaves the query unjudged. Raises
    `InputError` for a grade that is not finite.

    >>> ranking = ranking_from_lists(["a", "a", "b"], {"b": 1})
    >>> ranking.retrieved_counts.tolist(), ranking.retrieved.rank.tolist()
    ([2], [2])
    """
    return rankings_from_lists([ids], [gold], [query])


def rankings_from_lists(
    ids: Sequence[Iterable[str]], gold: Sequence[Mapping[str, float]], queries: Sequence[str]
) -> Ranking:
    """Judge the chunks of several traces as `ranking_from_lists` does those of one."""
    retrieved: list[tuple[int, int, float]] = []
    ideal: list[tuple[int, int, float]] = []
    counts = []
    for index, (retrieved_ids, grades) in enumerate(zip(ids, gold, strict=True)):
        if not all(map(isfinite, grades.values())):
            raise InputError(f'query "{queries[index]}" has a grade that is not a finite number.')
        ranks = {id: rank for rank, id in enumerate(dict.fromkeys(retrieved_ids), 1)}
        counts.append(len(ranks))
        judged = {id: grade for id, grade in grades.items() if grade >= 0}
        retrieved += sorted((index, ranks[id], grade) for id, grade in judged.items() if id in ranks)
        best = sorted(judged.values(), reverse=True)
        ideal += [(index, rank, grade) for rank, grade in enumerate(best, 1)]
    judged_queries, sizes = np.array(list(map(bool, gold)), np.bool_), np.array(counts, np.int64)
    return Ranking(queries, judged_queries, sizes, _pack_hits(retrieved), _pack_hits(ideal))


def _pack_hits(hits: list[tuple[int, int, float]]) -> GradedHits:
    query, rank, grade = zip(*hits, strict=True) if hits else ((), (), ())
    return GradedHits(np.array(query, np.int64), np.array(rank, np.int64), np.array(grade, np.float64))
