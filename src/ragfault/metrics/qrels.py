"""Build a `Ranking` from a run and its relevance judgments (qrels).

Only judged chunks need a rank, which counting the higher scores of their query gives: no run is sorted by id.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragfault.metrics.ranking import FloatArray, GradedHits, IntArray, Ranking
from ragfault.model.errors import InputError

KeyArray = NDArray[np.uint64]
QueryScores = Mapping[str, Mapping[str, float]]
"""Query → chunk → score (a run) or grade (qrels)."""
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: an invertible multiplication that spreads the keys."""
QUERY_MULTIPLIER = np.uint64(0xC2B2AE3D27D4EB4F)
"""Another odd multiplier (of xxHash64), so that query and chunk do not cancel out."""
BLOCK_ROWS = 1 << 15
"""Rows of one step: few enough for the intermediate arrays to stay in the processor's cache."""
MAX_STRING_BYTES = 2**31 - 1
"""Capacity of an array of plain strings, in bytes."""
BYTE_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""Masks of the first 0 to 8 bytes of a little-endian word."""


class RankingColumns(NamedTuple):
    """A run or qrels as columns of equal length."""

    query: IntArray
    """Index of the query in `Ranking.queries`."""
    chunk: pa.ChunkedArray
    value: FloatArray
    """Score or grade."""

    def select_rows(self, rows: IntArray) -> RankingColumns:
        return RankingColumns(self.query[rows], self.chunk_ids(rows), self.value[rows])

    def chunk_ids(self, rows: IntArray) -> pa.ChunkedArray:
        """Return the chunk ids of some rows, as plain strings."""
        return self.chunk.take(pa.array(rows)).cast(pa.large_string())


def ranking_from_dicts(run: QueryScores, qrels: QueryScores) -> Ranking:
    """Judge a run (query → chunk → score) by qrels (query → chunk → grade).

    Chunks are in trec_eval's order: by score as 32-bit float, highest first, equal scores by id, last first. A query
    without results scores 0.0, one without qrels is undefined. Raises `InputError` for a score that is not a number and
    a grade that is not finite.

    >>> from ragfault.metrics.ranking import reciprocal_rank
    >>> ranking = ranking_from_dicts({"q1": {"a": 0.9, "b": 0.9}}, {"q1": {"a": 1}, "q2": {"a": 1}})
    >>> ranking.queries, reciprocal_rank(ranking)[0].tolist()
    (['q1', 'q2'], [0.5, 0.0])
    """
    queries = list(dict.fromkeys(chain(run, qrels)))
    results = [run.get(query, {}) for query in queries]
    gold = [qrels.get(query, {}) for query in queries]
    counts = [np.fromiter(map(len, maps), np.int64, len(maps)) for maps in (results, gold)]
    query, gold_query = (np.repeat(np.arange(len(queries)), count) for count in counts)
    score, grade, hit_score = _flatten_dicts(results, gold)
    _check_grades(grade, gold_query, queries)
    key = _make_sort_keys(query, score, queries)
    row = np.flatnonzero(~np.isnan(hit_score) & (grade >= 0))
    hit_key = _make_sort_keys(gold_query[row], hit_score[row], queries)
    # Needles in order walk through the line once, instead of missing the cache at every step.
    order = np.argsort(hit_key)
    row, hit_key = row[order], hit_key[order]
    hit_query = gold_query[row]

    def pick(maps: Sequence[Mapping[str, float]], rows: IntArray) -> list[str]:
        flat = list(chain.from_iterable(maps))
        return [flat[row] for row in rows.tolist()]

    run_rows = KeyedRows(query, key, lambda rows: pick(results, rows))
    rank = _rank_hits(run_rows, counts[0], KeyedRows(hit_query, hit_key, lambda hits: pick(gold, row[hits])))
    return _build_ranking(queries, counts, GradedHits(hit_query, rank, grade[row]), gold_query, grade)


def ranking_from_columns(run: pa.Table | Mapping[str, Any], qrels: pa.Table | Mapping[str, Any]) -> Ranking:
    """Judge a run given as columns `query`, `chunk`, `score` by qrels given as `query`, `chunk`, `grade`.

    Each is an Arrow table or a mapping of names to arrays, rows in any order; ids are strings or integers. Order as in
    `ranking_from_dicts`; a chunk retrieved twice counts once, at its better score. Raises `InputError` for a column
    that is missing, has nulls or is not numeric, and for a chunk judged twice with different grades.

    >>> from ragfault.metrics.ranking import recall
    >>> run = {"query": ["q", "q", "q"], "chunk": ["a", "b", "a"], "score": [3.0, 2.0, 1.0]}
    >>> ranking = ranking_from_columns(run, {"query": ["q", "q"], "chunk": ["b", "c"], "grade": [1, 1]})
    >>> ranking.retrieved_counts.tolist(), ranking.retrieved.rank.tolist(), recall(ranking)[0].tolist()
    ([2], [2], [0.5])
    """
    run_query, run_chunk, score = _read_columns(run, "run", "score")
    gold_query, gold_chunk, grade = _read_columns(qrels, "qrels", "grade")
    queries, run_query_index, gold_query_index = _index_queries(run_query, gold_query)
    _check_grades(grade, gold_query_index, queries)
    run_rows = RankingColumns(run_query_index, run_chunk, score)
    gold_rows = RankingColumns(gold_query_index, gold_chunk, grade)
    run_rows, gold_rows, (row, gold_row) = _match_columns(run_rows, gold_rows, queries)
    judged = gold_rows.value[gold_row] >= 0
    row, gold_row = row[judged], gold_row[judged]
    key = _make_sort_keys(run_rows.query, run_rows.value, queries)

    def names(rows: IntArray) -> list[str]:
        return run_rows.chunk_ids(rows).to_pylist()  # type: ignore[no-any-return]

    counts = [np.bincount(rows.query, minlength=len(queries)) for rows in (run_rows, gold_rows)]
    query = run_rows.query[row]
    keyed_hits = KeyedRows(query, key[row], lambda hits: names(row[hits]), row)
    rank = _rank_hits(KeyedRows(run_rows.query, key, names), counts[0], keyed_hits)
    hits = GradedHits(query, rank, gold_rows.value[gold_row])
    return _build_ranking(queries, counts, hits, gold_rows.query, gold_rows.value)


def _make_sort_keys(query: IntArray, score: FloatArray, queries: Sequence[str]) -> KeyArray:
    """Return integers that sort by query, then by score as a 32-bit float, highest first."""
    key: KeyArray = query.astype(np.uint64)
    key <<= np.uint64(32)
    for start in range(0, len(key), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        with np.errstate(over="ignore"):
            single = score[block].astype(np.float32)
        # Adding 0 turns -0.0, which equals 0.0 and has other bits, into 0.0.
        single += np.float32(0)
        undefined = np.isnan(single)
        if undefined.any():
            raise InputError(f'query "{queries[query[start + undefined.argmax()]]}" has a score that is not a number.')
        bits = single.view(np.uint32)
        bits ^= np.where(single < 0, np.uint32(0), np.uint32(0x7FFFFFFF))
        key[block] |= bits
    return key


class KeyedRows(NamedTuple):
    """Rows of a run, or its hits, with what sorts them."""

    query: IntArray
    key: KeyArray
    names: Callable[[IntArray], list[str]]
    """Chunk ids of some of the rows."""
    row: IntArray | None = None
    """Row of each hit in the run; None: not known."""


def _rank_hits(run: KeyedRows, count: IntArray, hits: KeyedRows) -> IntArray:
    """Return the rank of each hit, whose row may be known, among the rows of its query, from 1."""
    (query, key, names, _), (hit_query, hit_key, hit_names, hit_row) = run, hits
    ordered = bool((key[1:] >= key[:-1]).all())
    line = key if ordered else np.sort(key)
    if ordered and hit_row is not None:
        # Only where the row before it has the same score is a hit's row not the first of its score.
        tied = (key.take(hit_row - 1, mode="clip") == hit_key) & (hit_row > 0)
        before = hit_row.copy()
        before[tied] = np.searchsorted(line, hit_key[tied])
    else:
        before = np.searchsorted(line, hit_key)
    rank = before - (count.cumsum() - count)[hit_query] + 1
    tied = np.flatnonzero((line.take(before + 1, mode="clip") == hit_key) & (before + 1 < len(line)))
    if not len(tied):
        return rank
    busy = np.zeros(len(count), np.bool_)
    busy[hit_query[tied]] = True
    rows = np.flatnonzero(busy[query])
    rows = rows[np.isin(key[rows], hit_key[tied])]
    groups = defaultdict(list)
    for group, name in zip(key[rows].tolist(), names(rows), strict=True):
        groups[group].append(name)
    for members in groups.values():
        members.sort(reverse=True)
    for hit, group, name in zip(tied.tolist(), hit_key[tied].tolist(), hit_names(tied), strict=True):
        rank[hit] += groups[group].index(name)
    return rank


def _check_grades(grade: FloatArray, query: IntArray, queries: Sequence[str]) -> None:
    not_finite = ~np.isfinite(grade)
    if not_finite.any():
        raise InputError(f'query "{queries[query[not_finite.argmax()]]}" has a grade that is not a finite number.')


def _build_ranking(
    queries: Sequence[str], counts: Sequence[IntArray], hits: GradedHits, gold_query: IntArray, grade: FloatArray
) -> Ranking:
    """Sort the hits by query and rank, and the gold by query and grade; `counts` are the rows of run and gold."""
    rank_keys = (hits.query << 32) | hits.rank
    if (rank_keys[1:] < rank_keys[:-1]).any():
        order = np.argsort(rank_keys)
        hits = GradedHits(hits.query[order], hits.rank[order], hits.grade[order])
    judged = grade >= 0
    ideal, best = gold_query[judged], grade[judged]
    # One key sorts faster than two, where 32 bits hold every grade.
    exact = bool((best.astype(np.float32) == best).all())
    down = np.argsort(_make_sort_keys(ideal, best, queries)) if exact else np.lexsort((-best, ideal))
    ideal, best = ideal[down], best[down]
    count = np.bincount(ideal, minlength=len(queries))
    rank = np.arange(1, len(ideal) + 1) - (count.cumsum() - count)[ideal]
    return Ranking(queries, counts[1] > 0, counts[0], hits, GradedHits(ideal, rank, best))


def _flatten_dicts(
    results: Sequence[Mapping[str, float]], gold: Sequence[Mapping[str, float]]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the scores of the run, the grades of the gold, and for each of these its chunk's score or NaN."""
    parts: tuple[list[bytes], ...] = ([], [], [])
    try:
        for scores, grades in zip(results, gold, strict=True):
            # Query by query, while its dicts are in the processor's cache.
            parts[0].append(struct.pack(f"{len(scores)}d", *scores.values()))
            parts[1].append(struct.pack(f"{len(grades)}d", *grades.values()))
            parts[2].append(struct.pack(f"{len(grades)}d", *map(scores.get, grades, repeat(math.nan))))
    except (struct.error, OverflowError) as error:
        raise InputError(f"a score or a grade is not a number: {error}.") from error
    score, grade, hit_score = (np.frombuffer(b"".join(part), np.float64) for part in parts)
    return score, grade, hit_score


def _read_columns(
    table: pa.Table | Mapping[str, Any], table_name: str, value_column: str
) -> tuple[pa.Array, pa.ChunkedArray, FloatArray]:
    try:
        table = table if isinstance(table, pa.Table) else pa.table(dict(table))
        for name in ("query", "chunk", value_column):
            if name not in table.column_names:
                raise InputError(f'the {table_name} has no column "{name}". It has: {", ".join(table.column_names)}.')
            if table[name].null_count:
                raise InputError(
                    f'the column "{name}" of the {table_name} has {table[name].null_count:,} empty values.'
                )
        numbers = table[value_column].cast(pa.float64()).to_numpy()
        return _as_strings(table["query"]).combine_chunks(), _as_strings(table["chunk"]), numbers
    except pa.ArrowException as error:
        raise InputError(f"the {table_name} is not made of ids and a numeric {value_column}: {error}.") from error


def _as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the ids as strings, plain or dictionary-encoded; encoded ones are one array."""
    if pa.types.is_dictionary(column.type):
        array = column.unify_dictionaries().combine_chunks()
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
        return pa.chunked_array([array])
    if not pa.types.is_string(column.type) or column.nbytes >= MAX_STRING_BYTES:
        column = column.cast(pa.large_string())
    return column


def _index_queries(*columns: pa.Array) -> tuple[list[str], IntArray, IntArray]:
    """Return the queries of both columns, and the index of each row's query among them."""
    coded = [column if hasattr(column, "dictionary") else column.dictionary_encode() for column in columns]
    names = pa.concat_arrays([column.dictionary.cast(pa.large_string()) for column in coded]).dictionary_encode()
    codes = names.indices.to_numpy().astype(np.int64)
    run, gold = (column.indices.to_numpy().astype(np.int64) for column in coded)
    size = len(coded[0].dictionary)
    run = run if np.array_equal(codes[:size], np.arange(size)) else codes.take(run)
    gold = codes[size:].take(gold)
    # The dictionary of a filtered column still names the queries that were filtered out.
    used = np.zeros(len(names.dictionary), np.bool_)
    used[run] = used[gold] = True
    if used.all():
        return names.dictionary.to_pylist(), run, gold
    order = used.cumsum() - 1
    return names.dictionary.filter(pa.array(used)).to_pylist(), order[run], order[gold]


def _hash_rows(columns: RankingColumns) -> KeyArray:
    """Return keys of (query, chunk) that are equal for equal pairs, and rarely for others."""
    key = np.empty(len(columns.query), np.uint64)
    end = 0
    for part in columns.chunk.chunks:
        start, end = end, end + len(part)
        is_coded = isinstance(part, pa.DictionaryArray)
        key[start:end] = _hash_strings(part.dictionary)[part.indices] if is_coded else _hash_strings(part)
    for start in range(0, len(key), BLOCK_ROWS):
        block = key[start : start + BLOCK_ROWS]
        block += columns.query[start : start + BLOCK_ROWS].astype(np.uint64) * QUERY_MULTIPLIER
        block ^= block >> np.uint64(32)
        block *= HASH_MULTIPLIER
    return key


def _hash_strings(strings: pa.Array) -> KeyArray:
    """Hash each string, eight bytes at a time for a block of strings."""
    digest = np.zeros(len(strings), np.uint64)
    wide = np.dtype(np.int64 if pa.types.is_large_string(strings.type) else np.int32)
    if len(strings):
        ends = np.frombuffer(strings.buffers()[1], wide, len(strings) + 1, strings.offset * wide.itemsize)
        text = np.frombuffer(strings.buffers()[2] or b"", np.uint8)
        for start in range(0, len(strings), BLOCK_ROWS):
            block = ends[start : start + BLOCK_ROWS + 1].astype(np.int64)
            _mix_words(digest[start : start + BLOCK_ROWS], block - block[0], text[block[0] : block[-1]])
    return digest


def _mix_words(digest: KeyArray, ends: IntArray, text: NDArray[np.uint8]) -> None:
    """Mix length and words of each string into its hash, in place; the last word of a long string overlaps."""
    padded = np.concatenate([text, np.zeros(8, np.uint8)])
    window = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded.data, strides=(1,))
    begin, length = ends[:-1], np.diff(ends)
    shortest, longest = int(length.min()), int(length.max())
    word = window[begin]
    if shortest < 8:
        word &= BYTE_MASKS[np.minimum(length, 8)]
    digest += word
    digest *= HASH_MULTIPLIER
    digest += length.astype(np.uint64)
    for offset in range(8, longest, 8):
        live = slice(None) if shortest > offset else np.flatnonzero(length > offset)
        word_start = begin[live] + np.minimum(length[live] - 8, offset)
        digest[live] = (digest[live] ^ window[word_start]) * HASH_MULTIPLIER


def _join_grouped_rows(run: RankingColumns, gold: RankingColumns, keys: list[KeyArray]) -> tuple[IntArray, IntArray]:
    """Return what `_join_keys` returns, for a run whose rows are in the order of the queries.

    Sorts rows of a few queries at a time. Raises ValueError for another run, and where a key occurs twice on one side.
    """
    if not len(run.query) or (run.query[1:] < run.query[:-1]).any():
        raise ValueError("not in the order of the queries")
    gold_order = np.argsort(gold.query, kind="stable")
    starts = np.unique(run.query.searchsorted(run.query[::BLOCK_ROWS]))
    gold_starts = gold.query[gold_order].searchsorted(run.query[starts])
    bounds = [*starts.tolist(), len(run.query)], [*gold_starts.tolist(), len(gold_order)]
    pairs = []
    for (start, end), (gold_start, gold_end) in zip(*map(pairwise, bounds), strict=True):
        key = np.concatenate([keys[0][start:end], keys[1][gold_order[gold_start:gold_end]]])
        # The low bits of a key make room for its row: one sort moves both.
        mask = np.uint64((1 << len(key).bit_length()) - 1)
        line = np.sort((key & ~mask) | np.arange(len(key), dtype=np.uint64))
        same = np.flatnonzero((line[1:] ^ line[:-1]) <= mask)
        run_row, gold_row = ((line[rows] & mask).astype(np.int64) for rows in (same, same + 1))
        if (gold_row < end - start).any() or (run_row >= end - start).any() or (key[run_row] != key[gold_row]).any():
            raise ValueError("a key occurs twice")
        pairs.append((run_row + start) << 32 | gold_order[gold_row - (end - start) + gold_start])
    line = np.sort(np.concatenate(pairs))
    return line >> 32, line & 0xFFFFFFFF


def _join_keys(key: KeyArray, gold_key: KeyArray) -> tuple[IntArray, IntArray]:
    """Return the rows of the run that the gold names, and the row of the gold for each."""
    order = np.argsort(gold_key)
    sorted_gold = gold_key[order]
    # Most rows are not in the gold: a table of the leading bits turns them away before any search.
    shift = np.uint64(64 - max(8, (16 * len(sorted_gold)).bit_length()))
    has_prefix = np.zeros(1 << (64 - int(shift)), np.bool_)
    has_prefix[sorted_gold >> shift] = True
    blocks = range(0, len(key), BLOCK_ROWS)
    parts = [np.flatnonzero(has_prefix[key[start : start + BLOCK_ROWS] >> shift]) + start for start in blocks]
    row = np.concatenate(parts or [np.zeros(0, np.int64)])
    candidates = key[row]
    position = np.empty(len(row), np.int64)
    # Needles in order walk through the line once, instead of missing the cache at every step.
    rising = np.argsort(candidates)
    position[rising] = np.searchsorted(sorted_gold, candidates[rising])
    same = sorted_gold.take(position, mode="clip") == candidates if len(sorted_gold) else np.zeros(0, np.bool_)
    return row[same], order[position[same]]


def _match_columns(
    run: RankingColumns, gold: RankingColumns, queries: Sequence[str]
) -> tuple[RankingColumns, RankingColumns, tuple[IntArray, IntArray]]:
    """Remove repeated chunks of both sides, and return them with the rows that match."""
    keys = [_hash_rows(run), _hash_rows(gold)]
    with suppress(ValueError):
        pairs = _join_grouped_rows(run, gold, keys)
        if run.chunk_ids(pairs[0]).equals(gold.chunk_ids(pairs[1])):
            return run, gold, pairs
    again = [_locate_repeats(key) for key in keys]
    pairs = _join_keys(*keys)
    # Hashes only ever prove that two ids differ. Whatever looks equal is settled by the ids themselves.
    honest = run.chunk_ids(pairs[0]).equals(gold.chunk_ids(pairs[1]))
    if not honest or not all(map(_have_same_chunks, (run, gold), keys, again)):
        keys = _make_exact_keys(run, gold)
        again = [_locate_repeats(key) for key in keys]
    elif not any(map(len, again)):
        return run, gold, pairs
    surplus, _ = _locate_duplicates(keys[0], again[0], _make_sort_keys(run.query, run.value, queries))
    remaining = np.delete(np.arange(len(keys[0])), surplus)
    surplus, earlier_row = _locate_duplicates(keys[1], again[1], gold.value)
    clash = np.flatnonzero(gold.value[surplus] != gold.value[earlier_row])
    if len(clash):
        row = int(surplus[clash[0]])
        raise InputError(f'query "{queries[gold.query[row]]}" judges chunk "{gold.chunk[row]}" twice, differently.')
    once = np.delete(np.arange(len(keys[1])), surplus)
    return run.select_rows(remaining), gold.select_rows(once), _join_keys(keys[0][remaining], keys[1][once])


def _locate_repeats(key: KeyArray) -> IntArray:
    """Return the rows whose key is not unique, those of one key side by side."""
    line = np.sort(key)
    if not (line[1:] == line[:-1]).any():
        return np.zeros(0, np.int64)
    order = np.argsort(key)
    same = np.diff(key[order]) == 0
    rows: IntArray = order[np.append(same, False) | np.append(False, same)]
    return rows


def _have_same_chunks(columns: RankingColumns, key: KeyArray, rows: IntArray) -> bool:
    """Return whether the rows that share a key name the same chunk."""
    names = columns.chunk_ids(rows)
    differ = pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
    return not (differ & (np.diff(key[rows]) == 0)).any()


def _locate_duplicates(key: KeyArray, rows: IntArray, order: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return all rows that share a key but the first in `order`, and the row before each."""
    rows = rows[np.lexsort((order[rows], key[rows]))]
    later = np.flatnonzero(np.diff(key[rows]) == 0) + 1
    return rows[later], rows[later - 1]


def _make_exact_keys(run: RankingColumns, gold: RankingColumns) -> list[KeyArray]:
    """Return keys of (query, chunk) without collisions, for when the hashes collide."""
    parts = [part for columns in (run, gold) for part in columns.chunk.cast(pa.large_string()).chunks]
    codes = pa.chunked_array(parts, pa.large_string()).combine_chunks().dictionary_encode()
    width = np.uint64(len(codes.dictionary))
    query = np.concatenate([run.query, gold.query]).astype(np.uint64)
    key = (query * width + codes.indices.to_numpy().astype(np.uint64)) * HASH_MULTIPLIER
    return [key[: len(run.query)], key[len(run.query) :]]
