"""What one pass over a run observes: columns, repeated queries, the answer key, languages and injections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragfault.diagnosis.languages import has_markup
from ragfault.diagnosis.run_scan import TraceBatch
from ragfault.diagnosis.score_matrix import NO_CODE, encode_texts
from ragfault.judges.checks.languages import ENGLISH, detect_language
from ragfault.labels.correction import Codes, Mask
from ragfault.model.grouping import join_by_marks
from ragfault.model.records import get_query_id

if TYPE_CHECKING:
    import pyarrow as pa

KEY_FIELDS = ("gold", "facts", "reference", "answerable")
"""Fields of a trace that are its answer key."""


class ColumnObserver:
    """Columns of the traces, as they are."""

    verdict_columns: Sequence[str] = ()
    is_done = False

    def __init__(self, names: Iterable[str]) -> None:
        self.trace_columns = tuple(names)
        self._parts: dict[str, list[pa.ChunkedArray]] = {name: [] for name in self.trace_columns}

    def add(self, batch: TraceBatch) -> None:
        """Keep the columns of the next traces."""
        for name, parts in self._parts.items():
            parts.append(batch.columns[name])

    def join(self) -> dict[str, pa.ChunkedArray]:
        """Return each column of the whole run."""
        import pyarrow as pa

        return {
            name: pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
            for name, parts in self._parts.items()
        }


class ClusterObserver:
    """Conversations and queries; traces that share one are not independent."""

    trace_columns = ("conversation", "query", "id", "attempt")
    verdict_columns: Sequence[str] = ()
    is_done = False

    def __init__(self) -> None:
        self._columns = ColumnObserver(["conversation"])
        self._attempts = AttemptObserver()
        self._queries: list[int] = []

    def add(self, batch: TraceBatch) -> None:
        """Keep the conversations, and the hashes of the queries."""
        from ragfault.io.formats.arrow import list_values

        self._columns.add(batch)
        self._attempts.add(batch)
        self._queries += map(hash, list_values(batch.columns["query"].combine_chunks()))

    def assign(self, hash_contexts: Callable[[Mask], Codes]) -> Codes | None:
        """Return a code for each trace, equal for those of one cluster; None if all traces are independent.

        `hash_contexts` hashes history and chunks of the traces in a mask, those with a repeated query.
        """
        conversations, names = encode_texts(self._columns.join()["conversation"])
        turns = np.bincount(conversations[conversations != NO_CODE], minlength=len(names) + 1)[conversations]
        _, queries = np.unique(np.array(self._queries, np.int64), return_inverse=True)
        counts = np.bincount(queries)
        if turns.max() < 2 and len(counts) == len(queries):
            return self._attempts.assign()
        items: Codes = np.arange(len(queries))
        repeated = counts[queries] > 1
        rows = items[repeated]
        if len(rows):
            pairs = np.stack([queries[rows], hash_contexts(repeated)], axis=1)
            _, first, group = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
            items[rows] = rows[first[group]]
        clusters: Codes = np.where(turns > 1, conversations, len(names) + items)
        attempts = self._attempts.assign()
        return clusters if attempts is None else _join_codes(clusters, attempts)


def _join_codes(first: Codes, second: Codes) -> Codes:
    """Return codes that traces share if they share one of two codes, directly or through others."""
    marks = {
        row: (("first", codes[0]), ("second", codes[1])) for row, codes in enumerate(zip(first, second, strict=True))
    }
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(mark, len(numbers)) for mark in join_by_marks(marks).values()], np.int64)


class AttemptObserver:
    """Queries of the traces, of which one has several attempts."""

    trace_columns = ("id", "attempt")
    verdict_columns: Sequence[str] = ()
    is_done = False

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._numbers: list[int] = []

    def add(self, batch: TraceBatch) -> None:
        """Keep the ids and numbers of the next traces; those of a run before there were attempts are first ones."""
        names = batch.columns.column_names
        self._ids += batch.columns["id"].to_pylist()
        self._numbers += batch.columns["attempt"].fill_null(1).to_pylist() if "attempt" in names else [1] * len(batch)

    def assign(self) -> Codes | None:
        """Return a code for each trace, shared by the attempts of one query; None if each query has one."""
        if all(number == 1 for number in self._numbers):
            return None
        codes: dict[str, int] = {}
        queries = [
            codes.setdefault(get_query_id(name, number), len(codes))
            for name, number in zip(self._ids, self._numbers, strict=True)
        ]
        return np.array(queries, np.int64) if len(codes) < len(queries) else None


class ContextObserver:
    """Hashes of the generator's input except the query: history and chunks, by text, else by id."""

    trace_columns = ("id", "query", "history", "chunks")
    verdict_columns: Sequence[str] = ()
    is_done = False

    def __init__(self, mask: Mask | None) -> None:
        self._mask = mask
        """The traces whose contexts are hashed; None: all."""
        self._hashes: list[int] = []

    def add(self, batch: TraceBatch) -> None:
        """Hash the contexts of the next traces."""
        part = batch
        if self._mask is not None:
            rows = np.flatnonzero(self._mask[batch.start : batch.start + len(batch)])
            part = batch.take(rows)
        self._hashes += [
            hash((str(trace.history or ""), *(chunk.text or chunk.id for chunk in trace.chunks or ())))
            for trace in part.traces
        ]

    def hashes(self, mask: Mask) -> Codes:
        """Return the hashes of the traces in a mask."""
        values = np.array(self._hashes, np.int64)
        return values[mask] if self._mask is None else values


class KeyObserver:
    """Which parts of the answer key any trace has."""

    trace_columns = KEY_FIELDS
    verdict_columns: Sequence[str] = ()
    is_done = False

    def __init__(self) -> None:
        self.present: set[str] = set()

    def add(self, batch: TraceBatch) -> None:
        """Note the parts that the next traces have."""
        self.present |= {name for name in KEY_FIELDS if batch.columns[name].null_count < len(batch)}


def detect_trace_language(query: str, answer: str) -> str:
    """Detect the language of a trace: that of its answer, or of its query where the answer tells none."""
    language = detect_language(answer)
    return detect_language(query) if language == ENGLISH else language


class TextObserver:
    """Languages and markup of queries and answers."""

    trace_columns = ("query", "answer")
    verdict_columns: Sequence[str] = ()
    is_done = False

    def __init__(self) -> None:
        self.wrapped = 0
        """Answers that are JSON, or hold tags that do not only format text, reasoning or fenced code."""
        self.languages: list[str] = []
        """The code of the language of each trace (`detect_trace_language`)."""

    def add(self, batch: TraceBatch) -> None:
        """Tell the languages of the next traces, and count wrapped answers."""
        queries, answers = (batch.columns[name].to_pylist() for name in self.trace_columns)
        for query, answer in zip(queries, answers, strict=True):
            self.languages.append(detect_trace_language(query, answer or ""))
            self.wrapped += has_markup(answer or "")


class InjectionObserver:
    """The number of traces with suspected prompt injections."""

    trace_columns: Sequence[str] = ()
    verdict_columns = ("injections",)
    is_done = False

    def __init__(self) -> None:
        self.count = 0

    def add(self, batch: TraceBatch) -> None:
        """Count those of the next traces."""
        import pyarrow.compute as pc

        columns = batch.verdict_columns
        if columns is not None and "injections" in columns.column_names:
            self.count += int(pc.sum(pc.greater(pc.list_value_length(columns["injections"]), 0)).as_py() or 0)
