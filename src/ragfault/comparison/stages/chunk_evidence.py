"""Evidence on the lists of chunks: order, depth, overlap, copies, scores, and what is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from statistics import fmean
from typing import NamedTuple

from ragfault.comparison.stages.paired_traces import (
    LEAST_SHARE,
    Evidence,
    PairedTraces,
    TracePair,
    give,
    give_rise,
    ramp,
)
from ragfault.comparison.stages.ranking import ORDER_ALONE
from ragfault.model.records import Chunk, Trace
from ragfault.text.number_format import format_percent

ORDERED_SHARE = 0.98
"""Share of the changed lists that differ in their order alone: of fewer, the others may be all that a metric lost."""
# fewer scores of the same chunk for the same query show nothing
LEAST_SCORES = 20
# of a score; an index that is built again rounds otherwise
TOLERANCE = 1e-3

# chunk id → score
Scores = dict[str, float]


class _ChunkLists(NamedTuple):
    """Chunk keys of the pairs whose lists differ, the same on both sides for the same passage."""

    changed: list[tuple[TracePair, list[str], list[str]]]
    # with recorded chunks on both sides
    pairs: list[TracePair]
    # in any list of the candidate
    candidate_keys: frozenset[str]
    # whether most passages of the smaller run are in the other
    same_passages: bool


def _shared(left: Collection[Hashable], right: Collection[Hashable]) -> float:
    least = min(len(left), len(right))
    return len(set(left) & set(right)) / least if least else 0.0


def _chunk_lists(traces: PairedTraces) -> _ChunkLists:
    """Return the lists that differ; chunks are known by their ids, or by their texts where the ids are new."""
    old, new = (profile.chunks for profile in traces.profiles)
    by_id = _shared(old, new) >= 0.5
    texts = set(old.values()), set(new.values())

    def key(chunk: Chunk) -> str:
        return chunk.id if by_id else chunk.text

    lists = [
        (pair, [key(chunk) for chunk in pair.old.chunks], [key(chunk) for chunk in pair.new.chunks])
        for pair in traces.pairs
        if pair.old.chunks is not None and pair.new.chunks is not None
    ]
    same = by_id or _shared(texts[0], texts[1]) >= 0.5
    return _ChunkLists(
        [entry for entry in lists if entry[1] != entry[2]],
        [pair for pair, _, _ in lists],
        frozenset(key for _, _, new in lists for key in new),
        same,
    )


def _corpus_rules(traces: PairedTraces, lists: _ChunkLists) -> Evidence:
    """Observe new ids, lengths of chunks, copies and likeness within a list."""
    old, new = traces.profiles
    if not lists.same_passages and old.chunks and new.chunks:
        text = (
            f"{format_percent(_shared(old.chunks, new.chunks))} of the chunk ids and hardly any text are in both runs"
        )
        yield from give("cut anew", 1.0, text, "chunker")
    if old.chunk_lengths and new.chunk_lengths and not lists.same_passages:
        before, after = fmean(old.chunk_lengths), fmean(new.chunk_lengths)
        ratio = max(before, after) / max(1.0, min(before, after))
        text = f"characters per chunk: {before:.0f} → {after:.0f}"
        yield from give("length", ramp(ratio, 1.3, 2.0), text, "chunker")
    copies = [_copy_share(traces.pairs, side) for side in (0, 1)]
    what = "chunks in a list repeat a text of the same list"
    yield from give_rise("copies", copies, what, 0.1, "index", half=["deduplication"])


def _copy_share(pairs: Sequence[TracePair], side: int) -> float:
    """Return the share of retrieved chunks whose text stood earlier in the same list."""
    lists = [[chunk.text for chunk in (pair.old, pair.new)[side].chunks or ()] for pair in pairs]
    total = sum(map(len, lists))
    return 1 - sum(len(set(texts)) for texts in lists) / total if total else 0.0


def _list_rules(traces: PairedTraces, lists: _ChunkLists) -> Evidence:
    """Observe how the lists of chunks changed: order, depth, overlap and what is gone."""
    if not lists.changed or len(lists.changed) < LEAST_SHARE * len(lists.pairs):
        return
    ordered = fmean(set(old) == set(new) for _, old, new in lists.changed)
    text = (
        f"on {format_percent(ordered)} of the {len(lists.changed):,} pairs whose lists changed, the same "
        "chunks stand in another order"
    )
    yield from give(ORDER_ALONE, float(ordered >= ORDERED_SHARE), text, "reranker")
    yield from _depth_rules(lists)
    yield from _empty_rules(lists)
    before, after = (fmean(len(entry[side]) for entry in lists.changed) for side in (1, 2))
    if lists.same_passages and 0.8 * before < after < 1.25 * before:
        copies = _copy_share(traces.pairs, 1) - _copy_share(traces.pairs, 0)
        yield from _set_rules(lists, (1 - ramp(ordered, 0.3, 0.9)) * (1 - ramp(copies, 0.02, 0.1)))


def _set_rules(lists: _ChunkLists, part: float) -> Evidence:
    """Observe other chunks at about the same depth: on how many queries, and which chunks."""
    shares = [len(set(old) & set(new)) / min(len(old), len(new)) for _, old, new in lists.changed if old and new]
    share, stay = len(lists.changed) / len(lists.pairs), fmean(shares) if shares else 0.0
    text = (
        f"{format_percent(share)} of the lists changed, and keep {format_percent(stay)} of their "
        "chunks at about the same length"
    )
    vanished, every = _vanished_share(lists), ramp(share, 0.6, 0.9)
    other = part * (1 - ramp(vanished, 0.5, 0.95))
    yield from give("other set", other * ramp(share, 0.3, 0.9), text, "index", "reranker")
    yield from give("other set", other * every, text, "embedder")
    gone = f"{format_percent(vanished)} of the chunks that lists lost stand in no list any more"
    yield from give("vanished", part * ramp(vanished, 0.7, 0.95), gone, "index coverage")
    spread = _loss_dispersion(lists)
    if spread is not None:
        text = "every chunk is lost for about the same share of the queries that retrieved it"
        even = part * ramp(1.8 - spread, 0.0, 0.6)
        yield from give("even loss", even, text, "reranker")
        yield from give("even loss", even * every, text, "embedder")


def _vanished_share(lists: _ChunkLists) -> float:
    """Return the share of the losses that are of chunks which no list holds any more.

    Only chunks that at least three lists held count: others vanish with any loss.
    """
    uses = Counter(key for _, old, _ in lists.changed for key in set(old))
    there = lists.candidate_keys
    losses = [key for _, old, new in lists.changed for key in set(old) - set(new) if uses[key] >= 3]
    return fmean(key not in there for key in losses) if losses else 0.0


def _loss_dispersion(lists: _ChunkLists) -> float | None:
    """Return how unevenly chunks are lost: the variance of their losses over that of an equal chance for all."""
    uses = Counter(key for _, old, _ in lists.changed for key in set(old))
    lost = Counter(key for _, old, new in lists.changed for key in set(old) - set(new))
    often = [key for key, count in uses.items() if count >= 3]
    total = sum(uses[key] for key in often)
    share = sum(lost[key] for key in often) / total if total else 0.0
    if len(often) < 8 or not 0.02 < share < 0.98:
        return None
    squares = [(lost[key] - uses[key] * share) ** 2 / (uses[key] * share * (1 - share)) for key in often]
    return sum(squares) / (len(often) - 1)


def _depth_rules(lists: _ChunkLists) -> Evidence:
    """Observe fewer or more chunks: the same number for every query, or not; lists without any are another matter."""
    lists = lists._replace(changed=[entry for entry in lists.changed if entry[2]])
    if not lists.changed:
        return
    before, after = (fmean(len(entry[side]) for entry in lists.changed) for side in (1, 2))
    inside = fmean(set(new) <= set(old) or set(old) <= set(new) for _, old, new in lists.changed)
    text = (
        f"chunks per trace: {before:.3g} → {after:.3g}; on {format_percent(inside)} of these pairs "
        "one list holds the other"
    )
    counts = Counter(len(new) for _, _, new in lists.changed)
    even = counts.most_common(1)[0][1] / len(lists.changed)
    ratio = max(before, after) / max(1e-9, min(before, after))
    moved = ramp(ratio, 1.1, 1.5) * (lists.same_passages or inside > 0.5)
    yield from give("even depth", moved * ramp(even, 0.6, 0.95), text, "top-k")
    if after < before:
        varied, uneven = f"{text}, and their number varies", moved * ramp(0.95 - even, 0.0, 0.35)
        yield from give("uneven depth", uneven, varied, "score threshold", "deduplication", half=["filter"])


def _empty_rules(lists: _ChunkLists) -> Evidence:
    """Observe queries for which nothing is retrieved any more; a score threshold empties those of low scores."""
    emptied = [pair for pair, old, new in lists.changed if old and not new]
    share = len(emptied) / len(lists.changed) - fmean(not old for _, old, _ in lists.changed)
    text = f"nothing is retrieved any more on {format_percent(share)} of the pairs whose lists changed"
    strength = ramp(share, 0.02, 0.3)
    yield from give("empty", strength, text, "filter", "index", "query rewriter")
    best = sorted(score for pair in lists.pairs if (score := _best_score(pair.old)) is not None)
    lost = [score for pair in emptied if (score := _best_score(pair.old)) is not None]
    if lost and len(best) > len(lost):
        # 1: those that were emptied scored lowest
        low = fmean(score <= best[len(lost) - 1] for score in lost)
        chance = len(lost) / len(best)
        yield from give("empty", strength * ramp(low - chance, 0.0, 0.7 * (1 - chance)), text, "score threshold")
    else:
        yield from give("empty", strength, text, "score threshold")


def _best_score(trace: Trace) -> float | None:
    return max((chunk.score for chunk in trace.chunks or () if chunk.score is not None), default=None)


def _score_rules(traces: PairedTraces) -> Evidence:
    """Observe the order of the lists by their scores, their signs, and the scores of what is gone."""
    lists = [(pair.old.chunks, pair.new.chunks) for pair in traces.pairs if pair.old.chunks and pair.new.chunks]
    lists = [pair for pair in lists if all(chunk.score is not None for side in pair for chunk in side)]
    if len(lists) < LEAST_SCORES:
        return
    sides = [[[chunk.score or 0.0 for chunk in pair[side]] for pair in lists] for side in (0, 1)]
    several = [[scores for scores in side if len(set(scores)) > 1] for side in sides]
    if min(map(len, several)) >= LEAST_SCORES:
        falling = [fmean(scores == sorted(scores, reverse=True) for scores in side) for side in several]
        text = (
            f"{format_percent(falling[1])} of the lists stand in the order of their scores, "
            f"{format_percent(falling[0])} before"
        )
        yield from give("order by score", ramp(abs(falling[1] - falling[0]), 0.05, 0.4), text, "reranker")
    negative = [fmean(score < 0 for scores in side for score in scores) for side in sides]
    text = f"{format_percent(negative[1])} of the scores are negative, {format_percent(negative[0])} before"
    yield from give("sign", ramp(abs(negative[1] - negative[0]), 0.5, 0.9), text, "reranker")
    yield from _floor_rules(lists)


def _floor_rules(lists: Sequence[tuple[Sequence[Chunk], Sequence[Chunk]]]) -> Evidence:
    """Observe, on the lists that changed, that what is gone scored below all that is left, with the same scores."""
    maps: list[tuple[Scores, Scores]] = [
        ({chunk.id: chunk.score or 0.0 for chunk in old}, {chunk.id: chunk.score or 0.0 for chunk in new})
        for old, new in lists
        if [chunk.id for chunk in old] != [chunk.id for chunk in new]
    ]
    both = [(old[name], new[name]) for old, new in maps for name in old if name in new]
    gone = [score for old, new in maps for name, score in old.items() if name not in new]
    if len(both) < LEAST_SCORES or not gone:
        return
    same = fmean(abs(old - new) <= TOLERANCE * max(abs(old), abs(new)) for old, new in both)
    if same <= 0.5 or sum(len(old) for old, _ in maps) <= 1.1 * sum(len(new) for _, new in maps):
        return
    floor = min(score for _, new in maps for score in new.values())
    below = fmean(score < floor for score in gone)
    text = f"{format_percent(below)} of the chunks that are gone scored below {floor:.3g}, the lowest left"
    counts = Counter(len(new) for _, new in maps)
    # a list of k chunks ends at its k-th score
    varied = 1 - counts.most_common(1)[0][1] / len(maps)
    yield from give("floor", ramp(below, 0.8, 1.0) * ramp(varied, 0.05, 0.3), text, "score threshold")


def chunk_rules(traces: PairedTraces) -> Evidence:
    """Observe the corpus, the lists of chunks, and their scores."""
    lists = _chunk_lists(traces)
    yield from _corpus_rules(traces, lists)
    yield from _list_rules(traces, lists)
    yield from _score_rules(traces)
