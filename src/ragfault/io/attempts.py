"""Attempts of one query: the ids that tell them apart in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from ragfault.io.error_collector import IdSet
from ragfault.model.records import Trace, name_attempt


class AttemptNames:
    """Ids of the traces of an input, known once all of it was counted.

    If a query has several attempts, the id of each after the first ends with its number, so that an id names one trace
    of a run. Attempts that an input counts from 0 are counted from 1. If the ids name records instead of queries, the
    attempts of one query are those with its text and history, and have the id of the first of them. With `numbered`,
    a repeated id is the next attempt of its query.

    >>> traces = [Trace(id="7", query="When?", attempt=0), Trace(id="7", query="When?")]
    >>> [(trace.id, trace.attempt) for trace in rename_attempts(traces)]
    [('7', 1), ('7#2', 2)]
    """

    def __init__(self, numbered: bool = False) -> None:
        self._numbers: Counter[str] | None = Counter() if numbered else None
        self._queries = IdSet()
        self._first, self._last, self._traces = 1, 0, 0
        self._ids_by_content: dict[int, str] = {}

    @property
    def has_several(self) -> bool:
        """Return whether some query has several attempts."""
        return len(self._queries) < self._traces or bool(self._ids_by_content)

    def add(self, trace: Trace) -> Trace:
        """Count a trace, and return it with its number."""
        if self._numbers is not None:
            self._numbers[trace.query_id] += 1
            trace = msgspec.structs.replace(trace, attempt=self._numbers[trace.query_id])
        self._traces += 1
        self._queries.add(trace.query_id)
        self._first, self._last = min(self._first, trace.attempt), max(self._last, trace.attempt)
        return trace

    def match_queries(self, read: Callable[[], Iterable[Trace]]) -> None:
        """Match attempts by their queries if no id repeats; all traces were counted, and are read again if need be."""
        if self.has_several or self._last == self._first:
            return
        ids: dict[int, str] = {}
        keys = IdSet()
        for trace in read():
            content = _hash_query(trace)
            ids.setdefault(content, trace.query_id)
            if not keys.add(name_attempt(str(content), trace.attempt)):
                return
        if len(ids) < self._traces:
            self._ids_by_content = ids

    def rename(self, trace: Trace) -> Trace:
        """Return a trace with the id and the attempt that it has in a run."""
        if not self.has_several:
            return trace
        query_id = self._ids_by_content[_hash_query(trace)] if self._ids_by_content else trace.query_id
        attempt = trace.attempt + 1 - self._first
        return msgspec.structs.replace(trace, id=name_attempt(query_id, attempt), attempt=attempt)


def _hash_query(trace: Trace) -> int:
    return hash((trace.query, trace.history, trace.conversation))


def number_attempts(traces: list[Trace], test: str, attempts: Counter[str]) -> list[Trace]:
    """Return the traces of a record with their number among those of its test, unless they have one.

    >>> counts = Counter({"the test": 1})
    >>> number_attempts([Trace(id="b", query="When?")], "the test", counts)[0].attempt
    2
    """
    if any(trace.attempt != 1 for trace in traces):
        return traces
    attempts[test] += 1
    return [msgspec.structs.replace(trace, attempt=attempts[test]) for trace in traces]


def rename_attempts(traces: Iterable[Trace]) -> list[Trace]:
    """Return traces with the ids that they have in a run."""
    names = AttemptNames()
    given = [names.add(trace) for trace in traces]
    names.match_queries(lambda: given)
    return [names.rename(trace) for trace in given]
