"""Evidence on the scores of chunks: whether lists stand in their order, and what became of a chunk's score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from ragfault.analysis.comparison.stages.paired_traces import LEAST_SHARE, Evidence, PairedTraces, give, ramp
from ragfault.records import Chunk

LEAST_SCORES = 20  # fewer scores of the same chunk for the same query show nothing
TOLERANCE = 1e-3  # of a score; an index that is built again rounds otherwise

Scores = dict[str, float]  # chunk id → score


def score_rules(traces: PairedTraces) -> Evidence:
    """Observe the order of the lists by their scores, and the scores of chunks in both lists of a query."""
    lists = [
        (pair.old.chunks, pair.new.chunks)
        for pair in traces.pairs
        if pair.old.chunks and pair.new.chunks and _are_scored(pair.old.chunks) and _are_scored(pair.new.chunks)
    ]
    if len(lists) < LEAST_SCORES:
        return
    falling = [_falling_share([pair[side] for pair in lists]) for side in (0, 1)]
    if falling[0] is not None and falling[1] is not None:
        text = f"{falling[1]:.0%} of the lists stand in the order of their scores, {falling[0]:.0%} before"
        yield from give("order by score", ramp(abs(falling[1] - falling[0]), 0.05, 0.4), text, "reranker")
    negative = [fmean((chunk.score or 0.0) < 0 for pair in lists for chunk in pair[side]) for side in (0, 1)]
    text = f"{negative[1]:.0%} of the scores are negative, {negative[0]:.0%} before"
    yield from give("sign", ramp(abs(negative[1] - negative[0]), 0.5, 0.9), text, "reranker")
    changed = [pair for pair in lists if [chunk.id for chunk in pair[0]] != [chunk.id for chunk in pair[1]]]
    yield from _shared_score_rules(changed)


def _are_scored(chunks: Sequence[Chunk]) -> bool:
    return all(chunk.score is not None for chunk in chunks)


def _falling_share(lists: Sequence[Sequence[Chunk]]) -> float | None:
    """Return the share of the lists with several scores in which these never rise; None where there are few."""
    known = [[chunk.score or 0.0 for chunk in chunks] for chunks in lists]
    known = [scores for scores in known if len(set(scores)) > 1]
    if len(known) < LEAST_SCORES:
        return None
    return fmean(all(left >= right for left, right in pairwise(scores)) for scores in known)


def _shared_score_rules(lists: Sequence[tuple[Sequence[Chunk], Sequence[Chunk]]]) -> Evidence:
    """Observe, on the lists that changed, whether a chunk that stayed has the same score, and what scores are gone."""
    scores: list[tuple[Scores, Scores]] = [
        ({chunk.id: chunk.score or 0.0 for chunk in old}, {chunk.id: chunk.score or 0.0 for chunk in new})
        for old, new in lists
    ]
    both = [(old[name], new[name]) for old, new in scores for name in old if name in new]
    if len(both) < LEAST_SCORES:
        return
    same = fmean(abs(old - new) <= TOLERANCE * max(abs(old), abs(new)) for old, new in both)
    text = f"{same:.0%} of the chunks in both lists of a query have the same score there"
    yield from give("scores kept", ramp(same, 0.7, 0.98), text, *REMOVING_STAGES)
    yield from give("scores changed", ramp(1 - same, LEAST_SHARE, 0.5), text, "reranker", "embedder", "query rewriter")
    gone = [score for old, new in scores for name, score in old.items() if name not in new]
    fewer = sum(len(old) for old, _ in scores) > 1.1 * sum(len(new) for _, new in scores)
    if fewer and gone and same > 0.5:
        floor = min(score for _, new in scores for score in new.values())
        below = fmean(score < floor for score in gone)
        text = f"{below:.0%} of the chunks that are gone scored below {floor:.3g}, the lowest score that is left"
        counts = Counter(len(new) for _, new in scores)
        varied = 1 - counts.most_common(1)[0][1] / len(scores)  # a list of k chunks ends at its k-th score
        yield from give("floor", ramp(below, 0.8, 1.0) * ramp(varied, 0.05, 0.3), text, "score threshold")


REMOVING_STAGES = ("filter", "index coverage", "index", "top-k", "score threshold", "deduplication")
"""Stages that leave chunks out, and do not score them."""
